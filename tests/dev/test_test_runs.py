"""What makes a run of the tests fail: everything but success, at the latest in the second try."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
STARVED = "tests/integration/service/commits/test_commit.py::test_a_delete"
CHANCE = (
    "tests/integration/service/commits/test_commit_validator.py::test_keys_that_differ_are_refused",
    "tests/integration/state_machine/test_threads.py::test_some",
    "tests/unit/service/commits/test_dv_cache.py::test_threads_do_not_disturb_each_other",
    "tests/integration/contract/test_object_store.py::test_a_crash_leaves_no_entry_or_a_whole_one_and_the_version_can_be_written",
    "tests/integration/contract/test_commit_storage.py::test_appends_at_once_all_succeed",
    "tests/interop/test_concurrent_deltalake.py::test_their_append_passes_ours",
    "tests/integration/service/alter_table/test_alteration_commit.py::test_changes_at_the_same_time_are_all_made_once",
    "tests/integration/spark/test_spark_stream_source.py::test_a_query_that_is_killed_goes_on_where_it_was",
    "tests/fuzz/test_fuzz.py::test_some",
    "tests/unit/kernel/transaction/test_conflict_histories.py::test_some",
)


@pytest.fixture
def tests(monkeypatch, tmp_path):
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.syspath_prepend(ROOT / "dev")
    # By its path: these tests are a package of the same name.
    spec = importlib.util.spec_from_file_location("dev_tests", ROOT / "dev" / "tests.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "_LAST_FAILED", tmp_path / "lastfailed")
    monkeypatch.setattr(module, "smoke", lambda *_: 0)
    monkeypatch.setattr(module, "_BUILD", tmp_path)
    monkeypatch.setattr(module, "_TIMES", tmp_path / "times.jsonl")
    monkeypatch.setattr(module, "_PASSED", tmp_path / "passed.json")
    return module


@pytest.fixture
def outcomes(tests, monkeypatch):
    """``outcomes((code, names), ...)``: what pytest answers, and which tests it says have failed, run by run."""
    runs = []

    def pytest_(*options):
        code, names = runs.pop(0)
        if names:
            tests._LAST_FAILED.write_text(json.dumps(dict.fromkeys(names, True)))
        return code

    monkeypatch.setattr(tests, "pytest", pytest_)

    def run(*expected, suite=("gate",)):
        runs.extend(expected)
        code = tests.main(list(suite))
        assert not runs
        return code

    return run


@pytest.mark.parametrize("code", [-11, -9, 1, 2, 3, 4, 5, 137])
@pytest.mark.parametrize("phase", [0, 1])
def test_every_code_but_zero_fails(outcomes, code, phase):
    assert outcomes(*[(code if phase == each else 0, []) for each in (0, 1)]) == 1


def test_two_good_phases_are_a_success(outcomes):
    assert outcomes((0, []), (0, [])) == 0


def test_the_smoke_on_other_versions_counts(outcomes, tests, monkeypatch):
    asked = []
    monkeypatch.setattr(tests, "smoke", lambda *options: asked.append(options) or 1)
    assert outcomes((0, []), (0, [])) == 1
    assert outcomes((0, []), suite=["full", "--part", "spark"]) == 1
    assert outcomes((0, []), suite=["full", "--part", "docs"]) == 0
    assert asked == [(), ("--oldest",)]


@pytest.mark.parametrize("code", [1, -11])
def test_what_fails_again_fails(outcomes, code):
    assert outcomes((1, [STARVED]), (code, [STARVED]), (0, [])) == 1


def test_a_second_try_is_reported(outcomes, capsys):
    assert outcomes((1, [STARVED]), (0, []), (0, [])) == 0
    assert f"FLAKY, passed only alone: {STARVED}" in capsys.readouterr().out


@pytest.mark.parametrize("name", CHANCE)
def test_chance_has_no_second_try(outcomes, name):
    assert outcomes((1, [name]), (0, [])) == 1


def test_a_whole_run_resumes_after_the_parts_that_have_passed(outcomes, tests):
    good, bad = (0, []), (1, [CHANCE[0]])
    parts = len(tests.PARTS)
    assert outcomes(good, bad, *[good] * (parts - 2), suite=["full"]) == 1
    assert outcomes(good, suite=["full"]) == 0
    assert outcomes(suite=["full"]) == 0
    assert outcomes(good, suite=["full", "--part", "spark"]) == 0
    assert outcomes(*[good] * parts, suite=["full", "--again"]) == 0


def test_every_test_belongs_to_a_part(tests):
    folders = [ROOT / folder for folders in tests.PARTS.values() for folder in folders]
    modules = (ROOT / "tests").rglob("test_*.py")
    assert not [m for m in modules if sum(folder in m.parents for folder in folders) != 1]


MARKED = """
import pytest, time
pytestmark = pytest.mark.full_on_spark("the same on DuckDB")
@pytest.fixture(params=["duckdb", pytest.param("spark", marks=pytest.mark.spark)])
def engine(request):
    return request.param
