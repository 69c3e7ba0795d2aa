"""Generates the log of a table of a million files, without data files: ``python -m benchmarks.large_table [--files N] [DIR]``.

The log has a classic checkpoint in one Parquet file, 20 commits after it that add and remove files, and
``_last_checkpoint``. The checkpoint is laid out as delta-spark 4.4 writes it by default: statistics both as JSON
(``stats``) and as columns (``stats_parsed``, with ``partitionValues_parsed``), Snappy, row groups of about 128 MiB, and the
files in no order, because delta-spark distributes them by the hash of their path; timestamps are INT96. ``--stats json`` and
``--stats parsed`` write only one form (``delta.checkpoint.writeStatsAsStruct`` or ``writeStatsAsJson`` turned off).
The output is reproducible byte for byte.

File ``i`` holds the ids from ``i * ROWS`` up, later files have later times, and the partitions are days; the
other columns spread over all files.
"""

import argparse
import itertools
import json
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.questions import Questions

__all__ = ["FIRST_DAY", "LargeTable", "large_table", "metadata", "paths_of"]

ROWS = 10_000
DAYS = 29
CHECKPOINT = 10
COMMITS = 20
REVISION = 2
_ADDS = 10
_WITH_DATA = 30
_ROW_GROUP = 131_072
FIRST_DAY = np.datetime64("2026-01-01")
_EPOCH = int(FIRST_DAY.astype("datetime64[ms]").astype(int))
_DAY_MS = 86_400_000
_TYPES: dict[str, tuple[str, pa.DataType]] = {
    "id": ("long", pa.int64()),
    "user": ("long", pa.int64()),
    "unit": ("integer", pa.int32()),
    "count": ("integer", pa.int32()),
    "price": ("double", pa.float64()),
    "rate": ("double", pa.float64()),
    "sum": ("decimal(12,2)", pa.decimal128(12, 2)),
    "land": ("string", pa.string()),
    "page": ("string", pa.string()),
    "at": ("timestamp", pa.timestamp("us", "UTC")),
    "due": ("date", pa.date32()),
}
_BOUNDS = pa.struct([(name, kind) for name, (_, kind) in _TYPES.items()])
_STATS = pa.struct(
    [
        ("numRecords", pa.int64()),
        ("minValues", _BOUNDS),
        ("maxValues", _BOUNDS),
        ("nullCount", pa.struct([(name, pa.int64()) for name in _TYPES])),
    ]
)
_TEXTS = pa.map_(pa.string(), pa.string())
_VECTOR = pa.struct(
    [
        ("storageType", pa.string()),
        ("pathOrInlineDv", pa.string()),
        ("offset", pa.int32()),
        ("sizeInBytes", pa.int32()),
        ("cardinality", pa.int64()),
        ("maxRowIndex", pa.int64()),
    ]
)
_METADATA = pa.struct(
    [
        ("id", pa.string()),
        ("name", pa.string()),
        ("description", pa.string()),
        ("format", pa.struct([("provider", pa.string()), ("options", _TEXTS)])),
        ("schemaString", pa.string()),
        ("partitionColumns", pa.list_(pa.string())),
        ("configuration", _TEXTS),
        ("createdTime", pa.int64()),
    ]
)
_PROTOCOL = pa.struct(
    [
        ("minReaderVersion", pa.int32()),
        ("minWriterVersion", pa.int32()),
        ("readerFeatures", pa.list_(pa.string())),
        ("writerFeatures", pa.list_(pa.string())),
    ]
)
_REMOVE = pa.struct(
    [
        ("path", pa.string()),
        ("deletionTimestamp", pa.int64()),
        ("dataChange", pa.bool_()),
        ("extendedFileMetadata", pa.bool_()),
        ("partitionValues", _TEXTS),
        ("size", pa.int64()),
        ("deletionVector", _VECTOR),
        ("baseRowId", pa.int64()),
        ("defaultRowCommitVersion", pa.int64()),
    ]
)
_TXN = pa.struct([("appId", pa.string()), ("version", pa.int64()), ("lastUpdated", pa.int64())])
_DOMAIN = pa.struct([("domain", pa.string()), ("configuration", pa.string()), ("removed", pa.bool_())])


