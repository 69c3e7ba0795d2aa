"""Which of the files that winners added can hold rows of our predicate."""

from collections.abc import Iterable, Sequence

import pyarrow as pa

from delvec.protocol.errors import CorruptLog
from delvec_service.delta.actions import AddFile
from delvec_service.delta.concurrency.ours import Ours
from delvec_service.delta.concurrency.winner import Winner
from delvec_service.delta.segments.files import TEXT_MAP, num_records_from_stats
from delvec_service.delta.skipping.truth import prune

__all__ = ["AddedFiles"]


class AddedFiles:
    """The files that winners added, judged by partition values and statistics.

    All of them at once, and only when the first is asked for: to judge one file costs as much as a hundred.
    """

    def __init__(self, ours: Ours, winners: Sequence[Winner]) -> None:
        self._ours = ours
        self._winners = winners
        self._may_match: dict[int, bool] = {}

    def that_may_match(self, files: Iterable[AddFile]) -> list[AddFile]:
        """Return those of these added files that may hold rows of our predicate.

        All of them, where there is no predicate that tells: none was given, or not one that can be understood, or
        what the files say of themselves cannot be.
        """
        asked = list(files)
        if self._ours.predicate is None or not asked:
            return asked
        unknown = {id(file): file for file in asked if id(file) not in self._may_match}
        if unknown:
            if not self._may_match:
                unknown |= {
                    id(file): file
                    for winner in self._winners
                    if winner.changes_data
                    for file in winner.new_files.values()
                }
            self._may_match |= zip(unknown, self._judged(list(unknown.values())), strict=True)
        return [file for file in asked if self._may_match[id(file)]]

    def _judged(self, files: Sequence[AddFile]) -> list[bool]:
        predicate, facts = self._ours.predicate, self._ours.facts
        stats = pa.array([file.stats for file in files], pa.string())
        table = pa.table(
            {
                "partition_values": pa.array(
                    [list(file.partition_values.items()) for file in files], TEXT_MAP
                ),
                "stats": stats,
                "num_records": num_records_from_stats(stats),
            }
        )
        try:
            pruned = prune(table, predicate, facts.schema, facts.metadata.partition_columns)
        except CorruptLog:
            return [True] * len(files)
        return list(pruned.may_match.to_pylist())