def test_each(engine):
    pass
@pytest.mark.gate
@pytest.mark.parametrize("number", [1, pytest.param(2, marks=pytest.mark.full("once more"))])
def test_both(engine, number):
    pass
@pytest.mark.full("random")
def test_many():
    pass
@pytest.mark.parametrize("case", range(10))
def test_table(case):
    pass
@pytest.mark.gate
@pytest.mark.parametrize("place", ["here", "there"])
@pytest.mark.parametrize("case", range(0, 8, 2))
def test_product(case, place):
    pass
@pytest.mark.parametrize("case", range(2))
def test_pair(case):
    pass
@pytest.mark.every_case("short")
@pytest.mark.parametrize("case", range(4))
def test_short(case):
    pass
@pytest.mark.long("an hour")
def test_hours():
    pass
@pytest.mark.slow("a real wait")
def test_waits():
    time.sleep(0.2)
def test_dawdles():
    time.sleep(0.2)
"""


@pytest.mark.full("starts pytest twice in processes of its own")
def test_suites_leave_out_what_is_marked_and_the_gate_slow_tests(tmp_path):
    conftest = "from tests import conftest\nconftest.MAX_SECONDS, conftest.SAMPLED_FOLDERS = 0.1, ('',)\n"
    (tmp_path / "conftest.py").write_text(conftest)

    code, output = pytest_in(tmp_path, MARKED, "--suite", "gate", "-v")
    assert code == 1, output
    # Which case comes first depends on the name of the test.
    assert re.findall(r"::(\w+\S*) (\w+)", output) == [
        ("test_each[duckdb]", "PASSED"),
        ("test_both[duckdb-1]", "PASSED"),
        ("test_both[spark-1]", "PASSED"),
        ("test_table[4]", "PASSED"),
        ("test_table[6]", "PASSED"),
        ("test_product[0-here]", "PASSED"),
        ("test_product[0-there]", "PASSED"),
        ("test_product[6-here]", "PASSED"),
        ("test_pair[0]", "PASSED"),
        *[(f"test_short[{number}]", "PASSED") for number in range(4)],
        ("test_waits", "PASSED"),
        ("test_dawdles", "FAILED"),
    ]
    assert "may take 0.1 s" in output
    code, output = pytest_in(tmp_path, MARKED, "--suite", "full", "-v")
    assert (code, output.count(" PASSED")) == (0, 33), output


def test_each_test_that_leaves_the_gate_has_a_reason():
    bare = re.compile(r"mark\.(full|full_on_spark|every_case|slow|long)\b(?!\(\s*(\"[^\"]{10}|reason\)))")
    modules = [*(ROOT / "tests").rglob("*.py")]
    assert not [
        (module.name, mark)
        for module in modules
        if module != Path(__file__)
        for mark in bare.findall(module.read_text())
    ]


def pytest_in(folder, test, *options, **variables):
    """Run a test in the text ``test`` with the hooks of all tests; return the exit code and the output."""
    (folder / "test_it.py").write_text(test)
    left = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST", "DELVEC"))}
    command = [sys.executable, "-m", "pytest", "-c", ROOT / "pyproject.toml", "--rootdir", folder]
    done = subprocess.run(
        [*command, "-p", "tests.conftest", "-p", "no:cacheprovider", folder / "test_it.py", *options],
        env=left | {"PYTHONPATH": str(ROOT)} | variables,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.full("starts pytest in a process of its own")
def test_a_worker_that_dies_is_no_failed_test_to_be_tried_again(tmp_path, tests):
    code, output = pytest_in(tmp_path, "import os\ndef test_it():\n    os.kill(os.getpid(), 11)\n", "-n", "1")

    assert code not in (0, tests._FAILED), output
    assert "crashed" in output


SKIPS = {
    "java": "import pytest\ndef test_it(spark):\n    pass\n",
    "jars": "from tests.interop.conftest import delta_spark\ndef test_it(delta_spark):\n    pass\n",
    "postgresql": "from tests.support import postgres_server\n"
    "from tests.chaos.conftest import postgres\n"
    "postgres_server.programs = list\n"
    "def test_it(postgres):\n    pass\n",
    "corpus": "from tests.integration.corpus.conftest import pytest_generate_tests, location\n"
    "def test_it(corpus_table, location):\n    pass\n",
}


@pytest.mark.full("three runs of pytest for each")
@pytest.mark.parametrize("name", SKIPS)
def test_what_is_promised_is_not_skipped(tmp_path, name):
    lacking = {"PATH": str(tmp_path), "JAVA_HOME": "", "DELVEC_CORPUS": str(tmp_path)}

    code, output = pytest_in(tmp_path, SKIPS[name], **lacking)
    assert code == 0, output
    assert "1 skipped" in output

    others = ",".join(SKIPS.keys() - {name})
    code, output = pytest_in(tmp_path, SKIPS[name], **lacking, DELVEC_REQUIRE=others)
    assert code == 0, output

    code, output = pytest_in(tmp_path, SKIPS[name], **lacking, DELVEC_REQUIRE=f"{others},{name}")
    assert code == 1, output
    assert "DELVEC_REQUIRE" in output


@pytest.mark.full("a run of pytest for each")
@pytest.mark.parametrize(
    "path",
    [
        "integration/corpus/test_change_feed.py",
        "integration/service/snapshots/test_corpus_replay.py",
        "unit/kernel/deletion_vectors/test_deletion_vector_codec.py",
    ],
)
def test_tests_of_the_corpus_fail_where_it_is_promised(tmp_path, path):
    left = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST")}
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "no:cacheprovider",
            ROOT / "tests" / path,
            "-k",
            "published or feed or corpus",
        ],
        env=left | {"DELVEC_CORPUS": str(tmp_path), "DELVEC_REQUIRE": "corpus"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 1, done.stdout
    assert "skipped" not in done.stdout.splitlines()[-1]


def test_ci_asks_for_everything():
    script = (ROOT / ".ci" / "run").read_text()

    assert "CI=true" in script
    assert all(name in script for name in ("java", "jars", "postgresql", "corpus"))


def test_temporary_files_are_in_memory_where_there_is_room(tests, monkeypatch, tmp_path):
    left = tmp_path / "delvec-tests-999999999"  # by a run that was killed
    left.mkdir()

    monkeypatch.setattr(tests, "_RAM_BYTES", 0)
    with tests.quick_sync(tmp_path) as environment:
        assert list(tmp_path.iterdir()) == [Path(environment["TMPDIR"])]
    assert list(tmp_path.iterdir()) == []

    monkeypatch.setattr(tests, "_RAM_BYTES", 2**60)
    with tests.quick_sync(tmp_path) as environment:
        assert environment == os.environ
