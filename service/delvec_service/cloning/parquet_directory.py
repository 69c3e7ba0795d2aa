"""The Parquet files below a directory in the form of a table: columns, partition values, statistics.

Tested in `tests/integration/client/test_convert.py`.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from delvec_errors import BadRequest, DelvecError, InvalidSchema, InvalidTableChange
from delvec_kernel.actions.actions import AddFile
from delvec_kernel.locations import log_path
from delvec_kernel.schema import partition_values
from delvec_kernel.schema.file_types import FileTypeMismatch, check_file
from delvec_kernel.schema.types import StructField, StructType
from delvec_kernel.statistics.parquet_footer import footer_schema, footer_statistics
from delvec_parquet.file_schema import FileSchema, schema_of_footer
from delvec_parquet.parquet_file import checked_footer, parsed_footer
from delvec_storage.files import Allowed, open_input
from delvec_storage.trees import TreeListing

__all__ = ["ParquetDirectory"]

_AT_ONCE: Final = 16
_MAX_KEPT: Final = 64 << 20
"""Bytes of footers that are kept for their statistics; the others are read again."""
_ESCAPED: Final = re.compile("(?:%[0-9A-Fa-f]{2})+")


@dataclass(frozen=True)
class _File:
    path: str
    size: int
    modified: int
    values: Mapping[str, str | None]


@dataclass(frozen=True)
class ParquetDirectory:
    """The files, and their footers.

    Attributes:
        schema: the schema of all files together, with partition columns at the end unless files contain them.
    """

    schema: StructType
    _location: str
    _is_allowed: Allowed
    _files: Sequence[_File]
    _footers: Sequence[pq.FileMetaData | None]

    @classmethod
    def read(cls, location: str, partitions: StructType, is_allowed: Allowed) -> "ParquetDirectory":
        """List a directory and read the footer of every file.

        Args:
            location: canonical.
            partitions: the partition columns, in the order of the directories.
            is_allowed: decides by URL where links may lead.

        Raises:
            BadRequest: there is no file, or the directories do not match the partition columns.
            InvalidTableChange: a file is not Parquet, is behind a link, or contradicts another one.
            UnusableFile: a footer is larger than 256 MiB.
            StorageError: storage did not answer.
        """
        files = _listed(location, partitions, is_allowed)

        footers: list[pq.FileMetaData | None] = []
        footer_bytes, merged = 0, StructType(())
        for footer, stored in _footers(location, files, is_allowed):
            file = files[len(footers)]
            schema = _schema(file.path, footer, stored)
            merged = _merged((files[0].path, merged), (file.path, schema)) if footers else schema
            footer_bytes += footer.serialized_size
            footers.append(footer if footer_bytes <= _MAX_KEPT else None)
        return cls(_with_partitions(merged, partitions), location, is_allowed, files, footers)

    def adds(
        self, schema: StructType, partition_columns: Sequence[str], configuration: Mapping[str, str] | None
    ) -> list[AddFile]:
        """Return the files as actions.

        Args:
            schema: the schema of the table.
            partition_columns: the partition columns of the table.
            configuration: its properties, which say which columns have statistics; None for no statistics at all.
        """
        left = [file for file, footer in zip(self._files, self._footers, strict=True) if footer is None]
        again = _footers(self._location, left, self._is_allowed) if configuration is not None else iter(())

        def statistics(footer: pq.FileMetaData | None) -> str | None:
            if configuration is None:
                return None
            return footer_statistics(footer or next(again)[0], schema, partition_columns, configuration)

        return [
            AddFile(
                path=log_path(unquote(file.path)),
                partition_values=file.values,
                size=file.size,
                modification_time=file.modified,
                stats=statistics(footer),
            )
            for file, footer in zip(self._files, self._footers, strict=True)
        ]


def _footers(
    location: str, files: Sequence[_File], is_allowed: Allowed
) -> Iterator[tuple[pq.FileMetaData, FileSchema]]:
    """Yield the footer of each file; several are read at once, and only those are in memory."""
    if not files:
        return
    with ThreadPoolExecutor(min(_AT_ONCE, len(files)), "delvec-footers") as pool:
        for start in range(0, len(files), _AT_ONCE):
            some = files[start : start + _AT_ONCE]
            yield from pool.map(lambda file: _footer(location, file.path, is_allowed), some)


def _listed(location: str, partitions: StructType, is_allowed: Allowed) -> list[_File]:
    shown = tuple(f"{field.name.lower()}=" for field in partitions.fields)
    listing = TreeListing(
        location,
        lambda name: name.startswith(("_", ".")) and not _unescaped(name).lower().startswith(shown),
        is_allowed,
        hides_metadata=False,
    )
    file_rows = [row for batch in listing.batches() for row in batch.to_pylist()]
    if listing.links or listing.shielded:
        first = min(listing.links or listing.shielded)
        raise InvalidTableChange(
            f"The directory {location} cannot be converted: '{first}' in it is a link or another Delta table, whose "
            "files would be missed. Replace the link with the files, or move the table elsewhere.",
            location=location,
            file=first,
        )
    if listing.left_out:
        raise InvalidTableChange(
            f"The directory {location} cannot be converted: the name of {listing.left_out[0]!r} is not UTF-8, or it "
            "is nested too deeply, so it would be missed. Rename it, or move it elsewhere.",
            location=location,
            file=listing.left_out[0],
        )
    if not file_rows:
        raise BadRequest(
            f"{location} has no Parquet files to convert; give the directory that contains the files.",
            location=location,
        )
    return [
        _File(row["path"], row["size"], row["modified"], _values(row["path"], partitions))
        for row in sorted(file_rows, key=lambda row: row["path"])
    ]


def _values(path: str, partitions: StructType) -> dict[str, str | None]:
    """Return the partition values in the directories of a file, in the form of a log."""
    parts = [unquote(part) for part in path.split("/")[:-1]]
    directory_values = [
        (name, value) for name, separator, value in (part.partition("=") for part in parts) if separator
    ]
    wanted = [field.name for field in partitions.fields]
    if [_unescaped(name).lower() for name, _ in directory_values] != [name.lower() for name in wanted]:
        named = ", ".join(_unescaped(name) for name, _ in directory_values) or "none"
        raise BadRequest(
            f"The partition columns are {', '.join(wanted) or 'none'}, but the directories of file '{path}' have "
            f"{named}; give the partition columns with their types, in the order of the directories.",
            file=path,
        )
    values: dict[str, str | None] = {}
    for field, (_, text) in zip(partitions.fields, directory_values, strict=True):
        plain: str | None = _unescaped(text)
        if plain == partition_values.HIVE_DEFAULT_PARTITION:
            plain = None
        try:
            values[field.name] = partition_values.serialize(
                partition_values.parse(plain, field.type), field.type
            )
        except DelvecError as error:
            raise InvalidTableChange(
                f"File '{path}' is in the directory '{field.name}={text}', which is not a valid value of type "
                f"{field.type.to_json()}; give the column another type.",
                file=path,
                column=field.name,
            ) from error
    return values


def _unescaped(text: str) -> str:
    """Return a name or value without Hive's escapes, each of one character, or DuckDB's, each of one byte of UTF-8."""

    def plain(found: re.Match[str]) -> str:
        octets = bytes.fromhex(found[0].replace("%", ""))
        try:
            return octets.decode("utf-8")
        except UnicodeDecodeError:
            return octets.decode("latin-1")

    return _ESCAPED.sub(plain, text)


def _footer(location: str, path: str, is_allowed: Allowed) -> tuple[pq.FileMetaData, FileSchema]:
    try:
        with open_input(location, path, is_allowed=is_allowed) as source:
            footer = checked_footer(source, path)
        return parsed_footer(footer), schema_of_footer(footer)[0]
    except (pa.ArrowException, OSError, ValueError, IndexError) as error:
        raise InvalidTableChange(
            f"The directory {location} cannot be converted: '{path}' is not a Parquet file, or has been deleted "
            f"({str(error).partition(chr(10))[0][:200]}). Move files that do not belong to the table elsewhere.",
            location=location,
            file=path,
        ) from error


def _schema(path: str, footer: pq.FileMetaData, file_schema: FileSchema) -> StructType:
    """Return a file's columns, as which every engine reads it.

    Raises:
        InvalidSchema: a column has no type in Delta, or is a variant, which Arrow takes for a struct.
    """
    try:
        schema = footer_schema(footer)
        check_file(file_schema, schema.fields, "name")
    except InvalidSchema as error:
        raise InvalidSchema(f"File '{path}' cannot be part of a table: {error.message}", file=path) from error
    except FileTypeMismatch as error:
        raise InvalidSchema(
            f"File '{path}' cannot be part of a table: column '{error.column}': {error}",
            file=path,
            column=error.column,
        ) from error
    return schema


def _merged(left: tuple[str, StructType], right: tuple[str, StructType]) -> StructType:
    """Return the columns of both; a column with different types is an error."""
    known = {field.name.lower(): field for field in left[1].fields}
    merged_fields: dict[str, StructField] = dict(known)
    for field in right[1].fields:
        there = known.get(field.name.lower())
        if there is None:
            merged_fields[field.name.lower()] = field
        elif there.name != field.name:
            raise _contradiction(field.name, there.name, field.name, left[0], right[0])
        elif isinstance(there.type, StructType) and isinstance(field.type, StructType):
            inner = _merged((left[0], there.type), (right[0], field.type))
            merged_fields[field.name.lower()] = StructField(field.name, inner)
        elif there.type != field.type:
            raise _contradiction(field.name, there.type.to_json(), field.type.to_json(), left[0], right[0])
    return StructType(tuple(merged_fields.values()))


def _contradiction(name: str, one: Any, other: Any, first: str, second: str) -> InvalidTableChange:
    return InvalidTableChange(
        f"Column '{name}' is {one} in file '{first}' but {other} in file '{second}'; rewrite one of them so that "
        "all files have the same columns.",
        column=name,
        file=second,
    )


def _with_partitions(schema: StructType, partitions: StructType) -> StructType:
    given = {field.name.lower(): field for field in partitions.fields}
    kept: Iterable[StructField] = (given.pop(field.name.lower(), field) for field in schema.fields)
    return StructType((*kept, *given.values()))
