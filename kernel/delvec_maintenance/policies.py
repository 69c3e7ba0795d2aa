"""Which maintenance policies apply to a table, and when runs must not start."""

import fnmatch
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from delvec_contract.policies import Policy, PolicyType

__all__ = ["applicable", "is_quiet"]


def applicable(policies: Iterable[Policy], table_id: str, name: str) -> dict[PolicyType, Policy]:
    """Return the applicable policy of each type.

    A policy attached to the table takes precedence over one by pattern, and that over one for all tables; among patterns
    the longest wins, then the first by name. The winner replaces the others entirely, including ``enable``.
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
    """Return the quiet hours that contain ``now``, or None.

    Args:
        hours: ``HH:MM-HH:MM`` in UTC, end exclusive; may span midnight. Equal times mean the whole day.
        now: with a time zone.
    """
    time = f"{now.astimezone(UTC):%H:%M}"
    for span in hours:
        start, _, end = span.partition("-")
        inside = start <= time < end if start < end else time >= start or time < end
        if inside:
            return span
    return None
