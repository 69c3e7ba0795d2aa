"""A demo: delete rows of a real Delta table through the service, and compare with rewriting.

Run it with ``make demo``. It starts the service over HTTP on a free loopback port, creates two equal tables
(one with deletion vectors, one without), deletes one row and then one percent from each, reads both back
with deltalake, which shares no code with Delvec, and lets several writers change one file at once.
"""

import argparse
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import deltalake
import httpx
import pyarrow as pa
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

import delvec

COLUMNS = {
    "id": "id",
    "name": "concat('person ', id)",
    "born": "date_add(date'1950-01-01', cast(id % 20000 as int))",
    "salary": "cast(20000 + id % 90000 as decimal(10,2))",
    "country": "element_at(array('NZ','DE','BR','IN','US','KE'), cast(id % 6 as int) + 1)",
    "note": "md5(cast(id as string))",
}
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("born", pa.date32()),
        ("salary", pa.decimal128(10, 2)),
        ("country", pa.string()),
        ("note", pa.string()),
    ]
)
WRITERS = 4


@dataclass(frozen=True)
class Step:
    """One line of the result."""

    table: str
    what: str
    rows: int
    seconds: float
    written: int
    files: int


def disk_usage(folder: Path) -> tuple[int, int]:
    """Return the bytes and the number of files under ``folder``, including the log."""
    sizes = [file.stat().st_size for file in folder.rglob("*") if file.is_file()]
    return sum(sizes), len(sizes)


@contextmanager
def service(root: Path) -> Iterator[str]:
    """Run ``delvec serve`` over ``root``; yield its URL."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    log = root / "service.log"
    environment = {
        **os.environ,
        "DELVEC_ROOTS": str(root),
        "DELVEC_DATABASE_URL": f"sqlite:///{root / 'delvec.db'}",
    }
    command = [str(Path(sys.executable).with_name("delvec")), "serve", "--port", str(port)]
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
    try:
        for _ in range(300):
            if process.poll() is not None:
                raise SystemExit(f"the service did not start:\n{log.read_text()[-2000:]}")
            try:
                if httpx.get(f"{url}/readyz", timeout=1).status_code == httpx.codes.OK:
                    break
            except httpx.TransportError:
                pass
            time.sleep(0.1)
        else:
            raise SystemExit(f"the service is not ready after 30 s:\n{log.read_text()[-2000:]}")
        yield url
    finally:
        process.terminate()
        process.wait(timeout=30)


def java_major() -> int:
    """Return the major version of the Java that PySpark would start; 0 if there is none."""
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if program is None or not Path(program).exists():
        return 0
    told = subprocess.run([program, "-version"], check=False, capture_output=True, text=True).stderr
    found = re.search(r'version "(?:1\.)?(\d+)', told)
    return int(found.group(1)) if found else 0


def spark_session(scratch: Path) -> Any:
    """Return a local Spark session without any Delta JAR."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    quiet = scratch / "log4j2.properties"
    # Without an appender, Spark would install its own verbose configuration.
    quiet.write_text(
        "rootLogger.level = off\nrootLogger.appenderRef.console.ref = console\n"
        "appender.console.type = Console\nappender.console.name = console\n"
    )
    os.environ["SPARK_LOCAL_HOSTNAME"] = "localhost"
    return (
        SparkSession.builder.master("local[*]")
        .appName("delvec demo")
        .config("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={quiet}")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "2g")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
        .getOrCreate()
    )


def people(engine: Any, rows: int) -> Any:
    """Return ``rows`` people: a Spark DataFrame with one partition, or an Arrow table from DuckDB."""
    if engine != "duckdb":
        return engine.range(0, rows, 1, 1).selectExpr(*[f"{sql} as {name}" for name, sql in COLUMNS.items()])
    import duckdb

    return duckdb.sql(
        f"""select id, 'person ' || id as name, date '1950-01-01' + (id % 20000)::int as born,
        (20000 + id % 90000)::decimal(10, 2) as salary,
        ['NZ','DE','BR','IN','US','KE'][(id % 6)::int + 1] as country, md5(id::varchar) as note
        from range({rows}) t(id)"""  # noqa: S608 - rows is a number
    ).to_arrow_table()


