"""RequestLimits of principals and tables: requests over a limit are refused, and others are not affected."""

import asyncio
import time

import pytest

from delvec_commands.backoff import pause
from delvec_errors import ServiceUnavailable, TooManyRequests
from delvec_service.api import lanes
from delvec_service.api.lanes import Lane
from delvec_service.api.limits import RateLimits, RequestLimits
from delvec_service.telemetry.observer import Observer

ADMIN = "the-configured-token"


class Heard(Observer):
    def __init__(self):
        self.refusals = []

    def limited(self, limit, of):
        self.refusals.append((limit, of))

    def turned_away(self, lane, reason):
        self.refusals.append((lane, reason))


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def asks(method, path):
    return {"type": "http", "method": method, "path": path}


READ = asks("GET", "/v1/tables/people/detail")


PLAN = asks("POST", "/v1/tables/people/plan")


COMMIT = asks("POST", "/v1/tables/people/commits")


def many(limits, scope, number, principal="etl"):
    """Return how many of ``count`` requests are admitted, and the last refusal."""
    admitted, refusal = 0, None
    for _ in range(number):
        try:
            limits.admit(principal, scope).end()
            admitted += 1
        except TooManyRequests as error:
            refusal = error
    return admitted, refusal


def test_a_rate_lets_in_a_burst_and_then_its_rate_and_says_when_to_come_back(clock):
    heard = Heard()
    limits = RequestLimits(RateLimits(requests=10), RateLimits(), heard, clock)

    admitted, refusal = many(limits, READ, 100)
    assert admitted == 20  # two seconds' worth
    assert refusal.message == (
        "'etl' is limited to 10 requests a second per process (DELVEC_PRINCIPAL_REQUESTS_PER_SECOND), and the limit is "
        "reached. Nothing was done. Retry in 0.1 seconds."
    )
    assert refusal.details == {
        "limit": "requests",
        "of": "principal",
        "name": "etl",
        "most": 10,
        "retry_after": 0.1,
    }
    assert heard.refusals == [("requests", "principal")] * 80
    assert many(limits, READ, 100, "another")[0] == 20

    clock.now += refusal.details["retry_after"]
    assert many(limits, READ, 5)[0] == 1
    clock.now += 1
    assert many(limits, READ, 100)[0] == 10
    clock.now += 3600
    assert many(limits, READ, 100)[0] == 20
    assert many(limits, asks("GET", "/readyz"), 100)[0] == 100  # probes have no limit


def test_commits_of_all_principals_count_for_a_table_whatever_makes_them(clock):
    limits = RequestLimits(RateLimits(), RateLimits(commits=1), clock=clock)
    assert many(limits, COMMIT, 1, "one")[0] == many(limits, COMMIT, 1, "other")[0] == 1
    for path in ("commits", "delete", "update", "optimize", "alter", "restore", "deletion-vectors/compact"):
        admitted, refusal = many(limits, asks("POST", f"/v1/tables/people/{path}"), 1)
        assert (admitted, refusal.details["of"], refusal.details["name"]) == (0, "table", "people")
    assert many(limits, READ, 50)[0] == many(limits, asks("POST", "/v1/tables/orders/commits"), 2)[0] + 48


def test_bytes_may_be_overdrawn_once_so_that_no_body_is_too_large_for_ever(clock):
    limits = RequestLimits(RateLimits(bytes=1000), RateLimits(), clock=clock)
    limits.admit("etl", COMMIT).received(7000)
    admitted, refusal = many(limits, COMMIT, 1)
    assert (admitted, refusal.details["retry_after"]) == (0, 5.001)
    assert many(limits, READ, 10)[0] == 10  # they have no body
    clock.now += 5.01
    assert many(limits, COMMIT, 1)[0] == 1


def test_plans_hold_their_place_until_they_end(clock):
    limits = RequestLimits(RateLimits(plans=2), RateLimits(plans=3), clock=clock)
    held = [limits.admit("one", PLAN) for _ in range(2)]
    refusal = many(limits, PLAN, 1, "one")[1]
    assert (refusal.details["limit"], refusal.details["of"], refusal.details["most"]) == (
        "plans",
        "principal",
        2,
    )
    held.append(limits.admit("other", PLAN))
    assert many(limits, PLAN, 1, "other")[1].details["of"] == "table"
    held.pop().end()
    assert many(limits, PLAN, 3, "other")[0] == 3  # each ends before the next
    iceberg = asks("POST", "/iceberg/v1/namespaces/sales\x1feu/tables/orders/plan")
    again = [limits.admit(name, iceberg) for name in ("a", "b", "c")]
    assert many(limits, asks("POST", "/v1/tables/sales.eu.orders/plan"), 1, "d")[0] == 0  # by either API
    for each in (*held, *again):
        each.end()
        each.end()
    assert many(limits, PLAN, 1, "one")[0] == 1


