"""A table's state according to its files, by a replay that shares no code with Delvec's.

A damaged log may have several readings: from its first commit, from any of its checkpoints, with compactions
instead of commits or without. Each one that
works gives a :class:`State`, and a reader is right if it returns one of them. If none works, the table is
damaged, and a reader must say so.
"""

import json
import re
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

_COMPACTED = re.compile(r"(\d{20})\.(\d{20})\.compacted\.json")
_COMMIT = re.compile(r"(\d{20})\.json")
_CLASSIC = re.compile(r"(\d{20})\.checkpoint\.parquet")
_PART = re.compile(r"(\d{20})\.checkpoint\.(\d{10})\.(\d{10})\.parquet")
_V2 = re.compile(r"(\d{20})\.checkpoint\.[0-9a-fA-F\-]{36}\.(json|parquet)")
_ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_VALUES = {char: number for number, char in enumerate(_ALPHABET)}


class Written(float):
    """A number that remembers its spelling, which counts where the protocol requires text."""

    def __new__(cls, text):
        found = super().__new__(cls, text)
        found.text = text
        return found


_DECODER = json.JSONDecoder(parse_constant=lambda _: None, parse_float=Written)
"""NaN and Infinity are not JSON, but writers put them into metrics; read as null, as in Delvec."""
_MAX_VERSION = 2**63
_MAX_COMMITS = 10_000


class Damaged(Exception):
    """The files violate the protocol, as far as this replay checks."""


@dataclass(frozen=True)
class File:
    """A live file.

    Attributes:
        values: partition values by name.
        vector: the deletion vector descriptor as JSON, or None.
        stats: verbatim statistics, to detect changes.
    """

    path: str
    values: frozenset
    vector: str | None
    stats: str


@dataclass(frozen=True)
class State:
    """The table according to one reading.

    Attributes:
        version: the newest version.
        files: files by path.
        schema: the parsed schema JSON.
        layout: partition columns and the configuration that affects how files are read.
    """

    version: int
    files: dict[str, File]
    schema: dict
    layout: tuple

    def looks_like(self, other):
        """Whether both are the same table, ignoring statistics."""
        return self.rows_of(self) == self.rows_of(other)

    @staticmethod
    def rows_of(state):
        files = {path: (item.values, item.vector) for path, item in state.files.items()}
        return files, state.schema, state.layout

    def same_statistics(self, other):
        return {path: item.stats for path, item in self.files.items()} == {
            path: item.stats for path, item in other.files.items()
        }


def readings(folder):
    """Return every State that the log of the table in ``folder`` allows; none if it is damaged."""
    log = Path(folder) / "_delta_log"
    names = sorted(path.name for path in log.iterdir() if path.is_file()) if log.is_dir() else []
    commits = {int(found[1]): found[0] for name in names if (found := _COMMIT.fullmatch(name))}
    commits = {version: name for version, name in commits.items() if version < _MAX_VERSION}
    starts = _checkpoints(names)
    versions = [*commits, *(version for version, _ in starts)]
    if not versions:
        return []
    found = []
    for version, parts in [(-1, []), *starts]:
        # A checkpoint newer than every commit defines the newest version.
        for newest in {max(versions), max(commits, default=-1)}:
            if newest < version or newest - version > _MAX_COMMITS:
                continue
            for chain in _chains(commits, _compactions(names), version + 1, newest):
                try:
                    found.append(_replayed(Path(folder), parts, chain, newest))
                except _UNREADABLE:
                    continue
    return found


def _compactions(names):
    return [
        (int(found[1]), int(found[2]), found[0]) for name in names if (found := _COMPACTED.fullmatch(name))
    ]


def _chains(commits, compactions, first, last):
    """Yield the lists of files that lead from one version to another: commits, or a compaction in place of some."""
    for low, high, name in [(last + 1, last, None), *compactions]:
        if name is not None and not first <= low <= high <= last:
            continue
        before, after = range(first, low), range(high + 1, last + 1)
        if all(version in commits for version in (*before, *after)):
            middle = [] if name is None else [name]
            yield [
                *(commits[version] for version in before),
                *middle,
                *(commits[version] for version in after),
            ]


_UNREADABLE = (
    Damaged,
    ValueError,
    TypeError,
    KeyError,
    AttributeError,
    RecursionError,
    OSError,
    OverflowError,
    IndexError,
    struct.error,
    pa.ArrowException,
)


