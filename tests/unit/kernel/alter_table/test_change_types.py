"""What a change must say, however it is made."""

import pytest

from delvec_kernel.alter_table.change_types import ChangeColumn, NewColumn


def test_a_column_has_one_place():
    assert NewColumn(column="a", type="long").position is None
    assert NewColumn(column="a", type="long", first=True).position == "FIRST"
    assert ChangeColumn(column="a", after="b").position == "AFTER b"
    with pytest.raises(ValueError, match="not both"):
        NewColumn(column="a", type="long", first=True, after="b")


def test_a_changed_column_changes():
    with pytest.raises(ValueError, match="give what to change"):
        ChangeColumn(column="a")
