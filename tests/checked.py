"""The check that scenarios end with: every invariant of the table holds, by its log and by its files."""

from delvec_kernel import locations
from delvec_service.maintenance.check import check
from delvec_service.snapshots.loader import SnapshotLoader
from delvec_service.store.objects import ObjectStore


def assert_sound(table, *, data_files=True, allow=()):
    """Check a table, from nothing: no cache, no database.

    Args:
        table: its folder or location, or its :class:`ObjectStore`.
        data_files: False for tables that a test made of log entries alone.
        allow: invariants whose warnings are expected, as foreign writers leave them behind.
    """
    objects = (
        table
        if isinstance(table, ObjectStore)
        else ObjectStore(locations.canonical(str(table)), allowed=lambda _: True)
    )
    checked = check(SnapshotLoader(), objects, "checked", allowed=lambda _: True, data_files=data_files)
    findings = [
        finding
        for finding in checked.findings
        if finding.severity == "error" or finding.invariant not in allow
    ]
    assert not findings, "\n".join(f"{finding.invariant}: {finding.message}" for finding in findings)
    return checked
