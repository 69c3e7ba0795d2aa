"""Replay: the live files match the protocol, in any order, batching and spelling of the log."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delvec_errors import CorruptLog, StorageError
from delvec_kernel.actions.action_json import LogFile
from delvec_kernel.actions.actions import (
    AddFile,
    Cdc,
    CommitInfo,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    Txn,
)
from delvec_kernel.deletion_vectors.deletion_vector import Descriptor
from delvec_kernel.file_index.file_rows import add_from_row
from delvec_kernel.file_index.live_files import LiveFiles
from delvec_kernel.snapshot.replay import Commit, ReplayState, replay

LOCATION = "file:///data/t"
SPELLINGS = ("{}", "./{}", "file:///data/t/{}", "file:/data/t/{}", "/data/t/{}")
PATHS = ("a.parquet", "p=1/b%20c.parquet", "d", "e+f=g.parquet")


def dv(number):
    return None if number is None else Descriptor("u", f"{'x' * 20}", number, 40, number + 1)


def add(path, number=None, **others):
    return AddFile(path, {"p": None}, 10, 20, deletion_vector=dv(number), **others)


def remove(path, number=None):
    return RemoveFile(path, 1, deletion_vector=dv(number))


def commit(version, *actions):
    return Commit(LogFile("t", version, f"{version:020d}.json"), actions)


def run(*commits, state=None):
    return replay(state or ReplayState(LiveFiles(LOCATION)), commits)


def live(state):
    """Return the deletion vector's offset by path, None without one."""
    found = {}
    for row in state.live.table.to_pylist():
        path = row["path"].removeprefix("file:").lstrip("/").removeprefix("data/t/").removeprefix("./")
        assert path not in found
        found[path] = row["deletion_vector"] and row["deletion_vector"]["offset"]
    return found


numbers = st.none() | st.integers(1, 3)
steps = st.tuples(st.sampled_from(["add", "remove", "remove other"]), numbers, st.sampled_from(SPELLINGS))
histories = st.lists(
    st.tuples(st.dictionaries(st.sampled_from(PATHS), steps, max_size=4), st.randoms(use_true_random=False)),
    max_size=8,
)


def commits_and_model(history):
    """Build commits, and the live files after each according to a model of the protocol."""
    model, models, commits = {}, [], []
    for version, (steps, random) in enumerate(history):
        actions = [CommitInfo(operation="x")]
        for path, (kind, number, spelling) in steps.items():
            name = spelling.format(path)
            if kind == "add":
                if path in model and model[path] != number:
                    actions.append(remove(spelling.format(path), model[path]))
                actions.append(add(name, number))
                model[path] = number
            elif kind == "remove" and path in model:
                actions.append(remove(name, model.pop(path)))
            elif kind == "remove other" and model.get(path, number) != number:
                actions.append(remove(name, number))
        random.shuffle(actions)
        commits.append(commit(version, *actions))
        models.append(dict(model))
    return commits, models


@given(histories)
def test_replay_matches_the_protocol_model(history):
    commits, models = commits_and_model(history)
    assert live(run(*commits)) == (models[-1] if models else {})


@given(histories, st.randoms(use_true_random=False))
def test_the_order_of_actions_in_a_version_does_not_matter(history, random):
    commits, _ = commits_and_model(history)
    shuffled = [replace(item, actions=random.sample(item.actions, len(item.actions))) for item in commits]
    assert live(run(*commits)) == live(run(*shuffled))


@given(histories)
def test_replay_is_the_same_commit_by_commit(history):
    commits, models = commits_and_model(history)
    state = ReplayState(LiveFiles(LOCATION))
    for item, model in zip(commits, models, strict=True):
        state = run(item, state=state)
        assert live(state) == model
    whole = run(*commits)
    key = "path"
    assert state.live.table.sort_by(key).equals(whole.live.table.sort_by(key))


@given(histories, st.integers(0, 8))
def test_replay_from_a_checkpoint_gives_the_same_files(history, at):
    commits, models = commits_and_model(history)
    before = run(*commits[:at])
    where = LogFile("t", at, "x.checkpoint.parquet")
    tombstones = [remove(path) for path in PATHS]
    restored = ReplayState.from_checkpoint(before.live.table.to_batches(), tombstones, where, LOCATION)
    assert live(run(*commits[at:], state=restored)) == (models[-1] if models else {})


