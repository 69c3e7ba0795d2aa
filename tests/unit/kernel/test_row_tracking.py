"""Row ids: every new row gets a unique one, whatever the writer and the number of attempts."""

import json
from types import SimpleNamespace

import pytest

from delvec_errors import CorruptLog, InvalidCommit
from delvec_kernel.actions.actions import AddFile, DomainMetadata, Protocol
from delvec_kernel.row_tracking import DOMAIN, assigned, high_water_mark, is_enabled, tags


def table(mark=None, *, supported=True, **properties):
    """Return a stand-in for a snapshot: protocol, properties, and the high-water mark."""
    features = ("rowTracking", "domainMetadata") if supported else ("domainMetadata",)
    domains = {} if mark is None else {DOMAIN: DomainMetadata(DOMAIN, mark)}
    configuration = {f"delta.{name}": value for name, value in properties.items()}
    return SimpleNamespace(
        location="file:///people",
        version=7,
        protocol=Protocol(1, 7, None, features),
        configuration=configuration,
        domain_metadata=domains,
    )


def file(path, rows, **fields):
    stats = None if rows is None else json.dumps({"numRecords": rows})
    return AddFile(path, {}, 100, 5, stats=stats, **fields)


def ids(adds):
    return [(add.base_row_id, add.default_row_commit_version) for add in adds]


def mark(domain):
    return json.loads(domain.configuration)


def test_the_first_files_of_a_table_begin_at_zero():
    adds, domain = assigned([file("a", 10), file("b", 5)], table(), 8)

    assert ids(adds) == [(0, 8), (10, 8)]
    assert (domain.domain, domain.removed, mark(domain)) == (DOMAIN, False, {"rowIdHighWaterMark": 14})


def test_later_files_start_after_the_high_water_mark():
    adds, domain = assigned([file("c", 3)], table('{"rowIdHighWaterMark":14}'), 9)

    assert ids(adds) == [(15, 9)]
    assert mark(domain) == {"rowIdHighWaterMark": 17}


def test_another_attempt_assigns_other_ids():
    added = [file("c", 3)]
    first, _ = assigned(added, table('{"rowIdHighWaterMark":14}'), 9)
    second, _ = assigned(added, table('{"rowIdHighWaterMark":99}'), 10)

    assert (ids(first), ids(second)) == ([(15, 9)], [(100, 10)])


def test_a_file_that_is_added_again_keeps_its_ids():
    again = file("a", 10, base_row_id=0, default_row_commit_version=2)

    adds, domain = assigned([again, file("b", 1)], table('{"rowIdHighWaterMark":14}'), 9)

    assert ids(adds) == [(0, 2), (15, 9)]
    assert mark(domain) == {"rowIdHighWaterMark": 15}
    assert assigned([again], table('{"rowIdHighWaterMark":14}'), 9) == ([again], None)


def test_a_file_from_before_the_feature_gets_ids_when_it_is_added_again():
    adds, domain = assigned([file("a", 10)], table(), 9)

    assert ids(adds) == [(0, 9)]
    assert mark(domain) == {"rowIdHighWaterMark": 9}


def test_empty_files_use_no_ids():
    adds, domain = assigned([file("a", 0)], table('{"rowIdHighWaterMark":14}'), 9)

    assert ids(adds) == [(15, 9)]
    assert domain is None


def test_tables_without_the_feature_are_left_alone():
    added = [file("a", None)]
    assert assigned(added, table(supported=False, enableRowTracking="true"), 9) == (added, None)


def test_suspended_row_tracking_removes_ids_from_added_files():
    again = file("a", 10, base_row_id=0, default_row_commit_version=2)
    adds, domain = assigned([again, file("b", None)], table(rowTrackingSuspended="true"), 9)

    assert ids(adds) == [(None, None), (None, None)]
    assert domain is None


def test_files_must_say_how_many_rows_they_have():
    with pytest.raises(InvalidCommit, match="'a' has no numRecords"):
        assigned([file("a", None)], table(), 9)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"rowIdHighWaterMark":"7"}', '{"rowIdHighWaterMark":true}']
)
def test_an_invalid_high_water_mark_is_refused(text):
    with pytest.raises(CorruptLog, match=DOMAIN):
        high_water_mark(table(text))


def test_removed_domain_metadata_is_ignored():
    snapshot = table()
    snapshot.domain_metadata = {DOMAIN: DomainMetadata(DOMAIN, '{"rowIdHighWaterMark":14}', removed=True)}
    assert high_water_mark(snapshot) == -1


def test_commits_say_whether_rows_kept_their_ids():
    on = table(enableRowTracking="true")
    assert is_enabled(on)
    assert tags(on, loses_ids=False) == {"delta.rowTracking.preserved": "true"}
    assert tags(on, loses_ids=True) == {"delta.rowTracking.preserved": "false"}
    assert tags(table(), loses_ids=False) == {}
    assert tags(table(supported=False, enableRowTracking="true"), loses_ids=False) == {}
