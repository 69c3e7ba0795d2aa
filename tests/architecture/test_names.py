"""Names say what a thing is: a bare participle may name nothing that a reader must remember over more than five lines."""

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PARTICIPLES = frozenset(
    """
    allocated begun bounded called changed checked chosen clustered compacted computed configured
    converted covered decided declared decoded deferred derived described done dotted drawn enabled
    encoded evolved exchanged expected expired fed filtered fixed flipped found freed gained generated
    given gone grouped held hidden implied inserted kept keyed known limited linked loaded located lost
    mapped marked missed modified moved named needed nested numbered ordered parsed partitioned
    passed pinned protected qualified queued quoted ratified reached readded rearranged received
    referenced renamed replayed reported requested required resolved retained rounded saved selected
    sent served shown specified stated stored summed superseded taken timestamped tolerated touched
    tracked translated trimmed unbounded unchanged uncounted undecided unneeded unpublished updated used
    valued verified wanted watched zoned
    """.split()  # noqa: SIM905 - a literal would have one word a line
)
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
