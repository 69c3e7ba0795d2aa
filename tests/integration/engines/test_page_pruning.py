"""Rows that DuckDB does not read, by the page indexes of a file: never one that the predicate selects."""

import itertools
import random

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64
from tests.integration.engines.conftest import DataFile
from tests.unit.kernel.data_skipping.test_skipping_rows import PREDICATES, VALUES

from delvec_commands.dml.row_command import target_of
from delvec_engines import page_pruning
from delvec_engines.duckdb import DuckDBEngine, find_rows, row_changes
from delvec_engines.duckdb import engine as engines
from delvec_engines.page_pruning import row_ranges
from delvec_engines.row_changes import SOURCE, TARGET, Clause, RowChange
from delvec_errors import BadRequest, DelvecError
from delvec_kernel.expressions.expression import parse_expression
from delvec_kernel.schema.types import PHYSICAL_NAME, StructField, StructType, data_type_from_json
from delvec_parquet.footer import parse
from delvec_parquet.thrift import zigzag

pytestmark = pytest.mark.full_on_spark("the same on DuckDB in the gate")

KINDS = {prefix + name: kind for name, (kind, _) in VALUES.items() for prefix in ("", "p")}
LONG = "é" * 40
NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def duckdb():
    engine = DuckDBEngine()
    yield engine
    engine.close()


@pytest.fixture(autouse=True)
def small_files(monkeypatch):
    """Look for page indexes in files of any size."""
    for name in ("_MIN_ROWS", "_MIN_GROUP_ROWS", "_ROWS_PER_FOOTER_BYTE", "_ROWS_PER_INDEX_BYTE"):
        monkeypatch.setattr(page_pruning, name, 0)


@pytest.mark.parametrize("asked", [False, None])
def test_the_switch_turns_off_page_indexes_and_copies(lake, tmp_path, monkeypatch, asked):
    monkeypatch.setenv("DELVEC_PARQUET_BYTES", "on" if asked is False else "OFF")
    for module in (engines, find_rows, row_changes):
        monkeypatch.setattr(module, "row_ranges", None)
    engine = DuckDBEngine(parquet_bytes=asked)
    table = lake.create_table(tmp_path / "t", "id long, n int", engine=engine)
    for first in (0, 50):
        table.append([{"id": number, "n": 0} for number in range(first, first + 50)])
    source = pa.table({"id": [3, 4]})
    assert table.to_arrow(predicate="id = 7").num_rows == table.count("id = 7") == 1
    assert table.delete("id = 7")["numDeletedRows"] == 1
    assert table.update({"n": "1"}, "id = 8")["numUpdatedRows"] == 1
    assert (
        table.merge(source, "target.id = source.id").when_matched_delete().execute()["numTargetRowsDeleted"]
        == 2
    )
    with pytest.raises(BadRequest, match="DELVEC_PARQUET_BYTES=off"):
        table.optimize(rewrite="never")
    assert "numBinsCopied" not in {name for name, count in table.optimize().items() if count}
    assert sorted(table.to_arrow()["id"].to_pylist()) == [i for i in range(100) if i not in (3, 4, 7)]
    with engine.bounded(1 << 28) as smaller:
        assert smaller.copier is None
    engine.close()


@pytest.fixture
def whole(monkeypatch):
    """Call a function with an engine that reads whole files."""

    def run(work):
        with monkeypatch.context() as patch:
            for module in (engines, find_rows, row_changes):
                patch.setattr(module, "row_ranges", lambda *_: {})
            return work()

    return run


def options(page_rows, **more):
    """Return options that make pyarrow write pages of that many rows, with page indexes."""
    return {"write_page_index": True, "data_page_size": 1, "write_batch_size": page_rows, **more}


def schema_of(mode):
    fields = []
    for number, (name, kind) in enumerate(KINDS.items()):
        metadata = (
            {} if mode == "none" else {PHYSICAL_NAME: f"c-{name}", "delta.columnMapping.id": number + 1}
        )
        fields.append(StructField(name, data_type_from_json(kind), metadata=metadata))
    return StructType(tuple(fields))


def stored(columns, mode):
    """Return the rows as a file has them."""
    fields = []
    for number, item in enumerate(schema_of("none").to_arrow()):
        name = item.name if mode == "none" else f"c-{item.name}"
        fields.append(pa.field(name, item.type, metadata={"PARQUET:field_id": str(number + 1)}))
    return pa.table(list(columns.values()), schema=pa.schema(fields))


