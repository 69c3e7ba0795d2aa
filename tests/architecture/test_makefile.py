"""The Makefile names modules that exist, and the texts name targets and parts that the Makefile has."""

import importlib.util
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = set(re.findall(r"(?m)^([a-z-]+):.*## ", MAKEFILE))
PARTS = {
    kind: dict(re.findall(rf"(?m)^{kind}_([a-z-]+) = ([\w.]+)(?: .*)?$", MAKEFILE))
    for kind in ("ATTACK", "BENCH")
}
KINDS = {"ON": "ATTACK", "PART": "BENCH"}


def texts():
    listed = subprocess.run(
        ["git", "ls-files", "*.md", "*.py"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    return [
        name
        for name in listed.stdout.splitlines()
        if name not in ("CHANGELOG.md", "tests/architecture/test_makefile.py")
    ]


def test_each_part_is_a_module():
    for modules in PARTS.values():
        assert modules
        assert [name for name in modules.values() if importlib.util.find_spec(name) is None] == []


def test_help_lists_each_part():
    for target, kind in (("attack", "ATTACK"), ("bench", "BENCH")):
        (line,) = re.findall(rf'(?m)^{target}: ## .*(?:ON|PART)="([^"]*)"', MAKEFILE)
        assert line.split() == list(PARTS[kind])


def test_texts_name_targets_and_parts_that_exist():
    unknown = []
    for name in texts():
        text = (ROOT / name).read_text()
        for command in re.findall(r"`make ([^`]*)`", text):
            target, *rest = command.split(maxsplit=1)
            unknown += [f"{name}: make {command}"] * (target not in TARGETS)
            for variable, names in re.findall(r'\b(ON|PART)="?([a-z -]+)', rest[0] if rest else ""):
                if target in ("attack", "bench"):
                    unknown += [
                        f"{name}: {part}" for part in names.split() if part not in PARTS[KINDS[variable]]
                    ]
    assert unknown == []
