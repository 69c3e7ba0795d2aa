"""Names of the columns and tables that engines add to those of users.

A table, a source or a file may have columns of any names, and a user's SQL may call a WITH or an alias as it likes. A fixed
name, or a fixed prefix, would be found there some day, or put there on purpose: then a statement reads the user's values
for the engine's. So names have 64 random bits of the process that plans; tasks get them with their work.
"""

import secrets
from dataclasses import dataclass
from typing import Final

__all__ = ["INTERNAL", "InternalNames"]


@dataclass(frozen=True)
class InternalNames:
    """Names that no user has.

    Attributes:
        token: what nobody can know beforehand; letters and digits.
    """

    token: str

    def __call__(self, name: str) -> str:
        """Return the name for ``name``, which is a word in small letters; needs no quotes in SQL."""
        return f"__delvec_{self.token}_{name}"


INTERNAL: Final = InternalNames(secrets.token_hex(8))
"""The names of this process. Tasks on executors are other processes: they use the names they are given."""
