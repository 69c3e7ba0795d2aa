"""Which files are sorted together: new ones, with ZCubes that are no larger."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delvec_errors import InvalidTableChange, UnknownColumn
from delvec_kernel.actions.actions import AddFile
from delvec_kernel.file_index.file_rows import table_from_adds
from delvec_kernel.schema.types import PrimitiveType, StructField, StructType
from delvec_maintenance.zcubes import ZCubeRules, check_columns, choose, files_to_come

RULES = ZCubeRules([("x",), ("s", "y")], is_clustering=True)


def files(*given):
    """Return files of (size, ZCube or None); a ZCube is an id, with columns and provider if not the default."""
    adds = []
    for number, (size, cube, *other) in enumerate(given):
        columns, provider = (*other, *('["x","s.y"]', "liquid")[len(other) :])
        tags = None if cube is None else {"ZCUBE_ID": cube, "ZCUBE_ZORDER_BY": columns}
        adds.append(
            AddFile(
                f"{number}",
                {},
                size,
                number,
                tags=tags,
                clustering_provider=None if cube is None else provider,
            )
        )
    return table_from_adds(adds)


def chosen(table, rules=RULES):
    return [sorted(each.files.tolist()) for each in choose(table, [], rules)]


def test_only_new_files_are_sorted():
    assert chosen(files((10, "a"), (10, "a"))) == []
    assert chosen(files((10, "a"), (10, None), (5, None))) == [[0, 1, 2]]
    assert chosen(files((100, "a"), (10, None))) == [[1]]
    assert chosen(files((100, "a"), (9, "b"), (10, None))) == [[1, 2]]
    assert chosen(files((18, "a"), (9, "b"), (10, None))) == [[0, 1, 2]]  # 19 is at least 18


def test_other_columns_and_providers():
    table = files((10, "a", '["z"]'), (10, "b", '["x","s.y"]', "theirs"), (1, None))
    assert chosen(table) == [[2]]
    assert chosen(table, ZCubeRules(RULES.columns, is_clustering=True, full=True)) == [[0, 1, 2]]
    # A ZORDER BY has no columns in the table's metadata to respect.
    assert chosen(table, ZCubeRules([("x",)])) == [[0, 1, 2]]
    broken = files((10, "a", "not JSON"), (10, "b", "{}"), (10, "c", '["x", "s.y"]'))
    assert chosen(broken, ZCubeRules(RULES.columns)) == [[0, 1, 2]]


def test_a_full_run_over_one_zcube_does_nothing():
    full = ZCubeRules(RULES.columns, is_clustering=True, full=True)
    assert chosen(files((10, "a"), (10, "a")), full) == []
    assert chosen(files((10, "a"), (10, "b")), full) == [[0, 1]]


def test_the_size_of_a_sort_is_limited():
    rules = ZCubeRules(RULES.columns, max_cube_size=20)
    assert chosen(files((10, None), (10, None), (10, None), (4, "a")), rules) == [[0, 1], [2, 3]]


@given(st.lists(st.tuples(st.integers(1, 1000), st.sampled_from([None, "a", "b", "c", "d"])), max_size=30))
def test_every_new_file_is_sorted_once_and_old_ones_only_with_as_many_new_bytes(given_files):
    table = files(*given_files)
    bins = choose(table, [], RULES)
    places = np.concatenate([each.files for each in bins]) if bins else np.zeros(0, np.int64)
    assert len(set(places.tolist())) == len(places)
    new = {place for place, (_, cube) in enumerate(given_files) if cube is None}
    assert new <= set(places.tolist())
    assert bins or not new
    # Each ZCube is included whole, and at most doubles the rest.
    size = sum(given_files[place][0] for place in new)
    cubes = {}
    for place in places.tolist():
        if place not in new:
            cubes.setdefault(given_files[place][1], []).append(place)
    for cube, members in sorted(cubes.items(), key=lambda item: sum(given_files[p][0] for p in item[1])):
        assert members == [p for p, (_, name) in enumerate(given_files) if name == cube] or sorted(
            members
        ) == [p for p, (_, name) in enumerate(given_files) if name == cube]
        more = sum(given_files[place][0] for place in members)
        assert more <= size
        size += more


def test_files_to_come():
    assert files_to_come(files((100, None), (150, None)), 100) == 2
    assert files_to_come(files((1, None)), 100) == 1
    assert files_to_come(files(), 100) == 1


@pytest.mark.parametrize(
    ("columns", "error", "says"),
    [
        ([], InvalidTableChange, "at least one"),
        ([("part",)], InvalidTableChange, "is a partition column"),
        ([("s",)], InvalidTableChange, "cannot be ordered"),
        ([("far",)], InvalidTableChange, "has no statistics"),
        ([("x",), ("X",)], InvalidTableChange, "listed twice"),
        ([("nope",)], UnknownColumn, "nope"),
    ],
)
def test_columns_that_cannot_be_z_ordered_are_refused(columns, error, says):
    number = PrimitiveType("integer")
    schema = StructType(
        (
            StructField("part", PrimitiveType("string")),
            StructField("x", number),
            StructField("s", StructType((StructField("y", number),))),
            StructField("far", number),
        )
    )
    with pytest.raises(error, match=says):
        check_columns(columns, schema, ["part"], {"delta.dataSkippingNumIndexedCols": "2"})
    assert check_columns([("X",), ("S", "Y")], schema, ["part"], {}) == [("x",), ("s", "y")]


def test_an_empty_table_has_nothing_to_sort():
    assert choose(pa.table(files()), [], RULES) == []
