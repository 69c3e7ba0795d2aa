"""Names as Spark's SQL, and the paths of columns, write them."""

__all__ = ["backticked"]


def backticked(name: str) -> str:
    """Return a name, whatever it holds, as one identifier."""
    return "`" + name.replace("`", "``") + "`"
