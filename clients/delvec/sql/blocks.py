"""``BEGIN; …; COMMIT``: statements that take effect together.

Tested in `tests/integration/client/test_multi_table.py`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import TokenType

from delvec.sql.tokens import invalid, parse_error
from delvec_kernel.expressions.spark_dialect import SPARK

__all__ = ["Block", "block_of"]

_BLOCK_STARTS: Final = (["BEGIN"], ["BEGIN", "TRANSACTION"], ["BEGIN", "WORK"], ["START", "TRANSACTION"])


@dataclass(frozen=True)
class Block:
    """Statements between BEGIN and COMMIT or ROLLBACK.

    Attributes:
        commits: whether it ends with COMMIT.
    """

    statements: Sequence[str]
    commits: bool


def block_of(text: str) -> Block | None:
    """Return a text's statements if it is a transaction; None if it does not begin as one.

    Raises:
        InvalidStatement: it begins as one, and does not end with COMMIT or ROLLBACK.
    """
    if not text.lstrip()[:5].upper().startswith(("BEGIN", "START")):
        return None
    try:
        tokens = SPARK.tokenize(text)
    except TokenError as error:
        raise parse_error(error, text) from None
    statements, start = [], 0
    for token in tokens:
        if token.token_type == TokenType.SEMICOLON:
            statements.append(text[start : token.start].strip())
            start = token.end + 1
    statements = [each for each in (*statements, text[start:].strip()) if each]
    if statements[0].upper().split() not in _BLOCK_STARTS:
        return None
    end = statements[-1].upper().split()[0]
    if len(statements) == 1 or end not in ("COMMIT", "ROLLBACK"):
        raise invalid(
            text, len(text), "a transaction that begins with BEGIN must end with COMMIT or ROLLBACK."
        )
    return Block(statements[1:-1], end == "COMMIT")
