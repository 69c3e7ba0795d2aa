"""Properties of tables, which are texts."""

from collections.abc import Mapping

__all__ = ["is_true"]


def is_true(configuration: Mapping[str, str], name: str) -> bool:
    """Whether a property is true; one that is not set is not."""
    return configuration.get(name, "").strip().lower() == "true"
