"""What `make mutants` changes, and what it takes for killed."""

import ast
import importlib.util
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
            for each in mutants.mutants(module, (ROOT / module).read_text()):
                ast.parse(each.source)


def test_equivalent_ones_have_reasons(mutants):
    assert all(reason.strip() for reason in mutants.equivalents().values())
