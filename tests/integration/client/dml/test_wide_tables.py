"""UPDATE and MERGE of wide tables: the work grows with the number of columns, not with its square."""

import sys
from pathlib import Path

import pyarrow as pa
import pytest

import delvec
import delvec_kernel
import delvec_service

FEW, MANY = 50, 400
OURS = tuple(str(Path(each.__file__).parent) for each in (delvec, delvec_kernel, delvec_service))


def rows_of(columns):
    """Two rows with that many columns of several types, beside the id."""
    values = [
        pa.array([1, 2], pa.int64()),
        pa.array(["a", None]),
        pa.array([0.5, 2.5]),
        pa.array([[1], None], pa.list_(pa.int32())),
        pa.array([{"x": 1}, None], pa.struct([("x", pa.int32())])),
    ]
    return pa.table(
        {"id": [1, 2], **{f"c{number}": values[number % len(values)] for number in range(columns)}}
    )


def lines_of(work):
    """Return how many lines of ours this thread runs; each pass of a loop or comprehension counts."""
    count = 0

    def line(frame, event, argument):
        nonlocal count
        count += event == "line"
        return line

    def call(frame, event, argument):
        return line if frame.f_code.co_filename.startswith(OURS) else None

    before = sys.gettrace()
    sys.settrace(call)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def update(table, rows):
    table.update({"c0": "c0 + 1", "c4.x": "7"}, "id = 1")


def update_all(table, rows):
    table.update({name: name for name in rows.column_names[1:]}, "id = 1")


def merge_all(table, rows):
    merge = table.merge(rows, "source.id = target.id + 1").when_matched_update_all()
    merge.when_not_matched_insert_all().execute()


def merge_one(table, rows):
    merge = table.merge(rows.select(["id", "c0"]), "source.id = target.id + 1")
    merge.when_matched_update({"c0": "source.c0"}).when_not_matched_insert({"id": "source.id"}).execute()


@pytest.mark.parametrize("command", [update, update_all, merge_all, merge_one])
def test_work_is_linear_in_the_columns(lake, tmp_path, command):
    counts = []
    for columns in (FEW, MANY):
        rows = rows_of(columns)
        table = lake.create_table(tmp_path / str(columns), rows.schema)
        table.append(rows)
        counts.append(lines_of(lambda table=table, rows=rows: command(table, rows)))
    assert counts[1] < 1.1 * counts[0] * MANY / FEW


def test_the_rows_of_a_wide_table(lake, tmp_path):
    rows = rows_of(30)
    table = lake.create_table(tmp_path / "t", rows.schema)
    table.append(rows)

    update(table, rows)
    merge_all(table, rows.set_column(0, "id", pa.array([2, 9])))

    first, second = rows.to_pylist()
    # Source row 2 matches row 1, and replaces it; source row 9 matches none.
    assert table.to_arrow().sort_by("id").to_pylist() == [first | {"id": 2}, second, second | {"id": 9}]