def test_the_timestamp_of_a_checkpoint_is_that_of_its_commit():
    where = LogFile("t", 1, "x.checkpoint.parquet")
    state = ReplayState.from_checkpoint(run(commit(0, add("d"))).live.table.to_batches(), [], where, LOCATION)

    assert state.stamped(CommitInfo(in_commit_timestamp=7)).in_commit_timestamp == 7
    assert state.stamped(CommitInfo()).in_commit_timestamp is None
    assert state.stamped(None).in_commit_timestamp is None
    assert live(state.stamped(None)) == {"d": None}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_files_are_found_by_any_spelling(spelling):
    state = run(commit(0, add("p=1/b%20c.parquet", 2, stats='{"numRecords":5}')))
    found = state.live.find(spelling.format("p=1/b%20c.parquet"))
    assert found == add("p=1/b%20c.parquet", 2, stats='{"numRecords":5}')
    assert state.live.find("p=1/b%20d.parquet") is None


def test_versions_are_immutable():
    first = run(commit(0, add("a"), add("b")))
    second = run(commit(1, remove("a"), add("c")), state=first)
    assert live(first) == {"a": None, "b": None}
    assert live(second) == {"b": None, "c": None}


def test_many_files_are_found_replaced_and_removed():
    count = 20_000
    state = run(commit(0, *(add(f"f{number}") for number in range(count))))
    touched = range(0, count, 3)
    state = run(
        commit(1, *(item for i in touched for item in (remove(f"f{i}"), add(f"f{i}", i + 1)))), state=state
    )
    state = run(commit(2, *(remove(f"f{i}") for i in range(1, count, 3))), state=state)
    found = live(state)
    assert len(found) == count - len(range(1, count, 3))
    assert all(
        found[f"f{number}"] == (number + 1 if number % 3 == 0 else None)
        for number in range(0, count, 500)
        if number % 3 != 1
    )


def test_small_commits_do_not_make_many_segments():
    state = run(commit(0, add("a")))
    for version in range(1, 30):
        state = run(commit(version, add(f"f{version}")), state=state)
    assert len(state.live.members) <= 5
    assert state.live.table.num_rows == 30


def test_every_field_of_an_add_round_trips():
    whole = AddFile(
        "a",
        {"p": "1", "q": None},
        10,
        20,
        stats='{"numRecords":3}',
        tags={"t": "u"},
        deletion_vector=dv(1),
        base_row_id=7,
        default_row_commit_version=8,
        clustering_provider="c",
    )
    assert add_from_row(run(commit(0, whole)).live.table.to_pylist()[0]) == whole


@pytest.mark.parametrize(
    ("stats", "expected"),
    [
        ('{"numRecords":5}', 5),
        (' { "numRecords" : 5 , "minValues":{}}', 5),
        ('{"minValues":{"numRecords":1},"numRecords":6}', 6),
        ('{"minValues":{"numRecords":1}}', None),
        ('{"minValues":{"a":"\\"numRecords\\":9"}}', None),
        ('{"numRecords":5.0}', None),
        ('{"numRecords":-5}', None),
        ('{"numRecords":"5"}', None),
        ('{"numRecords":99999999999999999999}', None),
        ('{"numRecords":5', None),
        ("[]", None),
        ("", None),
        (None, None),
    ],
)
def test_num_records_is_read_from_statistics(stats, expected):
    assert run(commit(0, add("a", stats=stats))).live.table["num_records"].to_pylist() == [expected]


@pytest.mark.parametrize(
    ("actions", "problem"),
    [
        ([add("a"), add("a", 1)], "two 'add' actions for the file 'a'"),
        ([add("a"), add("./a")], "two 'add' actions"),
        ([remove("a"), remove("/data/t/a", 1)], "two 'remove' actions"),
        ([add("a", 1), remove("./a", 1)], "adds and removes the file 'a'"),
        ([add("p=1/b%20c"), add("p=1/b c")], "two 'add' actions"),
        ([remove("p=1/b%20c"), remove("file:/data/t/p=1/b%20c")], "two 'remove' actions"),
        ([add("../a")], "refers to an invalid file path"),
        ([add("ftp://host/a")], "refers to an invalid file path"),
    ],
)
def test_a_commit_that_contradicts_itself_is_refused(actions, problem):
    with pytest.raises(CorruptLog, match=problem) as caught:
        run(commit(0, add("z")), commit(1, *actions))
    assert caught.value.details == {"table": "t", "version": 1, "file": f"{1:020d}.json"}


