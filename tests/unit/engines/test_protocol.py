"""The placeholder engines of the data source satisfy the Engine protocol."""

import pytest

from delvec_engines.protocol import Engine

pytest.importorskip("pyspark")


def test_the_data_sources_parts_are_engines():
    from delvec.spark_datasource import source, write_transaction

    assert isinstance(source._NoEngine(), Engine)
    assert isinstance(write_transaction._WrittenFiles(), Engine)
