"""All kinds of damage by name, and how a case chooses among them."""

from tests.fuzz import byte_mutations, json_mutations, parquet_mutations, vector_mutations
from tests.fuzz.draft import Draft

_JSON = ("commit", "manifest", "hint", "crc", "compacted")


def _name(change):
    return change.__name__.replace("_", " ")


def _all():
    found = {}
    for kind in byte_mutations.FILES:
        for change in byte_mutations.IN_A_FILE:
            found[f"{kind}: {_name(change)}"] = byte_mutations.in_a_file(kind, change)
    for change in byte_mutations.WHOLE_FILES:
        found[f"files: {_name(change)}"] = change
    for kind in _JSON:
        for change in json_mutations.IN_AN_ACTION:
            found[f"{kind}: {_name(change)}"] = json_mutations.in_an_action(kind, change)
        found[f"{kind}: repeat a key"] = json_mutations.repeat_a_key(kind)
    for kind in ("commit", "manifest", "compacted"):
        for change in json_mutations.AMONG_ACTIONS:
            found[f"{kind}: {_name(change)}"] = json_mutations.among_actions(kind, change)
    for kind in ("checkpoint", "sidecar"):
        for change in parquet_mutations.IN_A_CHECKPOINT:
            found[f"{kind}: {_name(change)}"] = parquet_mutations.in_a_checkpoint(kind, change)
    found["vector: hostile vector"] = vector_mutations.hostile_vector
    found["vector: give another vector"] = vector_mutations.give_another_vector
    return found


MUTATIONS = _all()
_BY_TARGET = {}
for _mutation in MUTATIONS:
    _BY_TARGET.setdefault(_mutation.partition(":")[0], []).append(_mutation)
_TARGETS = sorted(_BY_TARGET)
_WEIGHTS = [{"commit": 6, "checkpoint": 3, "vector": 8, "files": 2}.get(target, 1) for target in _TARGETS]
_ATTEMPTS = 200


def mutate(rng, files, other, outside):
    """Return the damaged table, with the kinds and places of damage.

    Args:
        rng: the source of randomness.
        files: the table's files.
        other: another table's files, to take parts from.
        outside: the folder that no table may read.
    """
    draft = Draft(dict(files), dict(other), rng, outside)
    wanted = rng.choice((1, 1, 1, 1, 1, 1, 2, 3))
    done = []
    for _ in range(_ATTEMPTS):
        if len(done) == wanted or not draft.files:
            break
        (target,) = rng.choices(_TARGETS, _WEIGHTS)
        name = rng.choice(_BY_TARGET[target])
        where = MUTATIONS[name](rng, draft)
        if where is not None:
            done.append((name, where))
    return draft, done