FILES = st.fixed_dictionaries(
    {
        # Length and seed of stretches of rows.
        "blocks": st.lists(st.tuples(st.integers(1, 12), st.integers(0, 2**32)), min_size=3, max_size=8),
        "page_rows": st.sampled_from([1, 3, 8, 20]),
        "row_group_size": st.sampled_from([7, 40, 1000]),
        "use_dictionary": st.booleans(),
        "store_decimal_as_integer": st.booleans(),
        "deleted": st.none() | st.sets(st.integers(0, 100), min_size=1, max_size=5),
    }
)


def data_file(file, mode):
    """Return a file with one or two values of each column in each block."""
    columns = {name: [] for name in KINDS}
    for size, seed in file["blocks"]:
        chosen = random.Random(seed)
        for name in KINDS:
            pool = [*VALUES[name if name in VALUES else name[1:]][1], None]
            few = chosen.sample(pool, chosen.randint(1, 2))
            columns[name] += [few[place % len(few)] for place in range(size)]
    names = ("row_group_size", "use_dictionary", "store_decimal_as_integer")
    written = options(file["page_rows"], **{name: file[name] for name in names})
    deleted = [row for row in file["deleted"] or () if row < len(columns["i"])]
    return DataFile(stored(columns, mode), options=written, deleted=deleted or None)


def outcome(work):
    try:
        return work()
    except DelvecError as error:
        return type(error)


def found(engine, scan, predicate, text):
    """Return what reads, counts, DELETE and UPDATE find."""
    condition = parse_expression(text, {TARGET: scan.schema}, {TARGET: ""}, boolean=True)
    change = RowChange([Clause("matched", "delete", condition)], dry_run=True)
    live = {
        path: rows - scan.deletion_vectors.get(path, BitMap64())
        for path, rows in engine.find_rows(scan, predicate).items()
    }
    return (
        # As text, in which NaN equals NaN. Whole files are read together, those without deletion vectors first.
        sorted(map(repr, engine.read(scan, None, predicate).to_pylist())),
        engine.count(scan, predicate),
        {path: rows for path, rows in live.items() if rows},
        engine.change_rows(scan, change, target_of(scan)).row_deletes,
    )


