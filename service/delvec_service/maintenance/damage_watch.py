"""What is known of damage to tables: the last ``check``, reads that failed, and a sample of live files in storage.

It is kept in memory. Errors of files are looked up again before they are reported, so that a file that was restored, or
is no longer live, is forgotten; other errors stay until the next check.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from delvec_errors import CorruptLog, LocationNotAllowed, StorageError
from delvec_kernel.snapshot.snapshot import Snapshot
from delvec_maintenance.checks.findings import Finding
from delvec_service.logs import logger
from delvec_service.maintenance.live_file_check import check_files
from delvec_service.store.lru_cache import LruCache
from delvec_service.store.open_table import OpenTable

__all__ = ["DamageWatch"]

_SAMPLE: Final = 32
_MAX_TABLES: Final = 10_000
_MAX_KEPT: Final = 100
_COLUMNS: Final = ("path", "size", "num_records", "deletion_vector")
_OF_FILES: Final = frozenset({"data-file", "readable-vector", "vector-within-file", "physical-count"})
"""Invariants that the check of live files looks at."""


@dataclass(frozen=True)
class _Damage:
    """The errors of a table: of its live files, and others."""

    files: tuple[Finding, ...] = ()
    others: tuple[Finding, ...] = ()


class DamageWatch:
    """The damage of all tables; safe to share between threads."""

    def __init__(self) -> None:
        self._tables: LruCache[str, _Damage] = LruCache(_MAX_TABLES)
        self._random = np.random.default_rng()

    def checked(self, table_id: str, errors: Sequence[Finding]) -> None:
        """Remember the result of a check, which replaces what was known."""
        files = [one for one in errors if one.invariant in _OF_FILES]
        others = [one for one in errors if one.invariant not in _OF_FILES]
        self._put(table_id, _Damage(tuple(files[:_MAX_KEPT]), tuple(others[:_MAX_KEPT])))

    def look(self, table: OpenTable, snapshot: Snapshot, failed: Sequence[str] = ()) -> list[Finding]:
        """Look up a sample of live files, and those that are known or said to be damaged; return the errors.

        Args:
            table: the table.
            snapshot: its newest version.
            failed: paths as in the log that could not be read; those that are not live are ignored.
        """
        known_damage = self._known(table.record.id)
        suspects = list(dict.fromkeys([*(one.file for one in known_damage.files if one.file), *failed]))
        try:
            findings = check_files(
                snapshot,
                table.objects,
                table.name,
                table.roots.allows,
                data_files=True,
                footers=False,  # reading them takes longer than everything else
                among=self._among(snapshot, suspects),
            ).findings
        except StorageError as error:
            logger.warning("live files not looked up", table=table.name, error=error.message)
            return self.remembered(table.record.id, snapshot)
        # Only a check compares footers, so what it has found there stays while the file is live.
        counts = [
            one for one in self._live(snapshot, known_damage.files) if one.invariant == "physical-count"
        ]
        damage = _Damage(tuple([*findings, *counts][:_MAX_KEPT]), known_damage.others)
        self._put(table.record.id, damage)
        return [*damage.files, *damage.others]

    def remembered(self, table_id: str, snapshot: Snapshot) -> list[Finding]:
        """Return the known errors of files that are still live, and others, without access to storage."""
        known = self._known(table_id)
        return [*self._live(snapshot, known.files), *known.others]

    def forget(self, table_id: str) -> None:
        """Discard what is known of a table that is no longer registered."""
        self._tables.discard([table_id])

    def _known(self, table_id: str) -> _Damage:
        return self._tables.get(table_id) or _Damage()

    def _put(self, table_id: str, damage: _Damage) -> None:
        if damage != self._known(table_id):
            self._tables.put(table_id, damage)

    @staticmethod
    def _live(snapshot: Snapshot, findings: Sequence[Finding]) -> list[Finding]:
        live_findings = []
        for one in findings:
            try:
                if one.file and snapshot.live.find(one.file) is not None:
                    live_findings.append(one)
            except (CorruptLog, LocationNotAllowed):
                live_findings.append(one)  # its path is what is wrong
        return live_findings

    def _among(self, snapshot: Snapshot, suspects: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the suspects, and of a random sample of all live files."""
        count = snapshot.num_files
        sample = (
            np.sort(self._random.choice(count, min(count, _SAMPLE), replace=False))
            if count
            else np.empty(0, int)
        )
        paths, start = pa.array(suspects, pa.string()), 0
        for batch in snapshot.live.batches(_COLUMNS):
            places = sample[(sample >= start) & (sample < start + batch.num_rows)] - start
            start += batch.num_rows
            if len(suspects):
                is_suspect = pc.is_in(batch["path"], value_set=paths).to_numpy(zero_copy_only=False)
                places = np.union1d(places, np.flatnonzero(is_suspect))
            if len(places):
                yield batch.take(pa.array(places, pa.int64()))
