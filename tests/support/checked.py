"""The final check of test scenarios: every invariant of the table's log and files holds."""

from delvec_kernel import locations
from delvec_service.maintenance.check import check
from delvec_service.snapshots.loader import SnapshotLoader
from delvec_service.store.objects import ObjectStore


def assert_sound(table, *, data_files=True, allow=()):
    """Check a table without any cache or database.

    Args:
        table: its folder or location, or its :class:`ObjectStore`.
        data_files: False for tables that consist of log entries only.
        allow: invariants with expected warnings, caused by foreign writers.
    """
    objects = (
        table
        if isinstance(table, ObjectStore)
        else ObjectStore(locations.canonical(str(table)), is_allowed=lambda _: True)
    )
    checked = check(SnapshotLoader(), objects, "checked", is_allowed=lambda _: True, data_files=data_files)
    findings = [
        finding
        for finding in checked.findings
        if finding.severity == "error" or finding.invariant not in allow
    ]
    assert not findings, "\n".join(f"{finding.invariant}: {finding.message}" for finding in findings)
    return checked
