"""What stands in for an engine in Spark's tasks is one, or no connection takes it."""

import pytest

from delvec.engines.protocol import Engine

pytestmark = pytest.mark.unit

pytest.importorskip("pyspark")


def test_the_data_sources_parts_are_engines():
    from delvec.spark_datasource import source, write_transaction

    assert isinstance(source._TaskSide(), Engine)
    assert isinstance(write_transaction._WrittenFiles(), Engine)
