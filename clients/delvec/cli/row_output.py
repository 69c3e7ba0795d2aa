"""Output of a command's rows: a table for people, JSON for programs, or a file.

Tested in `tests/integration/client/cli/test_output.py`.
"""

import io
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Final, TextIO, TypeAlias

import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq
import typer

from delvec.cli.output import plain, print_json, print_table, rows_of, say
from delvec_errors import SchemaMismatch
from delvec_parquet.parquet_file import open_parquet

__all__ = ["Destination", "Format", "Limit", "Out", "head", "is_number", "open_rows", "print_rows", "writer"]

Limit: TypeAlias = Annotated[int | None, typer.Option(min=0, help="Maximum number of rows.")]
Out: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--out",
        "--output",
        help="Write to a file (.parquet, .csv, .arrow, .json or .jsonl), or - for standard output.",
    ),
]
Format: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help="Format of --out: parquet, csv, arrow, json or jsonl; by default the file's extension, or jsonl on "
        "standard output."
    ),
]

_STDOUT: Final = "-"
_MAX_ROWS: Final = 100
"""Rows printed without ``--limit``."""


class Destination:
    """A destination of rows; made before they are read, so that an unwritable file is reported at once.

    Args:
        out: the file, ``-`` for standard output, or None.
        kind: its format, if its name does not show it.
        limit: the limit of rows, or None.
        as_json: whether output is for a program.

    Raises:
        typer.BadParameter: there is no such format, or no such directory.
    """

    def __init__(
        self, out: Path | None, limit: int | None, kind: str | None = None, *, as_json: bool
    ) -> None:
        if out is None and kind is not None:
            raise typer.BadParameter("--format needs --out FILE, or --out - for standard output")
        self._out = out
        self._limit = limit
        self._as_json = as_json
        self._write: Callable[[pa.RecordBatchReader], int] | None = None if out is None else writer(out, kind)

    def take(self, rows: pa.RecordBatchReader) -> None:
        """Read and write the rows, no more than the limit."""
        limited_rows = head(rows, self._limit)
        if self._write is not None:
            count = self._write(limited_rows)
            if str(self._out) == _STDOUT:
                return
            if self._as_json:
                print_json({"rows": count, "out": str(self._out)})
            else:
                say(f"wrote {rows_of(count)} to {self._out}")
        elif self._as_json:
            print_rows(limited_rows)
        else:
            self._show(head(limited_rows, _MAX_ROWS + 1 if self._limit is None else self._limit))

    def _show(self, limited_rows: pa.RecordBatchReader) -> None:
        rows = limited_rows.read_all()
        shown_rows = rows.slice(0, _MAX_ROWS if self._limit is None else self._limit)
        print_table(
            shown_rows.column_names,
            zip(*(column.to_pylist() for column in shown_rows.columns), strict=True),
            right=[field.name for field in shown_rows.schema if is_number(field.type)],
        )
        if shown_rows.num_rows < rows.num_rows:
            say(f"showing the first {_MAX_ROWS} rows; use --limit or --out for more")


_ROWS_AT_ONCE = 10_000


def open_rows(path: Path, schema: pa.Schema) -> Any:
    """Return the rows of a file as Arrow; text formats are read as the table's types.

    Args:
        path: the path of the file; ``-`` is standard input, whose format is detected from its first bytes.
        schema: the table's.

    Raises:
        SchemaMismatch: the file cannot be read in the format of its name.
    """
    if str(path) == "-":
        with tempfile.TemporaryDirectory() as folder:
            given = sys.stdin.buffer.read()
            copy = Path(folder) / f"standard-input{_kind(given)}"
            copy.write_bytes(given)
            rows = open_rows(copy, schema)
            return rows.read_all() if isinstance(rows, pa.RecordBatchReader) else rows
    types = {field.name: field.type for field in schema}
    try:
        match path.suffix.lower():
            case ".parquet":
                file = open_parquet(pa.OSFile(str(path)), str(path))
                return pa.RecordBatchReader.from_batches(file.schema_arrow, file.iter_batches())
            case ".arrow" | ".feather":
                return pa.ipc.open_file(pa.memory_map(str(path))).read_all()
            case ".csv":
                options = pyarrow.csv.ConvertOptions(column_types=types, strings_can_be_null=True)
                return _separated(pyarrow.csv.read_csv(path, convert_options=options), path, schema)
            case ".json" | ".jsonl" | ".ndjson":
                return _present(_read_json(path, schema))
    except FileNotFoundError as error:
        raise SchemaMismatch(f"file {path} does not exist", file=str(path)) from error
    except (pa.ArrowException, OSError, KeyError, ValueError, RecursionError) as error:
        reason = str(error).partition("\n")[0]
        raise SchemaMismatch(f"cannot read {path} as {path.suffix[1:]}: {reason}", file=str(path)) from error
    raise typer.BadParameter(f"{path.name} must end in .parquet, .csv, .json or .arrow")


