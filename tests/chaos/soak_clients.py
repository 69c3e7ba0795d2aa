"""The clients of a soak: processes that append, update, delete and read, and remember the answers."""

import json
import random
import time
from collections import deque
from dataclasses import dataclass, field

import pyarrow as pa
from tests.chaos.load_balancer import LoadBalancer

from delvec.connection import Connection
from delvec.http.service_client import ServiceClient
from delvec_errors import DelvecError

SCHEMA = pa.schema([("id", pa.int64()), ("client", pa.int32()), ("value", pa.int64())])
_READY_FOR_SECONDS = 0.25
_OWN_IDS = 10**9
"""The size of a client's id range; no other client changes those rows."""
_HELD = 500
_THINKING_SECONDS = 0.05
_KINDS = {"append": 4, "delete": 3, "update": 2, "count": 3, "read": 3, "health": 1, "history": 1}
"""A client's operations and their weights."""


@dataclass
class Told:
    """The answers that a client got.

    Attributes:
        values: values of rows that must exist, by table and id; None if an update was not answered.
        unsure: rows that may or may not exist, because a command was not answered.
        requests: each command's start, kind, seconds, and error type or an empty string.
    """

    values: dict = field(default_factory=dict)
    unsure: set = field(default_factory=set)
    requests: list = field(default_factory=list)


class Client:
    """One of the clients.

    Args:
        number: the client's number.
        replicas: a file with the replicas' ports, read repeatedly because replicas are replaced.
        locations: the tables' locations.
        seed: for its random choices.
    """

    def __init__(self, number, replicas, locations, seed):
        self._number = number
        self._random = random.Random(f"{seed}-{number}")
        self._next_id = number * _OWN_IDS
        balancer = LoadBalancer(lambda: json.loads(replicas.read_text()), _READY_FOR_SECONDS)
        service = ServiceClient("http://127.0.0.1:1", transport=balancer, timeout=60)
        self._lake = Connection(service)
        self._tables = [self._lake.table(location) for location in locations]
        self._held = [deque(maxlen=_HELD) for _ in locations]
        self.told = Told()

    def run(self, ended):
        """Work until the event is set."""
        while not ended.is_set():
            kind = self._random.choices([*_KINDS], _KINDS.values())[0]
            place = self._random.randrange(len(self._tables))
            began, error = time.time(), ""
            try:
                getattr(self, f"_{kind}")(place)
            except DelvecError as failed:
                error = failed.type
            self.told.requests.append((began, kind, time.time() - began, error))
            time.sleep(self._random.uniform(0, 2 * _THINKING_SECONDS))
        self._lake.close()

    def _append(self, place):
        count = self._random.randint(1, 20)
        ids = range(self._next_id, self._next_id + count)
        self._next_id += count
        names = {(place, each) for each in ids}
        rows = pa.table({"id": [*ids], "client": [self._number] * count, "value": [0] * count}, schema=SCHEMA)
        self.told.unsure |= names
        self._tables[place].append(rows)
        self.told.unsure -= names
        self.told.values |= dict.fromkeys(names, 0)
        self._held[place].extend(ids)

    def _delete(self, place):
        names = self._some(place, gone=True)
        if names:
            for name in names:
                self.told.values.pop(name)
            self.told.unsure |= names
            self._tables[place].delete(_in(names))
            self.told.unsure -= names

    def _update(self, place):
        names = self._some(place)
        if names:
            before = {name: self.told.values[name] for name in names}
            self.told.values |= dict.fromkeys(names)
            self._tables[place].update({"value": "value + 1"}, _in(names))
            self.told.values |= {name: None if value is None else value + 1 for name, value in before.items()}

    def _count(self, place):
        self._tables[place].count()

    def _read(self, place):
        """Read some of its own rows, which nobody else changes, and compare them with the answers."""
        names = self._some(place)
        if names:
            found = self._tables[place].to_arrow(predicate=_in(names)).to_pydict()
            values = {(place, each): value for each, value in zip(found["id"], found["value"], strict=True)}
            for name in names:
                expected = self.told.values[name]
                if name not in values or expected not in (None, values[name]):
                    raise AssertionError(f"row {name} is {values.get(name)}, and was told to be {expected}")

    def _health(self, place):
        self._tables[place].health()

    def _history(self, place):
        self._tables[place].history(10)

    def _some(self, place, *, gone=False):
        held = self._held[place]
        ids = self._random.sample(held, min(len(held), self._random.randint(1, 4)))
        if gone:
            for each in ids:
                held.remove(each)
        return {(place, each) for each in ids}


def _in(names):
    return f"id IN ({', '.join(str(each) for _, each in sorted(names))})"


def work(number, replicas, locations, seed, ended, answers):
    """Run a client in a separate process, and send the answers it got."""
    client = Client(number, replicas, locations, seed)
    try:
        client.run(ended)
    except BaseException as error:
        answers.put((client.told, f"client {number}: {type(error).__name__}: {error}"))
        raise
    answers.put((client.told, ""))
