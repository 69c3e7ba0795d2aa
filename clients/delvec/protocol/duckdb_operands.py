"""Operands in DuckDB's SQL, brought to the type in which Spark compares or uses them."""

import re
from collections.abc import Sequence
from typing import Final

from sqlglot import exp

from delvec.protocol.errors import InvalidPredicate
from delvec.protocol.expression_kinds import NUMERIC_KINDS, kind_of
from delvec.protocol.types import StructType

__all__ = ["TEMPORAL", "Operands", "to_real"]

_TYPES: Final[dict[exp.DType, str]] = {
    exp.DType.BOOLEAN: "BOOLEAN",
    exp.DType.TINYINT: "TINYINT",
    exp.DType.SMALLINT: "SMALLINT",
    exp.DType.INT: "INTEGER",
    exp.DType.BIGINT: "BIGINT",
    exp.DType.FLOAT: "REAL",
    exp.DType.DOUBLE: "DOUBLE",
    exp.DType.TEXT: "VARCHAR",
    exp.DType.BINARY: "BLOB",
    exp.DType.DATE: "DATE",
    exp.DType.TIMESTAMP: "TIMESTAMPTZ",
    exp.DType.TIMESTAMPTZ: "TIMESTAMPTZ",
    exp.DType.TIMESTAMPLTZ: "TIMESTAMPTZ",
    exp.DType.TIMESTAMPNTZ: "TIMESTAMP",
}
_INTEGERS: Final = {"TINYINT", "SMALLINT", "INTEGER", "BIGINT"}
TEMPORAL: Final = {"timestamp": "TIMESTAMPTZ", "timestamp_ntz": "TIMESTAMP", "date": "DATE"}
# From which kinds a cast to these types gives what Spark's gives.
_CAST_FROM: Final[dict[str, frozenset[str]]] = {
    "BOOLEAN": NUMERIC_KINDS | {"boolean"},
    **dict.fromkeys(_INTEGERS, NUMERIC_KINDS | {"boolean", "string"}),
    **dict.fromkeys(("REAL", "DOUBLE", "DECIMAL"), NUMERIC_KINDS | {"boolean", "string"}),
    "VARCHAR": frozenset({"string", "integer", "boolean", "date"}),
    **dict.fromkeys(TEMPORAL.values(), frozenset({*TEMPORAL, "string"})),
    "BLOB": frozenset({"binary"}),
}
_SPARK_DATE: Final = re.compile(r"\s*(\d{4,6})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T].*)?)?)?\s*", re.DOTALL)
_SPARK_INTEGER: Final = re.compile(r"\s*[+-]?\d+\s*")
_MOST_REAL, _INFINITE_REAL = "3.4028234663852886e38", "3.4028235677973366e38"
"""The greatest REAL, and the DOUBLE from which on the nearest one is infinite."""


def to_real(value: str) -> str:
    """Return the SQL of a DOUBLE as the nearest REAL; what is too large becomes infinite in Spark, and fails in DuckDB."""
    bounded = f"least(greatest({value}, -{_MOST_REAL}), {_MOST_REAL})"
    return (
        f"(CASE WHEN abs({value}) < {_INFINITE_REAL} THEN CAST({bounded} AS REAL) WHEN isnan({value}) THEN CAST('NaN' AS "
        f"REAL) WHEN {value} > 0 THEN CAST('Infinity' AS REAL) WHEN {value} < 0 THEN CAST('-Infinity' AS REAL) END)"
    )