def test_a_change_data_file_may_have_any_path():
    state = run(commit(0, add("a"), Cdc("a", {}, 1), Cdc("a", {}, 1)))
    assert live(state) == {"a": None}


def test_a_checkpoint_must_not_hold_a_file_twice():
    state = run(commit(0, add("a"), add("b")))
    twice = state.live.table.to_batches() + run(commit(0, add("./a", 1))).live.table.to_batches()
    where = LogFile("t", 3, "x.checkpoint.parquet")
    with pytest.raises(CorruptLog, match="contains the file 'a' twice"):
        ReplayState.from_checkpoint(twice, [], where, LOCATION)


def test_storage_errors_are_not_reported_as_corruption():
    def batches():
        yield from run(commit(0, add("a"))).live.table.to_batches()
        raise StorageError("The store did not answer.")

    where = LogFile("t", 3, "x.checkpoint.parquet")
    with pytest.raises(StorageError, match="did not answer"):
        ReplayState.from_checkpoint(batches(), [], where, LOCATION)


def test_the_last_of_all_other_actions_wins():
    first, second = (Metadata(name, "{}") for name in "ab")
    state = run(
        commit(0, Protocol(1, 2), first, Txn("app", 1), DomainMetadata("d", "1"), DomainMetadata("e", "1")),
        commit(1, CommitInfo(in_commit_timestamp=5), second, Txn("app", 2), Txn("other", 1)),
        commit(2, Protocol(3, 7), DomainMetadata("d", "2", removed=True), DomainMetadata("e", "3")),
    )
    assert state.protocol == Protocol(3, 7)
    assert state.metadata == second
    assert {name: txn.version for name, txn in state.txns.items()} == {"app": 2, "other": 1}
    assert state.domain_metadata == {"e": DomainMetadata("e", "3")}
    assert state.in_commit_timestamp is None


def compacted(commits):
    """Build one log compaction of these commits according to a model of the protocol: by (path, deletion vector)."""
    last, others = {}, {}
    for item in commits:
        for action in item.actions:
            if isinstance(action, AddFile | RemoveFile):
                key = (LiveFiles(LOCATION).location, _key(action.path), action.deletion_vector)
                last[key] = action
            elif not isinstance(action, CommitInfo):
                others[type(action), getattr(action, "app_id", None) or getattr(action, "domain", None)] = (
                    action
                )
    # Only the newest add of a file is live.
    adds = {_key(action.path): action for action in last.values() if isinstance(action, AddFile)}
    removes = [action for action in last.values() if isinstance(action, RemoveFile)]
    where = LogFile("t", commits[-1].where.version, "x.compacted.json")
    return Commit(where, [*adds.values(), *removes, *others.values()], compacted=True)


def _key(path):
    return path.removeprefix("file:").lstrip("/").removeprefix("data/t/").removeprefix("./")


@given(histories, st.integers(0, 8), st.integers(2, 8))
def test_a_log_compaction_equals_its_commits(history, start, count):
    commits, models = commits_and_model(history)
    covered = commits[start : start + count]
    if not covered:
        return
    mixed = [*commits[:start], compacted(covered), *commits[start + count :]]
    assert live(run(*mixed)) == models[-1]


def test_a_log_compaction_keeps_removes_of_earlier_files():
    before = run(
        commit(0, add("a"), add("b"), Txn("app", 1), DomainMetadata("d", "1")), commit(1, add("c", 1))
    )
    one = compacted(
        [
            commit(2, remove("a"), add("a", 1), remove("b"), DomainMetadata("d", "1", removed=True)),
            commit(3, remove("a", 1), add("a", 2), remove("c", 1), Txn("app", 2)),
        ]
    )
    after = run(one, state=before)
    assert live(after) == {"a": 2}
    assert after.domain_metadata == {}
    assert after.txns == {"app": Txn("app", 2)}


@pytest.mark.parametrize(
    ("actions", "problem"),
    [
        ([add("a"), add("a", 1)], "two 'add' actions for the file 'a'"),
        ([remove("a", 1), remove("./a", 1)], "two 'remove' actions"),
        ([add("a", 1), remove("a", 2), remove("a", 1)], "adds and removes the file 'a'"),
    ],
)
def test_a_compaction_that_contradicts_itself_is_refused(actions, problem):
    with pytest.raises(CorruptLog, match=problem):
        run(replace(commit(1, *actions), compacted=True))
