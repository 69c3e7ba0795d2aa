"""Names of the columns and tables that engines add to a query.

Tables, sources and files may have columns of any name, and a user's SQL any alias. A fixed name or prefix could collide,
by accident or on purpose, and a statement would read the user's values instead of the engine's. So names contain 64
random bits of the planning process; tasks receive the names with their work.
"""

import secrets
from dataclasses import dataclass
from typing import Final

__all__ = ["INTERNAL", "InternalNames"]


@dataclass(frozen=True)
class InternalNames:
    """Names that cannot collide with a user's.

    Attributes:
        token: random letters and digits.
    """

    token: str

    def __call__(self, name: str) -> str:
        """Return the internal name for ``name``, a lower-case word; needs no quotes in SQL."""
        return f"__delvec_{self.token}_{name}"


INTERNAL: Final = InternalNames(secrets.token_hex(8))
"""The names of this process. Tasks on executors must use the names they are given, not these."""
