"""One case: its table, its damage, and the damaged table on disk, all determined by the case's id."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from random import Random

from tests.fuzz import tables
from tests.fuzz.draft import OUTSIDE, Draft
from tests.fuzz.mutations import mutate

_WRITTEN = 1_700_000_000


@dataclass(frozen=True)
class Case:
    """A damaged table.

    Attributes:
        name: such as ``builtin-17``: the table's source and a number.
        table: the damaged table.
        damage: kinds and places of damage.
    """

    name: str
    table: tables.SeedTable
    draft: Draft
    damage: list
    rng: Random

    @property
    def kinds(self):
        """The kinds of damage."""
        return [kind for kind, _ in self.damage]

    def touches(self, target):
        """Whether any damage is to this target, such as ``data`` or ``files``."""
        return any(kind.startswith(f"{target}:") for kind in self.kinds)


def make(name, outside):
    """Return the case with this id; links and absolute paths lead to ``outside``."""
    source, _, _ = name.partition("-")
    rng = Random(f"delvec {name}")
    seeds = tables.seeds(source)
    table, other = rng.choice(seeds), rng.choice(seeds)
    draft, damage = mutate(rng, table.files, other.files, str(outside))
    return Case(name, table, draft, damage, rng)


def write(draft, folder):
    """Write the damaged table."""
    folder = Path(folder)
    (folder / "_delta_log").mkdir(parents=True)
    place, made = OUTSIDE.encode(), set()
    for path, content in draft.files.items():
        if any(str(parent) in draft.files for parent in PurePosixPath(path).parents):
            continue
        target = folder / path
        if target.parent not in made:
            target.parent.mkdir(parents=True, exist_ok=True)
            made.add(target.parent)
        target.write_bytes(content.replace(place, draft.outside.encode()) if place in content else content)
        if path.endswith(".json"):
            # A truncated new commit would be taken for one still being written.
            os.utime(target, (_WRITTEN, _WRITTEN))
    for path in draft.folders:
        if (folder / path).is_file():  # replaced after it became a folder
            continue
        (folder / path).mkdir(parents=True, exist_ok=True)
    for path, name in draft.links.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).unlink(missing_ok=True)
        (folder / path).symlink_to(Path(draft.outside) / name)


def erase(folder):
    """Remove a table."""
    shutil.rmtree(folder, ignore_errors=True)
