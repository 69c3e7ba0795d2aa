"""Plans a table that does not exist, so that everything is imported and compiled before the first real plan.

Otherwise the first plan after a start waits for what pyarrow imports on demand, for SQLAlchemy to compile its
statements, and for sqlglot's tables.
"""

import contextlib
import json
from typing import Final

from delvec_kernel.actions.action_json import LogFile
from delvec_kernel.actions.actions import Action, AddFile, Metadata, Protocol
from delvec_kernel.file_index.live_files import LiveFiles
from delvec_kernel.file_index.segment import SegmentsLost
from delvec_kernel.snapshot.replay import Commit, ReplayState, replay
from delvec_kernel.snapshot.snapshot import Snapshot
from delvec_service.scans.plan import plan
from delvec_service.store.snapshots import SnapshotStore

__all__ = ["warm_up"]

_REHEARSAL_LOCATION: Final = "memory:///delvec/rehearsal"
_SCHEMA: Final = json.dumps(
    {
        "type": "struct",
        "fields": [
            {"name": "id", "type": "long", "nullable": True, "metadata": {}},
            {"name": "day", "type": "date", "nullable": True, "metadata": {}},
        ],
    }
)
_STATS: Final = '{"numRecords":1,"minValues":{"id":1},"maxValues":{"id":1},"nullCount":{"id":0}}'


def warm_up(store: SnapshotStore | None) -> None:
    """Run through a plan and the requests it makes to a store; changes nothing.

    Raises:
        ServiceUnavailable: the database does not answer.
    """
    file = AddFile("f", {"day": "2026-01-01"}, 1, 1, stats=_STATS)
    actions: list[Action] = [Protocol(1, 2), Metadata("rehearsal", _SCHEMA, ("day",)), file]
    where = LogFile("rehearsal", 0, "")
    state = replay(ReplayState(LiveFiles(_REHEARSAL_LOCATION)), [Commit(where, actions)])
    snapshot = Snapshot.of(state, where, version=0, file_time=0, checkpoint_version=None)
    plan(snapshot, "rehearsal", predicate="id BETWEEN 0 AND 2 AND day = DATE '2026-01-01'")
    if store is not None:
        store.find(_REHEARSAL_LOCATION)
        store.segments.summaries(["rehearsal"], "")
        store.segments.optional_blobs(["rehearsal"], "")
        with contextlib.suppress(SegmentsLost):
            store.segments.blobs(["rehearsal"], "")
