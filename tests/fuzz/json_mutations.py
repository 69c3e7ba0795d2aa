"""Damage to a log's JSON: fields, values, actions, statistics, paths and descriptors."""

import json
import re

from tests.fuzz.draft import OUTSIDE

_RAW = re.compile(r'"@@(.*?)@@"')
_LETTERS = "aZ0./%"
PATHS = (
    "../part.parquet",
    f"../../../outside/{'secret'}.parquet",
    "../../outside/secret.bin",
    "..%2f..%2foutside%2fsecret.parquet",
    "%2e%2e/%2e%2e/outside/secret.parquet",
    "a/../../../../outside/secret.parquet",
    f"{OUTSIDE}/secret.parquet",
    f"{OUTSIDE}/secret.bin",
    f"file://{OUTSIDE}/secret.parquet",
    f"file:{OUTSIDE}/secret.parquet",
    f"file://localhost{OUTSIDE}/secret.parquet",
    f"FILE://{OUTSIDE}/secret.parquet",
    f"//{OUTSIDE}/secret.parquet",
    f"memory:///../..{OUTSIDE}/secret.parquet",
    "file:///etc/passwd",
    "/etc/passwd",
    "/dev/zero",
    "/proc/self/environ",
    "s3://bucket.invalid/x.parquet",
    "http://127.0.0.1:9/x.parquet",
    "a\0b.parquet",
    "%00.parquet",
    "x" * 5000,
    "d/" * 3000 + "x.parquet",
    "",
    ".",
    "..",
    "/",
    "%",
    "%ff",
    "*.parquet",
    "part?.parquet",
    "~/x.parquet",
    "C:\\x.parquet",
    "\\\\host\\share\\x.parquet",
    "[a-z]*.parquet",
    "part-1.parquet/",
)


def raw(text):
    """Return a value that is written verbatim as ``text``, which need not be JSON."""
    return f"@@{text}@@"


def dumps(document):
    """Return a document as text, including raw values."""
    text = json.dumps(document)
    return _RAW.sub(lambda found: json.loads(f'"{found.group(1)}"'), text)


def weird(rng, old):
    """Return an unexpected value."""
    depth = rng.choice((20, 500, 5000, 100_000))
    choices = [
        None,
        True,
        False,
        "",
        "x",
        0,
        1,
        -1,
        2**31,
        2**53 + 1,
        2**63 - 1,
        2**63,
        -(2**63) - 1,
        10**30,
        1.5,
        -0.0,
        [],
        {},
        [old],
        {"a": old},
        str(old),
        "\0",
        "é" * 50,
        "x" * 100_000,
        raw("1e400"),
        raw("-1e400"),
        raw("NaN"),
        raw("1" * 5000),
        raw("[" * depth + "]" * depth),
        raw("{'a':".replace("'", '\\"') * depth + "1" + "}" * depth),
        raw('\\"\\\\ud800\\"'),
    ]
    if isinstance(old, int) and not isinstance(old, bool):
        choices += [old + 1, old - 1, -old, old * 2, old + 2**32, str(old), float(old)] * 2
    if isinstance(old, str) and old:
        at = rng.randrange(len(old))
        choices += [old[:at] + rng.choice(_LETTERS) + old[at + 1 :], old[:at], old + old, old.upper()] * 3
    return rng.choice(choices)


def _nodes(value, found):
    """Collect (container, key) of every value in a document."""
    if isinstance(value, dict):
        for key in value:
            found.append((value, key))
            _nodes(value[key], found)
    elif isinstance(value, list):
        for index in range(len(value)):
            found.append((value, index))
            _nodes(value[index], found)
    return found


def change_value(rng, document):
    container, key = rng.choice(_nodes(document, []))
    container[key] = weird(rng, container[key])


def remove_field(rng, document):
    container, key = rng.choice(_nodes(document, []))
    del container[key]


def swap_values(rng, document):
    nodes = _nodes(document, [])
    (one, first), (two, second) = rng.choice(nodes), rng.choice(nodes)
    old = one[first], two[second]
    if isinstance(old[0], dict | list) or isinstance(old[1], dict | list):
        return
    one[first], two[second] = old[1], old[0]