def independent_count(location: Path) -> tuple[int, int]:
    """Return the number of rows and the sum of ids, read with deltalake."""
    builder = deltalake.QueryBuilder().register("people", deltalake.DeltaTable(str(location)))
    batches = builder.execute("select count(*) as n, sum(id) as s from people").read_all()
    return int(batches["n"][0].as_py()), int(batches["s"][0].as_py())


def race(lake: delvec.Connection, engine: Any, location: Path) -> list[tuple[str, str]]:
    """Let several writers each delete a different row of the same file; return the outcome of each."""
    tables = [lake.table(str(location), engine=engine) for _ in range(WRITERS)]

    def write(number: int) -> tuple[str, str]:
        predicate = f"id = {1001 + number * 10}"
        try:
            metrics = tables[number].delete(predicate)
        except delvec.ConcurrentModification as error:
            winner = error.conflict.get("winning-version")
            return predicate, f"conflict with version {winner}: nothing was changed; run it again"
        return predicate, f"deleted {metrics['numDeletedRows']} row"

    with ThreadPoolExecutor(WRITERS) as pool:
        return list(pool.map(write, range(WRITERS)))


class Demo:
    """Runs the steps, shows progress and collects the results."""

    def __init__(
        self, lake: delvec.Connection, engine: Any, folder: Path, rows: int, console: Console
    ) -> None:
        self.lake = lake
        self.engine = engine
        self.folder = folder
        self.rows = rows
        self.console = console
        self.steps: list[Step] = []

    def step(self, table: str, what: str, run: Callable[[], int]) -> None:
        """Time ``run``, which returns the number of changed rows, and record the bytes it wrote."""
        location = self.folder / table
        bytes_before, files_before = disk_usage(location)
        if self.console.is_terminal:
            columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
            with Progress(*columns, console=self.console, transient=True) as progress:
                progress.add_task(f"{table}: {what}")
                started = time.perf_counter()
                rows = run()
                seconds = time.perf_counter() - started
        else:
            started = time.perf_counter()
            rows = run()
            seconds = time.perf_counter() - started
        bytes_after, files_after = disk_usage(location)
        written, files = bytes_after - bytes_before, files_after - files_before
        self.steps.append(Step(table, what, rows, seconds, written, files))
        self.console.print(f"{table}: {what}: {rows:,} rows, {seconds:.2f} s, {written:,} bytes written")

    def make(self, table: str, properties: dict[str, str]) -> None:
        """Create a table and fill it."""
        people_table = self.lake.create_table(
            str(self.folder / table), SCHEMA, properties=properties, engine=self.engine
        )

        def append() -> int:
            people_table.append(people(self.engine, self.rows))
            return self.rows

        self.step(table, "create and append", append)

    def warm_up(self) -> None:
        """Run each job once on a few rows, so that engine startup is not measured."""
        for name, enabled in (("warm_dv", "true"), ("warm_rewriting", "false")):
            table = self.lake.create_table(
                str(self.folder / name),
                SCHEMA,
                properties={"delta.enableDeletionVectors": enabled},
                engine=self.engine,
            )
            table.append(people(self.engine, 1000))
            table.delete("id = 1")

    def delete(self, table: str, what: str, predicate: str) -> None:
        """Delete by a predicate."""
        target = self.lake.table(str(self.folder / table), engine=self.engine)
        self.step(table, f"delete {what}", lambda: int(target.delete(predicate)["numDeletedRows"]))

    def verify(self, table: str, expected: tuple[int, int]) -> None:
        """Compare the rows that deltalake reads with the expected ones."""
        found = independent_count(self.folder / table)
        verdict = "equal" if found == expected else f"EXPECTED {expected}"
        self.console.print(f"{table}: deltalake reads {found[0]:,} rows, sum of ids {found[1]:,}: {verdict}")
        if found != expected:
            raise SystemExit(f"{table}: the independent reader disagrees")

    def report(self) -> None:
        """Print the results, and the comparison of both ways."""
        table = Table("table", "step", "rows", "seconds", "bytes written", "files", title="What it cost")
        for number in (2, 3, 4, 5):
            table.columns[number].justify = "right"
        for step in self.steps:
            table.add_row(
                step.table,
                step.what,
                f"{step.rows:,}",
                f"{step.seconds:.2f}",
                f"{step.written:,}",
                str(step.files),
            )
        self.console.print(table)
        deletes = [step for step in self.steps if step.what.startswith("delete")]
        with_dv = sum(step.written for step in deletes if step.table == "with_dv")
        rewriting = sum(step.written for step in deletes if step.table == "rewriting")
        self.console.print(
            f"Deletion vectors wrote {with_dv:,} bytes where rewriting wrote {rewriting:,} "
            f"({with_dv / max(rewriting, 1):.2%})."
        )


