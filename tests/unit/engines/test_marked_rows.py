"""Lookup of a deletion vector's rows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from delvec_engines import marked_rows
from delvec_engines.marked_rows import MarkedRows

rows = st.lists(st.one_of(st.integers(0, 20), st.integers(0, 2**33)), max_size=50)


@given(marked=rows, asked=rows, first=st.integers(0, 300), few=st.booleans())
def test_rows_are_found_however_many_there_are(marked, asked, first, few):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(marked_rows, "MAX_AT_ONCE", 1 << 24 if few else -1)
        found = MarkedRows(BitMap64(marked))
    for batch in (asked, sorted(set(asked))):
        assert found.among(np.array(batch, np.uint64)).tolist() == [row in set(marked) for row in batch]
    assert found.between(first, 200).tolist() == sorted({row for row in marked if first <= row < first + 200})
