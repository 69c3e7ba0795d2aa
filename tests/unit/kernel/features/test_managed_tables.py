"""Which tables Delvec's catalog manages, and that they stay its own."""

import pytest

from delvec_errors import InvalidTableChange, UnsupportedReaderFeature
from delvec_kernel.actions.actions import Metadata, Protocol
from delvec_kernel.features.managed_tables import (
    TABLE_ID,
    check_catalog,
    check_stays_managed,
    is_catalog_managed,
    without_catalog,
)
from delvec_kernel.locations import table_id

HERE = "file:///data/people"
FEATURES = ("catalogManaged", "deletionVectors", "inCommitTimestamp")
MANAGED = Protocol(3, 7, FEATURES[:2], FEATURES)


def metadata(**configuration):
    return Metadata("m", "{}", configuration=configuration)


def own(**configuration):
    return metadata(**{TABLE_ID: table_id(HERE), "delta.enableInCommitTimestamps": "true", **configuration})


@pytest.mark.parametrize("feature", ["catalogManaged", "catalogOwned-preview"])
@pytest.mark.parametrize("configuration", [{}, {TABLE_ID: "another"}, {TABLE_ID: table_id("file:///copy")}])
def test_tables_of_another_catalog_and_copies_are_refused(feature, configuration):
    protocol = Protocol(3, 7, (feature,), (feature,))
    with pytest.raises(UnsupportedReaderFeature, match="managed by a catalog") as caught:
        check_catalog(protocol, metadata(**configuration), "people", HERE)
    assert caught.value.details == {"table": "people", "features": [feature]}


def test_the_tables_of_this_catalog_and_path_tables_are_read():
    check_catalog(MANAGED, own(), "people", HERE)
    check_catalog(Protocol(3, 7, ("deletionVectors",), ("deletionVectors",)), metadata(), "people", HERE)


def test_a_managed_table_stays_managed():
    check_stays_managed(MANAGED, own(), "people", HERE)
    for protocol, changed, problem in (
        (without_catalog(MANAGED), own(), "catalogManaged is missing"),
        (MANAGED, metadata(), TABLE_ID),
        (
            MANAGED,
            own(**{"delta.enableInCommitTimestamps": "false"}),
            "enableInCommitTimestamps must be true",
        ),
    ):
        with pytest.raises(InvalidTableChange, match=problem):
            check_stays_managed(protocol, changed, "people", HERE)


def test_the_protocol_of_a_copy_keeps_all_other_features():
    copied = without_catalog(MANAGED)
    assert not is_catalog_managed(copied)
    assert copied == Protocol(3, 7, FEATURES[1:2], FEATURES[1:])