@dataclass(frozen=True)
class LargeTable:
    """A generated table.

    Attributes:
        files: live files in the newest version.
        version: the newest version.
        gaps: numbers of the files that the commits after the checkpoint removed.
    """

    location: Path
    files: int
    version: int
    gaps: tuple[int, ...]

    def questions(self, prepared: Path, *, count: int = 500, commits: int = 30) -> Questions:
        """Return questions, and write their commits to the directory ``prepared``.

        Also writes the files of the first 30 predicates, with one matching row each.
        """
        gaps = set(self.gaps)
        predicates = []
        for number in range(count):
            first = number * 7919 % (self.files - 3)
            while gaps & {first, first + 1, first + 2}:
                first += 1
            predicates.append(f"id BETWEEN {first * ROWS + 5} AND {(first + 2) * ROWS + 5}")
            if number < _WITH_DATA:
                self._write_data(np.arange(first, first + 3))
        days = _day_numbers(np.arange(self.files), self.files)
        sizes = np.bincount(days, minlength=DAYS) - np.bincount(days[list(self.gaps)], minlength=DAYS)
        partitions = [  # but for the last one, which the commits add to
            (f"day = '{FIRST_DAY + np.timedelta64(day, 'D')}'", int(sizes[day])) for day in range(DAYS - 1)
        ]
        prepared.mkdir(parents=True, exist_ok=True)
        files = []
        for version in range(self.version + 1, self.version + 1 + commits):
            numbers = np.arange(_ADDS) + self.files * 2 + version * _ADDS
            text = _commit(version, _adds(numbers, self.files), ())
            name = f"{version:020d}.json"
            (prepared / name).write_text(text)
            files.append((str(prepared / name), str(self.location / "_delta_log" / name)))
        return Questions(str(self.location), self.files, self.version, predicates, partitions, files)

    def _write_data(self, numbers: np.ndarray) -> None:
        """Write files of one row, for readers that cannot plan without reading."""
        for number, path in zip(numbers.tolist(), paths_of(numbers, self.files).to_pylist(), strict=True):
            place = self.location / path
            place.parent.mkdir(exist_ok=True)
            pq.write_table(pa.table({"id": [number * ROWS + 5]}), place)


