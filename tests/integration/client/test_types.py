"""What type checkers say about programs that use the client."""

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import delvec
from delvec_commands.display import History
from delvec_commands.lazy_rows import Rows

ROOT = Path(__file__).parents[3]
CONFIG = f"""
[mypy]
strict = true
mypy_path = {ROOT / "kernel"}:{ROOT / "clients"}
explicit_package_bases = true
namespace_packages = true
follow_imports = skip
# Only the types that the program sees: all of them, with those of polars, take a minute.
[mypy-delvec,delvec.*,delvec_commands.*,delvec_engines.operation,delvec_errors.*]
follow_imports = silent
"""
PROGRAM = """
import delvec

with delvec.connect() as lake:
    people = lake.table("people")
    people.to_arrow()
    people.to_arow()  # attr-defined
    people.delete("id = 1").version
    people.delete("id = 1").versoin  # attr-defined
    people.optimize.compact()
    people.optimize.compat()  # attr-defined
    merge = people.merge([], "source.id = target.id")
    merge.when_matched_delete().execute()
    merge.whenMatchedDelete()  # attr-defined
    lake.tabel("people")  # attr-defined
    delvec.conect()  # attr-defined
    answer = lake.sql("SELECT 1 AS one")
    answer.versoin  # union-attr
    if isinstance(answer, delvec.Metrics):
        answer.version
"""


@pytest.mark.slow("mypy reads the client without a cache")
@pytest.mark.full("starts mypy without its cache")
def test_a_misspelled_name_does_not_pass_mypy(tmp_path):
    program, config = tmp_path / "program.py", tmp_path / "mypy.ini"
    program.write_text(PROGRAM)
    config.write_text(CONFIG)
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--config-file",
        str(config),
        "--cache-dir",
        "/dev/null",
        str(program),
    ]
    checked = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=240)

    reported = {
        int(line): code
        for line, code in re.findall(r"program\.py:(\d+): error: .*\[([\w-]+)\]", checked.stdout)
    }
    expected = {
        number: line.rpartition("# ")[2]
        for number, line in enumerate(PROGRAM.splitlines(), 1)
        if "# " in line
    }
    assert reported == expected, checked.stdout + checked.stderr


@pytest.mark.parametrize(
    ("method", "type_"),
    [
        (delvec.DeltaTable.to_pandas, "pd.DataFrame"),
        (delvec.DeltaTable.head, "pd.DataFrame"),
        (delvec.DeltaTable.to_polars, "pl.DataFrame"),
        (delvec.DeltaTable.to_lazyframe, "pl.LazyFrame"),
        (delvec.DeltaTable.to_duckdb, "duckdb.DuckDBPyRelation"),
        (delvec.DeltaTable.to_df, "DataFrame"),
        (delvec.Connection.sql, "pa.Table | DataFrame | Metrics | Altered"),
        (Rows.to_pandas, "pd.DataFrame"),
        (Rows.to_polars, "pl.DataFrame"),
        (History.to_pandas, "pd.DataFrame"),
    ],
)
def test_what_returns_rows_says_of_which_type(method, type_):
    assert inspect.signature(method).return_annotation == type_
