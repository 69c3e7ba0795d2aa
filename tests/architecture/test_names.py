"""Names say what a thing is: a bare participle may name nothing that a reader must remember over more than five lines."""

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PARTICIPLES = {"done", "found", "given", "gone", "kept", "known", "named", "wanted"}
LINES = 5


def functions(node, prefix=""):
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield prefix + child.name, child
            yield from functions(child, f"{prefix}{child.name}.")
        else:
            inner = f"{prefix}{child.name}." if isinstance(child, ast.ClassDef) else prefix
            yield from functions(child, inner)


def own_nodes(function):
    """Yield the nodes of a function, without those of functions in it."""
    for child in ast.iter_child_nodes(function):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield child
            yield from own_nodes(child)


def lifetimes(function):
    """Return first and last line of each participle that a function binds."""
    lines, bound = {}, set()
    for node in own_nodes(function):
        name = (
            getattr(node, "id", getattr(node, "arg", None)) if isinstance(node, ast.Name | ast.arg) else None
        )
        if name in PARTICIPLES:
            lines.setdefault(name, []).append(node.lineno)
            if isinstance(node, ast.arg) or isinstance(node.ctx, ast.Store):
                bound.add(name)
    return {name: (min(lines[name]), max(lines[name])) for name in bound}


def test_no_participle_names_what_a_reader_must_remember():
    long = [
        f"{path.relative_to(ROOT)}:{first} {name} in {function}"
        for package in ("kernel", "clients", "service")
        for path in sorted((ROOT / package).rglob("*.py"))
        for function, node in functions(ast.parse(path.read_text()))
        for name, (first, last) in lifetimes(node).items()
        if last - first > LINES
    ]
    assert long == []
