"""The settings of policies as fields of a form, and back.

Tested in `tests/integration/service/dashboard/test_policies.py`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from delvec_contract.policies import config_of
from delvec_kernel.table_properties import parse_byte_size
from delvec_maintenance.policies import PolicyType

__all__ = ["DOES", "Field", "InvalidField", "config_from", "form_fields"]

DOES: Final[Mapping[PolicyType, str]] = {
    "system.data-compaction": "Compaction: rewrite small files, and files with many deleted rows (OPTIMIZE)",
    "system.dv-purge": "Purge: rewrite files with deleted rows (PURGE)",
    "system.dv-compaction": "Compaction of deletion vectors, without touching data files",
    "system.checkpoint": "Checkpoint of the log",
    "system.vacuum": "VACUUM: delete files that no version needs",
}
"""What each type of policy does."""
_UNITS: Final = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
_PERCENT: Final = 100


class InvalidField(ValueError):
    """A field of a form has no value of its kind; the message says which."""


@dataclass(frozen=True)
class Field:
    """A field of the form.

    Attributes:
        kind: ``size``, ``count``, ``percent``, ``hours``, ``flag``, ``spans``, or the values to choose from.
        help: what it means, for people.
        value: as text.
        default: what an empty field means.
    """

    name: str
    label: str
    kind: str | tuple[str, ...]
    help: str
    value: str = ""
    default: str = ""


_KINDS: Final[Mapping[str, tuple[str, str | tuple[str, ...], str]]] = {
    "target_file_size_bytes": ("Size of new files", "size", "Like 256 MiB; empty for each table's own setting."),
    "max_deleted_ratio": ("Maximum deleted rows", "percent", "Like 5 %. Files with a larger share are rewritten, whatever their size."),
    "min_deleted_ratio": ("Minimum deleted rows", "percent", "Like 5 %. Only files with a larger share are rewritten."),
    "min_files_saved": ("Minimum files saved", "count", "Like 10: a run must save this many files to open, or gain the bytes below."),
    "min_gain_bytes": ("Minimum gain", "size", "What a run must gain to be worthwhile, like 64 MiB."),
    "max_bytes_per_run": ("Maximum bytes per run", "size", "Like 10 GiB. Rewrites the files with the highest gain first; empty for no limit."),
    "max_memory_bytes": ("Maximum memory", "size", "Rows held at once, 128 MiB or more; the rest is spilled to disk. Empty for no limit."),
    "rewrite": ("Rows", ("auto", "always"), "auto copies row groups where that is as good for readers."),
    "min_commits": ("Commits since the last one", "count", "Like 20: a checkpoint is written after this many commits."),
    "clean_up": ("Clean up the log", "flag", "Also delete log files that are older than the log's retention."),
    "mode": ("Mode", ("full", "lite"), "lite reads only the log and lists no directory."),
    "retention_hours": ("Retention in hours", "hours", "168 are seven days. Never shorter than a table's own; empty for each table's own."),
    "min_interval_hours": ("Hours between runs", "hours", "Like 24, from the start of one run on a table to the next."),
    "quiet_hours": ("Quiet hours (UTC)", "spans", "Like 08:00-20:00, 23:00-01:00: no run starts in them."),
}  # fmt: skip


def form_fields(kind: PolicyType, config: Mapping[str, Any], typed: Mapping[str, str] = {}) -> list[Field]:
    """Return the fields of a type of policy, with what a config says, or what somebody typed."""
    defaults = config_of(kind, {})
    form = []
    for one in fields(defaults):
        label, shape, text = _KINDS[one.name]
        default = _shown(shape, getattr(defaults, one.name))
        value = _shown(shape, config[one.name]) if one.name in config else ""
        form.append(Field(one.name, label, shape, text, typed.get(one.name, value), default))
    return form


def config_from(kind: PolicyType, form: Mapping[str, str]) -> dict[str, Any]:
    """Return the config in a form; empty fields are left to their defaults.

    Raises:
        InvalidField: a field has no value of its kind.
    """
    config: dict[str, Any] = {}
    for one in form_fields(kind, {}):
        text = form.get(one.name, "").strip()
        if text:
            try:
                config[one.name] = _parsed(one.kind, text)
                config_of(kind, {one.name: config[one.name]})
            except ValueError:
                raise InvalidField(f"{one.label}: '{text[:50]}' is not valid. {one.help}") from None
    return config


def _shown(shape: str | tuple[str, ...], value: Any) -> str:
    if value is None:
        return ""
    if shape == "size":
        return next(
            (f"{value // step} {unit}" for step, unit in _UNITS if value and not value % step), f"{value} B"
        )
    return _TEXT.get(shape, str)(value)


def _parsed(shape: str | tuple[str, ...], text: str) -> Any:
    return _VALUE.get(shape, str)(text)


def _bytes(text: str) -> int:
    number = parse_byte_size(text)
    if number is None:
        raise ValueError(text)
    return number


_TEXT: Final[Mapping[Any, Callable[[Any], str]]] = {
    "percent": lambda value: f"{value * _PERCENT:g} %",
    "spans": ", ".join,
    "flag": lambda value: "yes" if value else "no",
    "hours": lambda value: f"{value:g}",
}
_VALUE: Final[Mapping[Any, Callable[[str], Any]]] = {
    "size": _bytes,
    "percent": lambda text: float(text.removesuffix("%")) / _PERCENT,
    "spans": lambda text: [one.strip() for one in text.split(",") if one.strip()],
    "flag": lambda text: text == "yes",
    "count": lambda text: int(text.replace(",", "")),
    "hours": float,
}
