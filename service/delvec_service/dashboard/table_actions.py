"""Actions on a table's page: the resource that performs each, and what is shown before it runs.

Tested in `tests/integration/service/dashboard/test_table_actions.py`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote

from delvec_maintenance.compaction import MAX_DELETED_RATIO
from delvec_service.dashboard.formats import counted, size

__all__ = ["ACTIONS", "BY_ADVICE", "CHANGES", "MENU", "Request", "TableAction"]

_QUARANTINE: Final = re.compile(r"[0-9A-Za-z][0-9A-Za-z-]{0,63}")
_VERSION: Final = re.compile(r"[0-9]{1,18}")


@dataclass(frozen=True)
class Request:
    """A request to the service, below the table's resource."""

    path: str
    body: Mapping[str, Any]


@dataclass(frozen=True)
class TableAction:
    """An action.

    Attributes:
        label: the name on the button.
        path: path of the resource below the table's; ``{quarantine}`` is a field of the form.
        body: what is sent.
        preview: what is sent first, to show what would be done; None for no preview. With a preview, the action must
            be confirmed.
        question: the question to confirm; ``{files}`` and ``{size}`` are what the preview, or the quarantine, counts.
        takes_version: whether both bodies contain a version.
    """

    label: str
    path: str
    body: Mapping[str, Any] = field(default_factory=dict)
    preview: Mapping[str, Any] | None = None
    question: str = ""
    takes_version: bool = False

    @property
    def is_confirmed(self) -> bool:
        """Whether the action must be confirmed."""
        return bool(self.question)

    @property
    def counts_files(self) -> bool:
        """Whether the question says how many files, as the first sentence about the preview does."""
        return "{files}" in self.question

    def asked(self, preview: Mapping[str, Any]) -> str:
        """Return the question, with what an answer to the preview says."""
        files, size_in_bytes = preview.get("num-files", 0), preview.get("size-in-bytes", 0)
        return self.question.format(files=counted(files, "file"), size=size(size_in_bytes))

    def request(self, form: Mapping[str, str], *, preview: bool = False) -> Request | None:
        """Return the body to send, or None if the form lacks a required field."""
        path, body = self.path, dict((self.preview if preview else self.body) or {})
        if "{quarantine}" in path:
            form_value = form.get("quarantine", "")
            if not _QUARANTINE.fullmatch(form_value):
                return None
            path = path.format(quarantine=quote(form_value, safe=""))
        if self.takes_version:
            form_value = form.get("version", "")
            if not _VERSION.fullmatch(form_value):
                return None
            body["version"] = int(form_value)
        return Request(path, body)


_DRY_RUN: Final = {"dry-run": True}
_WORST_FILES: Final = {"purge": True, "min-deleted-ratio": MAX_DELETED_RATIO}
"""What the advice, and the command next to it, are about."""
_PURGE_WORST: Final = f"PURGE of files over {MAX_DELETED_RATIO:.0%} deleted".replace("%", " %")
ACTIONS: Final[Mapping[str, TableAction]] = {
    "optimize-dry-run": TableAction("OPTIMIZE, dry run", "optimize", _DRY_RUN),
    "optimize": TableAction("OPTIMIZE", "optimize"),
    "optimize-full-dry-run": TableAction("OPTIMIZE FULL, dry run", "optimize", {"full": True, **_DRY_RUN}),
    "optimize-full": TableAction("OPTIMIZE FULL", "optimize", {"full": True}),
    "purge-worst-dry-run": TableAction(f"{_PURGE_WORST}, dry run", "optimize", {**_WORST_FILES, **_DRY_RUN}),
    "purge-worst": TableAction(_PURGE_WORST, "optimize", _WORST_FILES),
    "purge-dry-run": TableAction("PURGE, dry run", "optimize", {"purge": True, **_DRY_RUN}),
    "purge": TableAction("PURGE", "optimize", {"purge": True}),
    "compact-dry-run": TableAction("Compact deletion vectors, dry run", "deletion-vectors/compact", _DRY_RUN),
    "compact": TableAction("Compact deletion vectors", "deletion-vectors/compact"),
    "checkpoint": TableAction("CHECKPOINT", "checkpoint"),
    "vacuum-dry-run": TableAction("VACUUM, dry run", "vacuum", {**_DRY_RUN, "limit": 20}),
    "vacuum-quarantine": TableAction(
        "VACUUM into quarantine, with undo", "vacuum", {"quarantine": True, "limit": 20}
    ),
    "vacuum": TableAction(
        "VACUUM",
        "vacuum",
        {"limit": 20},
        preview={**_DRY_RUN, "limit": 20},
        question="{files} with {size} will be deleted permanently; VACUUM cannot be undone. VACUUM into quarantine can be.",
    ),
    "restore": TableAction(
        "RESTORE",
        "restore",
        preview=_DRY_RUN,
        question=(
            "A new commit restores the table to that version: rows, columns and properties. The history stays, and "
            "the restore can be undone in the same way."
        ),
        takes_version=True,
    ),
    "undo-quarantine": TableAction("Put files back", "quarantines/{quarantine}/undo"),
    "purge-quarantine": TableAction(
        "Delete the quarantine",
        "quarantines/{quarantine}/purge",
        question="{files} with {size} will be deleted permanently.",
    ),
}
MENU: Final = tuple(
    key
    for key, action in ACTIONS.items()
    if key not in ("restore", "optimize-full", "optimize-full-dry-run") and "{" not in action.path
)
"""The actions that the page offers for every table."""
CHANGES: Final = frozenset(key for key, action in ACTIONS.items() if not action.body.get("dry-run"))
"""The actions after which the page shows another state."""
BY_ADVICE: Final = {
    "OPTIMIZE": ("optimize-dry-run", "optimize"),
    "OPTIMIZE FULL": ("optimize-full-dry-run", "optimize-full"),
    "PURGE": ("purge-worst-dry-run", "purge-worst"),
    "DV COMPACTION": ("compact-dry-run", "compact"),
    "CHECKPOINT": ("checkpoint",),
    "VACUUM": ("vacuum-dry-run", "vacuum-quarantine", "vacuum"),
}
"""The action for each recommendation."""