def rename_field(rng, document):
    nodes = [(container, key) for container, key in _nodes(document, []) if isinstance(key, str)]
    container, key = rng.choice(nodes)
    new = rng.choice((key.upper(), key + " ", "x", "", "add", "remove", "stats_parsed", key + "\0"))
    container[new] = container.pop(key)


def add_field(rng, document):
    containers = [
        item for item in [document, *(c[k] for c, k in _nodes(document, []))] if isinstance(item, dict)
    ]
    key = rng.choice(("x", "add", "remove", "protocol", "metaData", "deletionVector", "stats", "path", "cdc"))
    rng.choice(containers)[key] = weird(rng, key)


def _file_actions(document):
    return [
        document[key]
        for key in ("add", "remove", "cdc", "sidecar")
        if isinstance(document, dict) and isinstance(document.get(key), dict)
    ]


def lie_about_a_path(rng, document):
    for action in _file_actions(document):
        action["path"] = rng.choice(PATHS)


def lie_about_statistics(rng, document):
    for action in _file_actions(document):
        try:
            stats = json.loads(action.get("stats") or "null")
        except (ValueError, TypeError):
            stats = None
        if not isinstance(stats, dict) or not stats or rng.random() < 0.2:
            action["stats"] = rng.choice(
                (
                    "",
                    "null",
                    "{",
                    "[]",
                    '"x"',
                    "1",
                    "{}",
                    '{"numRecords":-1}',
                    '{"numRecords":1e400}',
                    "[" * 50_000,
                )
            )
            continue
        rng.choice((change_value, change_value, remove_field, swap_values, rename_field))(rng, stats)
        action["stats"] = dumps(stats)


def lie_about_partition_values(rng, document):
    for action in _file_actions(document):
        values = action.get("partitionValues")
        if not isinstance(values, dict) or not values:
            action["partitionValues"] = rng.choice(({}, None, {"x": "1"}, {"id": "1"}, [], "x"))
        elif rng.random() < 0.3:
            del values[rng.choice(sorted(values))]
        else:
            values[rng.choice(sorted(values))] = rng.choice(("", None, "x", "1", "é", "9" * 400, 1, [], {}))


def lie_in_a_descriptor(rng, document):
    for action in _file_actions(document):
        vector = action.get("deletionVector")
        if not isinstance(vector, dict) or not vector:
            action["deletionVector"] = rng.choice(
                (
                    None,
                    {},
                    [],
                    "",
                    1,
                    {
                        "storageType": "p",
                        "pathOrInlineDv": rng.choice(PATHS),
                        "offset": 1,
                        "sizeInBytes": 34,
                        "cardinality": 1,
                    },
                    {
                        "storageType": "u",
                        "pathOrInlineDv": "x" * 20,
                        "offset": 1,
                        "sizeInBytes": 34,
                        "cardinality": 1,
                    },
                    {
                        "storageType": "i",
                        "pathOrInlineDv": "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L",
                        "sizeInBytes": 40,
                        "cardinality": 6,
                    },
                )
            )
            continue
        field = rng.choice(("storageType", "pathOrInlineDv", "offset", "sizeInBytes", "cardinality"))
        old = vector.get(field)
        if field == "storageType":
            vector[field] = rng.choice(("u", "p", "i", "x", "", None, "U"))
        elif field == "pathOrInlineDv":
            text = str(old)
            at = rng.randrange(len(text) or 1)
            vector["storageType"] = rng.choice((vector.get("storageType"), "p", "u"))
            vector[field] = rng.choice(
                (
                    rng.choice(PATHS),
                    "../" + text,
                    "/" + text,
                    text[:at] + "~" + text[at + 1 :],
                    text[1:],
                    text[:at] + rng.choice(_LETTERS) + text[at + 1 :],
                )
            )
        else:
            old = old if isinstance(old, int) else 1
            vector[field] = rng.choice(
                (0, 1, old - 1, old + 1, old * 2, 2**31 - 1, 2**31, 2**63, -1, None, str(old), 1.0)
            )


