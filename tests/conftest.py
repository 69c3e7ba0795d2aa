"""Fixtures of all tests: one Spark session, and hypothesis settings independent of the machine's load."""

import gc
import logging
import os
import re
import shutil
import sys
import zlib
from collections import Counter, defaultdict

import pytest
from hypothesis import settings
from tests.support.compiled_statements import compiled_statements  # noqa: F401  (a fixture)
from tests.support.random_cases import share_of, take_share_of_gate
from tests.support.schema_template import alembic, schema_template  # noqa: F401  (fixtures)
from xdist.scheduler import LoadFileScheduling

import delvec

settings.register_profile("delvec", deadline=None)
settings.load_profile("delvec")


# A JVM that lives for minutes mostly compiles: the second compiler tier and the parallel collector cost tests more
# than they save (20 tests of row changes: 88 CPU seconds with them, 49 without). Python processes that tests start
# inherit this, and so does each Spark that they start.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

_LONGEST = (
    "tests/fuzz/test_fuzz.py",
    "tests/integration/corpus/test_corpus.py",
    "tests/integration/spark/test_spark_row_changes.py",
    "tests/integration/spark/test_spark_scan.py",
    "tests/integration/spark/test_spark_source.py",
    "tests/integration/engines/test_merge.py",
    "tests/integration/spark/test_spark_connect.py",
    "tests/integration/engines/test_cluster.py",
    "tests/chaos/test_soak.py",
    "tests/integration/spark/test_spark_cluster.py",
    "tests/integration/service/test_openapi_conformance.py",
    "tests/integration/spark/test_spark_stream_source.py",
    "tests/integration/spark/test_spark_stream_sink.py",
    "tests/integration/spark/test_spark_sink.py",
    "tests/docs/examples/test_pages.py",
    "tests/packaging/test_wheel.py",
    "tests/integration/engines/test_predicates.py",
    "tests/integration/engines/test_update.py",
    "tests/integration/engines/test_changes.py",
    "tests/chaos/test_chaos.py",
    "tests/unit/kernel/data_skipping/test_skipping_rows.py",
)
"""Modules that take about a minute, longest first: started last, one would leave the other worker idle."""


_SLOWNESS = 2 if os.environ.get("CI") else 1
"""Its machine may be half as fast."""

MAX_SECONDS = 20 * _SLOWNESS
"""A test of the gate may take this long; a longer one is marked ``slow`` with the reason, or ``full``."""

_MAX_SECONDS_ON_SPARK = 60 * _SLOWNESS
"""Its first job starts a JVM, and on two busy cores each job takes seconds."""

_SAMPLED = 8
"""Of a test's table of cases the gate runs one in so many; see `sample`."""

_FEW_VALUES = 4
"""A test marked ``gate`` runs with each value of a parameter that has fewer than so many."""

SAMPLED_FOLDERS = ("tests/integration/", "tests/chaos/", "tests/docs/examples/")
"""Here a case makes tables, and often a service; elsewhere it takes milliseconds."""

_WHOLE_MODULE = re.compile(r"^pytestmark = \[?.*\bpytest\.mark\.(full|long)\(", re.MULTILINE)


def pytest_addoption(parser):
    parser.addoption(
        "--suite",
        choices=("gate", "full"),
        help="gate: without tests marked full or long; full: without tests marked long",
    )


def pytest_configure(config):
    if config.getoption("--suite") == "gate":
        take_share_of_gate()


