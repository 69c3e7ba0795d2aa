"""A table as a stream of rows, for every engine: plans each step and its scans.

The engine stores a position, which says how far the stream has read; the service has no state of streams. A new stream has
the position :data:`BEGINNING`. The next position records where the stream actually started, so that a repeated first step
starts at the same place.

Tested in `tests/integration/spark/test_spark_stream_source.py` and
`tests/integration/spark/test_spark_stream_steps.py`.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa

from delvec_commands.change_feed.feed import plan_changes
from delvec_commands.change_feed.stream_options import StreamOptions
from delvec_commands.table_service import TableService, request
from delvec_contract.plans import AdditionsRequest, AdditionsResponse, ReadSchema, StreamPosition
from delvec_contract.tables import SnapshotResponse
from delvec_engines.scan import Scan
from delvec_errors import BadRequest, SourceRowsChanged, VersionNotFound
from delvec_kernel.change_feed.feed_schema import feed_columns, feed_schema, feed_values
from delvec_kernel.schema.types import StructType

__all__ = ["BEGINNING", "StreamStep", "TableStream"]

BEGINNING: Final[Mapping[str, Any]] = {"beginning": True}
"""The position of a stream that has read nothing."""

_READ_CHANGE_FEED: Final = "readChangeFeed"
"""Key of a position for this option: with it, the same position means other rows."""


@dataclass(frozen=True)
class StreamStep:
    """One planned step of a stream.

    Attributes:
        end: the position after this step.
        found: whether the step has rows. Without rows the end may still be after the start: versions that add nothing
            are skipped.
        version: the newest version that the step covers.
    """

    end: Mapping[str, Any]
    found: bool
    version: int


class TableStream:
    """A table that is read step by step.

    Args:
        service: of the table.
        pinned: the version whose schema all rows are read with.
        options: what to read.

    Attributes:
        beginning: the position of a stream that has read nothing.
    """

    beginning = BEGINNING

    def __init__(self, service: TableService, snapshot: SnapshotResponse, options: StreamOptions) -> None:
        self._service = service
        self._pinned = snapshot
        self._options = options
        self._start_checked = False

    @property
    def schema(self) -> StructType:
        """The schema of the rows."""
        schema = StructType.from_json(self._pinned.table_schema)
        return feed_schema(schema) if self._options.read_change_feed else schema

    def newest(self) -> int:
        """Return the newest version of the table."""
        return self._ask(StreamPosition(version=0), max_files=0, list_files=False)[0].version

    def step(
        self, start: Mapping[str, Any], *, with_limits: bool = True, last_version: int | None = None
    ) -> StreamStep:
        """Plan the step from a position; reads no rows.

        Args:
            start: a position.
            with_limits: whether the limits in the options apply.
            last_version: treat this version as the newest.

        Raises:
            SourceRowsChanged: or another error of the service, see docs/streaming.md.
        """
        limits: dict[str, Any] = {}
        if with_limits:
            limits = {"max_files": self._options.max_files, "max_bytes": self._options.max_bytes}
        answer, _ = self._ask(self._position(start), last_version=last_version, list_files=False, **limits)
        return StreamStep(
            self._serialized(answer.end, start, answer.start), answer.num_found > 0, answer.version
        )

    def scans(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[Scan]:
        """Return the scans between two positions, the same on each call; no scan lists a path twice.

        Raises:
            SourceRowsChanged: or another error of the service, see docs/streaming.md.
        """
        last = self._position(end)
        first = self._position(end["from"] if start == BEGINNING else start)
        if first is None or last is None:
            raise BadRequest(f"{dict(end)} is not an end position of a Delvec stream")
        if not self._options.read_change_feed:
            answer, files = self._ask(first, end=last)
            return list(self._additions(answer, files))
        scans: list[Scan] = []
        if first.snapshot:
            within = last.snapshot and last.version == first.version
            until = last if within else StreamPosition(version=first.version + 1)
            answer, files = self._ask(first, end=until)
            scans += self._additions(answer, _as_inserts(files, answer))
            first = until
        if not self._options.fail_on_data_loss and first.version < last.version:
            first = self._ask(first, end=last, list_files=False)[0].start
        if first.version < last.version:
            scans += self._changes(first.version, last.version - 1)
        return scans

    def _changes(self, first: int, last: int) -> list[Scan]:
        path = self._pinned.table_id
        try:
            feed = plan_changes(self._service, path, start_version=first, end_version=last)
        except VersionNotFound as error:
            # Changes of a version need the version before it, so the feed may start later than the additions.
            earliest = error.details.get("earliest")
            if self._options.fail_on_data_loss or earliest is None or earliest <= first:
                raise
            return [] if earliest > last else self._changes(earliest, last)
        return [replace(scan, schema=self.schema) for scan in feed.scans if len(scan)]

    # --- positions ------------------------------------------------------------------------------------------

    def _position(self, checkpoint: Mapping[str, Any]) -> StreamPosition | None:
        if checkpoint == BEGINNING:
            return None
        self._check_read_change_feed(checkpoint)
        try:
            if checkpoint.get("table", self._pinned.metadata_id) != self._pinned.metadata_id:
                raise SourceRowsChanged(
                    f"The checkpoint belongs to a different table than the one now at {self._pinned.location}; start a new "
                    "query with a new checkpoint.",
                    table=self._pinned.name,
                    location=self._pinned.location,
                )
            return StreamPosition(
                version=checkpoint["version"], index=checkpoint["index"], snapshot=checkpoint["snapshot"]
            )
        except (KeyError, ValueError) as error:
            raise BadRequest(
                f"The checkpoint has {dict(checkpoint)} for table '{self._pinned.name}', which is not a position of a Delvec "
                "stream. A checkpoint of another source cannot be resumed; start with a new checkpoint."
            ) from error

    def _check_read_change_feed(self, checkpoint: Mapping[str, Any]) -> None:
        """Refuse a position of a stream with another readChangeFeed; positions of older releases do not record it."""
        was_change_feed = checkpoint.get(_READ_CHANGE_FEED, self._options.read_change_feed)
        if was_change_feed == self._options.read_change_feed:
            return
        name = self._pinned.name
        was, now = (
            ("changes of each version", "rows as they were added")
            if was_change_feed
            else ("rows as they were added", "changes of each version")
        )
        raise BadRequest(
            f"The checkpoint belongs to a query with readChangeFeed={str(bool(was_change_feed)).lower()}, which read {was} of "
            f"table '{name}', "
            f"and this query would continue with {now}: rows would be lost or repeated. Set the option "
            f"readChangeFeed={str(bool(was_change_feed)).lower()} again, or start a new query with a new checkpoint.",
            table=name,
            option="readChangeFeed",
        )

    def _serialized(
        self, position: StreamPosition, start: Mapping[str, Any], begun: StreamPosition
    ) -> Mapping[str, Any]:
        here = position.model_dump()
        if start == BEGINNING:
            return self._signed(here) | {"from": begun.model_dump()}
        if all(start.get(key) == value for key, value in here.items()):
            return start  # unchanged: Spark takes another spelling for another batch
        return self._signed(here)

    def _signed(self, position: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "table": self._pinned.metadata_id,
            _READ_CHANGE_FEED: self._options.read_change_feed,
            **position,
        }

    # --- files ----------------------------------------------------------------------------------------------

    def _ask(self, start: StreamPosition | None, **fields: Any) -> tuple[AdditionsResponse, pa.Table]:
        options, snapshot = self._options, self._pinned
        beginning: dict[str, Any] = {"start": start}
        if start is None:
            beginning = {
                "starting_version": options.starting_version,
                "starting_timestamp": options.starting_timestamp,
            }
        additions_request = request(
            AdditionsRequest,
            **beginning,
            ignore_deletes=options.ignore_deletes,
            skip_change_commits=options.skip_change_commits,
            change_feed=options.read_change_feed,
            pass_lost_versions=not options.fail_on_data_loss,
            read_with=ReadSchema(
                version=snapshot.version,
                table_schema=snapshot.table_schema,
                partition_columns=snapshot.partition_columns,
                configuration=snapshot.configuration,
            ),
            check_start=not self._start_checked and fields.get("max_files") != 0,
            metadata_id=snapshot.metadata_id,
            **fields,
        )
        answered = self._service.additions(snapshot.table_id, additions_request)
        self._start_checked = self._start_checked or additions_request.check_start
        return answered

    def _additions(self, answer: AdditionsResponse, files: pa.Table) -> Iterator[Scan]:
        """Yield scans, none of which lists a path twice: RESTORE adds a file again."""
        seen: Counter[str] = Counter()
        rounds: list[int] = []
        for path in files["path"].to_pylist():
            rounds.append(seen[path])
            seen[path] += 1
        columns = list(self._pinned.partition_columns)
        if self._options.read_change_feed:
            columns += feed_columns(is_change_file=False)
        for number in range(max(rounds, default=-1) + 1):
            round_files = files.filter(pa.array([each == number for each in rounds]))
            yield Scan(
                table_id=answer.table_id,
                name=answer.name,
                location=answer.location,
                version=answer.version,
                schema=self.schema,
                partition_columns=columns,
                configuration=self._pinned.configuration,
                files=round_files,
                num_files_total=round_files.num_rows,
                roots=self._service.roots_of(answer.location),
            )


def _as_inserts(files: pa.Table, answer: AdditionsResponse) -> pa.Table:
    """Return all files of a version as inserts of that version."""
    constants = feed_values(answer.start.version, answer.snapshot_timestamp or 0, "insert")
    values = [list((dict(each or ()) | constants).items()) for each in files["partition_values"].to_pylist()]
    place = files.schema.get_field_index("partition_values")
    return files.set_column(
        place, files.schema.field(place), pa.array(values, files.schema.field(place).type)
    )
