"""Gives files with damaged footers to everything that opens a Parquet file, in a process that must survive it.

Reads case ids from standard input, one per line, and answers each with a line of JSON on standard output.
"""

import contextlib
import shutil
import threading
import time
import traceback
from functools import cache
from io import BytesIO
from pathlib import Path
from random import Random

import pyarrow as pa
from pyroaring import BitMap64
from tests.fuzz import tables
from tests.fuzz.footer_mutations import mutated
from tests.fuzz.worker import answer_cases
from tests.support import iceberg_by_hand
from tests.support.asgi_transport import EmbeddedTransport

from delvec.cli.row_output import open_rows
from delvec.connection import Connection
from delvec.http.service_client import ServiceClient
from delvec_engines.data_file import DataFile, open_data_file
from delvec_errors import DelvecError
from delvec_iceberg.position_deletes import (
    CoveredFile,
    read_covered_files,
    read_position_deletes,
    write_position_deletes,
)
from delvec_kernel.actions.action_json import LogFile
from delvec_kernel.deletion_vectors.deletion_vector import Descriptor
from delvec_kernel.file_index.deferred_statistics import DeferredStatistics
from delvec_kernel.log import checkpoint_reader
from delvec_kernel.log.commit_file import known_protocol
from delvec_kernel.log.tombstones import sidecars_in_parquet, tombstones_in_parquet
from delvec_kernel.statistics.parquet_footer import footer_schema, footer_statistics
from delvec_kernel.transaction.row_maps import SCHEMA as ROW_MAP
from delvec_parquet.parquet_file import open_parquet
from delvec_service.app import create_app
from delvec_service.config import Settings
from delvec_storage.roots import Roots

COMMANDS = 20
"""One of so many cases goes through whole commands, which take a hundred times as long."""
_CASES_PER_SERVICE = 100
_WHERE = LogFile("people", 3, "00000000000000000003.checkpoint.parquet")


@cache
def seeds():
    """Return sound files: of all types, a checkpoint, a sidecar, position deletes, a row map."""
    rows = pa.table(
        {
            "i": pa.array([1, 2, None], pa.int32()),
            "l": [1, 2, 3],
            "s": ["a", "b", None],
            "d": [1.5, 2.5, 3.5],
            "b": [True, False, None],
            "items": [[1, 2], [], None],
            "st": [{"x": 1, "y": "q"}, None, {"x": None, "y": "z"}],
            "dec": pa.array([1, 2, 3], pa.int32()).cast(pa.decimal128(20, 2)),
            "ts": pa.array([1, 2, 3], pa.timestamp("us", "UTC")),
            "m": pa.array([[("a", 1)], None, []], pa.map_(pa.string(), pa.int32())),
            "bin": [b"a", None, b"c"],
            "f": pa.array([1, 2, 3], pa.float32()),
            "day": pa.array([1, 2, 3], pa.date32()),
        }
    )
    deletes = BytesIO()
    vector = Descriptor.from_json(
        {"storageType": "i", "pathOrInlineDv": "x" * 20, "sizeInBytes": 16, "cardinality": 2}
    )
    write_position_deletes(
        deletes,
        {"file:///t/a.parquet": BitMap64([1, 7])},
        [CoveredFile("file:///t/a.parquet", "a.parquet", vector)],
    )
    moved = pa.table({"source": pa.array(["a", "b"]).dictionary_encode(), "row": [1, 2]}).cast(ROW_MAP)
    built = {table.name: table.files for table in tables.builtin()}
    return (
        tables.parquet(rows, row_group_size=2),
        tables.parquet(rows, write_page_index=True, data_page_version="2.0", use_dictionary=False),
        tables.parquet(rows.select(["ts", "l"]), use_deprecated_int96_timestamps=True),
        built["with_checkpoint"][f"_delta_log/{3:020}.checkpoint.parquet"],
        next(body for path, body in built["with_v2_checkpoint"].items() if "_sidecars/" in path),
        deletes.getvalue(),
        tables.parquet(moved),
    )


def ask(footer):
    """Ask pyarrow for everything that it says about a footer."""
    for number in range(len(footer.schema)):
        column = footer.schema.column(number)
        str(column)
        str(column.logical_type)
    footer.to_dict()
    for place in range(footer.num_row_groups):
        group = footer.row_group(place)
        str(group.sorting_columns)
        for number in range(group.num_columns):
            column = group.column(number)
            str(column)
            with contextlib.suppress(pa.ArrowException, ValueError, OverflowError):
                if (statistics := column.statistics) is not None:
                    str((statistics.min, statistics.max, statistics.min_raw, statistics.max_raw))


def _read(opened):
    for _ in opened.iter_batches(2):
        pass


def _data_file(folder, name, content):
    del content
    with open_data_file(DataFile(folder.as_uri(), name, "people", 1, Roots())) as opened:
        ask(opened.metadata)
        _read(opened)


def _converted(folder, name, content):
    del folder
    footer = open_parquet(content, name).metadata
    schema = footer_schema(footer)
    footer_statistics(footer, schema, (), {})
    ask(footer)


def _checkpoint(folder, name, content):
    del folder, name
    part = checkpoint_reader.read_checkpoint(content, _WHERE)
    list(part.batches)
    deferred = DeferredStatistics(threading.RLock())
    list(checkpoint_reader.read_checkpoint(pa.BufferReader(content), _WHERE, deferred).batches)


