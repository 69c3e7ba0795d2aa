"""The arithmetic of the row-change benchmarks: what counts as an object, a goal that is met, a cell that is no slower."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.dml_figures import DmlFigure, Figures
from benchmarks.dml_goals import FRESH, SCANS, WORN, goals
from benchmarks.dml_jobs import EFFORT
from benchmarks.dml_report import TITLE, replaced, with_section_of, write_page
from benchmarks.dml_tables import listing, put_since
from benchmarks.process_tree import ProcessTree
from benchmarks.provenance import unwrapped
from benchmarks.sweep import OPERATIONS, SHARES, Cell, cells

SPARK, PEER = "Delvec on Spark", "delta-spark with DVs"


def _verdicts(figures: Figures, found: list[Cell] | None = None) -> dict[str, tuple[str, str]]:
    return {goal.text: (goal.verdict, goal.found) for goal in goals(figures, found or [])}


def test_objects_are_those_that_are_new_or_written_again(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    for name, text in (("kept", "1"), ("log/written", "12"), ("gone", "1")):
        (tmp_path / name).write_text(text)
    before = listing(tmp_path)
    (tmp_path / "gone").unlink()
    (tmp_path / "log" / "written").unlink()
    (tmp_path / "log" / "written").write_text("123")
    (tmp_path / "new").write_text("1234")
    (tmp_path / ".new.crc").write_text("of Hadoop's local file system")
    assert put_since(before, listing(tmp_path)) == (2, 7)


def test_figures_are_kept_and_replaced(tmp_path: Path) -> None:
    kept = tmp_path / "dml.json"
    first = Figures(kept)
    first.put(DmlFigure("DELETE 1 row", "1 file", SPARK, [3.0, 1.0, 2.0]))
    first.put(DmlFigure("DELETE 1 row", "1 file", PEER, failure="no space"))
    first.put(DmlFigure("DELETE 1 row", "1 file", SPARK, [4.0]))
    again = Figures(kept)
    figure = again.get("DELETE 1 row", "1 file", SPARK)
    assert figure is not None
    assert figure.median == 4.0
    assert again.get("DELETE 1 row", "1 file", PEER) is None
    assert len(again.all()) == 2


def test_contenders_of_different_runs_are_not_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = Figures(tmp_path / "dml.json")
    figures.put(DmlFigure("DELETE 1 row", "1 file", PEER, [2.0], [3], [10]))
    monkeypatch.setattr("benchmarks.dml_figures.this_run", lambda: "2026-01-02 03:04 at 0123abcde")
    figures.put(DmlFigure("DELETE 1 row", "1 file", SPARK, [0.5], [2], [10]))
    page = tmp_path / "page.md"
    write_page(page, figures, [], EFFORT)
    rows = [line.split(" | ") for line in page.read_text().splitlines() if line.startswith("| DELETE 1 row")]
    assert {row[2]: row[5] for row in rows} == {SPARK: "", PEER: "1.00"}
    assert rows[0][-1] == "2026-01-02 03:04 at 0123abcde |"
    assert _verdicts(figures)[f"Spark, 1 row: 3 times faster than {PEER}"][0] == "not measured"


@pytest.mark.parametrize(("seconds", "verdict"), [(0.5, "met"), (0.9, "**not met**")])
def test_a_goal_is_met_by_all_its_jobs_or_not(tmp_path: Path, seconds: float, verdict: str) -> None:
    figures = Figures(tmp_path / "dml.json")
    for layout, taken in (("1 file", seconds), ("32 files", 0.1)):
        figures.put(DmlFigure("DELETE 1 row", layout, SPARK, [taken], [2], [10]))
        figures.put(DmlFigure("DELETE 1 row", layout, PEER, [2.0], [3], [10]))
    found = _verdicts(figures)
    assert found[f"Spark, 1 row: 3 times faster than {PEER}"][0] == verdict
    assert found[f"Spark, 1 % and MERGE: 3 times faster than {PEER}"][0] == "not measured"
    assert found[f"{SPARK}: bytes written at most those of {PEER}"] == ("met", "all 2 jobs")


def test_reading_is_measured_against_the_fresh_table(tmp_path: Path) -> None:
    figures = Figures(tmp_path / "dml.json")
    figures.put(DmlFigure(SCANS, FRESH, SPARK, [1.0]))
    figures.put(DmlFigure(SCANS, WORN, SPARK, [1.4]))
    text = f"{SPARK}: reading after ten DELETE 1 % at most 1.3 times a fresh table"
    assert _verdicts(figures)[text] == ("**not met**", "1.40")


def _cell(operation: str, dv: float, plain: float, more: int) -> Cell:
    return Cell(1000, 0.1, operation, {"dv": [dv], "plain": [plain]}, {"dv": 2 + more, "plain": 2}, {})


def test_a_cell_compares_seconds_and_objects() -> None:
    assert _cell("DELETE", 1.0, 1.0, 0).is_no_slower
    assert not _cell("DELETE", 1.2, 1.0, 0).is_no_slower
    assert [_cell(operation, 1.0, 1.0, 1).is_no_costlier for operation in OPERATIONS] == [False, True, True]


@pytest.mark.parametrize(("bad", "verdict"), [(1, "met"), (2, "**not met**")])
def test_the_sweep_allows_one_cell_in_a_hundred(tmp_path: Path, bad: int, verdict: str) -> None:
    found = [_cell("DELETE", 0.5, 1.0, 0)] * (100 - bad) + [_cell("DELETE", 2.0, 1.0, 0)] * bad
    text = "Vectors no slower than rewriting and no more objects, in 99% of the cells"
    assert _verdicts(Figures(tmp_path / "dml.json"), found)[text] == (verdict, f"{100 - bad}.0% of 100")


def test_the_sweep_has_a_cell_for_every_combination() -> None:
    made = [(cell.rows, cell.share, cell.operation) for cell in cells((1, 2, 3, 4))]
    assert len(set(made)) == len(made) == 4 * len(SHARES) * len(OPERATIONS) >= 100


def test_a_section_takes_the_place_of_the_one_before() -> None:
    page = f"# Benchmarks\n\n## Commits\n\na\n\n{TITLE}\n\nold\n\n## Deletes\n\nb\n"
    assert (
        replaced(page, [TITLE, "", "new"])
        == f"# Benchmarks\n\n## Commits\n\na\n\n{TITLE}\n\nnew\n\n## Deletes\n\nb\n"
    )
    assert replaced("# Benchmarks\n", [TITLE, "", "new"]) == f"# Benchmarks\n\n{TITLE}\n\nnew\n"


def test_a_page_that_is_written_anew_keeps_the_section():
    page = replaced("# Benchmarks\n", [TITLE, "", "rows"])

    assert with_section_of("# Benchmarks\n\n## Commits\n", page + "\n## Commits\n") == (
        f"# Benchmarks\n\n## Commits\n\n{TITLE}\n\nrows\n"
    )


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_memory_is_that_of_a_process_and_its_children() -> None:
    alone = ProcessTree(os.getpid()).resident()
    program = "import sys; taken = bytearray(64 << 20); taken[::4096] = b'x' * len(taken[::4096]); print(1, flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert ProcessTree(os.getpid()).resident() >= alone + (48 << 20)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_cpu_is_that_of_children_of_children_too() -> None:
    """Also after they ended, if their parent waited for them."""
    work = "import time\nwhile time.process_time() < 0.5: pass"
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {work!r}], check=True)"
    program = f"{child}; print(1, flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert ProcessTree(process.pid).cpu() >= 0.4


def test_each_paragraph_and_item_of_a_method_is_one_line():
    text = "What is\nmeasured.\n\n- **One**: a\n  b\n- **Two**\n\nRun it."

    assert unwrapped(text) == ["What is measured.", "", "- **One**: a b", "- **Two**", "", "Run it."]
