"""The examples of the pages run as they stand."""

import re
import shlex
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from delvec.cli import main

ROOT = Path(__file__).resolve().parents[2]


def blocks(page, language="python"):
    found = re.findall(rf"^```{language}\n(.*?)^```", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
    return [block for block in found if "spark" not in block]


@pytest.mark.parametrize("page", ["README.md", "docs/python.md", "docs/sql.md"])
def test_examples_run(page, lake, tmp_path, monkeypatch):
    """One after the other in one namespace, as a reader of the page would type them; paths go elsewhere."""
    monkeypatch.chdir(tmp_path)
    namespace = {"people": lake.create_table(tmp_path / "adults", "id long, age int")}

    assert blocks(page)
    for block in blocks(page):
        exec(compile(block.replace("/tmp/", f"{tmp_path}/"), page, "exec"), namespace)


def test_the_readme_prints_what_it_says(tmp_path, capsys):
    (block,) = blocks("README.md")
    promised = re.search(r"^It prints `(.*)` and `(.*)`\.$", (ROOT / "README.md").read_text(), re.MULTILINE)

    exec(compile(block.replace("/tmp/", f"{tmp_path}/"), "README.md", "exec"), {})

    assert capsys.readouterr().out.splitlines() == list(promised.groups())


def test_the_session_in_the_shell_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pq.write_table(pa.table({"id": [1, 200], "name": ["a", "b"], "country": ["NZ", "NZ"]}), "people.parquet")
    lines = blocks("docs/cli.md", "shell")[0].splitlines()

    assert lines
    for line in lines:
        program, *arguments = shlex.split(line)
        assert program == "delvec"
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert ended.value.code == 0, line