def _log(folder, name, content):
    del folder
    known_protocol(content, name)
    for read in (tombstones_in_parquet, sidecars_in_parquet):
        with contextlib.suppress(DelvecError):
            list(read(pa.BufferReader(content), _WHERE))


def _deletes(folder, name, content):
    del folder
    with contextlib.suppress(ValueError):
        read_covered_files(pa.BufferReader(content), name)
    list(read_position_deletes(pa.BufferReader(content), name))


def _row_map(folder, name, content):
    del folder
    opened = open_parquet(content, name, read_dictionary=["source"], page_checksum_verification=True)
    ask(opened.metadata)
    _read(opened)


def _shell(folder, name, content):
    del content
    open_rows(folder / name, pa.schema([])).read_all()


ROUTES = (_data_file, _converted, _checkpoint, _log, _deletes, _row_map, _shell)


def _reads(table):
    return (
        table.to_arrow,
        lambda: table.update({"id": "id + 1"}, "id % 2 = 0"),
        lambda: table.delete("id % 3 = 0"),
        table.optimize,
        table.compute_statistics,
        table.check,
        lambda: table.repair(dry_run=True),
        table.to_iceberg,
        lambda: table.append(tables.rows(900, 903)),
    )


class Worker:
    """A service and a client in this process, and a folder for tables."""

    def __init__(self, base):
        self._base = Path(base).resolve()
        self._lake = None
        self._count = 0
        checkpoint_reader._MIN_DEFERRED_ROWS = 1
        iceberg = iceberg_by_hand.create(self._base / "iceberg", tables.rows(0, 1).schema)
        iceberg.append(tables.rows(0, 50))
        self._iceberg = iceberg_by_hand.publish(iceberg)
        [self._of_iceberg] = (
            Path(each["file_path"].removeprefix("file://"))
            for each in iceberg_by_hand.data_files(self._iceberg)
        )
        iceberg_by_hand.delete_positions(self._iceberg, {f"file://{self._of_iceberg}": [1, 4]})
        self._positions = next((self._iceberg / "data").glob("deletes-*"))

    def run(self, name):
        """Run a case and return its result."""
        number = int(name.partition("-")[2])
        rng = Random(f"delvec {name}")
        began = time.perf_counter()
        outcome, detail, kind = "error", "", ""
        try:
            kind = self._commands(rng) if number % COMMANDS == 0 else self._functions(rng)
        except Exception:  # noqa: BLE001 - whatever it is, it is what the fuzzer looks for
            outcome, detail = "WRONG exception", traceback.format_exc()[-3000:]
        return {
            "case": name,
            "damage": [(kind, "footer")],
            "outcome": outcome,
            "detail": detail,
            "ms": round((time.perf_counter() - began) * 1000),
        }

    def _functions(self, rng):
        content, kind = mutated(rng, rng.choice(seeds()))
        (self._base / "part-0.parquet").write_bytes(content)
        for route in ROUTES:
            # Callers handle these; that the process lives is what counts here.
            with contextlib.suppress(
                DelvecError, pa.ArrowException, OSError, ValueError, TypeError, OverflowError, KeyError
            ):
                route(self._base, "part-0.parquet", content)
        return kind

    def _commands(self, rng):
        action = rng.randrange(4)
        if action == 0:
            return self._convert(rng)
        if action == 1:
            return self._import(rng)
        table = rng.choice(tables.builtin())
        path = rng.choice([path for path in table.files if path.endswith(".parquet")])
        content, kind = mutated(rng, table.files[path])
        folder = self._base / "table"
        shutil.rmtree(folder, ignore_errors=True)
        for each, body in {**table.files, path: content}.items():
            (folder / each).parent.mkdir(parents=True, exist_ok=True)
            (folder / each).write_bytes(body)
        lake = self._connection()
        with contextlib.suppress(DelvecError):
            opened = lake.table(str(folder))
            commands = _reads(opened)
            for command in rng.sample(commands, len(commands)):
                with contextlib.suppress(DelvecError):
                    command()
        return kind

    def _convert(self, rng):
        content, kind = mutated(rng, rng.choice(seeds()))
        folder = self._base / "directory"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        (folder / "part-0.parquet").write_bytes(content)
        with contextlib.suppress(DelvecError):
            table = self._connection().convert(str(folder))
            table.to_arrow()
        return kind

    def _import(self, rng):
        path = rng.choice((self._of_iceberg, self._positions))
        sound = path.read_bytes()
        content, kind = mutated(rng, sound)
        path.write_bytes(content)
        try:
            with contextlib.suppress(DelvecError):
                table = self._connection().import_iceberg(str(self._iceberg))
                table.to_arrow()
        finally:
            path.write_bytes(sound)
            shutil.rmtree(self._iceberg / "_delta_log", ignore_errors=True)
        return kind

    def _connection(self):
        self._count += 1
        if self._lake is None or self._count % _CASES_PER_SERVICE == 0:
            self.close()
            url = f"sqlite:///{self._base / f'{self._count}.db'}"
            settings = Settings(roots=(str(self._base),), database_url=url, log_level="error")
            transport = EmbeddedTransport(create_app(settings))
            self._lake = Connection(ServiceClient("http://delvec.test", transport=transport))
        return self._lake

    def close(self):
        """Stop the service; a later case starts another."""
        if self._lake is not None:
            self._lake.close()
            self._lake = None


if __name__ == "__main__":
    answer_cases(Worker)