def _checkpoints(names):
    """Return (version, file names) of every complete checkpoint."""
    found, parts = [], {}
    for name in names:
        if match := _CLASSIC.fullmatch(name) or _V2.fullmatch(name):
            found.append((int(match[1]), [name]))
        elif match := _PART.fullmatch(name):
            parts.setdefault((int(match[1]), int(match[3])), {})[int(match[2])] = name
    for (version, count), members in parts.items():
        if count and sorted(members) == list(range(1, count + 1)):
            found.append((version, [members[number] for number in range(1, count + 1)]))
    return [item for item in found if item[0] < _MAX_VERSION]


def _replayed(folder, parts, commits, newest):
    """Return the State given by a checkpoint's files (or none) and the commits after it."""
    log = folder / "_delta_log"
    state = {"files": {}}
    for name in parts:
        for action in _checkpoint_actions(log, name):
            _apply(action, state, folder, in_checkpoint=True)
    for name in commits:
        actions = _json_actions(log / name)
        if not name.endswith(".compacted.json"):
            _check_once(actions, folder)
        # Order within a commit has no meaning: a remove refers to the state before the commit.
        for key in ("remove", "add", "metaData", "protocol"):
            for action in actions:
                if key in action:
                    _apply({key: action[key]}, state, folder)
    return _state(state, newest)


def _state(state, version):
    metadata, protocol = state.get("metaData"), state.get("protocol")
    if not isinstance(metadata, dict) or not isinstance(protocol, dict):
        raise Damaged("no metadata or protocol")
    schema = json.loads(metadata["schemaString"])
    if not isinstance(schema, dict):
        raise Damaged("schema")
    mode = _as_dict(metadata.get("configuration")).get("delta.columnMapping.mode", "none")
    return State(version, state["files"], schema, (tuple(metadata.get("partitionColumns") or ()), mode))


def _as_dict(value):
    return dict(value or {})


def _json_actions(path):
    text, found, position = path.read_bytes().decode(), [], 0
    while text[position:].strip():
        position += len(text[position:]) - len(text[position:].lstrip())
        action, position = _DECODER.raw_decode(text, position)
        if not isinstance(action, dict):
            raise Damaged("an action is no object")
        found.append({key: value for key, value in action.items() if value is not None})
    return found


def _checkpoint_actions(log, name):
    path = log / name
    actions = _json_actions(path) if name.endswith(".json") else _parquet_actions(path)
    for action in actions:
        if "sidecar" in action:
            place = action["sidecar"]["path"]
            inner = log / "_sidecars" / unquote(place) if "/" not in place else _inside(log.parent, place)
            actions = [*actions, *_parquet_actions(inner)]
    return actions


_NEEDED = ("add", "metaData", "protocol", "sidecar")
"""Checkpoint columns that define a version; a reader may ignore the others, even if damaged."""


def _parquet_actions(path):
    file = pq.ParquetFile(pa.BufferReader(path.read_bytes()))
    rows = file.read(columns=[name for name in file.schema_arrow.names if name in _NEEDED]).to_pylist()
    return [{key: value for key, value in row.items() if value is not None} for row in rows]


def key_of(folder, path):
    """Return the canonical form of a path in the log: decoded and relative to the table, or absolute if outside.

    Raises:
        Damaged: it is not a path, or leaves the table by ``..``.
    """
    if not isinstance(path, str) or not path or "\0" in path:
        raise Damaged("path")
    text = path
    if re.match(r"(?i)file:/", text):
        text = text[5:]
        if text.startswith("//"):
            host, _, rest = text[2:].partition("/")
            if host not in ("", "localhost"):
                raise Damaged("host")
            text = "/" + rest
    elif re.match(r"[A-Za-z][A-Za-z0-9+.\-]*:/", text):
        return text  # outside the table: legal as long as nobody has to read it
    segments = [unquote(part, errors="strict") for part in text.split("/")]
    if any(part == ".." or "\0" in part or "/" in part for part in segments):
        raise Damaged("dots")
    parts = [part for part in segments if part not in ("", ".")]
    if not parts and text.startswith("/"):
        return "/"  # outside, too
    if not parts:
        raise Damaged("empty path")
    if not text.startswith("/"):
        return "/".join(parts)
    absolute, root = "/" + "/".join(parts), f"{folder}/"
    return absolute.removeprefix(root)


def _inside(folder, path):
    key = key_of(folder, path)
    if key.startswith("/"):
        raise Damaged("outside")
    return Path(folder) / key


def _check_once(actions, folder):
    for kind in ("add", "remove"):
        keys = [key_of(folder, action[kind]["path"]) for action in actions if kind in action]
        if len(keys) != len(set(keys)):
            raise Damaged("twice")


