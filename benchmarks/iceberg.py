"""Conversion to Iceberg: ``python -m benchmarks.iceberg [--files N] [--deleted N] [--runs N] [--out FILE]``.

The table has a log and deletion vector files, but no data files, which conversions do not open. Of N files, 30 % have a
deletion vector, with random deleted rows. A process converts the whole table, and then increments: after commits
that delete a row of one file, and rows of 1 % of the files. For comparison, copying the bytes of the deletion vectors is timed.
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

import numpy as np
from pyroaring import BitMap64

from benchmarks.provenance import machine, measured_in, this_run
from delvec_kernel.deletion_vectors.deletion_vector import FRAME_OVERHEAD, encode, frame
from delvec_kernel.locations import canonical
from delvec_service.iceberg.conversion import IcebergConversion
from delvec_service.snapshots.loader import SnapshotLoader
from delvec_service.store.open_table import OpenTable
from delvec_storage.roots import Roots

_ROWS = 100_000
_WITH_VECTOR = 0.3
_VECTOR_FILE = 64 * 1024 * 1024
_FILES_IN_COMMIT = 100_000
"""The service reads commits of up to 256 MiB."""
_MEBIBYTE = 1024 * 1024


class GeneratedTable:
    """A generated table.

    Args:
        location: an empty directory.
        files: number of data files.
        deleted: number of deleted rows.
    """

    def __init__(self, location: Path, files: int, deleted: int) -> None:
        self.location = location
        self.files = files
        self.version = 0
        self._random = np.random.default_rng(5)
        self._vectors: dict[int, tuple[BitMap64, dict[str, Any]]] = {}
        (location / "_delta_log").mkdir(parents=True)
        marked = self._random.permutation(files)[: round(files * _WITH_VECTOR)].tolist()
        rows = max(1, deleted // max(1, len(marked)))
        self._write({number: self._rows(rows) for number in marked})
        features = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
        fields = [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]
        metadata = {
            "id": "5b3cbd73-1e3e-4c63-9f27-0f2f7a8cf3c9",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps({"type": "struct", "fields": fields}),
            "partitionColumns": [],
            "configuration": {"delta.enableDeletionVectors": "true"},
            "createdTime": 0,
        }
        created = [
            {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}},
            {"metaData": metadata},
        ]
        self._commit("WRITE", [*created, *self._added(range(min(files, _FILES_IN_COMMIT)))])
        for first in range(_FILES_IN_COMMIT, files, _FILES_IN_COMMIT):
            self.version += 1
            self._commit("WRITE", self._added(range(first, min(files, first + _FILES_IN_COMMIT))))

    @property
    def vector_files(self) -> Sequence[Path]:
        """The deletion vector files."""
        return sorted(self.location.glob("*.bin"))

    def delete(self, files: int) -> None:
        """Commit a DELETE of one more row in each of ``count`` files."""
        self.version += 1
        chosen = self._random.permutation(self.files)[:files].tolist()
        removes = [self._remove(number) for number in chosen]
        grown = {}
        for number in chosen:
            rows = BitMap64() if number not in self._vectors else self._vectors[number][0].copy()
            rows.add(next(row for row in range(_ROWS) if row not in rows))
            grown[number] = rows
        self._write(grown)
        adds = ({"add": self._add(number)} for number in chosen)
        self._commit("DELETE", [*({"remove": one} for one in removes), *adds])

    def _rows(self, count: int) -> BitMap64:
        found = self._random.choice(_ROWS, size=min(count, _ROWS), replace=False)
        return BitMap64(found.astype(np.uint64))

    def _write(self, vectors: dict[int, BitMap64]) -> None:
        """Write deletion vectors into files of 64 MiB."""
        part = bytearray(b"\x01")
        name = f"vectors-{self.version}-0.bin"
        made = 0
        for number, rows in vectors.items():
            record = frame(encode(rows))
            descriptor = {
                "storageType": "p",
                "pathOrInlineDv": (self.location / name).as_uri(),
                "offset": len(part),
                "sizeInBytes": len(record) - FRAME_OVERHEAD,
                "cardinality": len(rows),
            }
            part += record
            self._vectors[number] = rows, descriptor
            if len(part) > _VECTOR_FILE:
                (self.location / name).write_bytes(part)
                made += 1
                name, part = f"vectors-{self.version}-{made}.bin", bytearray(b"\x01")
        if len(part) > 1:
            (self.location / name).write_bytes(part)

    def _commit(self, operation: str, actions: Sequence[dict[str, Any]]) -> None:
        info = {"timestamp": time.time_ns() // 1_000_000, "operation": operation, "operationParameters": {}}
        lines = [{"commitInfo": info}, *actions]
        path = self.location / "_delta_log" / f"{self.version:020d}.json"
        path.write_text("\n".join(map(json.dumps, lines)))

    def _add(self, number: int) -> dict[str, Any]:
        first = number * _ROWS
        stats = {
            "numRecords": _ROWS,
            "minValues": {"id": first},
            "maxValues": {"id": first + _ROWS - 1},
            "nullCount": {"id": 0},
            "tightBounds": number not in self._vectors,
        }
        found = self._file(number) | {"modificationTime": 0, "dataChange": True, "stats": json.dumps(stats)}
        return found | {"size": 1_000_000, "partitionValues": {}}

    def _added(self, numbers: range) -> list[dict[str, Any]]:
        return [{"add": self._add(number)} for number in numbers]

    def _remove(self, number: int) -> dict[str, Any]:
        return self._file(number) | {"deletionTimestamp": 0, "dataChange": True, "size": 1_000_000}

    def _file(self, number: int) -> dict[str, Any]:
        found: dict[str, Any] = {"path": f"part-{number:07d}.parquet"}
        return found | ({"deletionVector": self._vectors[number][1]} if number in self._vectors else {})


def measured(format_version: int, files: int, deleted: int, runs: int, folder: Path) -> dict[str, Any]:
    """Return seconds and memory of the conversions to a format version; runs in its own process."""
    table = GeneratedTable(folder / "table", files, deleted)
    record = SimpleNamespace(name="table", location=canonical(str(table.location)))
    opened = OpenTable(record, Roots(()))  # type: ignore[arg-type] # a name and a location are all it is asked for
    loader = SnapshotLoader()
    loader.load(opened.objects, "table")
    conversion = IcebergConversion(loader)
    before = _peak()

    def convert() -> float:
        began = time.perf_counter()
        done = conversion.convert(opened, format_version=format_version)
        taken = time.perf_counter() - began
        assert done.delta_version == table.version
        return taken

    found: dict[str, Any] = {"whole": convert(), "memory": _peak() - before, "process": _peak()}
    for name, count in (("one", 1), ("percent", max(1, files // 100))):
        times = []
        for _ in range(runs):
            table.delete(count)
            loader.load(opened.objects, "table")
            times.append(convert())
        found[name] = [median(times), min(times), max(times)]
    if format_version > 2:
        began = time.perf_counter()
        for number, path in enumerate(table.vector_files):
            _copy(path, folder / f"copy-{number}")
        found["copy"] = time.perf_counter() - began
    found["bytes"] = sum(path.stat().st_size for path in table.vector_files)
    return found


def _copy(source: Path, target: Path) -> None:
    with source.open("rb") as read, target.open("wb") as written:
        shutil.copyfileobj(read, written, _MEBIBYTE)
        written.flush()
        os.fsync(written.fileno())


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _lines(found: dict[int, dict[str, Any]], files: int, deleted: int) -> Iterator[str]:
    yield f"{files:,} files, {round(files * _WITH_VECTOR):,} of them with deletion vectors of {deleted:,} rows together. {machine()}. "
    yield f"{measured_in([this_run()])}\n\n"
    yield "| | v2: position deletes | v3: deletion vectors |\n|---|---:|---:|\n"

    def row(name: str, cell: Any) -> str:
        return f"| {name} | {' | '.join(cell(found[version]) for version in sorted(found))} |\n"

    def times(name: str) -> Any:
        return lambda one: (
            f"{1000 * one[name][0]:.0f} ms, {1000 * one[name][1]:.0f} to {1000 * one[name][2]:.0f} ms"
        )

    yield row("the whole table", lambda one: f"{one['whole']:.2f} s")
    yield row(
        "copying the deletion vectors' bytes, for comparison",
        lambda one: f"{one['copy']:.2f} s" if "copy" in one else "",
    )
    yield row(
        "more memory than with the table loaded, at most", lambda one: f"{one['memory'] / _MEBIBYTE:.0f} MiB"
    )
    yield row("increment: one more row deleted in one file; median, fastest, slowest", times("one"))
    yield row("increment: one more row deleted in 1 % of the files", times("percent"))


def main() -> None:
    """Measure, and print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--deleted", type=int, default=10_000_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--out", type=Path, help="write there, too")
    parser.add_argument("--format-version", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.format_version is not None:
        with tempfile.TemporaryDirectory() as folder:
            found = measured(
                arguments.format_version, arguments.files, arguments.deleted, arguments.runs, Path(folder)
            )
        print(json.dumps(found))
        return
    figures = {}
    for version in (2, 3):
        command = [sys.executable, "-m", "benchmarks.iceberg", "--format-version", str(version)]
        for name in ("files", "deleted", "runs"):
            command += [f"--{name}", str(getattr(arguments, name))]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        figures[version] = json.loads(done.stdout.splitlines()[-1])
    page = "".join(_lines(figures, arguments.files, arguments.deleted))
    print(page)
    if arguments.out is not None:
        arguments.out.write_text(page)


if __name__ == "__main__":
    main()