class Operands:
    """What every part of a translation needs: the kind of an operand, and that operand cast as Spark would."""

    def __init__(self, schema: StructType, text: str) -> None:
        self._schema = schema
        self._text = text

    def write(self, node: exp.Expr) -> str:
        """Return ``node`` as one operand: atomic or in parentheses."""
        raise NotImplementedError

    def kind(self, node: exp.Expr) -> str | None:
        """Return the kind of value, as ``kind_of`` names it."""
        return kind_of(node, self._schema)

    def refuse(self, node: exp.Expr, why: str = "") -> str:
        """Raise InvalidPredicate, because of ``node``; returns str so that it can stand where text is made."""
        name = node.name if isinstance(node, exp.Anonymous) else getattr(node, "sql_name", lambda: node.key)()
        reason = why or f"{str(name).lower()} is not known to mean the same in DuckDB as in Spark"
        raise InvalidPredicate(
            f"The predicate {self._text[:200]!r} cannot be evaluated by the DuckDB engine: {reason}. "
            "Rewrite it, or run the command on Spark."
        )

    def aligned(self, nodes: Sequence[exp.Expr]) -> list[str]:
        """Write operands that are compared, cast to the type in which Spark compares them."""
        kinds = [self.kind(node) for node in nodes]
        others = {kind for kind in kinds if kind is not None} - {"string", "null"}
        if "string" in kinds and others:
            return [
                self._from_string(node, others) if kind == "string" else self.write(node)
                for node, kind in zip(nodes, kinds, strict=True)
            ]
        if "float" in others and len(others & NUMERIC_KINDS) > 1:
            return [f"CAST({self.write(node)} AS DOUBLE)" for node in nodes]
        return [self.write(node) for node in nodes]

    def _from_string(self, node: exp.Expr, others: set[str]) -> str:
        if others <= NUMERIC_KINDS:
            if others == {"integer"}:
                return f"CAST({self._whole_text(node)} AS BIGINT)"
            return f"CAST({self.write(node)} AS DOUBLE)"
        for kind, name in TEMPORAL.items():
            if kind in others:
                return self.date(node) if kind == "date" else f"CAST({self.write(node)} AS {name})"
        if others == {"boolean"}:
            return f"CAST({self.write(node)} AS BOOLEAN)"
        return self.refuse(node, f"text is compared with {' and '.join(sorted(others))}; cast one of them")

    # --- casts ----------------------------------------------------------------------------------------------

    def cast(self, node: exp.Expr) -> str:
        """Write CAST or TRY_CAST."""
        to, cast = node.args["to"], "TRY_CAST" if isinstance(node, exp.TryCast) else "CAST"
        if to.this == exp.DType.DECIMAL:
            # Without arguments Spark means (10, 0) and DuckDB (18, 3).
            size = ", ".join(each.name for each in to.expressions) or "10, 0"
            name = f"DECIMAL({size})"
        elif to.this in _TYPES and not to.expressions:
            name = _TYPES[to.this]
        else:
            return self.refuse(node, f"cast to {to.sql('spark')} is not translated")
        kind = self.kind(node.this)
        if name == "DATE" and isinstance(node.this, exp.Literal):
            return self.date(node.this, cast)
        if kind != "null" and kind not in _CAST_FROM[name.partition("(")[0]]:
            return self.refuse(
                node, f"cast of {kind or 'an unknown type'} to {to.sql('spark')} is not translated"
            )
        value = self.write(node.this)
        if name in _INTEGERS and kind in {"decimal", "float", "double"}:
            value = f"trunc({value})"
        elif name in _INTEGERS and kind == "string":
            value = self._whole_text(node.this, strict=cast == "CAST")
        elif to.this == exp.DType.DECIMAL and kind in {"float", "double"}:
            # Spark rounds the digits that it shows, so that 1.005 becomes 1.01; DuckDB those of the binary number.
            value = f"CAST(CAST({value} AS DOUBLE) AS VARCHAR)"
        elif name == "REAL" and kind == "double":
            return to_real(value)
        return f"{cast}({value} AS {name})"

    def _whole_text(self, node: exp.Expr, *, strict: bool = True) -> str:
        """Write text of which DuckDB may make a whole number; it would read '5.7' as 6."""
        value = self.write(node)
        if isinstance(node, exp.Literal):
            known = _SPARK_INTEGER.fullmatch(node.name)
            return (
                value if known else self.refuse(node, f"{node.name!r} is used as a whole number and is none")
            )
        whole = f"regexp_full_match({value}, '\\s*[+-]?\\d+\\s*')"
        otherwise = "error('a text is not a whole number')" if strict else "NULL"
        return f"(CASE WHEN {whole} THEN {value} WHEN {value} IS NULL THEN NULL ELSE {otherwise} END)"

    def date(self, node: exp.Expr, cast: str = "CAST") -> str:
        """Write ``node`` as a DATE."""
        kind = self.kind(node)
        if kind not in {*TEMPORAL, "string", "null"}:
            self.refuse(node, f"{kind or 'an unknown type'} is used as a date")
        if not isinstance(node, exp.Literal):
            return f"{cast}({self.write(node)} AS DATE)"
        match = _SPARK_DATE.fullmatch(node.name)
        if match is None:
            return self.refuse(node, f"{node.name!r} is no date (yyyy-mm-dd)")
        year, month, day = match.groups()
        return f"CAST('{year}-{int(month or 1):02d}-{int(day or 1):02d}' AS DATE)"
