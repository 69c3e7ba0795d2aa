"""Runs DuckDB's extensions for other tables and catalogs in a separate process, since the locked version has none.

Run as a program with ``python duckdb_extensions.py SQL OUTPUT``: it writes the result as an Arrow file.
"""

import os
import subprocess
import sys
from pathlib import Path

VERSION = "1.5.5"
_EXTENSIONS = ("httpfs", "avro", "iceberg", "delta", "unity_catalog")


def packages():
    """Return a folder with DuckDB and its extensions, installed once."""
    # Here: as a program this module is alone.
    from tests.support.packages import installed

    extensions = (f"duckdb-extension-{name}=={VERSION}" for name in _EXTENSIONS)
    return installed(f"duckdb-{VERSION}", f"duckdb=={VERSION}", *extensions)


def query(sql, folder):
    """Return the result of the last of these statements as a table."""
    import pyarrow as pa

    output = Path(folder) / "answer.arrow"
    done = subprocess.run(
        [sys.executable, __file__, sql, output],
        env=os.environ | {"PYTHONPATH": str(packages()), "TZ": "UTC"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    with pa.OSFile(str(output)) as source:
        return pa.ipc.open_file(source).read_all()


def main(sql, output):
    import importlib.util

    import duckdb  # from the folder: the locked DuckDB is not on this process's path
    import pyarrow as pa

    assert duckdb.__version__ == VERSION
    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    for name in _EXTENSIONS:
        module = importlib.util.find_spec(f"duckdb_extension_{name}")
        (extension,) = Path(module.origin).parent.rglob("*.duckdb_extension")
        connection.load_extension(str(extension))
    connection.execute("SET TimeZone = 'UTC'")
    found = connection.execute(sql).to_arrow_table()
    with pa.OSFile(output, "wb") as sink, pa.ipc.new_file(sink, found.schema) as writer:
        writer.write_table(found)


if __name__ == "__main__":
    main(*sys.argv[1:])
