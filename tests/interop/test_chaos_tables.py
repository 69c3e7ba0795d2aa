"""What a few rounds of chaos leave is the same table to delta-spark, deltalake and Delvec."""

import pytest
from tests.chaos.campaign import Campaign
from tests.postgres_server import NoPostgresError, PostgresServer

pytestmark = [pytest.mark.jars, pytest.mark.spark]

ROUNDS = 6


@pytest.mark.timeout(900)
def test_readers_agree_on_a_table_after_chaos(tmp_path, agreed):
    try:
        with PostgresServer() as postgres, Campaign(tmp_path, postgres, seed=5) as campaign:
            location = campaign.run(
                ROUNDS
            )  # which compares deltalake and every replica with what writers were told
    except NoPostgresError as error:
        pytest.skip(f"no PostgreSQL could be started: {error}")

    assert len(agreed(location)) == campaign.report.rows
