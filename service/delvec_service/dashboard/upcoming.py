"""Which tables need maintenance next, and which policy will see to it.

Tested in `tests/integration/service/dashboard/test_upcoming.py`.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, Final

from delvec_maintenance.policies import PolicyType, applicable, is_quiet

__all__ = ["attached", "upcoming"]

_POLICY_OF: Final[Mapping[str, PolicyType]] = {
    "OPTIMIZE FULL": "system.data-compaction",
    "OPTIMIZE": "system.data-compaction",
    "PURGE": "system.dv-purge",
    "DV COMPACTION": "system.dv-compaction",
    "CHECKPOINT": "system.checkpoint",
    "VACUUM": "system.vacuum",
}
"""The type of policy that does what is recommended."""


def attached(policies: Iterable[Mapping[str, Any]]) -> list[Any]:
    """Return policies, as ``/v1/policies`` lists them, with attributes."""
    return [
        SimpleNamespace(
            name=one["name"],
            type=one["type"],
            table_id=one["table-id"],
            pattern=one["pattern"],
            content=one["content"],
        )
        for one in policies
    ]


def upcoming(
    tables: Iterable[Mapping[str, Any]], policies: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return the tables that need maintenance, each with what it needs and which policy will see to it.

    Args:
        tables: as ``/v1/health`` lists them.
        policies: as ``/v1/policies`` lists them.
    """
    held = attached(policies)
    needy = [one for one in tables if one["sample"] and one["sample"]["actions"]]
    return [
        {"table": one, "by": _by(one["sample"]["actions"], applicable(held, one["id"], one["name"]))}
        for one in needy
    ]


def _by(actions: Sequence[str], policies: Mapping[PolicyType, Any]) -> tuple[str, str]:
    """Return how recommended actions will come about: a kind, and a sentence."""
    if "CHECK" in actions:
        return "broken", "A person: nothing is rewritten before the damage is understood."
    names, waits = [], []
    for action in actions:
        # OPTIMIZE does what PURGE would, but may find it not worth it: a policy for PURGE comes first.
        types: list[PolicyType] = [_POLICY_OF[action]]
        if action == "PURGE":
            types.append("system.data-compaction")
        policy = next(
            (policies[one] for one in types if one in policies and policies[one].content["enable"]), None
        )
        if policy is None:
            continue
        names.append(policy.name)
        quiet = is_quiet(policy.content["config"].get("quiet_hours", ()), datetime.now(UTC))
        if quiet is not None:
            waits.append(f"{policy.name} is in its quiet hours {quiet} UTC")
    if not names:
        return "alone", "No policy does this: run it by hand, or create one."
    if waits:
        return "waiting", f"{'; '.join(dict.fromkeys(waits))}."
    holders = list(dict.fromkeys(names))
    named = f"{'policy' if len(holders) == 1 else 'policies'} {' and '.join(holders)}"
    return "planned", f"By {named}, when delvec maintain runs next and finds it worthwhile."