def _descriptor(value):
    if value in (None, "") or not value.get("storageType"):
        return None
    names = ("storageType", "pathOrInlineDv", "offset", "sizeInBytes", "cardinality")
    return json.dumps([value.get(name) for name in names])


def _identity(vector):
    """Return a deletion vector's identity, which excludes its size and cardinality."""
    return None if vector is None else json.loads(vector)[:3]


def _apply(action, state, folder, *, in_checkpoint=False):
    files = state["files"]
    if "remove" in action:
        # A remove names a file and its deletion vector; if they do not match a live file, it removes nothing.
        key, vector = (
            key_of(folder, action["remove"]["path"]),
            _descriptor(action["remove"].get("deletionVector")),
        )
        if key in files and not in_checkpoint and _identity(files[key].vector) == _identity(vector):
            del files[key]
    if "add" in action:
        add = action["add"]
        key = key_of(folder, add["path"])
        if key in files and in_checkpoint:
            raise Damaged("twice in a checkpoint")
        values = frozenset(_as_dict(add.get("partitionValues")).items())
        stats = json.dumps([add.get("stats"), repr(add.get("stats_parsed"))])
        files[key] = File(key, values, _descriptor(add.get("deletionVector")), stats)
    for name in ("metaData", "protocol"):
        if name in action:
            state[name] = action[name]


# --- rows -----------------------------------------------------------------------------------------------


def deleted_rows(folder, vector):
    """Return the rows that a descriptor (as in ``File.vector``) marks as deleted.

    Raises:
        Damaged: it cannot be read.
    """
    try:
        return _deleted_rows(folder, *json.loads(vector))
    except _UNREADABLE as error:
        raise Damaged(str(error)) from error


def _deleted_rows(folder, storage, text, offset, size, cardinality):
    if storage == "i":
        payload = _z85(text)[:size]
    else:
        data = _vector_file(folder, storage, text).read_bytes()
        start = offset or 0
        if offset is None and data[:4] != struct.pack(">I", size):
            start = 1
        (found,) = struct.unpack_from(">I", data, start)
        payload = data[start + 4 : start + 4 + size]
        (checksum,) = struct.unpack_from(">I", data, start + 4 + size)
        if found != size or zlib.crc32(payload) != checksum:
            raise Damaged("frame")
    if size == 0 and cardinality == 0 and not text:
        return BitMap64()
    bitmap = _bitmap(payload)
    if len(bitmap) != cardinality:
        raise Damaged("cardinality")
    return bitmap


def _vector_file(folder, storage, text):
    if storage == "p":
        return _inside(folder, text)
    if storage != "u":
        raise Damaged("storage type")
    raw = _z85(text[-20:]).hex()
    name = f"{raw[:8]}-{raw[8:12]}-{raw[12:16]}-{raw[16:20]}-{raw[20:]}"
    prefix = text[:-20]
    if len(raw) != 32 or any(part in ("", ".", "..") for part in prefix.split("/") if prefix):
        raise Damaged("prefix")
    return Path(folder) / prefix / f"deletion_vector_{name}.bin"


def _z85(text):
    data = b""
    for start in range(0, len(text), 5):
        group, absent = text[start : start + 5], 0
        if group[0] == "#" and start + 5 == len(text):
            # Rust's z85 pads the last group with one # per missing byte, before the others.
            absent = len(group) - len(group.lstrip("#"))
        number = 0
        for char in group[absent:]:
            number = number * 85 + _VALUES[char]
        data += struct.pack(">I", number)[absent:]
    return data


def _bitmap(payload):
    (magic,) = struct.unpack_from("<I", payload)
    if magic == 1681511377:
        return BitMap64.deserialize(payload[4:])
    if magic != 1681511376:
        raise Damaged("magic")
    (count,) = struct.unpack_from("<I", payload, 4)
    found, position = BitMap64(), 8
    for high in range(count):
        (length,) = struct.unpack_from("<I", payload, position)
        inner = payload[position + 4 : position + 4 + length]
        found |= BitMap64.deserialize(struct.pack("<QI", 1, high) + inner)
        position += 4 + length
    return found


def number_of_rows(folder, state):
    """Return a State's number of rows, or None if a data file does not tell.

    Raises:
        Damaged: a deletion vector cannot be read.
    """
    total = 0
    for item in state.files.values():
        deleted = None if item.vector is None else deleted_rows(folder, item.vector)
        try:
            rows = pq.ParquetFile(pa.BufferReader((Path(folder) / item.path).read_bytes())).metadata.num_rows
        except (*_UNREADABLE,):
            return None
        total += rows if deleted is None else rows - len(deleted & BitMap64(range(rows)))
    return total
