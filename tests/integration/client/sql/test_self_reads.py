"""Statements whose query reads the table that they change: what others commit meanwhile is neither lost nor undone."""

import pytest

import delvec
from delvec.sql import query_engines as on_duckdb
from delvec_engines.duckdb.engine import DuckDBEngine
from delvec_errors import ConcurrentModification

WHEN = [
    pytest.param((on_duckdb, "query_duckdb"), id="after the query"),
    pytest.param((DuckDBEngine, "write"), id="after the new files"),
]
MERGES_WHEN = [WHEN[0], pytest.param((DuckDBEngine, "change_rows"), id="after the new files")]


@pytest.fixture
def meanwhile(monkeypatch):
    """Runs something once, as soon as a step of the next statement is done."""

    def arrange(step, action):
        owner, name = step
        real = getattr(owner, name)

        def followed(*arguments, **options):
            done = real(*arguments, **options)
            monkeypatch.setattr(owner, name, real)
            action()
            return done

        monkeypatch.setattr(owner, name, followed)

    return arrange


@pytest.fixture
def make(lake, tmp_path):
    def make(rows, *, vectors=True, on=lake):
        properties = {"delta.enableDeletionVectors": str(vectors).lower()}
        table = on.create_table(
            tmp_path / "sums", "id long, v long", properties=properties, name="sums", engine="duckdb"
        )
        for file in rows:
            table.append([{"id": key, "v": value} for key, value in file])
        return table

    return make


def rows_of(table):
    return sorted((row["id"], row["v"]) for row in table.to_arrow().to_pylist())


@pytest.mark.parametrize("step", WHEN)
@pytest.mark.parametrize("by_path", [False, True])
def test_an_overwrite_with_its_own_rows_keeps_what_is_appended(lake, make, meanwhile, step, by_path):
    table = make([[(1, 1), (1, 1)]])
    meanwhile(step, lambda: table.append([{"id": 2, "v": 2}]))
    source = f"delta.`{table.location.removeprefix('file://')}`" if by_path else "sums"

    done = lake.sql(f"INSERT OVERWRITE sums SELECT DISTINCT * FROM {source} AS s")

    assert done.retries == 1
    assert rows_of(table) == [(1, 1), (2, 2)]


@pytest.mark.parametrize("step", WHEN)
def test_an_overwrite_with_its_own_rows_does_not_bring_back_what_is_deleted(lake, make, meanwhile, step):
    table = make([[(1, 1), (2, 2)], [(3, 3)]])
    meanwhile(step, lambda: table.delete("id = 2"))

    lake.sql("INSERT OVERWRITE sums WITH old AS (SELECT * FROM sums) SELECT id, v * 10 FROM old")

    assert rows_of(table) == [(1, 10), (3, 30)]


@pytest.mark.parametrize("step", MERGES_WHEN)
@pytest.mark.parametrize(
    "source",
    ["(SELECT id, v + 10 AS w FROM sums)", "(SELECT a.id, b.v + 10 AS w FROM sums a JOIN sums b USING (id))"],
)
def test_a_merge_of_its_own_rows_sees_what_is_updated(lake, make, meanwhile, step, source):
    table = make([[(1, 1), (2, 2)]])
    meanwhile(step, lambda: table.update({"v": "100"}, "id = 1"))

    done = lake.sql(
        f"MERGE INTO sums AS t USING {source} AS s ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = s.w"
    )

    assert done.retries == 1
    assert rows_of(table) == [(1, 110), (2, 12)]


@pytest.mark.parametrize("step", MERGES_WHEN)
def test_a_merge_of_the_table_itself_by_name(lake, make, meanwhile, step):
    table = make([[(1, 1), (2, 2)]])
    meanwhile(step, lambda: table.update({"v": "100"}, "id = 1"))

    lake.sql("MERGE INTO sums AS t USING sums AS s ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = s.v + 10")

    assert rows_of(table) == [(1, 110), (2, 12)]


@pytest.mark.parametrize("step", MERGES_WHEN)
def test_a_merge_that_sums_up_rows_beyond_its_matches(lake, make, meanwhile, step):
    table = make([[(1, 1)], [(2, 2)]])
    meanwhile(step, lambda: table.append([{"id": 3, "v": 3}]))

    lake.sql(
        "MERGE INTO sums AS t USING (SELECT 1 AS id, sum(v) AS w FROM sums) AS s ON t.id = s.id AND t.id = 1 "
        "WHEN MATCHED THEN UPDATE SET v = CAST(s.w AS BIGINT)"
    )

    assert rows_of(table) == [(1, 6), (2, 2), (3, 3)]


@pytest.mark.parametrize("step", WHEN)
def test_an_insert_of_its_own_rows_is_no_blind_append(lake, make, meanwhile, step):
    table = make([[(1, 1)]])
    meanwhile(step, lambda: table.append([{"id": 2, "v": 2}]))

    lake.sql("INSERT INTO sums SELECT max(id) + 1, count(*) FROM sums")

    assert rows_of(table) == [(1, 1), (2, 2), (3, 2)]
    assert [entry["isBlindAppend"] for entry in table.history(2)] == [False, True]


@pytest.mark.parametrize("vectors", [True, False])
@pytest.mark.parametrize("step", WHEN)
def test_a_replacement_rests_on_rows_that_stay(lake, make, meanwhile, step, vectors):
    table = make([[(1, 1), (2, 2)], [(3, 3)]], vectors=vectors)
    meanwhile(step, lambda: table.update({"v": "30"}, "id = 3"))

    lake.sql("INSERT INTO sums REPLACE WHERE id = 1 SELECT 1, CAST(sum(v) AS BIGINT) FROM sums")

    assert rows_of(table) == [(1, 33), (2, 2), (3, 30)]


@pytest.mark.parametrize("step", WHEN)
def test_without_retries_it_loses_and_nothing_is_changed(make, meanwhile, step):
    with delvec.connect(retries=0) as lake:
        table = make([[(1, 1), (1, 1)]], on=lake)
        meanwhile(step, lambda: table.append([{"id": 2, "v": 2}]))

        with pytest.raises(ConcurrentModification) as caught:
            lake.sql("INSERT OVERWRITE sums SELECT DISTINCT * FROM sums")

        assert caught.value.conflict["winning-version"] == table.version()
        assert rows_of(table) == [(1, 1), (1, 1), (2, 2)]


@pytest.mark.parametrize("step", WHEN)
def test_rows_of_a_fixed_version_and_of_other_tables_pass_what_others_append(make, meanwhile, step, tmp_path):
    with delvec.connect(retries=0) as lake:
        table = make([[(1, 1)]], on=lake)
        lake.create_table(tmp_path / "news", "id long, v long", name="news").append([{"id": 3, "v": 3}])
        meanwhile(step, lambda: table.append([{"id": 2, "v": 2}]))

        lake.sql("INSERT INTO sums SELECT * FROM sums VERSION AS OF 1 UNION ALL SELECT * FROM news")

        assert rows_of(table) == [(1, 1), (1, 1), (2, 2), (3, 3)]