def _separated(rows: pa.Table, path: Path, schema: pa.Schema) -> pa.Table:
    """Return the rows, unless their only column is a header with another separator."""
    only = rows.column_names[0] if rows.num_columns == 1 else ""
    separator = next((each for each in ";\t|" if each in only and only not in schema.names), None)
    if separator is not None:
        raise SchemaMismatch(
            f"file {path} seems to be separated by {separator!r}: its only column is {only!r}; write it with commas",
            file=str(path),
        )
    return rows


def _kind(given: bytes) -> str:
    """Return the file extension for the format of these bytes; CSV by default."""
    start = given.removeprefix(b"\xef\xbb\xbf").lstrip()
    for first, ending in ((b"PAR1", ".parquet"), (b"ARROW1", ".arrow"), (b"[", ".json"), (b"{", ".jsonl")):
        if start.startswith(first):
            return ending
    return ".csv"


def _present(rows: pa.Table) -> pa.Table:
    """Return rows without columns that are in none of them: Arrow adds those of the schema, with NULLs."""
    empty = [
        field.name
        for field, column in zip(rows.schema, rows.columns, strict=True)
        if field.nullable and rows.num_rows and column.null_count == rows.num_rows
    ]
    return rows.drop_columns(empty)


def _read_json(path: Path, schema: pa.Schema) -> pa.Table:
    """Read a file of one object per line, or one array of them, as ``read --out`` writes it.

    Arrow reads no such array, no map and no date: maps, which are objects in JSON, are given to it as lists of entries.
    """
    as_read = pa.schema([field.with_type(_type_in_json(field.type)) for field in schema])
    maps = any(_has_map(field.type) for field in schema)
    with path.open("rb") as file:
        in_array = file.read(1024).removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"[")
    source: Path | io.BytesIO = path
    if in_array or maps:
        text = path.read_text(encoding="utf-8-sig")
        # Numbers stay as they are written: a decimal may have more digits than a double.
        decode = json.JSONDecoder(parse_float=_Number, parse_int=_Number).decode
        rows = decode(text) if in_array else [decode(line) for line in text.split("\n") if line.strip()]
        if maps:
            rows = [_with_entries(row, pa.struct(list(schema))) for row in rows]
        source = io.BytesIO("".join(f"{_encoded_again(row)}\n" for row in rows).encode())
    table = pyarrow.json.read_json(source, parse_options=pyarrow.json.ParseOptions(explicit_schema=as_read))
    for place, name in enumerate(table.column_names):
        if name in schema.names:
            kind = schema.field(name).type
            chunks = [_of_type(chunk, kind) for chunk in table[name].chunks]
            table = table.set_column(place, name, pa.chunked_array(chunks, kind))
    return table


class _Number(str):
    """A JSON number that keeps its original spelling."""

    __slots__ = ()


def _type_in_json(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_type_in_json(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_type_in_json(kind.value_type)))
    if pa.types.is_map(kind):
        fields = (kind.key_field, kind.item_field)
        return pa.list_(pa.struct([field.with_type(_type_in_json(field.type)) for field in fields]))
    return pa.string() if pa.types.is_date(kind) else kind


