"""Transactions over several tables are serializable, whole, and lose nothing, whenever a replica dies or stalls."""

import sys

import pytest
from tests.chaos.transaction_campaign import Transaction, campaign, cycles, torn
from tests.support.random_cases import share_of

HISTORIES = share_of(30, least=10)
LONG_HISTORIES = 10_000


def run(histories, capsys):
    number, kills, outcomes, anomalies = campaign(histories, 0)
    with capsys.disabled():
        sys.stdout.write(f"\n{number} histories, {kills} kills, {outcomes}")
    assert anomalies == {}
    assert number == histories
    assert outcomes["committed"] > histories


@pytest.mark.timeout(300)
def test_random_histories_are_serializable(capsys):
    run(HISTORIES, capsys)


@pytest.mark.long("10,000 histories: an hour")
@pytest.mark.timeout(4 * 3600)
def test_random_histories_are_serializable_in_the_long_run(capsys):
    run(LONG_HISTORIES, capsys)


def acknowledged(key, reads=None, adds=None, began=1, ended=100):
    files = {number: f"{key}-{number}.parquet" for number in adds or ()}
    return Transaction(key, dict(reads or {}), files, {}, "committed", began, ended)


def test_the_checker_accepts_a_serial_history():
    first = acknowledged("a", adds=[0, 1], began=1, ended=2)
    second = acknowledged("b", reads={0: 1}, adds=[1], began=3, ended=4)
    orders = {0: [(1, "a")], 1: [(1, "a"), (2, "b")]}
    assert cycles([first, second], orders) == torn([first, second], orders) == []


def test_appends_that_share_a_version_are_in_no_order():
    group = [acknowledged("a", adds=[0, 1]), acknowledged("b", adds=[0, 1])]
    orders = {0: [(1, "a"), (1, "b")], 1: [(1, "b"), (1, "a")]}
    assert cycles(group, orders) == torn(group, orders) == []
    stale = acknowledged("r", reads={0: 0, 1: 1})
    assert cycles([*group, stale], orders)


@pytest.mark.parametrize(
    ("transactions", "orders"),
    [
        # Write skew: each has read what the other changes.
        (
            [acknowledged("a", reads={0: 0}, adds=[1]), acknowledged("b", reads={1: 0}, adds=[0])],
            {0: [(1, "b")], 1: [(1, "a")]},
        ),
        # A lost update: both have read what the first of them changed.
        (
            [acknowledged("a", reads={0: 0}, adds=[0]), acknowledged("b", reads={0: 0}, adds=[0])],
            {0: [(1, "a"), (2, "b")], 1: []},
        ),
        # A reader that sees one part of a transaction.
        (
            [acknowledged("a", adds=[0, 1]), acknowledged("r", reads={0: 1, 1: 0})],
            {0: [(1, "a")], 1: [(1, "a")]},
        ),
        # Two writers in different orders.
        (
            [acknowledged("a", adds=[0, 1]), acknowledged("b", adds=[0, 1])],
            {0: [(1, "a"), (2, "b")], 1: [(1, "b"), (2, "a")]},
        ),
        # A read of the past, after the answer.
        (
            [
                acknowledged("a", adds=[0], began=1, ended=2),
                acknowledged("r", reads={0: 0}, began=3, ended=4),
            ],
            {0: [(1, "a")], 1: []},
        ),
    ],
    ids=["write skew", "lost update", "half a transaction", "two orders", "a stale read"],
)
def test_the_checker_finds_what_no_serial_order_has(transactions, orders):
    assert cycles(transactions, orders)


@pytest.mark.parametrize(
    "order", [{0: [(1, "a")], 1: []}, {0: [], 1: []}, {0: [(1, "a"), (2, "a")], 1: [(1, "a")]}]
)
def test_the_checker_finds_what_is_not_whole(order):
    assert torn([acknowledged("a", adds=[0, 1])], order)