def large_table(location: Path, files: int, stats: str = "both") -> LargeTable:
    """Create the table at ``location``, unless it exists.

    Args:
        location: its directory; a table of another shape is replaced.
        files: live files, at least 1,000.
        stats: the checkpoint's statistics: ``json``, ``parsed`` or ``both``.
    """
    facts = {"revision": REVISION, "files": files, "stats": stats}
    per_commit = min(100, files // 200)
    added = COMMITS * per_commit
    # The commits add as many files as they remove; the removed ones are spread over the table.
    gaps = np.arange(added) * ((files - added) // added) + 5
    table = LargeTable(location, files, CHECKPOINT + COMMITS, tuple(gaps.tolist()))
    kept = location / "_generated.json"
    log = location / "_delta_log"
    if kept.exists() and json.loads(kept.read_text()) == facts:
        for commit in log.glob("*.json"):  # of earlier measurements
            if int(commit.stem) > table.version:
                commit.unlink()
        return table
    shutil.rmtree(location, ignore_errors=True)
    log.mkdir(parents=True)
    checkpoint = log / f"{CHECKPOINT:020d}.checkpoint.parquet"
    _write_checkpoint(checkpoint, files, stats)
    (log / f"{CHECKPOINT:020d}.json").write_text(_commit(CHECKPOINT, (), ()))  # earlier ones have expired
    for number in range(COMMITS):
        part = slice(number * per_commit, (number + 1) * per_commit)
        numbers = np.arange(files, files + added)[part]
        removed = paths_of(gaps[part], files).to_pylist()
        version = CHECKPOINT + 1 + number
        (log / f"{version:020d}.json").write_text(_commit(version, _adds(numbers, files), removed))
    (log / "_last_checkpoint").write_text(
        json.dumps({"version": CHECKPOINT, "size": files + 2, "sizeInBytes": checkpoint.stat().st_size})
    )
    kept.write_text(json.dumps(facts))
    return table


def metadata() -> dict[str, Any]:
    """Return the table's metaData for Arrow, with maps as lists of pairs."""
    kinds = {name: kind for name, (kind, _) in _TYPES.items()} | {"day": "date"}
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in kinds.items()]
    return {
        "id": "6a1c8c6e-06ab-4a5c-8fb6-6f2d0d2f4a11",
        "format": {"provider": "parquet", "options": []},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": ["day"],
        "configuration": [],
        "createdTime": _EPOCH,
    }


def _noise(numbers: np.ndarray, salt: int) -> np.ndarray:
    """Return a 64-bit hash of each file number."""
    mixed = (numbers.astype(np.uint64) + np.uint64(salt << 40)) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return mixed ^ (mixed >> np.uint64(31))


def _day_numbers(numbers: np.ndarray, files: int) -> np.ndarray:
    return np.minimum(numbers * DAYS // files, DAYS - 1)


def paths_of(numbers: np.ndarray, files: int) -> pa.Array:
    """Return ``day=2026-01-05/part-00042-<uuid>.c000.snappy.parquet`` for each file."""
    days = np.datetime_as_string(FIRST_DAY + _day_numbers(numbers, files)).astype("S10")
    words = np.stack([_noise(numbers, 1), _noise(numbers, 2)], axis=1).astype(">u8")
    digits = np.frombuffer(words.tobytes().hex().encode(), np.uint8).reshape(-1, 32)
    parts = numbers % 200
    pieces = [b"day=", days, b"/part-", np.char.zfill(parts.astype("S5"), 5), b"-"]
    ends = [0, 8, 12, 16, 20, 32]
    columns = [_characters(piece, len(numbers)) for piece in pieces]
    for start, end in itertools.pairwise(ends):
        columns += [
            digits[:, start:end],
            _characters(b"-" if end < 32 else b".c000.snappy.parquet", len(numbers)),
        ]
    wide = np.concatenate(columns, axis=1)
    offsets = np.arange(len(numbers) + 1, dtype=np.int32) * wide.shape[1]
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(wide.tobytes())]
    return pa.Array.from_buffers(pa.string(), len(numbers), buffers)


def _characters(piece: bytes | np.ndarray, count: int) -> np.ndarray:
    """Return ``count`` rows of characters."""
    if isinstance(piece, bytes):
        return np.tile(np.frombuffer(piece, np.uint8), (count, 1))
    return np.ascontiguousarray(piece).view(np.uint8).reshape(count, -1)


def _bounds(numbers: np.ndarray, files: int) -> dict[str, tuple[pa.Array, pa.Array, pa.Array]]:
    """Return low, high and null count of each column."""

    def low(salt: int, below: int) -> np.ndarray:
        return (_noise(numbers, salt) % np.uint64(below)).astype(np.int64)

    cents = low(7, 900_000)
    times = _EPOCH + numbers * (DAYS * _DAY_MS // files)
    countries = np.array([f"{a}{b}" for a in "ABCDEFGHIJKLM" for b in "NOPQRSTUVWXYZ"])
    country = low(9, len(countries) // 2)
    pages = pa.array([f"p{number:04d}" for number in range(10_000)])
    page = low(10, 9_000)
    spans: dict[str, tuple[Any, Any]] = {
        "id": (numbers * ROWS, numbers * ROWS + ROWS - 1),
        "user": (low(3, 10**6), 10**8 + low(4, 10**6)),
        "unit": (low(5, 1000), 60_000 + low(6, 1000)),
        "count": (1 + low(11, 3), 90 + low(12, 9)),
        "price": (low(13, 10_000) / 100, 500 + low(14, 50_000) / 100),
        "rate": (low(15, 1000) / 10_000, 0.5 + low(16, 5000) / 10_000),
        "sum": (_decimals(cents), _decimals(cents + 99_999)),
        "land": (countries[country], countries[country + len(countries) // 2]),
        "page": (pages.take(pa.array(page)), pages.take(pa.array(page + 1000))),
        "at": (pa.array(times * 1000), pa.array((times + 3_600_000) * 1000)),
        "due": (_dates(times), _dates(times + 30 * _DAY_MS)),
    }
    found = {}
    for position, (name, (_, kind)) in enumerate(_TYPES.items()):
        nulls = np.zeros(len(numbers), np.int64) if position < 3 else low(20 + position, 100)
        least, most = (pa.array(side).cast(kind) for side in spans[name])
        found[name] = least, most, pa.array(nulls)
    return found


def _decimals(cents: np.ndarray) -> pa.Array:
    whole = pa.array(cents).cast(pa.decimal128(19, 0))
    return pc.multiply(whole, pa.scalar("0.01").cast(pa.decimal128(3, 2))).cast(pa.decimal128(12, 2))


def _dates(milliseconds: np.ndarray) -> pa.Array:
    return pa.array((milliseconds // _DAY_MS).astype(np.int32)).cast(pa.date32())


def _json_text(values: pa.Array) -> pa.Array:
    """Return each value in delta-spark's format for statistics."""
    if pa.types.is_timestamp(values.type):
        text = values.cast(pa.timestamp("ms")).cast(pa.string())
        text = pc.binary_join_element_wise(pc.replace_substring(text, " ", "T"), "Z", "")
    else:
        text = values.cast(pa.string())
    quoted = pa.types.is_timestamp(values.type) or pa.types.is_date(values.type) or values.type == pa.string()
    return pc.binary_join_element_wise('"', text, '"', "") if quoted else text


def _stats(bounds: dict[str, tuple[pa.Array, pa.Array, pa.Array]]) -> pa.Array:
    """Return the statistics as JSON."""
    pieces: list[Any] = [f'{{"numRecords":{ROWS}']
    for position, group in enumerate(("minValues", "maxValues", "nullCount")):
        mark = f',"{group}":{{'
        for name, columns in bounds.items():
            pieces += [f'{mark}"{name}":', _json_text(columns[position])]
            mark = ","
        pieces.append("}")
    return pc.binary_join_element_wise(*pieces, "}", "")


def _adds(numbers: np.ndarray, files: int) -> list[dict[str, Any]]:
    """Return add actions as in commits."""
    paths = paths_of(numbers, files).to_pylist()
    days = [str(FIRST_DAY + np.timedelta64(int(day), "D")) for day in _day_numbers(numbers, files)]
    stats = _stats(_bounds(numbers, files)).to_pylist()
    sizes = _sizes(numbers).tolist()
    return [
        {
            "path": path,
            "partitionValues": {"day": day},
            "size": size,
            "modificationTime": _EPOCH + int(number),
            "dataChange": True,
            "stats": text,
        }
        for number, path, day, size, text in zip(numbers, paths, days, sizes, stats, strict=True)
    ]


def _sizes(numbers: np.ndarray) -> np.ndarray:
    return 400_000 + (_noise(numbers, 17) % np.uint64(200_000)).astype(np.int64)


def _commit(version: int, adds: Sequence[dict[str, Any]], removes: Sequence[str]) -> str:
    now = _EPOCH + version * 60_000
    info = {"timestamp": now, "operation": "WRITE", "operationParameters": {"mode": "Append"}}
    lines: list[dict[str, Any]] = [{"commitInfo": info}, *({"add": add} for add in adds)]
    lines += ({"remove": {"path": path, "deletionTimestamp": now, "dataChange": True}} for path in removes)
    return "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)


def _write_checkpoint(path: Path, files: int, stats: str) -> None:
    order = np.random.default_rng(11).permutation(files)
    rest = {
        "tags": _TEXTS,
        "deletionVector": _VECTOR,
        "baseRowId": pa.int64(),
        "defaultRowCommitVersion": pa.int64(),
        "clusteringProvider": pa.string(),
    }

    def add(numbers: np.ndarray) -> pa.StructArray:
        days = pa.array(_day_numbers(numbers, files) + int(FIRST_DAY.astype(int)))
        dates = days.cast(pa.int32()).cast(pa.date32())
        ends = pa.array(np.arange(len(numbers) + 1, dtype=np.int32))
        keys = pa.repeat(pa.scalar("day"), len(numbers))
        columns: dict[str, pa.Array] = {
            "path": paths_of(numbers, files),
            "partitionValues": pa.MapArray.from_arrays(ends, keys, dates.cast(pa.string())),
            "size": pa.array(_sizes(numbers)),
            "modificationTime": pa.array(_EPOCH + numbers),
            "dataChange": pa.repeat(pa.scalar(False), len(numbers)),
        }
        columns |= {name: pa.nulls(len(numbers), kind) for name, kind in rest.items()}
        bounds = _bounds(numbers, files)
        if stats in ("json", "both"):
            columns["stats"] = _stats(bounds)
        if stats in ("parsed", "both"):
            columns["partitionValues_parsed"] = pa.StructArray.from_arrays([dates], ["day"])
            sides = [
                pa.StructArray.from_arrays([found[side] for found in bounds.values()], list(bounds))
                for side in range(3)
            ]
            counts = pa.repeat(pa.scalar(ROWS), len(numbers))
            columns["stats_parsed"] = pa.StructArray.from_arrays(
                [counts, *sides], fields=[_STATS.field(n) for n in range(_STATS.num_fields)]
            )
        return pa.StructArray.from_arrays(list(columns.values()), list(columns))

    heads = {
        "metaData": pa.array([None, metadata()], _METADATA),
        "protocol": pa.array([{"minReaderVersion": 1, "minWriterVersion": 2}, None], _PROTOCOL),
    }
    schema = pa.schema(
        [
            ("txn", _TXN),
            ("add", add(order[:1]).type),
            ("remove", _REMOVE),
            ("metaData", _METADATA),
            ("protocol", _PROTOCOL),
            ("domainMetadata", _DOMAIN),
        ]
    )
    _write_rows(path, schema, order, add, heads)


def _write_rows(
    path: Path,
    schema: pa.Schema,
    order: np.ndarray,
    add: Callable[[np.ndarray], pa.StructArray],
    heads: dict[str, pa.Array],
) -> None:
    like_spark: dict[str, Any] = {"use_deprecated_int96_timestamps": True, "store_decimal_as_integer": True}
    with pq.ParquetWriter(path, schema, compression="snappy", version="1.0", **like_spark) as writer:
        for start in range(0, len(order), _ROW_GROUP):
            adds = add(order[start : start + _ROW_GROUP])
            empty = {field.name: pa.nulls(len(adds), field.type) for field in schema}
            writer.write_table(pa.table({**empty, "add": adds}, schema=schema), row_group_size=_ROW_GROUP)
        empty = {field.name: pa.nulls(2, field.type) for field in schema}
        writer.write_table(pa.table({**empty, **heads}, schema=schema))


def main() -> None:
    """Create the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--files", type=int, default=1_000_000)
    parser.add_argument("--stats", choices=("json", "parsed", "both"), default="both")
    parser.add_argument("location", type=Path, nargs="?", metavar="DIR")
    arguments = parser.parse_args()
    location = arguments.location or Path(".build/benchmarks") / f"large-{arguments.files}-{arguments.stats}"
    table = large_table(location, arguments.files, arguments.stats)
    print(f"{table.location}: {table.files:,} files, version {table.version}")
    with tempfile.TemporaryDirectory() as scratch:
        questions = table.questions(Path(scratch), count=2, commits=0)
    print(f"three files: {questions.select(1)}; one partition: {questions.partition(7)[0]}")


if __name__ == "__main__":
    main()
