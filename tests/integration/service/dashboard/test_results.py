"""Results of actions are told in sentences."""

import pytest

from delvec_service.dashboard.results import sentences

PLAN = {
    "result": "dry-run",
    "num-files": 3,
    "size-in-bytes": 4096,
    "new-files": 1,
    "new-size-in-bytes": 3072,
    "gain-bytes": 1024,
    "exceeds-limit": True,
}
METRICS = {"numRemovedFiles": 2, "numAddedFiles": 1, "numRemovedBytes": 4096, "numAddedBytes": 1024}
VACUUM = {"num-files": 1, "size-in-bytes": 10, "retention-hours": 168.0}
REPACKED = {"num-deletion-vectors": 4, "num-vector-files": 4, "new-vector-files": 1, "gain-bytes": 0}
RESTORE = {"operation-metrics": {"numRestoredFiles": 2, "numRemovedFiles": 1}, "restored-version": 3}


@pytest.mark.parametrize(
    ("path", "values", "said"),
    [
        ("optimize", PLAN, "3 files with 4.0 KiB would become about 1 file with 3.0 KiB, 1.0 KiB less"),
        ("optimize", PLAN | {"gain-bytes": -10}, "10 B more"),
        ("optimize", PLAN, "more than this service rewrites itself"),
        ("optimize", PLAN | {"num-files": 0}, "No file is worth rewriting"),
        (
            "optimize",
            {"result": "committed", "operation-metrics": METRICS, "version": 7},
            "2 files with 4.0 KiB became 1 file with 1.0 KiB. Version 7 was committed.",
        ),
        ("optimize", {"result": "nothing-to-do", "operation-metrics": {}}, "Nothing was changed."),
        ("deletion-vectors/compact", REPACKED | {"result": "dry-run"}, "would be in 1 file"),
        ("deletion-vectors/compact", REPACKED | {"result": "committed", "version": 2}, "are now in 1 file"),
        (
            "checkpoint",
            {"result": "exists", "version": 1200, "num-files": 1},
            "1,200 has a checkpoint already",
        ),
        ("vacuum", VACUUM | {"result": "deleted"}, "1 file with 10 B was deleted permanently."),
        ("vacuum", VACUUM | {"result": "dry-run", "num-files": 0}, "There is nothing to delete."),
        ("vacuum", VACUUM | {"result": "quarantined"}, "was moved into quarantine; it can be put back"),
        ("vacuum", VACUUM | {"result": "nothing-to-delete"}, "There was nothing to delete."),
        ("restore", RESTORE | {"result": "dry-run"}, "2 files would come back and 1 file would leave"),
        ("restore", RESTORE | {"result": "nothing-to-do"}, "already is as it was in version 3"),
        ("quarantines/q/undo", VACUUM | {"kept": ["a"]}, "1 file stayed in quarantine"),
        ("quarantines/q/purge", VACUUM | {"num-files": 2}, "2 files with 10 B were deleted permanently."),
    ],
)
def test_an_answer_becomes_sentences(path, values, said):
    assert said in " ".join(sentences(path, values))
