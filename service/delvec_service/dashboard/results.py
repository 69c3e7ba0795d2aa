"""What an action did, or would do, in sentences.

Tested in `tests/integration/service/dashboard/test_results.py`.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from delvec_service.dashboard.formats import count, counted, size

__all__ = ["sentences"]

_Values = Mapping[str, Any]


def sentences(path: str, values: _Values) -> list[str]:
    """Return the answer of a resource in sentences.

    Args:
        path: the path of the resource, below the table's.
        values: its answer.
    """
    return _BY_PATH[path.rpartition("/")[2]](values)


def _optimize(values: _Values) -> list[str]:
    if values["result"] == "dry-run":
        return _planned(values)
    metrics = values["operation-metrics"]
    if values["result"] == "nothing-to-do" or not metrics.get("numRemovedFiles"):
        return ["No file was worth rewriting. Nothing was changed."]
    before, after = (counted(metrics.get(name, 0), "file") for name in ("numRemovedFiles", "numAddedFiles"))
    sizes = [size(metrics.get(name, 0)) for name in ("numRemovedBytes", "numAddedBytes")]
    return [f"{before} with {sizes[0]} became {after} with {sizes[1]}.", *_version(values)]


def _planned(values: _Values) -> list[str]:
    if not values["num-files"]:
        return ["No file is worth rewriting."]
    gain = values["gain-bytes"]
    lines = [
        (
            f"{counted(values['num-files'], 'file')} with {size(values['size-in-bytes'])} would become about "
            f"{counted(values['new-files'], 'file')} with {size(values['new-size-in-bytes'])}, {size(abs(gain))} "
            f"{'more' if gain < 0 else 'less'}. Nothing was changed."
        ),
        "The new size is measured with a sample of the files; advice estimates it from the log.",
    ]
    if values["exceeds-limit"]:
        lines.append(
            "That is more than this service rewrites itself (DELVEC_DML_MAX_BYTES); run delvec optimize, or Spark."
        )
    return lines


def _compact(values: _Values) -> list[str]:
    if not values["num-deletion-vectors"]:
        return ["No deletion vector is worth moving. Nothing was changed."]
    is_dry = values["result"] == "dry-run"
    lines = [
        (
            f"{counted(values['num-deletion-vectors'], 'deletion vector')} of "
            f"{counted(values['num-vector-files'], 'file')} {'would be' if is_dry else 'are now'} in "
            f"{counted(values['new-vector-files'], 'file')}; VACUUM then frees about {size(values['gain-bytes'])}."
        )
    ]
    return [*lines, "Nothing was changed."] if is_dry else [*lines, *_version(values)]


def _checkpoint(values: _Values) -> list[str]:
    version = count(values["version"])
    if values["result"] == "exists":
        return [f"Version {version} has a checkpoint already."]
    files, written = counted(values["num-files"], "file"), size(values.get("size-in-bytes"))
    return [f"A checkpoint of version {version} was written: it lists {files} in {written}."]


def _vacuum(values: _Values) -> list[str]:
    files, were = _files(values)
    retention_text = f"Files removed in the last {values['retention-hours']:g} hours are kept."
    match values["result"]:
        case "dry-run" if not values["num-files"]:
            return ["There is nothing to delete.", retention_text]
        case "dry-run":
            return [f"{files} would be deleted. Nothing was changed.", retention_text]
        case "deleted":
            return [f"{files} {were} deleted permanently.", retention_text]
        case "quarantined":
            they = "it" if values["num-files"] == 1 else "they"
            return [
                f"{files} {were} moved into quarantine; {they} can be put back, or deleted.",
                retention_text,
            ]
    return ["There was nothing to delete.", retention_text]


def _restore(values: _Values) -> list[str]:
    metrics, version = values["operation-metrics"], count(values["restored-version"])
    if values["result"] == "nothing-to-do":
        return [f"The table already is as it was in version {version}."]
    back, away = (counted(metrics.get(name, 0), "file") for name in ("numRestoredFiles", "numRemovedFiles"))
    if values["result"] == "dry-run":
        return [f"{back} would come back and {away} would leave; the table would be as in version {version}."]
    return [f"{back} came back and {away} left: the table is as in version {version}.", *_version(values)]


def _undo(values: _Values) -> list[str]:
    lines = [f"{' '.join(_files(values))} put back."]
    if values["kept"]:
        lines.append(
            f"{counted(len(values['kept']), 'file')} stayed in quarantine, because another file has the same path."
        )
    return lines


def _purge(values: _Values) -> list[str]:
    return [f"{' '.join(_files(values))} deleted permanently."]


def _files(values: _Values) -> tuple[str, str]:
    """Return how many files with how many bytes, and the verb for them."""
    number = values["num-files"]
    return f"{counted(number, 'file')} with {size(values['size-in-bytes'])}", "was" if number == 1 else "were"


def _version(values: _Values) -> list[str]:
    return [] if values.get("version") is None else [f"Version {count(values['version'])} was committed."]


_BY_PATH: Final[Mapping[str, Callable[[_Values], list[str]]]] = {
    "optimize": _optimize,
    "compact": _compact,
    "checkpoint": _checkpoint,
    "vacuum": _vacuum,
    "restore": _restore,
    "undo": _undo,
    "purge": _purge,
}
"""By the last part of the path."""