def test_those_that_were_quiet_for_longest_are_forgotten(clock):
    limits = RequestLimits(RateLimits(requests=1), RateLimits(), clock=clock)
    for number in range(40_000):
        limits.admit(f"p{number}", READ)
    assert len(limits._principals._meters) == 30_000
    assert many(limits, READ, 2, "p39999")[0] == 1


def test_clients_that_share_a_limit_do_not_come_back_in_the_same_moment():
    refused = TooManyRequests("…", retry_after=1.5)
    found = {pause(refused, 2) for _ in range(20)}
    assert min(found) >= 1.5
    assert max(found) < 2.4
    assert len(found) > 10
    assert pause(TooManyRequests("…", retry_after=900), 0) == 30


def in_lane(scene, **options):
    """Run a scenario with a lane that runs one request at a time, and another that yields to it."""
    heard = Heard()

    async def run():
        commits = Lane("commits", at_once=1, max_queued=4, seconds=0, observer=heard, **options)
        reads = Lane("reading", at_once=1, max_queued=4, seconds=0, before=commits, observer=heard)
        ends = asyncio.Event()
        done = []

        async def work(name):
            await ends.wait()
            done.append(name)

        def send(lane, name, whose="one"):
            return asyncio.ensure_future(lane.run(lambda: work(name), TimeoutError, whose))

        await scene(commits, reads, send, ends, done)

    asyncio.run(run())
    return heard.refusals


async def settle():
    for _ in range(20):
        await asyncio.sleep(0)


def test_principals_take_turns_and_the_greediest_makes_room():
    async def scene(commits, _reads, send, ends, done):
        first = send(commits, "running")
        await settle()
        greedy = [send(commits, f"greedy {number}", "greedy") for number in range(4)]
        await settle()
        small = send(commits, "small", "small")
        await settle()
        with pytest.raises(ServiceUnavailable):
            await greedy[3]
        refused = send(commits, "greedy 5", "greedy")  # nobody has more than it
        with pytest.raises(ServiceUnavailable):
            await refused
        assert commits.waiting == 4
        ends.set()
        await asyncio.gather(first, small, *greedy[:3])
        assert done == ["running", "greedy 0", "small", "greedy 1", "greedy 2"]
        assert (commits.running, commits.waiting) == (0, 0)

    assert in_lane(scene) == [("commits", "busy")] * 2


def test_a_slot_that_comes_free_as_the_wait_for_it_ends_is_not_lost(monkeypatch):
    monkeypatch.setattr(lanes, "_WAIT_SECONDS", 0.05)

    async def scene():
        lane = Lane("commits", at_once=1, max_queued=4, seconds=0)
        is_waiting = asyncio.Event()

        async def holder():
            await is_waiting.wait()
            time.sleep(0.1)  # noqa: ASYNC251 - so that the loop sees both the end of this and of the wait

        async def quick():
            return "done"

        first = asyncio.ensure_future(lane.run(holder, TimeoutError))
        await settle()
        second = asyncio.ensure_future(lane.run(quick, TimeoutError))
        await settle()
        is_waiting.set()
        await first
        assert await second == "done"
        assert (lane.running, lane.waiting) == (0, 0)
        assert await lane.run(quick, TimeoutError) == "done"

    asyncio.run(scene())


def test_under_overload_reads_are_turned_away_before_commits():
    async def scene(commits, reads, send, ends, done):
        sent = [send(reads, "read"), send(reads, "read that waits"), send(commits, "commit")]
        await settle()
        sent.append(send(commits, "commit that waits"))
        await settle()
        with pytest.raises(ServiceUnavailable, match=r"requests of kind commits are waiting \(1\)"):
            await send(reads, "one read more")
        sent.append(send(commits, "one commit more"))
        ends.set()
        await asyncio.gather(*sent)
        assert sorted(done) == [
            "commit",
            "commit that waits",
            "one commit more",
            "read",
            "read that waits",
        ]
        await send(reads, "read afterwards")

    assert in_lane(scene) == [("reading", "shed")]
