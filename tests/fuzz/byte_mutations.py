"""Damage without regard to content: bits, ranges and whole files."""

from tests.fuzz.draft import kind_of

FILES = ("commit", "checkpoint", "manifest", "sidecar", "hint", "crc", "compacted", "vector", "data")
JUNK = (b"", b"\0", b"null", b"[]", b"{}", b"\xff\xfe", b"PAR1", b"PAR1PAR1", b"{" * 200_000, b"[" * 200_000)


def flip(rng, data):
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 8))):
        position = rng.randrange(len(changed))
        changed[position] ^= 1 << rng.randrange(8)
    return bytes(changed)


def flip_at_the_end(rng, data):
    """Flip bits in the last kilobyte, where Parquet keeps its footer."""
    cut = max(0, len(data) - 1024)
    return data[:cut] + flip(rng, data[cut:])


def truncate(rng, data):
    return data[: rng.randrange(len(data))]


def cut_the_start(rng, data):
    return data[rng.randrange(1, len(data) + 1) :]


def _range(rng, data):
    start = rng.randrange(len(data))
    return start, min(len(data), start + rng.choice((1, 2, 4, 8, 64, 512)))


def zero_a_range(rng, data):
    start, end = _range(rng, data)
    return data[:start] + bytes(end - start) + data[end:]


def fill_a_range(rng, data):
    start, end = _range(rng, data)
    return data[:start] + b"\xff" * (end - start) + data[end:]


def remove_a_range(rng, data):
    start, end = _range(rng, data)
    return data[:start] + data[end:]


def duplicate_a_range(rng, data):
    start, end = _range(rng, data)
    return data[:end] + data[start:end] * rng.choice((1, 1, 3)) + data[end:]


def swap_ranges(rng, data):
    (a, b), (c, d) = sorted((_range(rng, data), _range(rng, data)))
    return data if b > c else data[:a] + data[c:d] + data[b:c] + data[a:b] + data[d:]


def insert_noise(rng, data):
    position = rng.randrange(len(data) + 1)
    noise = rng.choice((b"\xff", b"\xc3(", b"\xed\xa0\x80", b"\0", b"\n", b"\r", rng.randbytes(16)))
    return data[:position] + noise + data[position:]


def replace_by_junk(rng, data):
    del data
    return rng.choice(JUNK)


def append_noise(rng, data):
    return data + rng.choice((b"\n", b"\0" * 100, b"}", b"null\n", b"{}\n", rng.randbytes(100), data))


IN_A_FILE = (
    flip,
    flip_at_the_end,
    truncate,
    cut_the_start,
    zero_a_range,
    fill_a_range,
    remove_a_range,
    duplicate_a_range,
    swap_ranges,
    insert_noise,
    replace_by_junk,
    append_noise,
)


def in_a_file(kind, change):
    """Return the mutation that applies ``change`` to the bytes of one file of this kind."""

    def mutate(rng, draft):
        path = draft.pick(kind)
        if path is None or not draft.files[path]:
            return None
        changed = change(rng, draft.files[path])
        if changed == draft.files[path]:
            return None
        draft.files[path] = changed
        return path

    return mutate


def delete_file(rng, draft):
    path = rng.choice(sorted(draft.files))
    del draft.files[path]
    return path


def swap_files(rng, draft):
    kind = rng.choice(FILES)
    paths = draft.paths(kind)
    if len(paths) < 2:
        return None
    first, second = rng.sample(paths, 2)
    draft.files[first], draft.files[second] = draft.files[second], draft.files[first]
    return f"{first} and {second}"


def take_a_file_of_another_table(rng, draft):
    path = rng.choice(sorted(draft.files))
    donors = [name for name in sorted(draft.other) if kind_of(name) == kind_of(path)]
    if not donors:
        return None
    donor = rng.choice(donors)
    draft.files[path] = draft.other[donor]
    return f"{path} from {donor}"


def take_a_file_of_another_kind(rng, draft):
    path, donor = rng.choice(sorted(draft.files)), rng.choice(sorted(draft.files))
    if kind_of(path) == kind_of(donor):
        return None
    draft.files[path] = draft.files[donor]
    return f"{path} from {donor}"


def link_to_the_outside(rng, draft):
    path = draft.pick("commit", "checkpoint", "manifest", "sidecar", "hint", "crc", "vector")
    if path is None:
        return None
    draft.links[path] = "secret" + path[path.rfind(".") :] if "." in path else "secret.json"
    del draft.files[path]
    return path


def become_a_folder(rng, draft):
    path = rng.choice(sorted(draft.files))
    del draft.files[path]
    draft.folders.append(path)
    return path


def rename_in_the_log(rng, draft):
    path = draft.pick("commit", "checkpoint", "manifest", "crc", "compacted", "sidecar")
    if path is None:
        return None
    folder, _, name = path.rpartition("/")
    number = rng.choice((0, 1, 2, 3, 7, 10, 11, 2**31, 2**63 - 1, 2**63, 10**20 - 1))
    new = rng.choice(
        (
            f"{number:020}{name[20:]}",
            f"{number:020}{name[20:]}",
            name.upper(),
            name[1:],
            "0" + name,
            f".{name}",
            f"{name}.tmp",
            name.replace(".json", ".parquet"),
            f"{number:020}.checkpoint.{number % 3:010}.{number % 4:010}.parquet",
        )
    )
    target = f"{folder}/{new}"
    if target == path:
        return None
    content = draft.files[path]
    if rng.random() < 0.6:
        del draft.files[path]
    draft.files[target] = content
    return f"{path} to {new}"


def add_a_commit(rng, draft):
    commits = draft.paths("commit")
    if not commits:
        return None
    version = int(commits[-1][11:31]) + rng.choice((1, 1, 1, 2, 100))
    content = rng.choice((b"", b"\n", b"{}", b"\0", draft.files[rng.choice(commits)], *JUNK[:4]))
    draft.files[f"_delta_log/{version:020}.json"] = content
    return f"version {version}"


WHOLE_FILES = (
    delete_file,
    swap_files,
    take_a_file_of_another_table,
    take_a_file_of_another_kind,
    link_to_the_outside,
    become_a_folder,
    rename_in_the_log,
    add_a_commit,
)
