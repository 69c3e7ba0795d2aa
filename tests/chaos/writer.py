"""A writer like a user's: the client's own transactions, sent through the proxy, with its own retries."""

import random
import time
from contextlib import suppress

import pyarrow as pa
import pyarrow.compute as pc
from tests.chaos import oracle

from delvec.connection import Connection
from delvec.http.service_client import ServiceClient
from delvec_commands.transaction import Transaction, begin
from delvec_engines.protocol import WriteTarget
from delvec_errors import (
    BadRequest,
    CommitOutcomeUnknown,
    ConcurrentModification,
    InternalError,
    ServiceUnavailable,
    StorageError,
    TableNotFound,
)

_TRIES = 8
_LONGEST_PAUSE_SECONDS = 0.3
_AWAY = (ServiceUnavailable, StorageError)


class GaveUpError(Exception):
    """There was no answer for too long; nothing had been submitted for commit."""


class Writer:
    """One of the writers, for one thread.

    Args:
        number: its number; seeds its random choices together with ``seed``.
        url: the proxy's.
        location: the table's.
        told: the oracle, which records every operation.
    """

    def __init__(self, number, seed, url, location, told):
        self._random = random.Random(f"{seed}-{number}")
        self._oracle = told
        self._location = str(location)
        self._service = ServiceClient(
            url, timeout=60, sleep=lambda seconds: time.sleep(min(seconds, _LONGEST_PAUSE_SECONDS))
        )
        self._connection = Connection(self._service)
        self._table = None
        self._held = None

    def close(self):
        self._connection.close()

    def step(self):
        """Append or delete some rows in one of several ways."""
        with suppress(GaveUpError):
            way = self._random.choice([self._append, self._append, self._delete_rows, self._delete_where])
            way()

    def _append(self):
        ids = self._oracle.new_ids(self._random.randint(1, 40))
        table = self._found()
        begun, schema = self._asked(lambda: begin(self._service, table.id, "WRITE"))
        target = WriteTarget(
            location=begun.location,
            schema=schema,
            partition_columns=begun.partition_columns,
            configuration=begun.configuration,
            transaction_id=begun.transaction_id,
        )
        rows = pa.table({"id": pa.array(ids, pa.int64()), "text": [f"row {id_}" for id_ in ids]})
        transaction = Transaction(
            self._service, table.id, "WRITE", begun.version, transaction_id=begun.transaction_id
        )
        transaction.add(table.engine.write(rows, target))
        self._settle(self._oracle.begin("append", transaction.transaction_id, ids), transaction)

    def _delete_rows(self):
        """Delete by row index, read now or a step ago; it depends only on these rows."""
        ids = self._oracle.some_rows(self._random, self._random.randint(1, 3))
        if not ids:
            return
        self._delete(ids, self._plan(ids), None)

    def _delete_where(self):
        ids = self._oracle.some_rows(self._random, self._random.randint(1, 3))
        if not ids:
            return
        self._delete(ids, self._plan(ids), _in(ids))

    def _plan(self, ids):
        """Plan, then perhaps pause so that others commit in between."""
        table = self._found()
        scan, condition = self._asked(lambda: table.plan(predicate=_in(ids)))
        if self._random.random() < 0.3:
            time.sleep(self._random.uniform(0, 0.2))
        return table, scan, condition

    def _delete(self, ids, planned, predicate):
        table, scan, condition = planned
        transaction = Transaction(self._service, table.id, "DELETE", scan.version)
        rest = scan.filter(pc.invert(scan.files["matches_all"]))
        if len(rest):
            transaction.delete_rows(table.engine.find_rows(rest, condition))
        transaction.remove(scan.filter(scan.files["matches_all"]).files["path"].to_pylist())
        if not transaction.is_empty:
            operation = self._oracle.begin("delete", transaction.transaction_id, ids)
            self._settle(operation, transaction, predicate)

    def settle_again(self, operation):
        """Send an operation again, unchanged."""
        transaction, predicate = operation.sent
        self._settle(operation, transaction, predicate)

    def _settle(self, operation, transaction, predicate=None):
        """Send the same transaction, with the same key, until there is an answer."""
        operation.sent = transaction, predicate
        for _ in range(_TRIES):
            operation.attempts += 1
            try:
                done = transaction.commit(predicate=predicate)
            except (CommitOutcomeUnknown, *_AWAY) as error:
                # After a temporary refusal, an earlier attempt may still be running on another replica.
                operation.error = error.type
            except TableNotFound as error:
                operation.error = error.type
                with suppress(GaveUpError):
                    self._register()
            except ConcurrentModification as error:
                operation.outcome, operation.error = oracle.CONFLICT, error.type
                return
            except InternalError:
                raise
            except BadRequest as error:
                operation.outcome, operation.error = oracle.REFUSED, error.type
                return
            else:
                operation.error = ""
                self._oracle.acknowledge(operation, done.version)
                return
            time.sleep(self._random.uniform(0, _LONGEST_PAUSE_SECONDS))

    def _found(self):
        if self._table is None:
            self._register()
        return self._table

    def _register(self):
        """Find the table by its location, which registers it again with a store that has lost it."""
        for _ in range(_TRIES):
            try:
                self._table = self._connection.table(self._location, engine="duckdb")
            except (TableNotFound, *_AWAY):
                time.sleep(self._random.uniform(0, _LONGEST_PAUSE_SECONDS))
            else:
                return
        raise GaveUpError

    def _asked(self, question):
        """Return the answer to a request that is safe to repeat."""
        for _ in range(_TRIES):
            try:
                return question()
            except TableNotFound:
                self._register()
            except _AWAY:
                time.sleep(self._random.uniform(0, _LONGEST_PAUSE_SECONDS))
        raise GaveUpError


def _in(ids):
    return f"id IN ({', '.join(map(str, ids))})"
