import subprocess
import sys
import time

import pytest

from delvec_errors import BadRequest, StorageError
from delvec_service.commits import fault_points


def failures(point, passages):
    failed = []
    for number in range(passages):
        try:
            fault_points.reach(point)
        except StorageError:
            failed.append(number)
    return failed


def test_nothing_is_armed_by_itself():
    assert failures("before-put", 3) == []


@pytest.mark.parametrize(
    ("specification", "expected"),
    [
        ("before-put:error", [0, 1, 2, 3, 4]),
        ("before-put:error*2", [0, 1]),
        ("before-put:lost@3", [2, 3, 4]),
        ("before-put:error*1@3, after-put:error", [2]),
        ("before-put:error%0", []),
        ("before-put:error%100", [0, 1, 2, 3, 4]),
    ],
)
def test_a_fault_acts_as_often_as_it_says(specification, expected):
    with fault_points.armed(specification):
        assert failures("before-put", 5) == expected
        assert fault_points.passed("before-put") == len(expected)
    assert failures("before-put", 5) == []


def test_a_delay_waits():
    with fault_points.armed("begin:delay=0.05*1"):
        began = time.monotonic()
        fault_points.reach("begin")
        assert time.monotonic() - began >= 0.05


def test_a_function_is_called_at_a_point():
    calls = []
    with fault_points.armed(after_put=lambda: calls.append(1)):
        fault_points.reach("after-put")
        fault_points.reach("before-put")
    assert calls == [1]


@pytest.mark.parametrize("wrong", ["before-put", "nowhere:kill", "before-put:explode", "before-put:error*x"])
def test_what_is_no_fault_is_refused(wrong):
    with pytest.raises(BadRequest), fault_points.armed(wrong):
        pass
    assert failures("before-put", 1) == []


def test_a_kill_kills():
    script = (
        "from delvec_service.commits import fault_points as f; f.arm('after-put:kill'); f.reach('after-put')"
    )

    found = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True)

    assert found.returncode == -9, found.stderr
