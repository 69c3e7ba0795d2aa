"""Delta's MERGE benchmark: its data, and what counts as behind a peer."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from benchmarks.dml_contenders import PEER, Merge
from benchmarks.dml_figures import DmlFigure, Figures
from benchmarks.merge_grid import CASES, OURS, behind, section, speedup
from benchmarks.merge_grid_tables import Share, write_source, write_web_returns

SPARK, JOBS, DUCKDB = OURS
KEYS = ("wr_order_number", "wr_item_sk")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Two files of returns, in a log without anything that the sources do not need."""
    write_web_returns(tmp_path / "all.parquet", 2_000)
    rows = pq.read_table(tmp_path / "all.parquet")
    log = tmp_path / "table" / "_delta_log"
    log.mkdir(parents=True)
    actions = []
    for number, part in enumerate((rows.slice(0, 1_000), rows.slice(1_000))):
        pq.write_table(part, tmp_path / "table" / f"part-{number}.parquet")
        actions.append(json.dumps({"add": {"path": f"part-{number}.parquet"}}))
    (log / f"{0:020d}.json").write_text("\n".join(actions))
    return tmp_path / "table"


def keys(*paths: Path) -> list[tuple[int, int]]:
    return [
        tuple(row.values()) for path in paths for row in pq.read_table(path, columns=list(KEYS)).to_pylist()
    ]


def test_sources_have_the_shares_of_the_case(table: Path, tmp_path: Path) -> None:
    first, both = table / "part-0.parquet", sorted(table.glob("*.parquet"))
    write_source(table, Share(0.5, 0.1, 0.2), tmp_path / "source.parquet")
    source = keys(tmp_path / "source.parquet")
    matched = set(source) & set(keys(first))

    assert len(set(source)) == len(source)
    assert len(set(keys(*both))) == len(keys(*both))
    assert not set(source) & set(keys(both[1]))
    assert 60 < len(matched) < 140
    assert 140 < len(source) - len(matched) < 260
    # In the ranges of the file's keys, so that no engine can skip it.
    for place in range(len(KEYS)):
        in_file = [key[place] for key in keys(first)]
        assert all(min(in_file) <= key[place] <= max(in_file) for key in source)


def test_the_grid_has_the_cases_of_the_benchmark_and_four_deletes() -> None:
    merges = [case for case in CASES if case.merge is not None]
    assert len(merges) == 16
    assert len(CASES) - len(merges) == 4
    assert sum(not each.merge.update and bool(each.merge.inserts) for each in merges) == 6
    assert len({case.title for case in CASES}) == len(CASES)


def test_the_statement_has_the_clauses() -> None:
    merge = Merge(Path(), "t.a = s.a", update=False, delete=True, inserts=("s.a > 1", ""))
    assert merge.sql(Path("/t")) == (
        "MERGE INTO delta.`/t` t USING source s ON t.a = s.a WHEN MATCHED THEN DELETE "
        "WHEN NOT MATCHED AND s.a > 1 THEN INSERT * WHEN NOT MATCHED THEN INSERT *"
    )


def test_a_case_in_which_a_peer_is_faster_is_behind_and_bold(tmp_path: Path) -> None:
    figures, layout = Figures(tmp_path / "grid.json"), "2,000 rows"
    first, second = CASES[0].title, CASES[1].title
    for title, contender, seconds in (
        (first, PEER, 4.0),
        (first, "deltalake", 1.0),
        (first, DUCKDB, 1.01),
        (first, SPARK, 2.0),
        (second, PEER, 9.0),
        (second, DUCKDB, 1.0),
        (second, SPARK, 1.0),
    ):
        figures.put(DmlFigure(title, layout, contender, [seconds]))

    assert behind(figures, layout, DUCKDB) == {}
    assert behind(figures, layout, SPARK) == {first: 2.0}
    assert speedup(figures, layout, SPARK, PEER, [first, second]) == pytest.approx(18**0.5)
    page = section(figures)
    (row,) = [line for line in page if line.startswith(f"| {first} |")]
    assert "**2.00 (2.0)**" in row
    assert "| 1.01 (4.0) |" in row
    assert f"| {SPARK}: cases behind the fastest peer, of {len(CASES)} | 0 | 1 |" in page
