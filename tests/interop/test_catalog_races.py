"""delta-spark, DuckDB and Delvec on one managed table, while replicas are killed, against a model."""

import pytest
from tests.interop import catalog_campaign

pytestmark = [pytest.mark.jars, pytest.mark.spark]


@pytest.mark.long("rounds of three engines and restarts of the service: a quarter of an hour")
@pytest.mark.timeout(3600)
def test_no_row_is_lost_or_doubled_whoever_dies(delta_spark):
    rounds, counts = catalog_campaign.run(40, 0, 3000, delta_spark)
    assert rounds == 40
    assert counts["deaths"] > 3
