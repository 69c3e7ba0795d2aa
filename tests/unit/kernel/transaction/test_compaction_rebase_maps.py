"""Where compactions put rows: by runs, by row maps, and with nothing but the runs where no map can be read."""

import pyarrow as pa
import pytest
from pyroaring import BitMap64
from tests.support.rows_in_files import LOCATION, Facts, RowsInFiles, changes

from delvec_kernel.transaction.conflict_checker import Conflict, Passed, check
from delvec_kernel.transaction.current_transaction import CurrentTransaction
from delvec_kernel.transaction.row_maps import SCHEMA, RowMapReader
from delvec_kernel.transaction.transaction_changes import MappedOutput, RowMap, RowMapFile, RowRun

MAP = "_delvec/row_maps/00000000-0000-4000-8000-000000000000.parquet"


class Compacted(RowsInFiles):
    """Two files of three rows, and their compaction into one, whose order is reversed if it has a map."""

    def __init__(self):
        super().__init__()
        self.sources = [self.write(self.new_rows([place, place + 1, place + 2])) for place in (0, 10)]
        self.commit(changes("WRITE", 0, adds=self.sources))
        self.reads = 0

    @property
    def moved(self):
        return [(add.path, index) for add in self.sources for index in range(3)][::-1]

    def mapped(self):
        output = self.write([self.contents[path][index] for path, index in self.moved], data_change=False)
        row_map = RowMap((RowMapFile(MAP, 1, 6),), (MappedOutput(output.path, 6),))
        return self._optimize(output, row_map=row_map)

    def run(self):
        output = self.write(
            [row for add in self.sources for row in self.contents[add.path]], data_change=False
        )
        runs = [RowRun(add.path, 0, 3, 3 * place) for place, add in enumerate(self.sources)]
        return self._optimize(output, rewritten={output.path: runs})

    def _optimize(self, output, **how):
        removes = [add.path for add in self.sources]
        return changes("OPTIMIZE", 1, removes=removes, adds=[output], data_change=False, **how)

    def deletes(self, *places):
        rows = {self.sources[place].path: BitMap64([place]) for place in places}
        return changes("DELETE", 1, row_deletes=rows)

    def read_map(self, row_map, sources):
        assert row_map.files[0].path == MAP
        self.reads += 1
        reader = RowMapReader(row_map, sources, LOCATION)
        columns = [
            pa.array([path for path, _ in self.moved]).dictionary_encode(),
            pa.array([index for _, index in self.moved], pa.int64()),
        ]
        reader.add(pa.RecordBatch.from_arrays(columns, schema=SCHEMA))
        return reader.finish()

    def checked(self, what, read_map):
        return check(CurrentTransaction.of(what, Facts(1)), self.winners(1), self.vectors, read_map)

    def values(self):
        return sorted(row.value for row in self.rows())


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("how", ["mapped", "run"])
def test_rows_deleted_beside_a_compaction_are_gone_from_its_output(how, is_first):
    table = Compacted()
    steps = [getattr(table, how)(), table.deletes(0, 1)]
    first, second = steps if is_first else steps[::-1]
    table.commit(first)
    verdict = table.checked(second, table.read_map)
    assert isinstance(verdict, Passed)
    table.commit(verdict.changes)
    assert table.values() == [1, 2, 10, 12]


@pytest.mark.parametrize("is_first", [True, False])
def test_a_map_is_read_once_for_all_files(is_first):
    table = Compacted()
    steps = [table.mapped(), table.deletes(0, 1)]
    first, second = steps if is_first else steps[::-1]
    table.commit(first)
    assert isinstance(table.checked(second, table.read_map), Passed)
    assert table.reads == 1


@pytest.mark.parametrize("is_first", [True, False])
def test_where_no_map_can_be_read_runs_are_followed_and_maps_conflict(is_first):
    for how, kind in (("run", Passed), ("mapped", Conflict)):
        table = Compacted()
        steps = [getattr(table, how)(), table.deletes(0, 1)]
        first, second = steps if is_first else steps[::-1]
        table.commit(first)
        assert isinstance(table.checked(second, None), kind)


def test_deletes_of_several_commits_are_all_repeated():
    table = Compacted()
    for place in (0, 1):
        table.commit(table.deletes(place))
    verdict = table.checked(table.mapped(), table.read_map)
    assert isinstance(verdict, Passed)
    table.commit(verdict.changes)
    assert table.values() == [1, 2, 10, 12]
    assert table.reads <= 2


def test_an_output_without_live_rows_is_not_added():
    table = Compacted()
    compaction = table.run()
    rows = {add.path: BitMap64([0, 1, 2]) for add in table.sources}
    table.commit(changes("DELETE", 1, row_deletes=rows))
    verdict = table.checked(compaction, None)
    assert isinstance(verdict, Passed)
    assert verdict.changes.adds == []
    assert verdict.changes.added_deletes == {}
