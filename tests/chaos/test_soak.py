"""Clients see no lost rows while replicas are replaced and the database restarts; `make attack ON=soak` runs it for an hour."""

import random
import sys

import pytest
from tests.chaos.soak import Soak

QUICK_SECONDS = 15
LONG_SECONDS = 3600


@pytest.mark.full("a quarter of a minute of load; test_chaos.py has the same faults")
@pytest.mark.timeout(900)
def test_replicas_and_their_database_are_restarted_under_load(tmp_path, postgres, capsys):
    with Soak(tmp_path, postgres, clients=3, seed=random.randrange(10**6)) as soak:
        report = soak.run(QUICK_SECONDS, trouble_every=5)

    with capsys.disabled():
        sys.stdout.write(f"\n{report}\n")
    assert report.broken == []
    assert report.replaced
    assert report.restarts
    assert {"append", "delete", "update", "read"} <= report.seconds.keys()


@pytest.mark.long("an hour of load")
@pytest.mark.timeout(3 * LONG_SECONDS)
def test_memory_stays_flat_and_nothing_is_lost_in_an_hour(tmp_path, postgres, capsys):
    with Soak(tmp_path, postgres, clients=8, seed=random.randrange(10**6)) as soak:
        report = soak.run(LONG_SECONDS, trouble_every=60)

    with capsys.disabled():
        sys.stdout.write(f"\n{report}\n")
    assert report.broken == []
    _, second, _, last = report.memory_by_quarter()
    assert last < 1.25 * second + (32 << 20)
