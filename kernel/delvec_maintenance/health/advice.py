"""Advice in the order in which to follow it: one step for all findings that one command puts right.

Tested in `tests/unit/maintenance/health/test_advice.py`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["Step", "needs", "steps"]

_REWRITES: Final = ("OPTIMIZE FULL", "OPTIMIZE", "PURGE")
"""Each also does what those after it do: OPTIMIZE rewrites the files that PURGE would."""
_ORDER: Final = ("CHECK", *_REWRITES, "DV COMPACTION", "CHECKPOINT", "VACUUM")
"""Rewriting files makes some deletion vectors, and the checkpoint, old; VACUUM deletes what the others leave."""
_TITLES: Final = {
    "CHECK": "Find out what is damaged",
    "OPTIMIZE FULL": "Cluster the table again",
    "OPTIMIZE": "Rewrite small files",
    "PURGE": "Rewrite files with deleted rows",
    "DV COMPACTION": "Compact deletion vectors",
    "CHECKPOINT": "Write a checkpoint",
    "VACUUM": "Delete files that no version needs",
}
_STEP_NAMES: Final = {
    "CHECK": "check of damage",
    "OPTIMIZE FULL": "clustering",
    "OPTIMIZE": "compaction",
    "PURGE": "purge of deleted rows",
    "DV COMPACTION": "compaction of deletion vectors",
    "CHECKPOINT": "checkpoint",
    "VACUUM": "VACUUM",
}
_NOTES: Final = {
    "DV COMPACTION": "Look again after the step before: files that it rewrites need no deletion vector any more.",
    "CHECKPOINT": "Last, because the steps before add commits.",
}


@dataclass(frozen=True)
class Step:
    """One thing to do.

    Attributes:
        action: the recommended action, as in the service's answers.
        findings: the recommendations that it puts right, most points first.
        score_after: the score when this step and those before it are done.
        note: what the steps before mean for this one.
    """

    action: str
    title: str
    findings: Sequence[Mapping[str, Any]]
    score_after: float
    note: str

    @property
    def main(self) -> Mapping[str, Any]:
        """The finding whose command this is."""
        return next(one for one in self.findings if one["action"] == self.action)

    @property
    def gain_bytes(self) -> int | None:
        """What the step gains: findings of one step are about the same files, so gains are not added."""
        return max((one["expected-gain-bytes"] or 0 for one in self.findings), default=0) or None

    @property
    def gain_files(self) -> int:
        """What the step gains in files."""
        return max((one["expected-gain-files"] for one in self.findings), default=0)


def steps(recommendations: Sequence[Mapping[str, Any]]) -> list[Step]:
    """Return the recommendations of a table as steps."""
    by_action: dict[str, list[Mapping[str, Any]]] = {}
    for one in sorted(recommendations, key=lambda one: -one["points"]):
        by_action.setdefault(one["action"], []).append(one)
    for name in _REWRITES[1:]:
        stronger = next((one for one in _REWRITES[: _REWRITES.index(name)] if one in by_action), None)
        if stronger and name in by_action:
            by_action[stronger] += by_action.pop(name)
    left = sum(one["points"] for one in recommendations)
    plan: list[Step] = []
    for action in sorted(by_action, key=_ORDER.index):
        findings = by_action[action]
        left -= sum(one["points"] for one in findings)
        note = _NOTES.get(action, "") if plan else ""
        title = _TITLES[action]
        if action == "OPTIMIZE" and {one["action"] for one in findings} > {action}:
            title += " and files with deleted rows"
        plan.append(Step(action, title, findings, max(0.0, 100.0 - left), note))
    return plan


def needs(actions: Iterable[str]) -> str:
    """Return recommended actions in words, without those that another one includes."""
    left = [one for one in _ORDER if one in set(actions)]
    rewrites = [one for one in left if one in _REWRITES]
    return ", ".join(_STEP_NAMES[one] for one in left if one not in rewrites[1:])
