"""The bounds of added files decide conflicts; those that a writer has rounded must not hide a row."""

from dataclasses import replace

import pytest
from pyroaring import BitMap64
from tests.support.rows_in_files import Facts, RowsInFiles, changes

from delvec_errors import ConcurrentAppend
from delvec_kernel.transaction.conflict_checker import Passed, check
from delvec_kernel.transaction.current_transaction import CurrentTransaction

ROUNDED = 9007199254740993
"""The first integer that is not a double; a program whose numbers are doubles states the one below."""


@pytest.mark.parametrize(("value", "passes"), [(ROUNDED, False), (ROUNDED + 1000, True)])
def test_a_row_outside_the_rounded_bounds_of_an_added_file_is_a_conflict(value, passes):
    table = RowsInFiles()
    ours = table.write(table.new_rows([1, 2]))
    table.commit(changes("WRITE", 0, adds=[ours]))
    delete = changes("DELETE", 1, row_deletes={ours.path: BitMap64([0])}, predicate=f"id = {value}")
    theirs = table.write(table.new_rows([ROUNDED]))
    stats = theirs.stats.replace(str(ROUNDED), str(int(float(ROUNDED))))
    assert stats != theirs.stats
    table.commit(changes("WRITE", 1, adds=[replace(theirs, stats=stats)]))

    verdict = check(CurrentTransaction.of(delete, Facts(1)), table.winners(1), table.vectors)

    assert isinstance(verdict, Passed) is passes
    assert passes or verdict.kind is ConcurrentAppend
