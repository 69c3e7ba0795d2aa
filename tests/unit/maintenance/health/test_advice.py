"""Advice: one step for what one command puts right, in the order in which to follow it."""

import pytest

from delvec_maintenance.health.advice import needs, steps


def advice(action, points, gain=0, files=0):
    return {
        "action": action,
        "points": points,
        "expected-gain-bytes": gain,
        "expected-gain-files": files,
        "finding": action.lower(),
    }


def test_what_one_command_mends_is_one_step():
    found = [
        advice("CHECKPOINT", 5),
        advice("PURGE", 20, gain=100),
        advice("OPTIMIZE", 30, gain=120, files=9),
        advice("VACUUM", 0, gain=7),
    ]

    plan = steps(found)

    assert [one.action for one in plan] == ["OPTIMIZE", "CHECKPOINT", "VACUUM"]
    assert [one["action"] for one in plan[0].findings] == ["OPTIMIZE", "PURGE"]
    assert plan[0].main["action"] == "OPTIMIZE"
    assert plan[0].title == "Rewrite small files and files with deleted rows"
    assert (plan[0].gain_bytes, plan[0].gain_files) == (120, 9)  # of the same files, and so not added
    assert [one.score_after for one in plan] == [95.0, 100.0, 100.0]
    assert plan[1].note
    assert not steps([advice("CHECKPOINT", 5)])[0].note


def test_the_strongest_rewrite_stands_for_all():
    plan = steps([advice("PURGE", 1), advice("OPTIMIZE", 2), advice("OPTIMIZE FULL", 3)])

    assert [one.action for one in plan] == ["OPTIMIZE FULL"]
    assert len(plan[0].findings) == 3


def test_scores_do_not_go_below_zero():
    plan = steps([advice("PURGE", 90), advice("CHECKPOINT", 40)])

    assert [one.score_after for one in plan] == [60.0, 100.0]
    assert steps([advice("CHECK", 100), advice("CHECKPOINT", 10)])[0].score_after == 90.0


@pytest.mark.parametrize(
    ("actions", "words"),
    [
        ([], ""),
        (["PURGE", "OPTIMIZE"], "compaction"),
        (["CHECKPOINT", "PURGE"], "purge of deleted rows, checkpoint"),
        (["CHECK"], "check of damage"),
    ],
)
def test_needs_are_said_in_words(actions, words):
    assert needs(actions) == words
