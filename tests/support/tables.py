"""What tests read of a table."""


def ids(table, **options):
    """Return column ``id`` of a table in order; ``options`` are those of ``to_arrow``."""
    return sorted(table.to_arrow(**options)["id"].to_pylist())
