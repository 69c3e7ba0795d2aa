"""A small cluster: executors are separate processes that share only the package with the driver."""

from pathlib import Path

import pytest
from tests.support import spark_script

pytestmark = [pytest.mark.spark, pytest.mark.full_on_spark("starts a Spark of its own")]


def test_commands_sources_and_streams_on_a_cluster(spark, tmp_path):
    script = Path(__file__).with_name("cluster_session.py")
    spark_script.run(script, tmp_path, folder=tmp_path, timeout=280, cwd=tmp_path)
