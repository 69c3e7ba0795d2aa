"""Clustering columns of a table."""

import json

import pytest
from tests.support.altered_table import MAP, Table

from delvec_errors import InvalidTableChange
from delvec_kernel.actions.actions import Protocol


def test_clustering_columns_are_domain_metadata_of_physical_names():
    table = Table(partitioned=(), protocol=Protocol(1, 2))
    table.alter(MAP, {"change": "rename-column", "column": "home", "to": "place"})

    made = table.alter({"change": "cluster-by", "columns": ["ID", "place.zip"]})

    (domain,) = made.domains
    assert json.loads(domain.configuration) == {
        "clusteringColumns": [["id"], ["home", "zip"]],
        "domainName": "delta.clustering",
    }
    assert {"clustering", "domainMetadata"} <= set(table.protocol.writer_features)
    assert made.parameters == {"oldClusteringColumns": "", "newClusteringColumns": "ID,place.zip"}
    with pytest.raises(InvalidTableChange, match="clustering column"):
        table.alter({"change": "drop-columns", "columns": ["place"]})

    none = table.alter({"change": "cluster-by", "columns": []})

    assert json.loads(none.domains[0].configuration)["clusteringColumns"] == []
    assert none.parameters == {"oldClusteringColumns": "id,place.zip", "newClusteringColumns": ""}
    assert table.alter({"change": "cluster-by", "columns": []}).is_empty


@pytest.mark.parametrize(
    ("columns", "partitioned", "message"),
    [
        (["id"], ("country",), "partitioned"),
        (["tags"], (), "minimum and maximum"),
        (["home"], (), "minimum and maximum"),
        (["id", "ID"], (), "twice"),
        (["id", "name", "country", "home.zip", "home.city"], (), "4 columns"),
    ],
)
def test_invalid_clustering_columns_are_refused(columns, partitioned, message):
    with pytest.raises(InvalidTableChange, match=message):
        Table(partitioned=partitioned).alter({"change": "cluster-by", "columns": columns})


def test_files_are_clustered_by_columns_with_statistics():
    with pytest.raises(InvalidTableChange, match="no statistics"):
        Table(partitioned=(), configuration={"delta.dataSkippingNumIndexedCols": "1"}).alter(
            {"change": "cluster-by", "columns": ["name"]}
        )
