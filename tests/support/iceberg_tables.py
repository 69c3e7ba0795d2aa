"""Iceberg tables as PyIceberg reads them, optionally at an earlier snapshot."""

from pyiceberg.table import StaticTable


def iceberg_table(converted):
    """Open the table in a conversion's response."""
    return StaticTable.from_metadata(converted["metadata-location"])


def iceberg_rows(converted, key="id", snapshot_id=None):
    """All rows, sorted by a column."""
    found = iceberg_table(converted).scan(snapshot_id=snapshot_id).to_arrow()
    return found.sort_by(key).to_pylist()


def delta_rows(table, key="id", version=None):
    """All rows of the Delta table, sorted by a column."""
    return table.to_arrow(version=version).sort_by(key).to_pylist()


def summary(converted):
    """Return the summary of the current snapshot, with numbers parsed."""
    found = iceberg_table(converted).current_snapshot().summary
    return {"operation": found.operation.value} | {
        key: int(value) if value.lstrip("-").isdigit() else value
        for key, value in found.additional_properties.items()
    }


def assert_sound(table):
    """Check that the published metadata has no findings."""
    checked = table.check(iceberg=True)
    assert checked["findings"] == []
    assert checked["iceberg"]
