"""After a few rounds of chaos, delta-spark, deltalake and Delvec read the same table."""

import pytest
from tests.chaos.campaign import Campaign
from tests.support.postgres_server import postgres_or_skip

pytestmark = [
    pytest.mark.jars,
    pytest.mark.spark,
    pytest.mark.full_on_spark(
        "delta-spark takes seconds for each; the gate has both ways of reading and writing, and a race"
    ),
]

ROUNDS = 6


@pytest.mark.timeout(900)
def test_readers_agree_on_a_table_after_chaos(tmp_path, agreed):
    with postgres_or_skip() as postgres, Campaign(tmp_path, postgres, seed=5) as campaign:
        # The campaign compares deltalake and every replica with the answers that writers got.
        location = campaign.run(ROUNDS)

    assert len(agreed(location)) == campaign.report.rows
