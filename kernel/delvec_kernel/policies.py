"""Which maintenance policies hold for a table, and when nothing may begin."""

import fnmatch
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from delvec_kernel.wire.policies import Policy, PolicyType

__all__ = ["applicable", "is_quiet"]


def applicable(policies: Iterable[Policy], table_id: str, name: str) -> dict[PolicyType, Policy]:
    """Return the policy of each type that holds for a table.

    One that is attached to the table goes before one by a pattern, and that before one for all tables; of patterns the
    longest, and then the first by name. What goes before replaces the other wholly, ``enable`` included.
    """
    ranked = sorted(
        (policy for policy in policies if _is_about(policy, table_id, name)),
        key=lambda policy: (policy.table_id is None, -len(policy.pattern or ""), policy.name),
    )
    found: dict[PolicyType, Policy] = {}
    for policy in ranked:
        found.setdefault(policy.type, policy)
    return found


def _is_about(policy: Policy, table_id: str, name: str) -> bool:
    if policy.table_id is not None:
        return policy.table_id == table_id
    return policy.pattern is None or fnmatch.fnmatchcase(name, policy.pattern)


def is_quiet(hours: Sequence[str], now: datetime) -> str | None:
    """Return the quiet hours that a moment is in, None where it is in none.

    Args:
        hours: ``HH:MM-HH:MM`` in UTC, the end excluded; may go past midnight. From a time to itself is the whole day.
        now: with a time zone.
    """
    time = f"{now.astimezone(UTC):%H:%M}"
    for span in hours:
        start, _, end = span.partition("-")
        inside = start <= time < end if start < end else time >= start or time < end
        if inside:
            return span
    return None
