"""The switch for work on the bytes of Parquet files: an argument before the environment, and on without either."""

import pytest

from delvec_errors import BadRequest
from delvec_parquet.use import SETTING, uses_parquet_bytes


@pytest.mark.parametrize(
    ("asked", "value", "expected"),
    [
        (None, None, True),
        (None, "", True),
        (None, "on", True),
        (None, " Off ", False),
        (True, "off", True),
        (False, None, False),
    ],
)
def test_the_argument_counts_before_the_environment(monkeypatch, asked, value, expected):
    monkeypatch.delenv(SETTING, raising=False)
    if value is not None:
        monkeypatch.setenv(SETTING, value)
    assert uses_parquet_bytes(asked) is expected


def test_another_value_is_refused(monkeypatch):
    monkeypatch.setenv(SETTING, "perhaps")
    with pytest.raises(BadRequest, match="DELVEC_PARQUET_BYTES must be on or off, not 'perhaps'"):
        uses_parquet_bytes()
