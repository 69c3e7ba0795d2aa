"""Row changes race maintenance: no row is lost or resurrected, and there are no needless conflicts."""

import random
import sys
from contextlib import ExitStack

import pytest
from tests.chaos.race_campaign import RaceCampaign, connections
from tests.support.random_cases import share_of

ROUNDS = share_of(6, least=2)
LONG_ROUNDS = 150
SPARK_ROUNDS = 20


def race(way, folder, rounds, capsys, *, engine="duckdb"):
    with ExitStack() as stack:
        lakes = connections(way, folder, stack)
        campaign = RaceCampaign(lakes, folder / "tables", random.randrange(10**6), engine=engine)
        campaign.run(rounds)
    assert campaign.counts["rounds"] == rounds
    assert campaign.counts["versions compared"] > rounds
    with capsys.disabled():
        sys.stdout.write(f"\n{way}: {campaign.report}")


@pytest.mark.timeout(900)
def test_changes_and_maintenance_do_not_conflict(tmp_path, capsys):
    race("embedded", tmp_path, ROUNDS, capsys)


@pytest.mark.long("300 rounds: an hour")
@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("way", ["embedded", "served"])
def test_changes_and_maintenance_do_not_conflict_in_the_long_run(way, tmp_path, capsys):
    race(way, tmp_path, LONG_ROUNDS, capsys)


@pytest.mark.long("300 rounds: an hour")
@pytest.mark.timeout(4 * 3600)
def test_changes_and_maintenance_do_not_conflict_on_spark(spark, tmp_path, capsys):
    race("embedded", tmp_path, SPARK_ROUNDS, capsys, engine=spark)
