"""Tasks that run twice because their first attempt was lost after writing its files: each row is there once."""

import os
from pathlib import Path

import pytest
from tests.support import spark_script

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(900),
    pytest.mark.full_on_spark("starts a Spark of its own"),
]


def test_tasks_that_run_twice_double_no_row(spark, tmp_path):
    """Speculative execution is the same case: Spark takes one attempt's result, and only its files are committed."""
    assert spark is not None  # the fixture has checked that there is a Java
    script = Path(__file__).with_name("repeated_tasks.py")
    path = os.pathsep.join([str(script.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    lost = str(tmp_path / "lost")
    spark_script.run(
        script, tmp_path, folder=tmp_path, timeout=800, PYTHONPATH=path, DELVEC_TEST_LOST_TASKS=lost
    )
