"""The commit log: its cache, and foreign commits."""

import pytest

from delvec_errors import MissingLogFile
from delvec_kernel.actions.action_json import LogFile
from delvec_kernel.actions.actions import AddFile, CommitInfo
from delvec_kernel.snapshot.replay import Commit
from delvec_service.commits import commit_log
from delvec_service.commits.commit_log import CommitLog


class Loader:
    """A log of commits that add so many files each."""

    def __init__(self, adds, oldest=0, **info):
        self.adds = adds
        self.oldest = oldest
        self.info = info

    def commits(self, _objects, table, versions):
        if versions.start < self.oldest:
            raise MissingLogFile("cleaned up")
        files = [AddFile(f"{number}.parquet", {}, 1, 1, data_change=True) for number in range(self.adds)]
        info = CommitInfo(txn_id="k", operation="WRITE", **self.info)
        return [Commit(LogFile(table, version, "x"), [info, *files]) for version in versions]


class Table:
    location = "file:///data/people"
    name = "people"
    objects = None


def test_large_commits_are_kept_no_longer_than_there_is_space(monkeypatch):
    monkeypatch.setattr(commit_log, "_MAX_ACTIONS", 2000)
    log = CommitLog(Loader(50), None)

    for version in range(200):
        log.entries(Table(), version, version)
        log.entries(Table(), version, version)  # read again: another object of the same version

    cached = [version for version in range(200) if log._entries.get((Table.location, version)) is not None]
    assert cached == list(range(200 - 2000 // 51, 200))
    assert log._entries.weight <= commit_log._MAX_ACTIONS


def test_a_metric_that_is_no_count_is_left_out():
    (entry,) = CommitLog(Loader(1, operation_metrics={"many": "9" * 5000, "few": "3"}), None).entries(
        Table(), 4, 4
    )

    assert entry.transaction("k").metrics == {"few": 3}


@pytest.mark.parametrize(
    ("oldest", "first", "found"), [(0, 0, 0), (0, 140, 140), (100, 0, 100), (201, 0, 201)]
)
def test_versions_are_searched_newest_first_as_far_back_as_the_log_goes(oldest, first, found):
    log = CommitLog(Loader(1, oldest), None)

    versions = [entry.winner.version for entry in log.newest_first(Table(), first, 200)]

    assert versions == list(range(200, found - 1, -1))
