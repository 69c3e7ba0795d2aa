"""Values of an identity column: writers choose them, within rules that this checks."""

from collections import Counter

__all__ = ["Numbers"]


class Numbers:
    """What is known about one table's identity column.

    Args:
        identity: the column.
    """

    def __init__(self, identity):
        self._identity = identity
        self._now = set()
        self._furthest = None

    def wrong(self, found, kept):
        """Return what is wrong with the table's identity values after a statement; nothing if they are right.

        Args:
            found: the values of all rows.
            kept: how many rows existed before, changed or not.
        """
        step, start = self._identity.step, self._identity.start
        new = set(found) - self._now
        wrong = ""
        if None in new:
            wrong = "a row has no number"
        elif len(set(found)) < len(found):
            wrong = f"numbers come twice: {[each for each, count in Counter(found).items() if count > 1]}"
        elif len(found) - len(new) != kept:
            wrong = f"{len(found) - len(new)} rows have the numbers that they had, and not {kept}"
        elif any((each - start) % step or (each - start) // step < 0 for each in new):
            wrong = f"numbers are not of the sequence: {sorted(new)}"
        elif self._furthest is not None and any((each - self._furthest) // step <= 0 for each in new):
            wrong = f"numbers do not follow {self._furthest}: {sorted(new)}"
        self._now = set(found)
        if new and not wrong:
            ends = max(new) if step > 0 else min(new)
            self._furthest = ends
        return wrong

    def wrong_in_feed(self, changes):
        """Return what is wrong with the identity values in a statement's change feed.

        Args:
            changes: pairs of value and change type.
        """
        by_kind = {}
        for number, kind in changes:
            by_kind.setdefault(kind, set()).add(number)
        before, after = (by_kind.get(f"update_{when}image", set()) for when in ("pre", "post"))
        if before != after:
            return f"updates change numbers: {sorted(before)} to {sorted(after)}"
        if not by_kind.get("insert", set()) <= self._now:
            return f"inserts have other numbers than the table: {sorted(by_kind['insert'])}"
        if by_kind.get("delete", set()) & self._now:
            return f"deletes have numbers that the table has: {sorted(by_kind['delete'])}"
        return ""
