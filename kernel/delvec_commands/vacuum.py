"""VACUUM: plans for approval, inventories of object stores, and quarantines."""

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, Literal

import pyarrow as pa
import pyarrow.compute as pc

from delvec_commands.table_service import TableService, request
from delvec_contract import operations
from delvec_contract.maintenance import VacuumRequest
from delvec_contract.shapes import FILES
from delvec_errors import BadRequest
from delvec_kernel.locations import canonical_relative

__all__ = ["Vacuum", "VacuumPlan"]

_FORMAT: Final = "delvec-vacuum-plan"
_INVENTORY: Final = ("path", "length", "isDir", "modificationTime")


@dataclass(frozen=True)
class VacuumPlan:
    """What a VACUUM would delete, to review, reduce and approve first.

    Attributes:
        table_id: the service's id of the table.
        location: the table's.
        version: the newest version when the plan was made.
        made_at: ISO 8601.
        retention_hours: how long removed files are kept; None for the table's own.
        enforce_retention_duration: as in :meth:`delvec.DeltaTable.vacuum`.
        keep_versions: versions to keep readable.
        files: paths as in the log.
    """

    table_id: str
    location: str
    version: int
    made_at: str
    retention_hours: float | None
    enforce_retention_duration: bool
    keep_versions: list[int]
    files: list[str] = field(repr=False)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the plan as JSON Lines: a header, then one path per line. Files whose lines are removed are kept."""
        head = {"format": _FORMAT, **asdict(self), "num_files": len(self.files)}
        head.pop("files")
        with Path(path).open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in (head, *self.files))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "VacuumPlan":
        """Read a saved plan.

        Raises:
            BadRequest: the file is not a plan.
            OSError: the file cannot be read.
        """
        try:
            with Path(path).open(encoding="utf-8") as file:
                head, *files = (json.loads(line) for line in file if line.strip())
            is_plan = head.pop("format") == _FORMAT and all(isinstance(each, str) for each in files)
            head.pop("num_files", None)
            plan = cls(**head, files=files)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            is_plan = False
        if not is_plan:
            raise BadRequest(
                f"{os.fspath(path)} is not a VACUUM plan; `delvec vacuum TABLE --plan-to FILE` writes one."
            )
        return plan


@dataclass(frozen=True)
class Vacuum:
    """VACUUM of one table, and its quarantines."""

    service: TableService
    table_id: str
    location: str

    def run(
        self,
        *,
        plan: VacuumPlan | None = None,
        inventory: pa.Table | None = None,
        dry_run: bool = False,
        limit: int = 1000,
        **options: Any,
    ) -> dict[str, Any]:
        """Run VACUUM; see :meth:`delvec.DeltaTable.vacuum`."""
        if plan is not None:
            if inventory is not None:
                raise BadRequest("vacuum() takes a plan or an inventory, not both")
            options |= self._approved(plan)
            return self._some(plan.files, dry_run=dry_run, limit=limit, **options)
        if inventory is not None:
            return self._some(self._listed(inventory), dry_run=dry_run, limit=limit, **options)
        return self._one(dry_run=dry_run, limit=limit, **options)

    def plan(
        self,
        retention_hours: float | None,
        keep_versions: Sequence[int],
        *,
        enforce_retention_duration: bool,
        mode: Literal["full", "lite"],
        inventory: pa.Table | None,
    ) -> VacuumPlan:
        """Return what would be deleted; see :meth:`delvec.DeltaTable.plan_vacuum`."""
        vacuum_result = self.run(
            inventory=inventory,
            dry_run=True,
            limit=FILES,
            retention_hours=retention_hours,
            enforce_retention_duration=enforce_retention_duration,
            keep_versions=list(keep_versions),
            mode=mode,
        )
        return VacuumPlan(
            self.table_id,
            self.location,
            vacuum_result["version"],
            datetime.now(UTC).isoformat(timespec="seconds"),
            retention_hours,
            enforce_retention_duration,
            list(keep_versions),
            vacuum_result["files"][: vacuum_result["num-files"]],
        )

    def quarantines(self) -> list[dict[str, Any]]:
        """Return the table's quarantines, newest first."""
        answered = self.service.call(operations.LIST_QUARANTINES, table=self.table_id)
        return [one.model_dump(by_alias=True) for one in answered.quarantines]

    def undo(self, quarantine: str) -> dict[str, Any]:
        """Move the files of a quarantine back."""
        answered = self.service.call(operations.UNDO_VACUUM, table=self.table_id, quarantine=quarantine)
        return answered.model_dump(by_alias=True)

    def purge(self, quarantine: str | None, older_than_hours: float) -> list[dict[str, Any]]:
        """Delete the files of one quarantine, or of all that are old enough."""
        chosen = [quarantine] if quarantine is not None else self._older(older_than_hours)
        answers = (
            self.service.call(operations.PURGE_VACUUMED, table=self.table_id, quarantine=name)
            for name in chosen
        )
        return [one.model_dump(by_alias=True) for one in answers]

    def _older(self, hours: float) -> list[str]:
        since = datetime.now(UTC) - timedelta(hours=hours)
        return [one["id"] for one in self.quarantines() if datetime.fromisoformat(one["created-at"]) <= since]

    def _approved(self, plan: VacuumPlan) -> dict[str, Any]:
        if plan.location != self.location:
            raise BadRequest(
                f"The plan belongs to the table at {plan.location}, but this table is at {self.location}; make a plan "
                "for this table."
            )
        return {
            "retention_hours": plan.retention_hours,
            "enforce_retention_duration": plan.enforce_retention_duration,
            "keep_versions": plan.keep_versions,
        }

    def _listed(self, inventory: pa.Table) -> list[str]:
        """Return the paths of an inventory's files below the table, as in the log.

        Raises:
            BadRequest: it lacks a column.
        """
        missing = [name for name in _INVENTORY[:3] if name not in inventory.column_names]
        if missing:
            raise BadRequest(
                f"An inventory must have the columns {', '.join(_INVENTORY)}, but this one lacks {', '.join(missing)}."
            )
        files = inventory.filter(pc.invert(pc.fill_null(inventory["isDir"], fill_value=False)))
        paths = pc.unique(pc.drop_null(files["path"].cast(pa.string()))).to_pylist()
        below = (self._below(path) for path in paths)
        return [path for path in below if path]

    def _below(self, path: str) -> str | None:
        """Return an inventory's path, which is not URL-encoded, as in the log; None if it is elsewhere."""
        for root in (
            self.location,
            self.location.removeprefix("file://"),
            self.location.replace("file:///", "file:/"),
        ):
            if path.startswith(f"{root}/"):
                return canonical_relative(path[len(root) + 1 :])
        is_relative = not path.startswith("/") and "://" not in path and not path.startswith("file:/")
        return canonical_relative(path) if is_relative else None

    def _some(
        self, files: Sequence[str], *, limit: int, mode: str = "full", **options: Any
    ) -> dict[str, Any]:
        """Vacuum these files, as many per request as allowed."""
        if mode != "full":
            raise BadRequest("a plan or an inventory lists the files already: leave out mode='lite'")
        vacuum_result = self._one(files=list(files[:FILES]), limit=limit, **options)
        for start in range(FILES, len(files), FILES):
            more = self._one(files=list(files[start : start + FILES]), limit=limit, **options)
            result = (
                more["result"] if vacuum_result["result"] == "nothing-to-delete" else vacuum_result["result"]
            )
            added = {name: vacuum_result[name] + more[name] for name in ("num-files", "size-in-bytes")}
            vacuum_result = {
                **more,
                **added,
                "result": result,
                "files": [*vacuum_result["files"], *more["files"]][:limit],
            }
        return vacuum_result

    def _one(self, **options: Any) -> dict[str, Any]:
        body = request(VacuumRequest, **options)
        return self.service.call(operations.VACUUM, body, table=self.table_id).model_dump(by_alias=True)
