"""Which policies apply to a table, and quiet hours."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from pydantic import ValidationError

from delvec_contract.policies import Policy, PolicyContent, PolicyRequest, config_of
from delvec_maintenance.policies import CompactionConfig, applicable, is_quiet

NOW = datetime(2026, 11, 20, tzinfo=UTC)
COMPACTION, VACUUM = "system.data-compaction", "system.vacuum"


def policy(name, kind=COMPACTION, *, table_id=None, pattern=None, enable=True):
    content = PolicyContent(enable=enable)
    return Policy(name=name, type=kind, content=content, table_id=table_id, pattern=pattern, updated_at=NOW)


def held(policies, name="sales.orders"):
    return {kind: one.name for kind, one in applicable(policies, "id-1", name).items()}


def test_the_most_specific_policy_wins():
    everywhere, sales, orders = policy("a"), policy("b", pattern="sales.*"), policy("c", table_id="id-1")
    assert held([everywhere]) == {COMPACTION: "a"}
    assert held([everywhere, sales]) == {COMPACTION: "b"}
    assert held([orders, sales, everywhere]) == {COMPACTION: "c"}
    assert held([orders, sales, everywhere], name="hr.people") == {COMPACTION: "c"}
    assert held([policy("x", table_id="id-2"), sales], name="hr.people") == {}


def test_the_longest_pattern_wins_then_the_first_name():
    assert held([policy("a", pattern="*"), policy("b", pattern="sales.o*")]) == {COMPACTION: "b"}
    assert held([policy("b", pattern="sales.*"), policy("a", pattern="*.orders")]) == {COMPACTION: "a"}


def test_policy_types_are_independent_and_can_be_disabled():
    found = applicable(
        [policy("a"), policy("off", table_id="id-1", enable=False), policy("v", VACUUM)], "id-1", "orders"
    )
    assert (found[COMPACTION].content.enable, found[VACUUM].name) == (False, "v")


@pytest.mark.parametrize(
    ("hours", "time", "quiet"),
    [
        ("08:00-20:00", "08:00", True),
        ("08:00-20:00", "19:59", True),
        ("08:00-20:00", "20:00", False),
        ("22:00-06:00", "23:30", True),
        ("22:00-06:00", "05:59", True),
        ("22:00-06:00", "12:00", False),
        ("00:00-00:00", "12:00", True),
    ],
)
def test_quiet_hours(hours, time, quiet):
    now = datetime.fromisoformat(f"2026-11-20T{time}:00+00:00")
    assert is_quiet(["03:00-03:01", hours], now) == (hours if quiet else None)
    assert is_quiet([hours], now.astimezone(timezone(timedelta(hours=9)))) == (hours if quiet else None)


@pytest.mark.parametrize(
    ("kind", "config", "said"),
    [
        (
            COMPACTION,
            {"max_byte": 5},
            "max_byte is not a field of system.data-compaction; it has max_bytes_per_run",
        ),
        (COMPACTION, {"max_bytes_per_run": 0}, "greater than or equal to 1"),
        (COMPACTION, {"quiet_hours": ["8-20"]}, "quiet_hours.0"),
        (VACUUM, {"retention_hours": -1}, "retention_hours"),
        (VACUUM, {"enforce_retention_duration": False}, "not a field"),
        ("system.dv-purge", {"min_deleted_ratio": 1.5}, "min_deleted_ratio"),
        ("system.checkpoint", {"clean_up": "yes"}, "clean_up"),
    ],
)
def test_invalid_configs_say_what_is_wrong(kind, config, said):
    with pytest.raises(ValueError, match=said):
        config_of(kind, config)
    with pytest.raises(ValidationError, match=said):
        PolicyRequest(name="p", type=kind, content=PolicyContent(enable=True, config=config))


def test_configs_have_defaults():
    assert config_of(COMPACTION, {"min_files_saved": 3}) == CompactionConfig(min_files_saved=3)
