"""The same engine with Spark Connect, where the driver's JVM cannot be reached."""

from pathlib import Path

import pytest
from tests.support import spark_script

pytestmark = [
    pytest.mark.spark,
    pytest.mark.full_on_spark("the gate has the main cases: each starts jobs of Spark"),
]


@pytest.mark.parametrize(
    "what",
    [
        "commands",
        *(
            pytest.param(w, marks=pytest.mark.full("starts a Connect server of its own"))
            for w in ("data source", "row changes", "statements", "streams")
        ),
    ],
)
@pytest.mark.gate
@pytest.mark.slow("starts a Connect server of its own")
def test_with_spark_connect(spark, tmp_path, what):
    pytest.importorskip(
        "grpc", reason="Spark Connect's client is not installed: pip install 'pyspark[connect]'"
    )
    script = Path(__file__).with_name("connect_session.py")
    root = str(Path(__file__).parents[3])
    spark_script.run(script, what, tmp_path, folder=tmp_path, timeout=280, PYTHONPATH=root)
