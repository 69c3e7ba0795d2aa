"""Sail, unmodified, reads, creates and changes managed tables of the service by the preview API of Unity Catalog."""

import threading

import pytest
from tests.support import sail_client
from tests.support.packages import NotInstalledError
from tests.support.served import served

import delvec

pytestmark = pytest.mark.full("installs Sail")
TOKEN = "s3cret"


@pytest.fixture(scope="module", autouse=True)
def installed():
    try:
        sail_client.packages()
    except NotInstalledError as error:
        pytest.skip(f"Sail could not be installed: {error}")


@pytest.fixture
def lake(tmp_path):
    with served(tmp_path, TOKEN) as url, delvec.connect(url, token=TOKEN) as lake:
        yield lake


@pytest.fixture
def sail(lake):
    """Run statements in a new Sail, and return their answers, in which a string is an error."""
    return lambda *statements: sail_client.run(statements, lake.url, TOKEN)


@pytest.mark.slow("a Sail that runs fifteen statements")
def test_what_sail_does_and_what_it_refuses(lake, sail):
    people = lake.create_table("sales.people", "id long, name string", managed=True)
    people.append([{"id": n, "name": f"n{n}"} for n in range(6)])
    people.delete("id % 2 = 0")
    every = "SELECT id, name FROM sales.people ORDER BY id"
    source = "SELECT 3 AS id, 'm' AS name UNION ALL SELECT 200, 'new'"
    answers = sail(
        every,
        "INSERT INTO sales.people VALUES (100, 'x')",
        "DELETE FROM sales.people WHERE id = 1",
        "UPDATE sales.people SET name = 'z' WHERE id = 5",
        f"MERGE INTO sales.people t USING ({source}) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET name = s.name WHEN NOT MATCHED THEN INSERT *",
        every,
        "SELECT count(*) AS n FROM sales.people VERSION AS OF 1",
        "CREATE TABLE sales.made (id BIGINT, s STRUCT<x: INT>) USING delta COMMENT 'c'",
        "INSERT INTO sales.made VALUES (1, named_struct('x', 7))",
        "SELECT * FROM sales.made",
        "CREATE TABLE sales.parts (id BIGINT, day STRING) USING delta PARTITIONED BY (day)",
        "INSERT INTO sales.parts VALUES (1, 'mon')",
        "CREATE TABLE sales.ctas USING delta AS SELECT CAST(1 AS BIGINT) AS id",
        "INSERT INTO sales.ctas SELECT 2",
        "ALTER TABLE sales.people ADD COLUMN age INT",
        "DROP TABLE sales.made",
    )
    before, inserted, _, _, merged, after, counted, *others = answers
    created, _, rows, partitioned, into_parts, as_select, into_it, altered, dropped = others

    assert before == [{"id": n, "name": f"n{n}"} for n in (1, 3, 5)]
    assert (inserted, merged) == ([{"count": 1}], [{"count": 2}])
    assert after == [
        {"id": 3, "name": "m"},
        {"id": 5, "name": "z"},
        {"id": 100, "name": "x"},
        {"id": 200, "name": "new"},
    ]
    assert people.to_arrow().sort_by("id").to_pylist() == after
    assert counted == [{"n": 6}]
    assert (created, rows, dropped) == (
        [{"value": True}],
        [{"id": 1, "s": {"x": 7}}],
        [{"value": True}],
    )
    # Delvec has written version 0, and Sail would have written another. The table is there.
    assert "with a different schema" in partitioned
    assert "with a different protocol" in as_select
    assert into_it == into_parts == [{"count": 1}]
    assert lake.table("sales.ctas").to_arrow().to_pylist() == [{"id": 2}]
    assert lake.table("sales.parts").detail()["partitionColumns"] == ["day"]
    assert "unsupported ALTER TABLE" in altered
    assert lake.undrop_table("sales.made").detail()["description"] == "c"


def test_columns_are_mapped_and_rows_overwritten(lake, sail):
    mapped = lake.create_table(
        "sales.mapped", "id long, name string", managed=True, properties={"delta.columnMapping.mode": "name"}
    )
    mapped.append([{"id": 1, "name": "a"}])
    mapped.alter.rename_column("name", "title")

    read, _, both, _, over = sail(
        "SELECT * FROM sales.mapped",
        "INSERT INTO sales.mapped VALUES (2, 'b')",
        "SELECT * FROM sales.mapped ORDER BY id",
        "INSERT OVERWRITE sales.mapped SELECT 3, 'c'",
        "SELECT * FROM sales.mapped",
    )

    assert read == [{"id": 1, "title": "a"}]
    assert both == [{"id": 1, "title": "a"}, {"id": 2, "title": "b"}]
    assert over == mapped.to_arrow().to_pylist() == [{"id": 3, "title": "c"}]


@pytest.mark.parametrize(
    "properties", [{"delta.enableChangeDataFeed": "true"}, {"delta.enableRowTracking": "true"}]
)
def test_features_that_sail_does_not_write_are_refused_by_it(lake, sail, properties):
    table = lake.create_table("sales.t", "id long", managed=True, properties=properties)
    table.append([{"id": 1}])

    read, written = sail("SELECT id FROM sales.t", "INSERT INTO sales.t VALUES (2)")

    assert read == [{"id": 1}]
    assert "Unsupported table features required" in written
    assert table.version() == 1


def test_no_row_is_lost_while_delvec_deletes_and_sail_inserts(lake, sail):
    people = lake.create_table("sales.people", "id long", managed=True)
    people.append([{"id": n} for n in range(300)])
    is_over = threading.Event()
    deleted = []

    def delete():
        for number in range(300):
            if is_over.is_set():
                return
            people.delete(f"id = {number}")
            deleted.append(number)

    thread = threading.Thread(target=delete)
    thread.start()
    try:
        answers = sail(*(f"INSERT INTO sales.people VALUES ({value})" for value in range(1000, 1030)))
    finally:
        is_over.set()
        thread.join()
    inserted = [1000 + n for n, answer in enumerate(answers) if isinstance(answer, list)]
    lost = [answer for answer in answers if isinstance(answer, str)]

    assert deleted
    assert inserted
    assert all("conflict" in answer.lower() for answer in lost), lost  # it does not repeat a lost race
    assert sorted(people.to_arrow()["id"].to_pylist()) == [*range(len(deleted), 300), *inserted]