class _OneWorkerForSpark(LoadFileScheduling):
    """Gives each module to a worker, and all tests of the shared Spark session to one.

    A JVM costs a worker some twenty CPU seconds until it is warm, and 700 MiB.
    """

    _SPARK = re.compile(
        r"tests/(integration/(spark/(?!test_spark_(connect|cluster|repeated_tasks)\.)"
        r"|(engines|corpus)/(.*(\[spark|-spark\]|_spark($|_|\[))|test_(calendars|variants)\.))|interop/)"
    )

    def _split_scope(self, nodeid):
        return "spark" if self._SPARK.match(nodeid) else super()._split_scope(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    # The whole suite has an hour of tests on Spark: one worker would be the last by far.
    return _OneWorkerForSpark(config, log) if config.getoption("--suite") == "gate" else None


def pytest_ignore_collect(collection_path, config):
    # Reading the source is much cheaper than importing modules of which no test is selected.
    in_gate = config.getoption("--suite") == "gate"
    if in_gate and collection_path.suffix == ".py" and collection_path.name.startswith("test_"):
        source = collection_path.read_text()
        if _WHOLE_MODULE.search(source) and "pytest.mark.gate" not in source:
            return True
    return None


def reason_to_leave_out(item, suite):
    """Return why ``suite`` leaves the test out, or None."""
    long = item.get_closest_marker("long")
    if long is not None:
        return long.args[0]
    if suite == "full":
        return None
    # A marker of the test or its parameter; `gate` is stronger than those of the module.
    full = next((mark for mark in item.own_markers if mark.name == "full"), None)
    if full is None and not item.get_closest_marker("gate"):
        full = item.get_closest_marker("full")
        if full is None and item.get_closest_marker("spark"):
            full = item.get_closest_marker("full_on_spark")
    return full.args[0] if full else None


def sample(table):
    """Return the cases of a test that the gate runs: one in eight, and with another of the first ones in each test.

    So of tests on two stores some run on the one and some on the other. A test that is marked ``gate`` runs with each
    engine, store and flag.
    """
    number = len(table)
    start = zlib.crc32(table[0].nodeid.partition("[")[0].encode()) % number
    chosen = {(start + step) % number for step in range(0, number, _SAMPLED)}
    if not table[0].get_closest_marker("gate"):
        return [table[place] for place in sorted(chosen)]
    values = [{(name, repr(value)) for name, value in item.callspec.params.items()} for item in table]
    counts = Counter(name for name, _ in set().union(*values))
    cases, seen = [], set()
    for place, (item, its) in enumerate(zip(table, values, strict=True)):
        few = {(name, value) for name, value in its if counts[name] < _FEW_VALUES}
        if place in chosen or few - seen:
            cases.append(item)
            seen |= few
    return cases


def _select(items, config):
    suite = config.getoption("--suite")
    if suite is None:
        return
    left_out = {item for item in items if reason_to_leave_out(item, suite) is not None}
    if suite == "gate":
        tables = defaultdict(list)
        for item in items:
            if (
                item not in left_out
                and hasattr(item, "callspec")
                and not item.get_closest_marker("every_case")
            ):
                tables[item.parent.nodeid, item.originalname].append(item)
        for table in tables.values():
            if table[0].nodeid.startswith(SAMPLED_FOLDERS):
                left_out.update(set(table) - set(sample(table)))
    if left_out:
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]


def pytest_collection_modifyitems(config, items):
    for item in items:
        asked = getattr(getattr(item, "obj", None), "_hypothesis_internal_use_settings", None)
        if asked is not None and share_of(asked.max_examples) < asked.max_examples:
            fewer = share_of(asked.max_examples, least=5)
            item.obj._hypothesis_internal_use_settings = settings(asked, max_examples=fewer)
    places = {path: place for place, path in enumerate(_LONGEST)}
    items.sort(key=lambda item: places.get(item.nodeid.partition("::")[0], len(places)))
    # PySpark 4.0 and 4.1 leave closing a result's socket to its finalizer.
    leak = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
    for item in items:
        if item.get_closest_marker("spark") or {"spark", "delta_spark"} & set(
            getattr(item, "fixturenames", ())
        ):
            item.add_marker(pytest.mark.spark)
            item.add_marker(leak)
    _select(items, config)


def pytest_collection_finish():
    # What collecting 12,000 tests leaves lives to the end; each full collection would go through it for 0.4 s.
    gc.collect()
    gc.freeze()


def pytest_unconfigure():
    gc.unfreeze()  # otherwise libraries report at exit that what is left was leaked


REQUIRED = [name for name in os.environ.get("DELVEC_REQUIRE", "").split(",") if name]
"""What must be available of java, jars, postgresql and corpus: a test that is skipped without it fails."""

_CRASHED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    # The skip reason starts with what is missing: "no Java: ...", "no corpus at ...".
    report = yield
    if report.skipped and isinstance(report.longrepr, tuple):
        reason = report.longrepr[2].removeprefix("Skipped: ")
        if any(re.match(rf"no {re.escape(name)}\b", reason, re.IGNORECASE) for name in REQUIRED):
            report.outcome = "failed"
            report.longrepr = f"{reason} (DELVEC_REQUIRE={','.join(REQUIRED)})"
    in_gate = item.config.getoption("--suite") == "gate"
    most = _MAX_SECONDS_ON_SPARK if item.get_closest_marker("spark") else MAX_SECONDS
    if in_gate and report.passed and call.duration > most and not item.get_closest_marker("slow"):
        report.outcome = "failed"
        report.longrepr = (
            f"{report.when} took {call.duration:.1f} s; a test of the gate may take {most} s. Make it faster, mark it "
            "`full` (it then runs in make test-full only), or mark it `slow`, each with the reason."
        )
    return report