def check(lake, write_table, whole, duckdb, written, texts, mode):
    """Compare with whole files, however many rows are chosen."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page_pruning, "_MAX_READ", 1)
        compare(lake, write_table, whole, duckdb, written, texts, mode)


def compare(lake, write_table, whole, duckdb, written, texts, mode):
    schema, properties = schema_of(mode), {} if mode == "none" else {"delta.columnMapping.mode": mode}
    data = [data_file(file, mode) for file in written]
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["deletionVectors", "columnMapping", "timestampNtz"],
        "writerFeatures": ["deletionVectors", "columnMapping", "timestampNtz"],
    }
    folder = write_table(f"t{next(NUMBERS)}", schema, data, properties=properties, protocol=protocol)
    table = lake.table(folder, engine=duckdb)
    tried = 0
    for text in texts:
        scan, predicate = table.plan(predicate=text)
        expected = whole(
            lambda scan=scan, predicate=predicate, text=text: outcome(
                lambda: found(duckdb, scan, predicate, text)
            )
        )
        if not isinstance(expected, type):
            assert found(duckdb, scan, predicate, text) == expected, text
            tried += 1
    assume(tried)


CASES = given(
    written=st.lists(FILES, min_size=1, max_size=2),
    texts=st.lists(PREDICATES, min_size=3, max_size=6),
    mode=st.sampled_from(["none", "name", "id"]),
)
UNHURRIED = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large]


@settings(max_examples=20, deadline=None, suppress_health_check=UNHURRIED)
@CASES
@pytest.mark.full("random files; the gate has tables of cases")
def test_the_same_rows_are_found_as_in_whole_files(
    lake, write_shared_table, whole, duckdb, written, texts, mode
):
    check(lake, write_shared_table, whole, duckdb, written, texts, mode)


@pytest.mark.long("thousands of random files")
@pytest.mark.timeout(1800)
@settings(max_examples=1000, deadline=None, suppress_health_check=UNHURRIED)
@CASES
def test_the_same_rows_are_found_many_times(lake, write_shared_table, whole, duckdb, written, texts, mode):
    check(lake, write_shared_table, whole, duckdb, written, texts, mode)


ROWS = pa.table(
    {
        "id": pa.array(range(1000), pa.int64()),
        "short": pa.array([number // 10 for number in range(1000)], pa.int16()),
        "s": pa.array([None if number < 200 else f"{LONG}{number:04}" for number in range(1000)]),
        "x": pa.array([float(number) for number in range(1000)]),
        "mixed": pa.array([number * 7 % 1000 for number in range(1000)], pa.int64()),
    }
)


def ranges_of(table, text):
    scan, predicate = table.plan(predicate=text)
    condition = parse_expression(text, {TARGET: scan.schema}, {TARGET: ""}, boolean=True)
    chosen = row_ranges(scan, predicate)
    assert row_ranges(scan, condition, TARGET) == chosen
    return next(iter(chosen.values()), None)


@pytest.fixture
def numbers(lake, write_table, duckdb):
    """A table of one file, with a row group of 1000 rows in pages of 100."""
    folder = write_table("numbers", ROWS.schema, [DataFile(ROWS, options=options(100), deleted=[250])])
    return lake.table(folder, engine=duckdb)


CHOSEN = {
    "id = 345": [range(300, 400)],
    "id = 299 OR id BETWEEN 399 AND 401": [range(200, 500)],
    "id IN (5, 999)": [range(100), range(900, 1000)],
    "345 >= id AND id > 305": [range(300, 400)],
    "id = 345 AND short = 34": [range(300, 400)],
    "id = 345 AND short = 90": [],
    "short = 34": [range(300, 400)],
    f"s = '{LONG}0345'": [range(300, 400)],
    f"s < '{LONG}0301'": [range(200, 400)],
    "s IS NULL": [range(200)],
    "id = 345 AND rand() < 2": [range(300, 400)],
    "id = 345 AND x = 345": [range(300, 400)],
    "mixed = 5 AND id < 200": [range(200)],
    "id > 100": None,
    "x = 345": None,
    "mixed = 5": None,
    "id = 345 OR x = 3": None,
    "id % 2 = 0": None,
}


@pytest.mark.parametrize("text", CHOSEN)
def test_rows_are_chosen_by_pages(numbers, text):
    assert ranges_of(numbers, text) == CHOSEN[text]


def test_ranges_are_few(lake, write_table, duckdb):
    folder = write_table("few", ROWS.schema, [DataFile(ROWS, options=options(2))])
    table = lake.table(folder, engine=duckdb)
    chosen = ranges_of(table, f"id IN ({', '.join(str(10 * place) for place in range(49))})")
    assert len(chosen) == 16
    assert all(any(10 * place in rows for rows in chosen) for place in range(49))


def test_rows_of_several_files_stay_in_the_order_of_the_files(lake, write_table, duckdb, whole):
    plain = DataFile(ROWS.slice(0, 5), name="plain.parquet")
    parts = [DataFile(ROWS, options=options(100), name=f"{number}.parquet") for number in range(3)]
    table = lake.table(write_table("files", ROWS.schema, [parts[0], plain, *parts[1:]]), engine=duckdb)
    scan, predicate = table.plan(predicate="id IN (3, 500)")
    assert len(row_ranges(scan, predicate)) == 3
    read = duckdb.read(scan, None, predicate)
    assert read["id"].to_pylist() == [3, 500, 3, 3, 500, 3, 500]
    assert read == whole(lambda: duckdb.read(scan, None, predicate))


def test_commands_change_and_count_the_same_rows(numbers):
    assert numbers.delete("id IN (3, 250, 999)")["numDeletedRows"] == 2
    assert numbers.update({"x": "-1"}, "id BETWEEN 248 AND 251")["numUpdatedRows"] == 3
    assert sorted(numbers.to_arrow(predicate="x = -1")["id"].to_pylist()) == [248, 249, 251]
    assert numbers.to_arrow(predicate="id IN (3, 250, 999)").num_rows == 0
    assert numbers.count() == 997


SOURCES = {
    "t.id = s.id": [range(300, 400)],
    "s.id = t.id AND t.x >= 0": [range(300, 400)],
    "t.id = s.id AND t.id < 200": [],
    "t.short = s.short AND t.id = s.id": [range(300, 400)],
    "t.s = s.s": [range(300, 400)],
    "t.id = s.id OR t.x = s.x": None,
    "t.id = s.mixed": [range(100, 500)],
    "t.id + 1 = s.id": None,
    "t.x = s.x": None,
}


@pytest.mark.parametrize("on", SOURCES)
def test_a_merge_reads_the_pages_between_the_least_and_the_greatest_key(numbers, duckdb, whole, on):
    source = duckdb.merge_source(ROWS.take([310, 312, 355]))
    scan, _ = numbers.plan()
    relations = {TARGET: scan.schema, SOURCE: source.schema}
    condition = parse_expression(on, relations, boolean=True)
    ends = source.bounds(sorted(condition.columns[SOURCE]))
    chosen = row_ranges(scan, condition, TARGET, {(SOURCE, name): each for name, each in ends.items()})
    assert next(iter(chosen.values()), None) == SOURCES[on]
    extra = parse_expression("s.x <> 312", relations, boolean=True)
    for clauses in (
        [Clause("matched", "delete")],
        [Clause("matched", "delete", extra)],
        [Clause("matched", "delete", extra), Clause("not-matched-by-source", "delete")],
    ):
        change = RowChange(clauses, on=condition, source=source, dry_run=True)
        work = lambda change=change: duckdb.change_rows(scan, change, target_of(scan))  # noqa: E731
        assert outcome(work) == outcome(lambda work=work: whole(work)), clauses


def test_a_merge_inserts_what_is_in_no_page(numbers):
    source = ROWS.take([310, 250, 355]).set_column(0, "id", pa.array([310, 250, 1355], pa.int64()))
    result = (
        numbers.merge(source, "target.id = source.id")
        .when_matched_update({"x": "-1"})
        .when_not_matched_insert_all()
        .execute()
    )
    assert (result["numTargetRowsUpdated"], result["numTargetRowsInserted"]) == (1, 2)
    assert sorted(numbers.to_arrow(predicate="id IN (250, 310, 1355)")["x"].to_pylist()) == [-1, 250, 355]


def test_columns_of_another_type_or_name_are_not_relied_on(lake, write_table, duckdb):
    wide = ROWS.schema.set(1, pa.field("short", pa.int32()))
    table = lake.table(write_table("wide", wide, [DataFile(ROWS, options=options(100))]), engine=duckdb)
    assert ranges_of(table, "short = 34") == [range(300, 400)], "a narrower integer is the same number"
    narrow = ROWS.schema.set(0, pa.field("id", pa.int32()))
    table = lake.table(write_table("narrow", narrow, [DataFile(ROWS, options=options(100))]), engine=duckdb)
    assert ranges_of(table, "id = 345") is None
    twice = ROWS.append_column("ID", ROWS["mixed"])
    table = lake.table(
        write_table("twice", ROWS.schema, [DataFile(twice, options=options(100))]), engine=duckdb
    )
    assert ranges_of(table, "id = 345") is None
    other = ROWS.rename_columns(["ID", "short", "s", "x", "mixed"])
    table = lake.table(
        write_table("other", ROWS.schema, [DataFile(other, options=options(100))]), engine=duckdb
    )
    assert ranges_of(table, "id = 345") is None


def test_files_without_page_indexes_are_read_as_a_whole(lake, write_table, duckdb):
    table = lake.table(write_table("plain", ROWS.schema, [DataFile(ROWS)]), engine=duckdb)
    assert ranges_of(table, "id = 345") is None


@pytest.mark.spark
def test_spark_writes_pages_that_are_chosen(lake, duckdb, spark, tmp_path):
    columns = [
        "id",
        "cast(id / 10 as int) AS i",
        "date_add('2000-01-01', cast(id / 10 as int)) AS d",
        f"CASE WHEN id >= 2000 THEN concat('{LONG}{LONG}', lpad(id, 5, '0')) END AS s",
        "cast(id / 100 as decimal(12, 2)) AS p",
        "cast(id as decimal(30, 3)) AS q",
        "timestamp_micros(id * 1000000) AS ts",
    ]
    written = spark.range(0, 10_000, 1, 1).selectExpr(*columns)
    kind = spark.conf.get("spark.sql.parquet.outputTimestampType")
    spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    try:
        written.write.option("parquet.page.row.count.limit", 1000).parquet(str(tmp_path / "t"))
    finally:
        spark.conf.set("spark.sql.parquet.outputTimestampType", kind)
    lake.convert(str(tmp_path / "t"))
    table = lake.table(str(tmp_path / "t"), engine=duckdb)
    page = [range(5000, 6000)]
    for text in (
        "id = 5432",
        "i = 543",
        "d = date '2001-06-27'",
        "p = 54.32",
        "q BETWEEN 5432 AND 5433",
        "ts = timestamp '1970-01-01T01:30:32Z'",
    ):
        assert ranges_of(table, text) == page, text
        assert 5432 in table.to_arrow(predicate=text)["id"].to_pylist(), text
    # The bounds of texts are cut to 64 bytes, which are equal for all.
    assert ranges_of(table, f"s = '{LONG}{LONG}05432'") is None
    assert ranges_of(table, "s IS NULL") == [range(2000)]


# --- damage ---------------------------------------------------------------------------------------------------


def data_of(folder):
    """Return the path and bytes of a table's only file, and the pieces of its indexes for the column ``id``."""
    path = folder / "part-00000.parquet"
    data = bytearray(path.read_bytes())
    length = int.from_bytes(data[-8:-4], "little")
    start = len(data) - 8 - length
    return path, data, start, parse(bytes(data[start:-8]), start).row_groups[0].chunks