def _of_type(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return what was read as :func:`_type_in_json` says; Arrow casts no list into a map."""
    if array.type == kind or pa.types.is_null(array.type):
        return array.cast(kind)
    children = []
    if pa.types.is_struct(kind):
        known = {field.name: array.field(place) for place, field in enumerate(array.type)}
        fields = [field for field in kind if field.name in known]
        children = [_of_type(known[field.name], field.type) for field in fields]
        return pa.StructArray.from_arrays(children, fields=fields, mask=array.is_null())
    if pa.types.is_list(kind):
        children = [_of_type(array.values, kind.value_type)]
    elif pa.types.is_map(kind):
        places = zip((kind.key_field, kind.item_field), range(2), strict=True)
        entries = [_of_type(array.values.field(place), field.type) for field, place in places]
        children = [pa.StructArray.from_arrays(entries, fields=[kind.key_field, kind.item_field])]
    else:
        return array.cast(kind)
    return pa.Array.from_buffers(
        kind, len(array), array.buffers()[:2], array.null_count, array.offset, children
    )


def _with_entries(value: Any, kind: pa.DataType) -> Any:
    """Return a value of JSON whose maps are lists of entries."""
    if pa.types.is_struct(kind) and isinstance(value, dict):
        known = {field.name: field.type for field in kind}
        return {name: _with_entries(each, known.get(name, pa.null())) for name, each in value.items()}
    if pa.types.is_list(kind) and isinstance(value, list):
        return [_with_entries(each, kind.value_type) for each in value]
    if pa.types.is_map(kind) and isinstance(value, dict):
        key, item = kind.key_field.name, kind.item_field.name
        plain_key = pa.types.is_integer(kind.key_type) or pa.types.is_floating(kind.key_type)
        return [
            {key: _Number(name) if plain_key else name, item: _with_entries(each, kind.item_type)}
            for name, each in value.items()
        ]
    return value


def _encoded_again(value: Any) -> str:
    if isinstance(value, _Number):
        return value
    if isinstance(value, dict):
        return f"{{{','.join(f'{json.dumps(name)}:{_encoded_again(each)}' for name, each in value.items())}}}"
    if isinstance(value, list):
        return f"[{','.join(map(_encoded_again, value))}]"
    return json.dumps(value)


def writer(path: Path, kind: str | None = None) -> Callable[[pa.RecordBatchReader], int]:
    """Return what writes rows to a file, complete under its name or not at all, and returns their number.

    Args:
        path: the file, or ``-`` for standard output.
        kind: the format; by default what the name ends in.

    Raises:
        typer.BadParameter: there is no such format, or no such directory.
    """
    sinks: dict[
        str, Callable[[BinaryIO, pa.Schema], AbstractContextManager[Callable[[pa.RecordBatch], Any]]]
    ] = {
        ".parquet": _parquet,
        ".csv": _csv,
        ".arrow": _arrow,
        ".json": _json,
        ".jsonl": _json_lines,
    }
    is_standard = str(path) == _STDOUT
    ending = f".{kind.lower()}" if kind is not None else ".jsonl" if is_standard else path.suffix.lower()
    sink = sinks.get(ending)
    if sink is None and kind is not None:
        raise typer.BadParameter(
            f"--format must be one of {', '.join(each[1:] for each in sinks)}, not {kind!r}"
        )
    if sink is None:
        raise typer.BadParameter(
            f"--out must end in one of {', '.join(sinks)}, not {path.name!r}; or give --format"
        )
    if not is_standard and not path.absolute().parent.is_dir():
        raise typer.BadParameter(f"--out: directory {path.absolute().parent} does not exist")

    def into(file: BinaryIO, rows: pa.RecordBatchReader) -> int:
        count = 0
        try:
            with sink(file, rows.schema) as write:
                for batch in rows:
                    write(batch)
                    count += batch.num_rows
        except pa.ArrowException as error:
            raise SchemaMismatch(f"cannot write these columns as {ending[1:]}: {error}") from error
        return count

    def complete(rows: pa.RecordBatchReader) -> int:
        if is_standard:
            count = into(_Unclosed(sys.stdout.buffer), rows)
            sys.stdout.buffer.flush()
            return count
        # Beside the target, since a rename works only within a file system.
        part = path.with_name(f".{path.name}.{os.getpid()}.part")
        try:
            with part.open("wb") as file:
                count = into(file, rows)
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
        return count

    return complete


class _Unclosed(io.RawIOBase, BinaryIO):
    """Standard output that ignores close(), for writers that close their file."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__()
        self._file = file

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        return self._file.write(data)


def print_rows(rows: pa.RecordBatchReader) -> None:
    """Print a JSON array of objects on standard output."""
    with _array(sys.stdout, rows.schema) as write:
        for batch in rows:
            write(batch)


def head(rows: pa.RecordBatchReader, limit: int | None) -> pa.RecordBatchReader:
    """Return the first ``limit`` rows; the rest is not read."""
    if limit is None:
        return rows

    def first() -> Iterator[pa.RecordBatch]:
        left = limit
        while left > 0 and (batch := next(iter(rows), None)) is not None:
            yield batch.slice(0, left)
            left -= batch.num_rows

    return pa.RecordBatchReader.from_batches(rows.schema, first())


def is_number(data_type: pa.DataType) -> bool:
    """Whether people align such a column to the right."""
    kinds = pa.types
    return bool(kinds.is_integer(data_type) or kinds.is_floating(data_type) or kinds.is_decimal(data_type))


@contextmanager
def _parquet(file: BinaryIO, schema: pa.Schema) -> Iterator[Callable[[pa.RecordBatch], Any]]:
    with pq.ParquetWriter(file, schema) as sink:
        yield sink.write_batch


@contextmanager
def _csv(file: BinaryIO, schema: pa.Schema) -> Iterator[Callable[[pa.RecordBatch], Any]]:
    with pyarrow.csv.CSVWriter(file, schema) as sink:
        yield sink.write_batch


@contextmanager
def _arrow(file: BinaryIO, schema: pa.Schema) -> Iterator[Callable[[pa.RecordBatch], Any]]:
    with pa.ipc.new_file(file, schema) as sink:
        yield sink.write_batch


@contextmanager
def _json(file: BinaryIO, schema: pa.Schema) -> Iterator[Callable[[pa.RecordBatch], Any]]:
    text = io.TextIOWrapper(file, encoding="utf-8", newline="\n")
    with _array(text, schema) as write:
        yield write
    text.flush()
    text.detach()


@contextmanager
def _json_lines(file: BinaryIO, schema: pa.Schema) -> Iterator[Callable[[pa.RecordBatch], Any]]:
    yield lambda batch: file.writelines(f"{row}\n".encode() for row in _encoded(batch, schema))


@contextmanager
def _array(sink: TextIO, schema: pa.Schema) -> Iterator[Callable[[pa.RecordBatch], Any]]:
    # Nothing is printed before the first row is there: most failures come before it.
    separator = "["

    def write(batch: pa.RecordBatch) -> None:
        nonlocal separator
        for row in _encoded(batch, schema):
            sink.write(separator + row)
            separator = ",\n"

    yield write
    sink.write("[]\n" if separator == "[" else "]\n")


def _encoded(batch: pa.RecordBatch, schema: pa.Schema) -> Iterator[str]:
    # A map becomes a dictionary here; as Arrow's list of pairs it would become a list of lists.
    maps = any(_has_map(field.type) for field in schema)
    for start in range(0, batch.num_rows, _ROWS_AT_ONCE):
        for row in batch.slice(start, _ROWS_AT_ONCE).to_pylist(maps_as_pydicts="strict" if maps else None):
            yield json.dumps(plain(row), ensure_ascii=False, allow_nan=False)


def _has_map(data_type: pa.DataType) -> bool:
    if pa.types.is_map(data_type):
        return True
    return any(_has_map(data_type.field(index).type) for index in range(data_type.num_fields))
