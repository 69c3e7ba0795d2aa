"""Every type of a file under every type of a table: what Spark's reader answers, and what Delvec does."""

import json

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake.transaction import AddAction
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812
from tests.support.typed_files import FORMS, SHAPES, TYPES, write_form

pytestmark = [
    pytest.mark.full("minutes on Spark; test_file_columns.py reads the same forms with DuckDB"),
    pytest.mark.timeout(900),
    # PySpark 4.1 leaves closing a result's socket to its finalizer.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

ROWS = [(1, "a\N{LATIN SMALL LETTER E WITH ACUTE}"), (2, "b"), (3, None), (4, "")]
"""Text that the file has as bytes without annotation, as Impala writes it."""
_SPARK = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint"}
_COLUMNS = "v {0}, s struct<v: {0}>, a array<{0}>, m map<string, {0}>"


@pytest.fixture(scope="module")
def answers(delta_spark, tmp_path_factory):
    """Return what Spark reads of each form, by form and type; a refused file has no rows.

    One job for each type: a reader that ignores corrupt files leaves out those that it refuses.
    """
    folder = tmp_path_factory.mktemp("forms")
    names = list(FORMS)
    for number, name in enumerate(names):
        write_form(folder / f"{number}.parquet", FORMS[name])
    found = {}
    for kind in TYPES:
        frame = (
            delta_spark.read.schema(_COLUMNS.format(_SPARK.get(kind, kind)))
            .option("ignoreCorruptFiles", "true")
            .parquet(str(folder))
            .select(
                F.element_at(F.split("_metadata.file_path", "/"), -1).alias("file"),
                F.col("_metadata.row_index").alias("row"),
                "v",
                F.col("s.v").alias("s"),
                F.col("a")[0].alias("a"),
                F.element_at("m", F.lit("k")).alias("m"),
            )
        )
        if kind == "string":
            # Spark also takes other bytes for text, which Arrow would not decode.
            frame = frame.select(
                "file", "row", *(F.col(column).cast("binary").alias(column) for column in "vsam")
            )
        for row in sorted(frame.toArrow().to_pylist(), key=lambda row: row["row"]):
            name = names[int(row["file"].removesuffix(".parquet"))]
            values = [row[column] for column in "vsam"]
            if kind == "string":
                values = [value if value is None else value.decode(errors="replace") for value in values]
            found.setdefault((name, kind), []).append(tuple(values))
    return found


@pytest.mark.parametrize("form", FORMS)
def test_spark_reads_the_same_values_and_refuses_the_same_forms(answers, form):
    expected = FORMS[form]
    refused = set()
    for kind in TYPES:
        found = answers.get((form, kind))
        if found is None:
            refused.add(kind)
        elif kind in expected.read:
            assert found == [(value,) * 4 for value in expected.read[kind]], kind
    assert refused & set(expected.read) == expected.beyond_spark
    assert set(TYPES) - set(expected.read) - refused == expected.only_spark


def test_spark_reads_the_same_shapes(delta_spark, tmp_path):
    found = {}
    for number, (name, shape) in enumerate(SHAPES.items()):
        pq.write_table(shape.file, tmp_path / f"{number}.parquet", store_schema=False)
        schema = delta_spark.createDataFrame(shape.table.empty_table()).schema
        try:
            rows = delta_spark.read.schema(schema).parquet(str(tmp_path / f"{number}.parquet")).toArrow()
        except (PySparkException, Py4JJavaError):
            found[name] = None
        else:
            found[name] = rows.cast(pa.schema(shape.table)).to_pylist()
    assert found == {name: shape.rows for name, shape in SHAPES.items()}


@pytest.fixture
def table_of_bytes(delta_spark, tmp_path, lake):
    """A table of delta-spark with a row and a file of another writer, in a session that runs small commands in the driver."""
    location = tmp_path / "t"
    delta_spark.sql(f"CREATE TABLE delta.`{location}` (id BIGINT, s STRING) USING delta")
    delta_spark.sql(f"INSERT INTO delta.`{location}` VALUES (0, 'first')")
    texts = [None if text is None else text.encode() for _, text in ROWS]
    pq.write_table(
        pa.table({"id": [row[0] for row in ROWS], "s": texts}), location / "b.parquet", store_schema=False
    )
    size = (location / "b.parquet").stat().st_size
    table = deltalake.DeltaTable(location)
    add = AddAction("b.parquet", size, {}, 1_700_000_000_000, True, json.dumps({"numRecords": len(ROWS)}))
    table.create_write_transaction([add], "append", table.schema())
    session = delta_spark.newSession()
    session.conf.set("spark.delvec.localExecution.enabled", "true")
    return lake.table(location, engine=session)


def _merge(table):
    source = pa.table({"id": [2, 9], "s": ["b", "c"]})
    merge = table.merge(source, "t.s = n.s", source_alias="n", target_alias="t")
    merge.when_matched_update(set={"s": "concat(t.s, 'x')"}).when_not_matched_insert_all().execute()


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda table: table.update(set={"s": "upper(s)"}, predicate="s = 'b'"), {2: "B"}),
        (lambda table: table.delete("s > 'a'"), {0: ..., 1: ..., 2: ...}),
        (_merge, {2: "bx", 9: "c"}),
        (lambda table: table.optimize(rewrite="always"), {}),
    ],
    ids=["UPDATE", "DELETE", "MERGE", "OPTIMIZE"],
)
def test_delta_spark_reads_what_commands_in_the_driver_make_of_bytes(
    delta_spark, table_of_bytes, tmp_path, change, expected
):
    change(table_of_bytes)
    rows = {id_: text for id_, text in ({0: "first"} | dict(ROWS) | expected).items() if text is not ...}
    assert dict(map(tuple, delta_spark.read.format("delta").load(str(tmp_path / "t")).collect())) == rows
    assert dict(map(tuple, table_of_bytes.to_df().collect())) == rows