def swap_descriptors(rng, documents):
    holders = [
        a for item in documents for a in _file_actions(item) if isinstance(a.get("deletionVector"), dict)
    ]
    if len(holders) < 2:
        return
    one, two = rng.sample(holders, 2)
    one["deletionVector"], two["deletionVector"] = two["deletionVector"], one["deletionVector"]


def drop_action(rng, documents):
    del documents[rng.randrange(len(documents))]


def repeat_action(rng, documents):
    documents.insert(rng.randrange(len(documents) + 1), json.loads(json.dumps(rng.choice(documents))))


def reorder_actions(rng, documents):
    rng.shuffle(documents)


def merge_actions(rng, documents):
    """Put two actions into one object."""
    if len(documents) < 2:
        return
    one, two = rng.sample(range(len(documents)), 2)
    if isinstance(documents[one], dict) and isinstance(documents[two], dict):
        documents[one] |= documents[two]
        del documents[two]


def replace_action(rng, documents):
    documents[rng.randrange(len(documents))] = weird(rng, "x")


def turn_adds_and_removes_round(rng, documents):
    holders = [item for item in documents if isinstance(item, dict) and ("add" in item or "remove" in item)]
    if holders:
        chosen = rng.choice(holders)
        key = "add" if "add" in chosen else "remove"
        chosen["remove" if key == "add" else "add"] = chosen.pop(key)


IN_AN_ACTION = (
    change_value,
    change_value,
    remove_field,
    swap_values,
    rename_field,
    add_field,
    lie_about_a_path,
    lie_about_statistics,
    lie_about_partition_values,
    lie_in_a_descriptor,
)
AMONG_ACTIONS = (
    drop_action,
    repeat_action,
    reorder_actions,
    merge_actions,
    replace_action,
    turn_adds_and_removes_round,
    swap_descriptors,
)


def _documents(data):
    """Return a file's documents, or None if it is damaged already."""
    try:
        return [json.loads(line) for line in data.decode().splitlines() if line.strip()]
    except (ValueError, RecursionError):
        return None


def _chosen(rng, documents):
    """Return the position of a random action; commitInfo matters least and is chosen least often."""
    telling = [i for i, item in enumerate(documents) if not (isinstance(item, dict) and "commitInfo" in item)]
    return rng.choice(telling if telling and rng.random() < 0.95 else range(len(documents)))


def in_an_action(kind, change):
    """Return the mutation that applies ``change`` to one action of one file of this kind."""

    def mutate(rng, draft):
        path = draft.pick(kind)
        documents = None if path is None else _documents(draft.files[path])
        if not documents:
            return None
        number = _chosen(rng, documents)
        if not isinstance(documents[number], dict) or not documents[number]:
            return None
        before = dumps(documents[number])
        change(rng, documents[number])
        texts = [dumps(document) for document in documents]
        if texts[number] == before:
            return None
        draft.files[path] = "".join(f"{text}\n" for text in texts).encode(errors="surrogatepass")
        return f"action {number} of {path}"

    return mutate


def among_actions(kind, change):
    """Return the mutation that applies ``change`` to the list of actions of one file."""

    def mutate(rng, draft):
        path = draft.pick(kind)
        documents = None if path is None else _documents(draft.files[path])
        if not documents:
            return None
        before = [dumps(document) for document in documents]
        change(rng, documents)
        texts = [dumps(document) for document in documents]
        if texts == before:
            return None
        draft.files[path] = "".join(f"{text}\n" for text in texts).encode()
        return path

    return mutate


def repeat_a_key(kind):
    """Return the mutation that repeats a key of an object, with another value the first time."""

    def mutate(rng, draft):
        path = draft.pick(kind)
        if path is None:
            return None
        text = draft.files[path].decode(errors="surrogateescape")
        keys = list(re.finditer(r'"([A-Za-z]+)"\s*:\s*', text))
        if not keys:
            return None
        found = rng.choice(keys)
        value = json.dumps(rng.choice((None, 0, "x", {}, [], 2**63)))
        changed = text[: found.start()] + f"{found.group()}{value}," + text[found.start() :]
        draft.files[path] = changed.encode(errors="surrogateescape")
        return f"{found.group(1)} in {path}"

    return mutate
