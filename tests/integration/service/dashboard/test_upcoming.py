"""Which tables need maintenance next, and what will see to it."""

import pytest

from delvec_service.dashboard.upcoming import upcoming


def table(*actions):
    return {"id": "t", "name": "sales.orders", "sample": {"actions": list(actions)}}


def policy(kind="system.data-compaction", *, enable=True, pattern=None, **config):
    content = {"enable": enable, "config": config}
    return {"name": "nightly", "type": kind, "table-id": None, "pattern": pattern, "content": content}


@pytest.mark.parametrize(
    ("actions", "policies", "kind"),
    [
        (["OPTIMIZE"], [], "alone"),
        (["OPTIMIZE"], [policy()], "planned"),
        (["PURGE"], [policy()], "planned"),  # OPTIMIZE rewrites the same files
        (["PURGE"], [policy("system.dv-purge", enable=False), policy()], "planned"),
        (["OPTIMIZE"], [policy(enable=False)], "alone"),
        (["OPTIMIZE"], [policy(pattern="hr.*")], "alone"),
        (["OPTIMIZE"], [policy(quiet_hours=["00:00-00:00"])], "waiting"),
        (["CHECKPOINT"], [policy()], "alone"),
        (["CHECK"], [policy()], "broken"),
    ],
)
def test_what_will_see_to_it(actions, policies, kind):
    (one,) = upcoming([table(*actions)], policies)

    assert one["by"][0] == kind


def test_one_policy_or_several_see_to_it():
    nightly, checkpoints = policy(), policy("system.checkpoint") | {"name": "checkpoints"}

    (one,) = upcoming([table("OPTIMIZE")], [nightly, checkpoints])
    assert one["by"][1].startswith("By policy nightly, when")
    (one,) = upcoming([table("OPTIMIZE", "CHECKPOINT")], [nightly, checkpoints])
    assert one["by"][1].startswith("By policies nightly and checkpoints, when")


def test_a_policy_for_purge_comes_before_one_for_compaction_which_may_find_it_not_worth_it():
    purge = policy("system.dv-purge") | {"name": "purge"}

    (one,) = upcoming([table("PURGE")], [policy(), purge])
    assert one["by"][1].startswith("By policy purge, when")


def test_tables_without_needs_are_left_out():
    assert upcoming([table(), {"id": "t", "name": "n", "sample": None}], []) == []
