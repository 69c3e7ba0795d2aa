"""No row is lost, doubled or resurrected, whatever happens to requests, replicas and their store."""

import random
import sys

import pytest
from tests.chaos.campaign import Campaign
from tests.support.random_cases import share_of

ROUNDS = share_of(30)
LONG_ROUNDS = 1000


@pytest.mark.timeout(600)
@pytest.mark.slow("starts services again and again")
def test_nothing_is_lost_doubled_or_resurrected(tmp_path, postgres, capsys):
    with Campaign(tmp_path, postgres, random.randrange(10**6)) as campaign:
        campaign.run(ROUNDS)

    struck = campaign.report.faults
    with capsys.disabled():
        sys.stdout.write(f"\n{campaign.report}\n")
    assert campaign.report.rounds == ROUNDS
    assert campaign.report.outcomes["append acknowledged"] > ROUNDS
    # Rounds without faults would prove nothing.
    assert sum(count for name, count in struck.items() if name.startswith("proxy: ")) > ROUNDS


@pytest.mark.long("a thousand rounds: an hour")
@pytest.mark.timeout(4 * 3600)
def test_nothing_is_lost_doubled_or_resurrected_in_the_long_run(tmp_path, postgres, capsys):
    with Campaign(tmp_path, postgres, random.randrange(10**6)) as campaign:
        campaign.run(LONG_ROUNDS)

    with capsys.disabled():
        sys.stdout.write(f"\n{campaign.report}\n")
    assert campaign.report.rounds == LONG_ROUNDS
    assert min(
        campaign.report.faults[f"round with: {kind}"]
        for kind in ("kill", "kill two", "wipe store", "drop store", "stop store")
    )
