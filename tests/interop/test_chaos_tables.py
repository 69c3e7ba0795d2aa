"""What a few rounds of chaos leave is the same table to delta-spark, deltalake and Delvec."""

import pytest
from tests.chaos.campaign import Campaign
from tests.postgres_server import postgres_or_skip

pytestmark = [pytest.mark.jars, pytest.mark.spark]

ROUNDS = 6


@pytest.mark.timeout(900)
def test_readers_agree_on_a_table_after_chaos(tmp_path, agreed):
    with postgres_or_skip() as postgres, Campaign(tmp_path, postgres, seed=5) as campaign:
        # It compares deltalake and every replica with what writers were told.
        location = campaign.run(ROUNDS)

    assert len(agreed(location)) == campaign.report.rows
