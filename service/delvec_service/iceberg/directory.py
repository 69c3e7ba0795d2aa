"""The directory of a table's Iceberg metadata: the newest metadata file, and how the next one is published.

A version is published by creating ``vN.metadata.json`` if it does not exist: of several converters one wins. The
hint, ``version-hint.text``, follows; a reader that sees an old hint reads an older version, which is complete.
"""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa

from delvec_kernel.actions.action_json import json_text
from delvec_kernel.errors import CorruptIcebergMetadata
from delvec_kernel.iceberg.data_files import file_path
from delvec_kernel.iceberg.table_metadata import read_metadata
from delvec_kernel.storage.files import StagedFile
from delvec_service.store.open_table import OpenTable

__all__ = ["DIRECTORY", "IcebergDirectory", "Published"]

DIRECTORY: Final = "_iceberg"
"""Inside the table's directory. No VACUUM of a Delta writer looks into names that begin with an underscore."""
_HINT: Final = "version-hint.text"
_SUFFIX: Final = ".metadata.json"
_MOST_DIGITS: Final = 12
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
    """The Iceberg files of one table in one format version.

    Args:
        table: the Delta table.
        format_version: 2 or 3.

    Attributes:
        location: of the Iceberg table, as in its metadata.
        path: of the directory, relative to the table.
    """

    def __init__(self, table: OpenTable, format_version: int) -> None:
        self._table = table
        self._objects = table.objects
        self.format_version = format_version
        self._base = self.path = f"{DIRECTORY}/v{format_version}"
        self.location = file_path(table.location, self._base)

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
        number = self._number()
        while number:
            try:
                data = self._objects.get(f"{self._base}/{_metadata_name(number)}")
            except FileNotFoundError:
                # Cleaned up in the meantime by a converter that published many more.
                number = self._listed()
                continue
            return Published(number, read_metadata(data, self.metadata_location(number)))
        return None

    def publish(self, number: int, metadata: dict[str, Any]) -> bool:
        """Publish metadata as ``number``, durably.

        Returns:
            False if another converter was faster; then nothing is published.

        Raises:
            StorageError: storage did not answer, and it may or may not be published.
        """
        data = json_text(metadata).encode()
        if not self._objects.put_if_absent(f"{self._base}/{_metadata_name(number)}", data):
            return False
        self.point_to(number)
        if number > _METADATA_FILES_KEPT:
            self._objects.delete(f"{self._base}/{_metadata_name(number - _METADATA_FILES_KEPT)}")
        return True

    def point_to(self, number: int) -> None:
        """Point the hint to a metadata file, if it points to an earlier one."""
        while self._hint() < number:
            self._objects.put(f"{self._base}/metadata/{_HINT}", str(number).encode())
            # Another converter may have published the next one, and written the hint, in between.
            if self._objects.head(f"{self._base}/{_metadata_name(number + 1)}") is None:
                return
            number = self._after(number)

    def put(self, name: str, data: bytes) -> str:
        """Write a new file, durably, and return its URI."""
        self._objects.put(f"{self._base}/{name}", data)
        return self.uri(name)

    def stage(self, name: str) -> AbstractContextManager[StagedFile]:
        """Start a large file; see :class:`~delvec_kernel.storage.files.StagedFile`."""
        return self._objects.stage(f"{self._base}/{name}")

    def get(self, uri: str) -> bytes:
        """Return a file of the directory.

        Raises:
            CorruptIcebergMetadata: it does not exist, or the URI is outside the directory.
            StorageError: storage did not answer.
        """
        name = self.name_of(uri)
        try:
            return self._objects.get(f"{self._base}/{name}")
        except FileNotFoundError:
            raise CorruptIcebergMetadata(
                f"The file '{uri}' of the Iceberg metadata of table '{self._table.name}' is missing; delete "
                f"'{self.location}' to convert the table from scratch.",
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
        return self._objects.open(f"{self._base}/{self.name_of(uri)}")

    def has(self, uri: str) -> bool:
        """Whether a file of the directory exists.

        Raises:
            CorruptIcebergMetadata: the URI is outside the directory.
            StorageError: storage did not answer.
        """
        return self._objects.head(f"{self._base}/{self.name_of(uri)}") is not None

    def delete(self, uri: str) -> None:
        """Delete a file of the directory."""
        self._objects.delete(f"{self._base}/{self.name_of(uri)}")

    def name_of(self, uri: str) -> str:
        """Return a file's path relative to the directory.

        Raises:
            CorruptIcebergMetadata: it is outside the directory.
        """
        name = uri.removeprefix(f"{self.location}/")
        if name == uri or unquote(name) != name or any(part in {"", ".", ".."} for part in name.split("/")):
            raise CorruptIcebergMetadata(
                f"The Iceberg metadata of table '{self._table.name}' refers to '{uri}', which is outside its "
                f"directory '{self.location}'; delete the directory to convert the table from scratch.",
                table=self._table.name,
                file=uri,
            )
        return name

    def _number(self) -> int:
        hint = self._hint()
        return self._after(hint) if hint else self._listed()

    def _after(self, number: int) -> int:
        while self._objects.head(f"{self._base}/{_metadata_name(number + 1)}") is not None:
            number += 1
        return number

    def _hint(self) -> int:
        try:
            text = self._objects.get(f"{self._base}/metadata/{_HINT}")
        except FileNotFoundError:
            return 0
        return _digits(text.decode(errors="replace").strip())

    def _listed(self) -> int:
        found = self._objects.list_from(f"{self._base}/metadata", "")
        numbers = (_digits(one.name[1 : -len(_SUFFIX)]) for one in found if one.name.endswith(_SUFFIX))
        return max(numbers, default=0)


def _metadata_name(number: int) -> str:
    return f"metadata/v{number}{_SUFFIX}"


def _digits(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS else 0
