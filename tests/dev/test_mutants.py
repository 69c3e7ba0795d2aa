"""What `make mutants` changes, and what it takes for killed."""

import ast
import importlib.util
import itertools
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MODULE = '''"""Documentation, 1 or 2."""

LIMIT: Final = 3


def first(rows, limit=0):
    """More of it."""
    if rows is None and limit > 1:
        raise ValueError(f"{limit + 1} are too many")
    count = len(rows | {7})
    for row in rows:
        take(row, limit)
        self.seen += 1
        continue
    return count - 1
'''


@pytest.fixture(scope="module")
def mutants():
    sys.path.insert(0, str(ROOT / "dev"))  # as for a script that is run
    spec = importlib.util.spec_from_file_location("dev_mutants", ROOT / "dev" / "mutants.py")
    module = sys.modules["dev_mutants"] = importlib.util.module_from_spec(spec)  # dataclasses look there
    spec.loader.exec_module(module)
    yield module
    del sys.modules["dev_mutants"]
    sys.path.remove(str(ROOT / "dev"))


def test_each_change_is_one_of_the_text_and_leaves_the_rest(mutants):
    found = list(mutants.mutants("m.py", MODULE))

    after = {each.after for each in found}
    assert {
        "LIMIT: Final = (4)",
        "def first(rows, limit=(1)):",
        "if (rows is None or limit > 1):",
        "if rows is None and (limit >= 1):",
        "if (rows is not None) and limit > 1:",
        "count = len((rows & {7}))",
        "take(limit, row)",
        "return None",
        "return (count + 1)",
        "return count - (2)",
        "pass",
        "break",
    } <= {text.replace("(take(limit, row))", "take(limit, row)") for text in after}
    assert not any("Documentation" in each.before or "too many" in each.after for each in found)
    for each in found:
        ast.parse(each.source)
        assert len(each.source.splitlines()) <= len(MODULE.splitlines())
        assert sum(a != b for a, b in zip(each.source.splitlines(), MODULE.splitlines(), strict=False)) >= 1
    assert len({each.source for each in found}) == len(found)


def test_every_module_that_is_named_is_there_and_can_be_changed(mutants):
    for subject in mutants.SUBJECTS:
        assert all((ROOT / test).exists() for test in subject.tests), subject.tests
        for module in mutants.modules_of(subject):
            found = list(itertools.islice(mutants.mutants(module, (ROOT / module).read_text()), 3))
            assert found
            for each in found:
                ast.parse(each.source)


def test_equivalent_ones_have_reasons(mutants):
    assert all(reason.strip() for reason in mutants.equivalents().values())


def test_a_mutant_is_known_by_the_function_that_it_is_in(mutants):
    source = "class C:\n    def f(self):\n        return\n\n\ndef g():\n    return\n"

    assert [each.key for each in mutants.mutants("m.py", source)] == [
        ("m.py", "C.f", "return", "pass"),
        ("m.py", "g", "return", "pass"),
    ]


@pytest.mark.parametrize(
    ("changed", "names"),
    [
        ("LIMIT = 1\n\n\nclass C:\n    def f(self):\n        return [2 for _ in 'x']\n", ["C.f"]),
        ("LIMIT = 1\nclass C:\n    def f(self):\n        return [1 for _ in 'x']\n", []),
        ("LIMIT = 2\n\n\nclass C:\n    def f(self):\n        return [1 for _ in 'x']\n", None),
        ("LIMIT = 1\n\n\nclass C:\n    def f(self=2):\n        return [1 for _ in 'x']\n", None),
    ],
)
def test_a_change_is_one_of_functions_or_of_what_an_import_does(mutants, changed, names):
    module = sys.modules["mutant_changes"]
    source = "LIMIT = 1\n\n\nclass C:\n    def f(self):\n        return [1 for _ in 'x']\n"

    found = module.changed_functions(*(compile(text, "m.py", "exec") for text in (source, changed)))

    assert names == (None if found is None else [old.co_qualname for old, _ in found])


@pytest.mark.full("runs make mutants on a module")
def test_a_function_is_changed_in_the_process_that_has_collected_the_tests():
    module, test = "deletion_vectors/z85.py", "tests/unit/kernel/deletion_vectors/test_z85.py"
    command = [
        sys.executable,
        "dev/mutants.py",
        "--only",
        module,
        "--tests",
        test,
        "--seed",
        "1",
        "--count",
        "1",
    ]

    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    # A mutant that is only killed by another run of all tests has no test that killed it.
    assert f" by {test}::" in result.stdout, result.stdout + result.stderr


def test_a_statement_is_the_innermost_one_or_the_head_of_those_in_it(mutants):
    at = sys.modules["mutant_changes"].statement_at
    source = "def f(a):\n    if a and (\n        a\n    ):\n        return g(\n            a,\n        )\n"

    assert [at(line, source) for line in (1, 2, 3, 5, 6)] == [
        range(1, 2),
        range(2, 5),
        range(2, 5),
        range(5, 8),
        range(5, 8),
    ]