@pytest.fixture
def folder(write_table):
    return write_table("damaged", ROWS.schema, [DataFile(ROWS, options=options(100))])


@pytest.mark.parametrize("index", ["column_index", "offset_index"])
@pytest.mark.parametrize(
    "damage",
    [
        lambda piece: bytes(len(piece)),
        lambda piece: b"\xff" * len(piece),
        lambda piece: piece[1:] + piece[:1],
        lambda piece: piece[:-1] + b"\x15",
        lambda piece: piece[:2] + piece[1:-1],
        lambda piece: piece[: len(piece) // 2] + bytes(len(piece) - len(piece) // 2),
    ],
)
def test_damaged_indexes_are_ignored(lake, duckdb, folder, index, damage):
    path, data, _, chunks = data_of(folder)
    table = lake.table(folder, engine=duckdb)
    assert ranges_of(table, "id = 345") == [range(300, 400)]
    start, end = getattr(chunks[0], index)
    data[start:end] = damage(bytes(data[start:end]))
    path.write_bytes(data)
    assert ranges_of(table, "id = 345") is None
    assert table.to_arrow(predicate="id = 345")["x"].to_pylist() == [345]


def test_indexes_of_other_columns_are_ignored(lake, duckdb, write_table):
    """The bounds of one column with the pages of another, which are fewer or begin elsewhere."""
    one, other = (
        write_table(name, ROWS.schema, [DataFile(ROWS, options=options(size))])
        for name, size in (("a", 100), ("b", 50))
    )
    path, data, start, chunks = data_of(one)
    _, foreign, _, others = data_of(other)
    piece = foreign[slice(*others[0].column_index)]
    first, end = chunks[0].column_index
    # The indexes of other columns follow this column's, so the footer needs the new length.
    data[first : first + len(piece)] = piece
    footer = bytes(data[start:]).replace(zigzag(end - first), zigzag(len(piece)))
    path.write_bytes(bytes(data[:start]) + footer)
    table = lake.table(one, engine=duckdb)
    assert ranges_of(table, "id = 345") is None
    assert table.to_arrow(predicate="id = 345")["x"].to_pylist() == [345]


@settings(max_examples=150, deadline=None, suppress_health_check=UNHURRIED)
@given(
    edits=st.lists(st.tuples(st.integers(0, 2**16), st.integers(0, 255)), min_size=1, max_size=4),
    footer=st.booleans(),
    cut=st.integers(0, 3),
)
def test_damage_raises_nothing(lake, duckdb, folder, edits, footer, cut):
    path, data, start, chunks = data_of(folder)
    pristine = bytes(data)
    first = start if footer else chunks[0].column_index[0]
    for place, byte in edits:
        data[first + place % (len(data) - 8 - first)] = byte
    path.write_bytes(data[: len(data) - cut])
    try:
        for text in ("id = 345", f"s = '{LONG}0345'"):
            chosen = ranges_of(lake.table(folder, engine=duckdb), text) or []
            ends = [end for rows in chosen for end in (rows.start, rows.stop)]
            assert ends == sorted(set(ends))
            assert all(0 <= end <= 10 * ROWS.num_rows for end in ends)
    finally:
        path.write_bytes(pristine)
