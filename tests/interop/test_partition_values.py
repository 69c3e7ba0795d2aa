"""Partition values as other writers spell them: Delvec reads what delta-spark reads, or refuses the text."""

import pyarrow as pa
import pytest
from tests.integration.engines.conftest import DataFile, TableWriter

import delvec

pytestmark = pytest.mark.full(
    "ten jobs of Spark; test_partition_values.py has the same spellings as constants"
)

TEXTS = {
    "string": ["", " ", "x", "__HIVE_DEFAULT_PARTITION__"],
    "binary": ["", "x"],
    "integer": ["", " 12 ", "+5", "007", "\t7\n", "-0"],
    "double": ["", "inf", "-Infinity", "1.5D", " 2 ", "1e400", "+.5"],
    "boolean": ["", "t", "No", "y", "0", " TRUE "],
    "decimal(5,2)": ["", " 1.5 ", "1E+2", "+1", ".5"],
    "date": [
        "",
        "2020-1-2",
        "2020-1",
        "2020",
        " 2020-01-02 ",
        "2020-01-02 11:00:00",
        "+2020-01-02",
        "0001-1-1",
    ],
    "timestamp": [
        *(
            "",
            "2020-1-2 3:4:5",
            "2020-1-2",
            "2020-01-02 03",
            "2020-01-02 03:04:05.123456789",
            "2020-1-2T3:4:5.6Z",
        ),
        *("2020-01-02 03:04:05+1:30", "2020-01-02 03:04:05GMT+1", "2020-01-02 03:04:05 -0530"),
    ],
    "timestamp_ntz": ["", "2020-1-2 3:4:5", "2020-01-02 03:04:05.1234567", "2020-1-02 03:04:05+1"],
}
REFUSED = {
    # delta-spark reads some as another value, and the others as NULL.
    "integer": ["1.5", "x", "2147483648"],
    "decimal(5,2)": ["1.505", "1000"],
    "date": ["x", "2020-02-30", "20200102"],
    "timestamp": ["03:04:05", "2020-01-02 03:04:05 CET"],
}


def written(folder, kind, texts):
    fields = [("id", "long"), ("p", kind)]
    schema = [{"name": name, "type": each, "nullable": True, "metadata": {}} for name, each in fields]
    files = [
        DataFile(pa.table({"id": [number]}), {"p": text}, name=f"{number}.parquet")
        for number, text in enumerate(texts)
    ]
    return TableWriter(folder)("table", {"type": "struct", "fields": schema}, files, partition_by=["p"])


@pytest.mark.parametrize("kind", TEXTS)
def test_spellings_that_delta_spark_reads(lake, delta_spark, tmp_path, kind):
    folder = written(tmp_path, kind, TEXTS[kind])
    theirs = delta_spark.read.format("delta").load(str(folder)).toArrow().sort_by("id")
    ours = lake.table(str(folder), engine="duckdb").to_arrow().sort_by("id")
    assert ours["p"].to_pylist() == theirs["p"].to_pylist()


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind in REFUSED for text in REFUSED[kind]])
def test_others_are_refused(lake, tmp_path, kind, text):
    with pytest.raises(delvec.CorruptLog, match=r"0\.parquet.*column 'p'"):
        lake.table(str(written(tmp_path, kind, [text])), engine="duckdb").to_arrow()
