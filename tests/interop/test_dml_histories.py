"""Random DML: after every statement, Delvec on both engines and delta-spark match a plain model's rows and changes."""

import pytest
from tests.interop.dml_campaign import Campaign

pytestmark = pytest.mark.full_on_spark(
    "delta-spark takes seconds for each; the gate has both ways of reading and writing, and a race"
)

SEEDS = (1, 2)


def test_scripts_on_duckdb_match_the_model(lake, tmp_path):
    campaign = Campaign(lake, tmp_path)
    for seed in range(12):
        campaign.run(seed, 5)
    assert campaign.counts["statements"] == 60
    assert campaign.counts["statements", "Delvec on DuckDB"] > 40


@pytest.mark.jars
@pytest.mark.spark
@pytest.mark.parametrize("seed", SEEDS)
def test_every_writer_matches_the_model(lake, delta_spark, tmp_path, seed):
    campaign = Campaign(lake, tmp_path, delta_spark)
    campaign.run(seed, 3)
    assert campaign.counts["statements"] == 3


@pytest.mark.long("a hundred random scripts on Spark: a quarter of an hour")
@pytest.mark.jars
@pytest.mark.spark
def test_a_hundred_scripts(lake, delta_spark, tmp_path):
    campaign = Campaign(lake, tmp_path, delta_spark)
    for seed in range(1000, 1100):
        campaign.run(seed, 4)
    assert campaign.counts["statements"] == 400
