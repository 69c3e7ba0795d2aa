"""Numbers of things, in messages."""

__all__ = ["counted"]


def counted(count: float, noun: str) -> str:
    """Return a number of things: ``1 file``, ``2,000 files``."""
    return f"{count:,.0f} {noun}{'' if count == 1 else 's'}"
