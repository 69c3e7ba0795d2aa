"""An Iceberg table from its metadata file: columns, partition specs, snapshot (Iceberg spec, "Table Metadata").

Tested in `tests/integration/client/test_iceberg_import.py`.
"""

import json
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from delvec_errors import BadRequest, InvalidTableChange, UnsupportedOperation
from delvec_kernel import locations
from delvec_storage.files import Allowed, read, stat

__all__ = [
    "IcebergSource",
    "PartitionField",
    "file_url",
    "iceberg_directory",
    "load_table",
    "refusal",
    "unsupported",
]

_MAX_METADATA: Final = 128 << 20
_MAX_HINT: Final = 1024
_NEWEST_FORMAT: Final = 3
_NO_SNAPSHOT: Final = -1
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*):(?://([^/]*))?(.*)", re.DOTALL)
_METADATA_FILE: Final = re.compile(r".*\.metadata\.json(?:\.gz)?")
_GZIP: Final = (".gz.metadata.json", ".metadata.json.gz")
_GZIP_WINDOW: Final = 31


@dataclass(frozen=True)
class PartitionField:
    """One field of a partition spec.

    Attributes:
        source_id: id of the column.
        field_id: id of the value in manifests.
        transform: ``identity``, ``day``, ``bucket[16]``, ...
    """

    source_id: int
    field_id: int
    transform: str


@dataclass(frozen=True)
class IcebergSource:
    """An Iceberg table at its current snapshot.

    Attributes:
        location: canonical location of the table.
        metadata: canonical URL of the metadata file.
        schema: the current schema's JSON.
        specs: partition specs by id.
        snapshot_id: None if the table has no snapshot yet.
        manifest_list: as spelled in the metadata; None as for ``snapshot_id``.
        times: times of all known snapshots by id, in milliseconds since the epoch.
        last_column_id: the highest column id, including dropped columns.
        name_mapping: JSON of ``schema.name-mapping.default``; None if it is not set.
    """

    location: str
    metadata: str
    format_version: int
    schema: Mapping[str, Any]
    specs: Mapping[int, Sequence[PartitionField]]
    snapshot_id: int | None
    manifest_list: str | None
    times: Mapping[int, int]
    last_column_id: int
    name_mapping: Sequence[Mapping[str, Any]] | None


def refusal(location: str, problem: str, **details: Any) -> InvalidTableChange:
    """Return the error for contradictory files; ``problem`` says what is wrong and what to do."""
    return InvalidTableChange(
        f"The Iceberg table at {location} cannot be imported: {problem}", location=location, **details
    )


def unsupported(location: str, problem: str, **details: Any) -> UnsupportedOperation:
    """Return the error for an unsupported feature; ``problem`` says what it is and what to do."""
    return UnsupportedOperation(
        f"The Iceberg table at {location} cannot be imported: {problem}",
        operation="CONVERT",
        location=location,
        **details,
    )


def file_url(text: str) -> str:
    """Return the canonical URL of a file as spelled in Iceberg metadata, where no character is an escape.

    Raises:
        InvalidLocation: it is relative, of an unknown kind, or has ``..`` in it.
    """
    found = _SCHEME.fullmatch(text)
    if found is None:
        return locations.canonical(text)
    scheme, authority, path = found[1], found[2], found[3]
    return locations.canonical(f"{scheme}://{authority or ''}{quote(path, safe='/')}")


def load_table(source: str, is_allowed: Allowed) -> IcebergSource:
    """Read the newest metadata of a table.

    Args:
        source: canonical URL of the table's directory, or of one metadata file in its ``metadata``.
        is_allowed: decides by URL what may be read.

    Raises:
        BadRequest: there is no metadata file, or it is unclear which one is the newest.
        InvalidTableChange: it is not the metadata of a table.
        UnsupportedOperation: it has a format version that Delvec does not support, or is encrypted.
        UnusableFile: it is larger than 128 MiB.
        LocationNotAllowed: it is outside the roots.
        StorageError: storage did not answer.
    """
    location = iceberg_directory(source)
    url = _newest(source, is_allowed) if location == source else source
    try:
        data = read(location, url, is_allowed=is_allowed, max_bytes=_MAX_METADATA)
    except FileNotFoundError as error:
        raise BadRequest(
            f"{url} does not exist; give the location of an Iceberg table or metadata file.",
            location=location,
            file=url,
        ) from error
    try:
        return _parsed(location, url, json.loads(_plain(url, data)))
    except (
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        OverflowError,
        RecursionError,
        zlib.error,
    ) as error:
        raise refusal(
            location,
            f"its metadata file {url} is damaged ({type(error).__name__}: {str(error)[:200]}). Use an older one.",
            file=url,
        ) from error


def iceberg_directory(source: str) -> str:
    """Return the directory of the Iceberg table at a canonical URL: its directory's, or that of a file in its ``metadata``."""
    return source.rpartition("/")[0].removesuffix("/metadata") if _METADATA_FILE.fullmatch(source) else source


def _newest(location: str, is_allowed: Allowed) -> str:
    """Return the metadata file in the version hint, or a later one that a writer finished after the hint."""
    try:
        hint = read(location, "metadata/version-hint.text", is_allowed=is_allowed, max_bytes=_MAX_HINT)
    except FileNotFoundError as error:
        raise BadRequest(
            f"metadata/version-hint.text does not exist at {location}, so only the table's catalog knows which "
            "metadata file is current; give that file, .../metadata/NNNNN-....metadata.json.",
            location=location,
        ) from error
    text = hint.decode("utf-8", "replace").strip()
    if not (text.isascii() and text.isdigit() and len(text) < 10):  # noqa: PLR2004 - as many versions as no table has
        raise BadRequest(
            f"metadata/version-hint.text at {location} contains {text[:100]!r}, which is not a version; give the "
            "metadata file.",
            location=location,
        )
    version = int(text)
    metadata_file = _version_file(location, version, is_allowed)
    if metadata_file is None:
        raise BadRequest(
            f"metadata/version-hint.text at {location} says {version}, but metadata/v{version}.metadata.json does "
            "not exist; give the metadata file.",
            location=location,
        )
    while (later := _version_file(location, version + 1, is_allowed)) is not None:
        version, metadata_file = version + 1, later
    return metadata_file


def _version_file(location: str, version: int, is_allowed: Allowed) -> str | None:
    for ending in ("metadata.json", "gz.metadata.json", "metadata.json.gz"):
        path = f"metadata/v{version}.{ending}"
        if stat(location, path, is_allowed=is_allowed) is not None:
            return f"{location}/{path}"
    return None


def _plain(url: str, data: bytes) -> bytes:
    if not url.endswith(_GZIP):
        return data
    unpacked = zlib.decompressobj(_GZIP_WINDOW).decompress(data, _MAX_METADATA)
    if len(unpacked) >= _MAX_METADATA:
        raise ValueError(f"it is larger than {_MAX_METADATA} bytes")
    return unpacked


def _parsed(location: str, url: str, metadata: Mapping[str, Any]) -> IcebergSource:
    version = metadata["format-version"]
    if not isinstance(version, int) or not 1 <= version <= _NEWEST_FORMAT:
        raise unsupported(
            location,
            f"it has format version {str(version)[:20]}; Delvec reads versions 1 to {_NEWEST_FORMAT}.",
            file=url,
        )
    if metadata.get("encryption-keys"):
        raise unsupported(location, "it is encrypted. Write its rows to a new table.", file=url)
    current = metadata.get("current-snapshot-id")
    snapshots = {int(each["snapshot-id"]): each for each in metadata.get("snapshots") or ()}
    snapshot = None if current in (None, _NO_SNAPSHOT) else snapshots[int(str(current))]
    if snapshot is not None and not isinstance(snapshot.get("manifest-list"), str):
        raise unsupported(
            location, "its snapshot has no manifest list. Rewrite its manifests with Iceberg first.", file=url
        )
    mapping = (metadata.get("properties") or {}).get("schema.name-mapping.default")
    return IcebergSource(
        location=location,
        metadata=url,
        format_version=version,
        schema=_schema(metadata),
        specs=_specs(metadata),
        snapshot_id=None if snapshot is None else int(snapshot["snapshot-id"]),
        manifest_list=None if snapshot is None else snapshot["manifest-list"],
        times={
            number: _within(each["timestamp-ms"], "timestamp-ms", 63) for number, each in snapshots.items()
        },
        last_column_id=_within(metadata["last-column-id"], "last-column-id", 31),
        name_mapping=None if mapping is None else json.loads(mapping),
    )


def _within(value: Any, name: str, bits: int) -> int:
    if not 0 <= int(value) < 1 << bits:
        raise ValueError(f"{name} is {str(value)[:40]}")
    return int(value)


def _schema(found: Mapping[str, Any]) -> Mapping[str, Any]:
    if "schemas" not in found:
        schema: Mapping[str, Any] = found["schema"]
        return schema
    current: Mapping[str, Any]
    [current] = [each for each in found["schemas"] if each["schema-id"] == found["current-schema-id"]]
    return current


def _specs(found: Mapping[str, Any]) -> dict[int, list[PartitionField]]:
    specs = found.get("partition-specs") or [{"spec-id": 0, "fields": found.get("partition-spec") or []}]
    first = 1000  # the numbering of format version 1 for fields without an id
    return {
        int(each["spec-id"]): [
            PartitionField(
                int(_source_id(field)), int(field.get("field-id", first + place)), str(field["transform"])
            )
            for place, field in enumerate(each["fields"])
        ]
        for each in specs
    }


def _source_id(field: Mapping[str, Any]) -> Any:
    """Return the first source column of a transform: format version 3 may list several."""
    return field["source-id"] if "source-id" in field else field["source-ids"][0]