def run_demo(rows: int, folder: Path, console: Console) -> None:
    """Run the whole demo in ``folder``."""
    engine: Any = "duckdb"
    needed_java = 17
    if java_major() >= needed_java:
        console.print("Starting Spark (no Delta JAR on it) ...")
        engine = spark_session(folder)
    else:
        console.print("No Java 17: running on DuckDB. Install a JRE 17 and set JAVA_HOME to see it on Spark.")
    with service(folder) as url, delvec.connect(url) as lake:
        console.print(f"The service listens on {url}; its OpenAPI is at {url}/docs")
        demo = Demo(lake, engine, folder, rows, console)
        demo.warm_up()
        demo.make("with_dv", {})
        demo.make("rewriting", {"delta.enableDeletionVectors": "false"})
        one = rows // 2 + 1
        hundredth = 7 if one % 100 != 7 else 8  # noqa: PLR2004 - any residue that spares the single row
        for table in ("with_dv", "rewriting"):
            demo.delete(table, "1 row", f"id = {one}")
            demo.delete(table, "1 %", f"id % 100 = {hundredth}")
        gone = [one, *range(hundredth, rows, 100)]
        expected = (rows - len(gone), rows * (rows - 1) // 2 - sum(gone))
        for table in ("with_dv", "rewriting"):
            demo.verify(table, expected)
        demo.report()
        console.print(f"{WRITERS} writers delete different rows of one file at once:")
        outcomes = race(lake, engine, folder / "with_dv")
        for predicate, outcome in outcomes:
            console.print(f"  {predicate}: {outcome}")
        deleted = sum(outcome.startswith("deleted") for _, outcome in outcomes)
        left, _ = independent_count(folder / "with_dv")
        console.print(
            f"{deleted} of {WRITERS} committed; deltalake reads {left:,} rows: no row lost, none revived."
        )
        if left != expected[0] - deleted:
            raise SystemExit(f"expected {expected[0] - deleted:,} rows")
    if engine != "duckdb":
        engine.stop()


def main() -> None:
    """Read the command line and run in a scratch folder that is removed at the end."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--keep", type=Path, help="leave the tables in this folder")
    arguments = parser.parse_args()
    console = Console(highlight=False, soft_wrap=True)
    folder = arguments.keep or Path(tempfile.gettempdir()) / f"delvec-demo-{secrets.token_hex(4)}"
    folder.mkdir(parents=True, exist_ok=True)
    try:
        run_demo(arguments.rows, folder.resolve(), console)
    finally:
        if arguments.keep is None:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            console.print(f"The tables are in {folder}")


if __name__ == "__main__":
    main()
