"""Change data feeds of corpus tables: applied to one version, each gives the next."""

import shutil
from collections import Counter

import pytest
from tests.integration.corpus.conftest import CORPUS

import delvec

CAME, WENT = {"insert", "update_postimage"}, {"delete", "update_preimage"}
TABLES = {
    "dat__cdf": (0, 9),
    "delta-rs__cdc_ict_table": (0, 10),
    "delta-rs__simple_table_with_cdc": (0, 3),
    "kernel-rs__cdf-column-mapping-id-mode": (1, 4),
    "kernel-rs__cdf-column-mapping-name-mode": (1, 4),
    "kernel-rs__cdf-table-delete-conditional-all-rows": (0, 20),
    "kernel-rs__cdf-table-delete-unconditional": (0, 20),
    "kernel-rs__cdf-table-partitioned": (0, 12),
    "kernel-rs__cdf-table-with-dv": (0, 24),
}
"""By table: the first version with a feed, and the feed's number of rows."""
MADE_UP = {"kernel-rs__cdf-table-backtick-column-names": 5, "kernel-rs__cdf-table-update-ops": 20}
"""Tables whose change files hold rows that the table never had: the feed's number of rows."""


def rows(table, names, version):
    found = table.to_arrow(columns=names, version=version)
    return Counter(zip(*(found[name].to_pylist() for name in names), strict=True))


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.skipif(not CORPUS.exists(), reason=f"no corpus at {CORPUS}: set DELVEC_CORPUS to its folder")
def test_the_feed_leads_from_each_version_to_the_next(lake, tmp_path, name):
    copied = shutil.copytree(CORPUS / name, tmp_path / name)
    start, count = TABLES[name]
    table = lake.table(str(next(log.parent for log in copied.rglob("_delta_log"))))
    feed = table.changes(start)
    assert feed.num_rows == count
    names = [each for each in feed.column_names if not each.startswith(("_change", "_commit"))]
    live = rows(table, names, start - 1) if start else Counter()
    for version in range(start, table.version() + 1):
        changes = [row for row in feed.to_pylist() if row["_commit_version"] == version]
        assert {row["_change_type"] for row in changes} <= CAME | WENT
        for row in changes:
            live[tuple(row[each] for each in names)] += 1 if row["_change_type"] in CAME else -1
        assert min(live.values(), default=0) >= 0, version
        assert +live == rows(table, names, version), version


@pytest.mark.parametrize("name", MADE_UP)
@pytest.mark.skipif(not CORPUS.exists(), reason=f"no corpus at {CORPUS}: set DELVEC_CORPUS to its folder")
def test_change_files_are_read_even_if_they_contradict_the_table(lake, tmp_path, name):
    copied = shutil.copytree(CORPUS / name, tmp_path / name)
    table = lake.table(str(next(log.parent for log in copied.rglob("_delta_log"))))
    assert table.changes(0).num_rows == MADE_UP[name]


def test_the_error_names_a_version_without_a_feed(lake, tmp_path):
    name = "kernel-rs__cdf-column-mapping-name-mode"
    if not CORPUS.exists():
        pytest.skip(f"no corpus at {CORPUS}: set DELVEC_CORPUS to its folder")
    copied = shutil.copytree(CORPUS / name, tmp_path / name)
    with pytest.raises(delvec.ChangeDataNotRecorded) as caught:
        lake.table(str(next(log.parent for log in copied.rglob("_delta_log")))).changes(0)
    assert caught.value.details["version"] == 0
