"""A full disk: a typed error that names the file, no commit, and every file in the ledger."""

import os
import resource
from contextlib import contextmanager

import pyarrow as pa
from tests.support import bad_input_cases as cases

import delvec_errors as errors

LIMIT = 2 << 20
"""Bytes beyond which no file may grow; what the service keeps for itself stays below."""


@contextmanager
def full_disk():
    """Limit the size of this process's files to :data:`LIMIT`, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def rows(count=25_000):
    """Return rows that nothing compresses to less than twice the limit."""
    return pa.table(
        {"id": pa.array(range(count), pa.int64()), "name": [os.urandom(100).hex() for _ in range(count)]}
    )


COMMANDS = {
    "append": lambda table, more: table.append(more),
    "overwrite": lambda table, more: table.overwrite(more),
    "update": lambda table, _: table.update({"id": "id + 1"}),
    "merge": lambda table, more: (
        table.merge(more, "target.id = source.id + 1000000").when_not_matched_insert_all().execute()
    ),
}


def test_a_disk_that_is_full(tmp_path):
    place = cases.Place(tmp_path / "large", tmp_path / "records.db")
    more = rows()
    with place.connect() as lake:
        table = lake.create_table(
            place.folder, more.schema, properties={"delta.enableChangeDataFeed": "true"}
        )
        table.append(more)
        for command in COMMANDS.values():
            with cases.refused(place, lake, errors.StorageFull, "parquet"), full_disk():
                command(table, more)
        assert (table.version(), table.count()) == (1, more.num_rows)
        assert table.update({"id": "id + 1"})["numUpdatedRows"] == more.num_rows
