"""Shallow clones in the folder of their source, ``_delvec/clones/``: what VACUUM knows of them where the database is another one.

One JSON file for each clone. Nobody's VACUUM deletes files below a name that begins with ``_``.
"""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from delvec_kernel.errors import CorruptTable, StorageDenied
from delvec_service.logs import logger
from delvec_service.store.clones import CloneRecord
from delvec_service.store.objects import ObjectStore
from delvec_service.store.registry import table_id

__all__ = ["read_clone_records", "remove_clone_record", "write_clone_record"]

_FOLDER: Final = "_delvec/clones"
_MAX_BYTES: Final = 64 * 1024


def write_clone_record(source: ObjectStore, record: CloneRecord) -> None:
    """Note a clone in its source's folder, unless that cannot be written: then this service cannot vacuum it either.

    Raises:
        StorageError: storage did not answer.
    """
    content = {
        "location": record.location,
        "source-location": record.source_location,
        "source-version": record.source_version,
        "created-at": record.created_at.isoformat(),
    }
    try:
        source.put(_path(record.location), json.dumps(content, ensure_ascii=False).encode())
    except StorageDenied as error:
        logger.warning(
            "clone not recorded in its source", source=record.source_location, reason=error.message
        )


def read_clone_records(source: ObjectStore, table: str) -> Sequence[CloneRecord]:
    """Return the clones that a table's folder names.

    Raises:
        CorruptTable: a record cannot be read; what its clone needs cannot be told.
        StorageError: storage did not answer.
    """
    found = []
    for meta in source.list_from(_FOLDER):
        path = f"{_FOLDER}/{meta.name}"
        try:
            found.append(_parsed(source.get_start(path, _MAX_BYTES)))
        except FileNotFoundError:
            continue  # forgotten since
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise CorruptTable(
                f"The record of a shallow clone of table '{table}', {path}, cannot be read, so that nobody knows which files the "
                "clone needs, and none is deleted. Restore the record, or delete it if there is no such clone.",
                table=table,
                file=path,
            ) from error
    return found


def remove_clone_record(source: ObjectStore, location: str) -> None:
    """Drop the record of a clone that is gone.

    Raises:
        StorageError: storage did not answer.
    """
    source.delete(_path(location))


def _path(location: str) -> str:
    return f"{_FOLDER}/{table_id(location)}.json"


def _parsed(content: bytes) -> CloneRecord:
    value = json.loads(content)
    location, source, version = value["location"], value["source-location"], value["source-version"]
    created = datetime.fromisoformat(value["created-at"])
    if (
        not (isinstance(location, str) and isinstance(source, str) and type(version) is int)
        or not created.tzinfo
    ):
        raise ValueError("not a record of a clone")
    return CloneRecord(location, source, version, created)
