"""Generates mutants: single changes of a module, and the functions that each of them changes."""

import ast
import difflib
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Final

__all__ = ["ROOT", "Mutant", "changed_functions", "mutants", "statement_at"]

ROOT: Final = Path(__file__).resolve().parent.parent

_COMPARISONS: Final[dict[type[ast.cmpop], ast.cmpop]] = {
    ast.Eq: ast.NotEq(),
    ast.NotEq: ast.Eq(),
    ast.Lt: ast.LtE(),
    ast.LtE: ast.Lt(),
    ast.Gt: ast.GtE(),
    ast.GtE: ast.Gt(),
    ast.In: ast.NotIn(),
    ast.NotIn: ast.In(),
    ast.Is: ast.IsNot(),
    ast.IsNot: ast.Is(),
}
_OPERATORS: Final[dict[type[ast.operator], ast.operator]] = {
    ast.Add: ast.Sub(),
    ast.Sub: ast.Add(),
    ast.Mult: ast.FloorDiv(),
    ast.FloorDiv: ast.Mult(),
    ast.Mod: ast.Add(),
    ast.BitOr: ast.BitAnd(),
    ast.BitAnd: ast.BitOr(),
    ast.LShift: ast.RShift(),
    ast.RShift: ast.LShift(),
}


@dataclass(frozen=True)
class Mutant:
    """A module with one change.

    Attributes:
        module: path in the repository.
        place: the class and function of the change.
        before: the changed lines, without the indentation of the first.
        after: the lines after the change.
        source: the changed module.
    """

    module: str
    place: str
    line: int
    before: str
    after: str
    source: str

    @property
    def key(self) -> tuple[str, str, str, str]:
        """Return an identifier that does not depend on line numbers."""
        return self.module, self.place, self.before, self.after

    def diff(self) -> str:
        """Return the change as a diff."""
        old = (ROOT / self.module).read_text().splitlines(keepends=True)
        lines = difflib.unified_diff(
            old, self.source.splitlines(keepends=True), self.module, self.module, n=2
        )
        return "".join(lines)


