"""Every pair of operations, as ours and as the winner: our result, and delta-spark's by its rules."""

from pathlib import Path

import pytest
from tests.support.conflict_matrix import CELLS, OPERATIONS, PASSES, rendered
from tests.support.conflict_scenes import READ, Scene, delta_spark

from delvec_kernel.transaction.conflict_checker import Conflict, Passed, check

PAGE = Path(__file__).resolve().parents[4] / "docs" / "conflicts.md"


def named(cell):
    return "-".join(filter(None, cell[:4])).replace(" ", "_")


@pytest.mark.parametrize("cell", CELLS, ids=named)
def test_cell(cell):
    ours_is, how, winner_is, what, answer, spark, _ = cell
    scene = Scene()
    ours = scene.ours(ours_is, how)
    scene.win(winner_is, what)

    if how != "that has to hold for every row":  # delta-spark does not track what a new constraint reads
        assert delta_spark(scene, ours) == spark
    verdict = check(ours, scene.table.winners(READ), scene.table.vectors)

    if answer == PASSES:
        assert isinstance(verdict, Passed), verdict.what
        scene.table.commit(verdict.changes)  # the rebased changes are valid on the current table
    else:
        assert isinstance(verdict, Conflict)
        assert verdict.kind.__name__ == answer
        assert verdict.error("people").message.count(".") >= 1


def test_every_pair_of_operations_is_covered():
    assert {(cell[0], cell[2]) for cell in CELLS} == {(a, b) for a in OPERATIONS for b in OPERATIONS}
    assert len({cell[:4] for cell in CELLS}) == len(CELLS)


def test_the_page_shows_the_matrix():
    assert rendered() in PAGE.read_text()
