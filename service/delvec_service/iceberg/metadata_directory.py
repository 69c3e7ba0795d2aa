"""The directory of a table's Iceberg metadata: the newest metadata file, and how the next one is published.

A version is published by creating ``vN.metadata.json`` if it does not exist: of several converters one wins. The
hint, ``version-hint.text``, follows; a reader that sees an old hint reads an older version, which is complete.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa

from delvec_errors import CorruptIcebergMetadata, IcebergUnsupported, InvalidLocation, LocationNotAllowed
from delvec_iceberg.data_files import file_path
from delvec_iceberg.table_metadata import DELTA_LOCATION, read_metadata
from delvec_kernel.actions.action_json import json_text
from delvec_kernel.alter_table.metadata_location import (
    METADATA_LOCATION,
    is_taken_by_vacuum,
    metadata_location,
)
from delvec_kernel.locations import within
from delvec_kernel.table_properties import ICEBERG_LOCATION
from delvec_service.store.objects import ObjectStore
from delvec_service.store.open_table import OpenTable
from delvec_service.tables.places import Places, Requester
from delvec_storage.files import StagedFile
from delvec_storage.trees import inner_tables

__all__ = ["DIRECTORIES", "IcebergDirectory", "Published"]

DIRECTORIES: Final = ("metadata", "deletes")
"""The directories with the files of an Iceberg table."""
_HINT: Final = "version-hint.text"
_SUFFIX: Final = ".metadata.json"
_MAX_DIGITS: Final = 12
_METADATA_FILES_KEPT: Final = 100


@dataclass(frozen=True)
class Published:
    """A metadata file.

    Attributes:
        number: N of ``vN.metadata.json``.
        metadata: its content.
    """

    number: int
    metadata: dict[str, Any]


class IcebergDirectory:
    """The Iceberg files of one table in one format version; the only place that knows where they are.

    Args:
        table: the Delta table.
        format_version: 2 or 3.
        configuration: the Delta table's properties.

    Attributes:
        format_version: 2 or 3.
        location: the location of the Iceberg table, as in its metadata.
        url: the canonical URL of the directory.
        path: the path of the directory, relative to the table; empty for the table's own directory, None if it is elsewhere.

    Raises:
        CorruptTable: the property with the location is invalid.
        LocationNotAllowed: the directory is outside the roots.
    """

    def __init__(self, table: OpenTable, format_version: int, configuration: Mapping[str, str]) -> None:
        self._table = table
        self.format_version = format_version
        self._given = ICEBERG_LOCATION.of(configuration)
        below, elsewhere = _place(table, self._given)
        self._top = below
        self.path: str | None
        if elsewhere is not None:
            self.path, self._base, self.url = None, "", f"{elsewhere}/v{format_version}"
            self._objects = ObjectStore(
                self.url,
                is_allowed=table.roots.allows,
                max_commit_bytes=table.max_commit_bytes,
                observer=table.observer,
            )
        else:
            self.path = f"{below}/v{format_version}" if below else ""
            self._base = f"{self.path}/" if below else ""
            self.url = f"{table.location}/{self.path}" if below else table.location
            self._objects = table.objects
        self.location = file_path(self.url, "_")[:-2]

    def is_of(self, configuration: Mapping[str, str]) -> bool:
        """Whether properties of the table still say that this is the directory."""
        return ICEBERG_LOCATION.of(configuration) == self._given

    @property
    def warning(self) -> str | None:
        """What may happen to files in the directory, or None."""
        if self.path is None or not is_taken_by_vacuum(self._top):
            return None
        return (
            f"The Iceberg metadata of table '{self._table.name}' is in '{self.location}', where a full VACUUM by "
            "deltalake or another Delta writer deletes it, although Iceberg readers need it; Delvec's VACUUM keeps "
            f"it. To keep it from all of them, set {METADATA_LOCATION} to a name that begins with '_'."
        )

    def check_usable(self, places: Places | None, requester: Requester) -> None:
        """Raise if an Iceberg table cannot start in the directory.

        Args:
            places: decides who may use it, if it is outside the table's own.
            requester: who asks.

        Raises:
            IcebergUnsupported: the directory has the Iceberg table of the other format version.
            LocationNotAllowed: it is inside, above or equal to another Delta table, whose VACUUM would delete the files.
            PermissionDenied: it is not the requester's.
            StorageError: storage did not answer.
        """
        published_metadata = self._newest()
        if published_metadata is not None and not self._is_ours(published_metadata):
            raise IcebergUnsupported(
                f"'{self.location}' has the Iceberg table of format version "
                f"{published_metadata.metadata.get('format-version')} of table '{self._table.name}', so it cannot have one of format "
                f"version {self.format_version}, too. Convert to that format version, or set {METADATA_LOCATION} to a "
                "directory below the table, such as '_ice', which has one for each.",
                table=self._table.name,
                file=self.metadata_location(published_metadata.number),
            )
        try:
            self._check_place(places, requester)
        except LocationNotAllowed as error:
            raise LocationNotAllowed(
                f"The Iceberg metadata of table '{self._table.name}' cannot be in '{self.location}'. {error.message} "
                f"Set {METADATA_LOCATION} to another directory.",
                table=self._table.name,
                location=self.location,
            ) from error

    def _check_place(self, places: Places | None, requester: Requester) -> None:
        table = self._table
        place = table.roots.canonical(self.url)  # a link may lead out of the table
        if not within(place, table.location):
            if places is None:
                raise LocationNotAllowed("It is outside the table's own folder.")
            places.check(place, table.name, requester, table=table.record)
            return
        path = place[len(table.location) + 1 :]
        for inner in inner_tables(
            table.location, [f"{path}/_"] if path else [], is_allowed=table.roots.allows
        ):
            raise LocationNotAllowed(f"It is inside the Delta table at {table.location}/{inner}.")

    def uri(self, name: str) -> str:
        """Return the URI of a file in the directory."""
        return f"{self.location}/{name}"

    def metadata_location(self, number: int) -> str:
        """Return the URI of a metadata file."""
        return self.uri(_metadata_name(number))

    def newest(self) -> Published | None:
        """Return the latest published metadata, or None.

        Raises:
            CorruptIcebergMetadata: it cannot be read.
            IcebergUnsupported: it belongs to another table.
            StorageError: storage did not answer.
        """
        found = self._newest()
        return found if found is not None and self._is_ours(found) else None

    def _is_ours(self, found: Published) -> bool:
        """Whether metadata has the format version; the table's own directory may have that of another."""
        return self.path != "" or found.metadata.get("format-version") == self.format_version

    def _newest(self) -> Published | None:
        number = self._number()
        while number:
            name = self.metadata_location(number)
            try:
                data = self._objects.get(f"{self._base}{_metadata_name(number)}")
            except FileNotFoundError:
                # Cleaned up in the meantime by a converter that published many more.
                number = self._listed()
                continue
            metadata = read_metadata(data, name)
            if self.path is None and metadata["properties"].get(DELTA_LOCATION) != self._table.location:
                raise IcebergUnsupported(
                    f"The Iceberg table at '{name}' shows another Delta table, not table '{self._table.name}' at '{self._table.location}'. It was left unchanged; set "
                    f"{METADATA_LOCATION} to another directory, or delete that metadata if the table was moved.",
                    table=self._table.name,
                    file=name,
                )
            return Published(number, metadata)
        return None

    def publish(self, number: int, metadata: dict[str, Any]) -> bool:
        """Publish metadata as ``number``, durably.

        Returns:
            False if another converter was faster; then nothing is published.

        Raises:
            StorageError: storage did not answer, and it may or may not be published.
        """
        data = json_text(metadata).encode()
        if not self._objects.put_if_absent(f"{self._base}{_metadata_name(number)}", data):
            return False
        self.point_to(number)
        if number > _METADATA_FILES_KEPT:
            self._objects.delete(f"{self._base}{_metadata_name(number - _METADATA_FILES_KEPT)}")
        return True

    def point_to(self, number: int) -> None:
        """Point the hint to a metadata file, if it points to an earlier one."""
        while self._hint() < number:
            self._objects.put(f"{self._base}metadata/{_HINT}", str(number).encode())
            # Another converter may have published the next one, and written the hint, in between.
            if self._objects.head(f"{self._base}{_metadata_name(number + 1)}") is None:
                return
            number = self._after(number)

    def put(self, name: str, data: bytes) -> str:
        """Write a new file, durably, and return its URI."""
        self._objects.put(f"{self._base}{name}", data)
        return self.uri(name)

    def stage(self, name: str) -> AbstractContextManager[StagedFile]:
        """Start a large file; see :class:`~delvec_storage.files.StagedFile`."""
        return self._objects.stage(f"{self._base}{name}")

    def get(self, uri: str) -> bytes:
        """Return a file of the directory.

        Raises:
            CorruptIcebergMetadata: it does not exist, or the URI is outside the directory.
            StorageError: storage did not answer.
        """
        name = self.name_of(uri)
        try:
            return self._objects.get(f"{self._base}{name}")
        except FileNotFoundError:
            raise CorruptIcebergMetadata(
                f"The file '{uri}' of the Iceberg metadata of table '{self._table.name}' is missing; delete "
                f"'{self.location}/metadata' to convert the table from scratch.",
                table=self._table.name,
                file=uri,
            ) from None

    def open(self, uri: str) -> pa.NativeFile:
        """Open a file of the directory for random access.

        Raises:
            FileNotFoundError: it does not exist.
            CorruptIcebergMetadata: the URI is outside the directory.
            StorageError: storage did not answer.
        """
        return self._objects.open(f"{self._base}{self.name_of(uri)}")

    def has(self, uri: str) -> bool:
        """Whether a file of the directory exists.

        Raises:
            CorruptIcebergMetadata: the URI is outside the directory.
            StorageError: storage did not answer.
        """
        return self._objects.head(f"{self._base}{self.name_of(uri)}") is not None

    def delete(self, uri: str) -> None:
        """Delete a file of the directory."""
        self._objects.delete(f"{self._base}{self.name_of(uri)}")

    def name_of(self, uri: str) -> str:
        """Return a file's path relative to the directory.

        Raises:
            CorruptIcebergMetadata: it is outside the directory.
        """
        name = uri.removeprefix(f"{self.location}/")
        parts = name.split("/")
        if (
            name == uri
            or unquote(name) != name
            or any(part in {"", ".", ".."} for part in parts)
            or (self.path == "" and parts[0] not in DIRECTORIES)
        ):
            raise CorruptIcebergMetadata(
                f"The Iceberg metadata of table '{self._table.name}' refers to '{uri}', which is outside its "
                f"directory '{self.location}'; delete '{self.location}/metadata' to convert the table from scratch.",
                table=self._table.name,
                file=uri,
            )
        return name

    def holds(self, uri: str) -> bool:
        """Whether a URI is that of a file in the directory."""
        try:
            return bool(self.name_of(uri))
        except CorruptIcebergMetadata:
            return False

    def check_only_ours(self) -> None:
        """Raise if another software writes metadata here, too.

        Raises:
            IcebergUnsupported: the message has the name of the metadata file.
            StorageError: storage did not answer.
        """
        self._listed()

    def _number(self) -> int:
        hint = self._hint()
        return self._after(hint) if hint else self._listed()

    def _after(self, number: int) -> int:
        while self._objects.head(f"{self._base}{_metadata_name(number + 1)}") is not None:
            number += 1
        return number

    def _hint(self) -> int:
        try:
            text = self._objects.get(f"{self._base}metadata/{_HINT}")
        except FileNotFoundError:
            return 0
        return _digits(text.decode(errors="replace").strip())

    def _listed(self) -> int:
        found = self._objects.list_from(f"{self._base}metadata", "")
        newest = 0
        for name in (one.name for one in found if one.name.endswith(_SUFFIX)):
            number = _digits(name[1 : -len(_SUFFIX)]) if name.startswith("v") else 0
            if not number:
                location = self.uri(f"metadata/{name}")
                raise IcebergUnsupported(
                    f"'{location}' is not a metadata file of Delvec: another Iceberg table is in the directory. It was "
                    f"left unchanged; set the property {METADATA_LOCATION} of table '{self._table.name}' to another "
                    "directory.",
                    table=self._table.name,
                    file=location,
                )
            newest = max(newest, number)
        return newest


def _place(table: OpenTable, value: str) -> tuple[str, str | None]:
    """Return the directory below the table, or the URL of one elsewhere.

    Raises:
        CorruptTable: it is invalid.
        LocationNotAllowed: it is outside the roots.
    """
    location = metadata_location(value, table.name)
    if "://" not in location:
        return location, None
    try:
        url = table.roots.canonical(location)
    except (InvalidLocation, LocationNotAllowed) as error:
        raise LocationNotAllowed(
            f"The property {METADATA_LOCATION} of table '{table.name}' is refused: {error.message}",
            table=table.name,
            location=location,
        ) from error
    if not within(url, table.location):
        return "", url
    return metadata_location(url[len(table.location) + 1 :] or ".", table.name), None


def _metadata_name(number: int) -> str:
    return f"metadata/v{number}{_SUFFIX}"


def _digits(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS else 0
