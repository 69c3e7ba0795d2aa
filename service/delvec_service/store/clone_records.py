"""Records of shallow clones in the folder of their source, ``_delvec/clones/``, for VACUUM with another database.

There is one JSON file per clone. If a clone is created again its file has another name, so that deleting an old
record never deletes the newer one. No VACUUM deletes files in a directory whose name begins with ``_``.
"""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from delvec_errors import CorruptTable, DelvecError, StorageDenied
from delvec_kernel import locations
from delvec_kernel.locations import table_id
from delvec_service.logs import logger
from delvec_service.store.clones import CloneRecord
from delvec_service.store.objects import ObjectStore

__all__ = ["read_clone_records", "write_clone_record"]

_FOLDER: Final = "_delvec/clones"
_MAX_BYTES: Final = 64 * 1024


def write_clone_record(source: ObjectStore, record: CloneRecord) -> None:
    """Record a clone in the folder of a table whose files it needs, unless that is not writable.

    In that case this service cannot vacuum that table either.

    Raises:
        StorageError: storage did not answer.
    """
    content = {
        "location": record.location,
        "source-location": record.source_location,
        "source-version": record.source_version,
        "created-at": record.created_at.isoformat(),
    }
    name = f"{table_id(record.location)}-{record.created_at:%Y%m%dT%H%M%S%f}.json"
    try:
        source.put(f"{_FOLDER}/{name}", json.dumps(content, ensure_ascii=False).encode())
    except StorageDenied as error:
        logger.warning("clone not recorded in its source", source=source.location, reason=error.message)


def read_clone_records(source: ObjectStore, table: str) -> Sequence[tuple[str, CloneRecord]]:
    """Return the clones recorded in a table's folder, each with the path of its record.

    Anyone may have written a record: its locations are canonical, and the caller has to check them against the roots.

    Raises:
        CorruptTable: a record cannot be read, so what its clone needs is unknown.
        StorageError: storage did not answer.
    """
    clone_records = []
    for meta in source.list_from(_FOLDER):
        path = f"{_FOLDER}/{meta.name}"
        try:
            clone_records.append((path, _parsed(source.get_start(path, _MAX_BYTES))))
        except FileNotFoundError:
            continue  # deleted in the meantime
        except (ValueError, KeyError, TypeError, RecursionError, DelvecError) as error:
            raise CorruptTable(
                f"The record of a shallow clone of table '{table}', {path}, cannot be read, so it is unknown which "
                "files the clone needs, and no files are deleted. Restore the record, or delete it if the clone "
                "does not exist.",
                table=table,
                file=path,
            ) from error
    return clone_records


def _parsed(content: bytes) -> CloneRecord:
    value = json.loads(content)
    location, source, version = value["location"], value["source-location"], value["source-version"]
    created = datetime.fromisoformat(value["created-at"])
    if type(version) is not int or version < 0 or not created.tzinfo:
        raise ValueError("not a clone record")
    if locations.canonical(location) != location or locations.canonical(source) != source:
        raise ValueError("not canonical")
    return CloneRecord(location, source, version, created)