class _Changes(ast.NodeVisitor):
    """Collects pairs of a node and its replacement text; documentation and messages do not change."""

    def __init__(self) -> None:
        self.found: list[tuple[ast.expr | ast.stmt, str]] = []

    def _put(self, node: ast.expr | ast.stmt, changed: ast.AST | str) -> None:
        if not isinstance(changed, str):
            changed = ast.unparse(ast.fix_missing_locations(changed))
        if isinstance(node, ast.expr):
            changed = f"({changed})"
        self.found.append((node, changed))

    def _negate(self, test: ast.expr) -> None:
        changed = test.operand if isinstance(test, ast.UnaryOp) else ast.UnaryOp(ast.Not(), test)
        # A comparison has its own mutant, which is nearly the negation.
        if not isinstance(test, ast.Compare) or not isinstance(
            test.ops[0], (ast.Is, ast.IsNot, ast.In, ast.NotIn)
        ):
            self._put(test, changed)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        for default in (*node.args.defaults, *filter(None, node.args.kw_defaults)):
            self.visit(default)
        for statement in node.body:
            self.visit(statement)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for statement in node.body:
            self.visit(statement)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_Assign(self, node: ast.Assign) -> None:
        names = [target.id for target in node.targets if isinstance(target, ast.Name)]
        if "__all__" in names:
            return
        if not names and isinstance(node.targets[0], ast.Attribute | ast.Subscript):
            self._put(node, "pass")
        self.visit(node.value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._put(node, "pass")
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant):  # documentation
            return
        if isinstance(node.value, ast.Call) and "log" in ast.unparse(node.value.func).split(".")[0]:
            return
        if isinstance(node.value, ast.Call):
            self._put(node, "pass")
        self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        self._put(node, "pass")

    def visit_Continue(self, node: ast.Continue) -> None:
        self._put(node, "break")

    def visit_Break(self, node: ast.Break) -> None:
        self._put(node, "continue")

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is None:
            self._put(node, "pass")
            return
        if not isinstance(node.value, ast.Constant):
            self._put(node, "return None")
        self.visit(node.value)

    def visit_If(self, node: ast.If) -> None:
        if ast.unparse(node.test) == "TYPE_CHECKING":
            return
        self._negate(node.test)
        self.generic_visit(node)

    def visit_While(self, node: ast.While) -> None:
        self._negate(node.test)
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        if isinstance(node.body, ast.JoinedStr) or isinstance(node.orelse, ast.JoinedStr):
            return  # part of a message
        self._negate(node.test)
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for test in node.ifs:
            self._negate(test)
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        for place, operator in enumerate(node.ops):
            ops = list(node.ops)
            ops[place] = _COMPARISONS[type(operator)]
            self._put(node, ast.Compare(node.left, ops, node.comparators))
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        self._put(node, ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values))
        for left in range(len(node.values)):
            rest = [value for place, value in enumerate(node.values) if place != left]
            self._put(node, rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest))
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        text = isinstance(node.left, ast.JoinedStr) or (
            isinstance(node.left, ast.Constant) and isinstance(node.left.value, str)
        )
        if type(node.op) in _OPERATORS and not text:
            self._put(node, ast.BinOp(node.left, _OPERATORS[type(node.op)], node.right))
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if len(node.args) > 1 and not any(isinstance(each, ast.Starred) for each in node.args[:2]):
            swapped = [node.args[1], node.args[0], *node.args[2:]]
            if ast.unparse(node.func) not in ("isinstance", "cast", "getattr", "hasattr", "min", "max"):
                self._put(node, ast.Call(node.func, swapped, node.keywords))
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._put(node, str(not node.value))
        elif isinstance(node.value, int | float):
            self._put(node, repr(node.value + 1))

    def visit_keyword(self, node: ast.keyword) -> None:
        if node.arg != "strict":  # zip(strict=...) only asserts
            self.visit(node.value)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Ignore strings."""


def mutants(module: str, source: str) -> Iterator[Mutant]:
    """Yield every mutant of a module, in source order."""
    tree = ast.parse(source)
    collected = _Changes()
    collected.visit(tree)
    lines = source.encode().splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    seen = set()
    for node, text in sorted(collected.found, key=lambda pair: (pair[0].lineno, pair[0].col_offset)):
        end_line, end_column = node.end_lineno or node.lineno, node.end_col_offset or 0
        start, end = starts[node.lineno - 1] + node.col_offset, starts[end_line - 1] + end_column
        data = source.encode()
        changed = (data[:start] + text.encode() + data[end:]).decode()
        if changed in seen:
            continue
        seen.add(changed)
        before = b"".join(lines[node.lineno - 1 : end_line]).decode().strip()
        tail = data[end : starts[end_line]]
        after = (data[starts[node.lineno - 1] : start] + text.encode() + tail).decode().strip()
        yield Mutant(module, _place(node.lineno, tree), node.lineno, before, after, changed)


def _place(line: int, tree: ast.AST) -> str:
    """Return the names of the classes and functions around a line."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or node.lineno):
            inner = _place(line, node)
            named = isinstance(node, ast.ClassDef | ast.FunctionDef)
            return ".".join(filter(None, (node.name if named else "", inner)))
    return ""


def statement_at(line: int, source: str) -> range:
    """Return the lines of the innermost statement, or of a compound statement's head."""
    found = range(1, 1 << 30)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.stmt):
            body = getattr(node, "body", None)
            end = body[0].lineno - 1 if body else node.end_lineno or node.lineno
            lines = range(node.lineno, max(end, node.lineno) + 1)
            if line in lines and len(lines) < len(found):
                found = lines
    return found


def changed_functions(old: CodeType, new: CodeType) -> list[tuple[CodeType, CodeType]] | None:
    """Return pairs of changed functions of a module; None if anything else changed."""
    if not _is_same(old, new, nested=False):
        return None
    found: list[tuple[CodeType, CodeType]] = []
    for before, after in zip(old.co_consts, new.co_consts, strict=True):
        if not isinstance(before, CodeType) or _is_same(before, after):
            continue
        if before.co_flags & inspect.CO_OPTIMIZED:
            if before.co_name.startswith("<") and before.co_name != "<lambda>":
                return None
            found.append((before, after))
        else:
            inner = changed_functions(before, after)
            if inner is None:
                return None
            found += inner
    return found


def _is_same(old: CodeType, new: CodeType, *, nested: bool = True) -> bool:
    """Return whether two code objects are equal except for line numbers."""
    for name in ("co_code", "co_names", "co_varnames", "co_freevars", "co_cellvars", "co_exceptiontable"):
        if getattr(old, name) != getattr(new, name):
            return False
    if len(old.co_consts) != len(new.co_consts):
        return False
    for before, after in zip(old.co_consts, new.co_consts, strict=True):
        if isinstance(before, CodeType) and isinstance(after, CodeType):
            if nested and not _is_same(before, after):
                return False
        elif type(before) is not type(after) or repr(before) != repr(after):
            return False
    return True