@pytest.hookimpl(optionalhook=True)
def pytest_handlecrashitem(crashitem, report, sched):
    sched.config.stash[_CRASHED] = True


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session):
    # Otherwise a crash would count as a failed test, which dev/tests.py retries and may forgive.
    if session.config.stash.get(_CRASHED, False):
        session.exitstatus = pytest.ExitCode.INTERNAL_ERROR


def pytest_runtest_teardown(item, nextitem):
    if item.get_closest_marker("spark") and "pyspark" in sys.modules:
        # Tests share one session, so a leftover view would affect the next test.
        session = sys.modules["pyspark"].sql.SparkSession.getActiveSession()
        if session is not None:
            session._jsparkSession.sessionState().catalog().clearTempTables()
    # Run PySpark's finalizers now, when warnings are expected, not in the middle of another test.
    if item.get_closest_marker("spark") and not (nextitem and nextitem.get_closest_marker("spark")):
        gc.collect()


@pytest.fixture(autouse=True)
def logging_as_it_was():
    """Restores what `delvec serve` configures, so that a test that calls it does not affect the next one."""
    loggers = [logging.getLogger(name) for name in ("delvec_service", "uvicorn")]
    before = [(log.handlers, log.propagate, log.level) for log in loggers]
    yield
    for log, (handlers, propagate, level) in zip(loggers, before, strict=True):
        log.handlers, log.propagate = handlers, propagate
        if log.level != level:
            log.setLevel(level)


@pytest.fixture(scope="session", autouse=True)
def own_state(tmp_path_factory, schema_template):  # noqa: F811
    """Isolates tests from the user's database and settings, which another version may have created."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("own-state")))
        for name in ("DELVEC_URL", "DELVEC_TOKEN", "DELVEC_ROOTS", "DELVEC_DATABASE_URL"):
            patch.delenv(name, raising=False)
        yield


@pytest.fixture(scope="session")
def lake():
    """A connection with a separate database, for tests that only read or that create their own tables."""
    with delvec.connect(database_url="sqlite://") as connection:
        yield connection


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    """A session with two cores and without Delta on its class path."""
    pyspark = pytest.importorskip("pyspark")
    if not (os.environ.get("JAVA_HOME") or shutil.which("java")):
        pytest.skip("no Java: Spark needs Java 17 or later in JAVA_HOME or on PATH")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    folder = tmp_path_factory.mktemp("spark")
    # Spark's Python workers inherit its environment at start.
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        for name in ("DELVEC_URL", "DELVEC_TOKEN", "DELVEC_DATABASE_URL"):
            patch.delenv(name, raising=False)
        session = (
            pyspark.sql.SparkSession.builder.master("local[2]")
            .appName("delvec-tests")
            .config("spark.driver.host", "localhost")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.sql.session.timeZone", "America/New_York")  # not UTC, so that mix-ups are noticed
            # Most of its tests are about Spark's own plans. Tests of what users call have `as_users_have_it`; see also the
            # fixtures `spark_driver` and `spark_tasks`.
            .config("spark.delvec.localExecution.enabled", "false")
            .config("spark.delvec.duckdbTasks.enabled", "false")
            .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
            .config("spark.local.dir", str(folder / "local"))
            .config("spark.driver.extraJavaOptions", f"-Dderby.system.home={folder}")
            .getOrCreate()
        )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


def as_users_have_it(spark):
    """Return a new session without the settings that keep the sessions of tests from choosing DuckDB."""
    session = spark.newSession()
    for name in ("spark.delvec.localExecution.enabled", "spark.delvec.duckdbTasks.enabled"):
        session.conf.unset(name)
        assert session.conf.get(name, "default") == "default"
    return session


@pytest.fixture(scope="session")
def spark_tasks(spark):
    """A session whose row changes run on DuckDB in tasks when results are the same; its time zone is UTC."""
    session = as_users_have_it(spark)
    session.conf.set("spark.delvec.localExecution.enabled", "false")
    session.conf.set("spark.sql.session.timeZone", "UTC")
    return session


@pytest.fixture(scope="session")
def spark_driver(spark):
    """A session that runs small row changes in the driver when results are the same; its time zone is UTC."""
    session = as_users_have_it(spark)
    session.conf.set("spark.sql.session.timeZone", "UTC")
    return session
