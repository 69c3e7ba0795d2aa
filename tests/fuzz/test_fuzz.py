"""Damaged tables give the right rows or a typed error; 2,000 of them here, 100,000 in `make attack ON=fuzz`.

``judge`` defines what counts as right; tests here also show that the fuzzer would notice failures.
"""

import json
import os
import sys
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64
from tests.fuzz import campaign, oracle, tables
from tests.fuzz.canary import Canary, Opens
from tests.fuzz.case import Case, make, write
from tests.fuzz.direct import DirectLake
from tests.fuzz.draft import Draft
from tests.fuzz.judge import Baseline, Judge, Suspicion
from tests.support.random_cases import share_of

CASES = share_of(1_000)
SOURCES = tables.sources()


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "source",
    [
        pytest.param(source, marks=pytest.mark.full("the gate damages those that are made here"))
        if source == "corpus"
        else source
        for source in SOURCES
    ],
)
@pytest.mark.slow("damages hundreds of tables and reads each")
def test_damaged_tables_give_the_right_rows_or_a_typed_error(source):
    names = [f"{source}-{number}" for number in range(CASES // len(SOURCES))]
    summary = campaign.Summary()
    for result in campaign.run(names):
        summary.add(result)
    assert not summary.failures, "\n".join(map(campaign.describe, summary.failures[:10]))
    assert sum(summary.outcomes.values()) == len(names)
    # Damage must vary: not all tables may be unreadable.
    assert min(summary.outcomes[outcome] for outcome in ("error", "same rows", "rows")) > len(names) / 100


def test_the_oracle_reads_vectors_without_padding():
    """Rust's z85 crate pads the last group with one # per missing byte."""
    payload = tables.portable(BitMap64([1, 7]))
    cut = len(payload) - 2  # the two bytes cut off are zeros
    last = int.from_bytes(payload[cut - cut % 4 : cut], "big")
    digits = "".join(oracle._ALPHABET[last // 85**power % 85] for power in (2, 1, 0))
    text = tables.z85(payload[: cut - cut % 4]) + "#" * (4 - cut % 4) + digits
    assert cut % 4 == 2
    assert oracle._z85(text) == payload[:cut]


def test_a_remove_matches_by_its_vectors_identity(tmp_path):
    """Size and cardinality do not matter, according to the protocol."""
    files = dict(tables.with_vectors().files)
    adds = [json.loads(line) for line in files["_delta_log/00000000000000000001.json"].splitlines()]
    remove = next(tables.removed(action) for action in adds if "add" in action)
    remove["remove"]["deletionVector"] |= {"sizeInBytes": 1, "cardinality": 1}
    files["_delta_log/00000000000000000002.json"] = json.dumps(remove).encode()
    write(Draft(files, {}, Random(1), ""), tmp_path / "table")
    lake = DirectLake(str(tmp_path))
    scan, _ = lake.table(str(tmp_path / "table")).plan()
    [state] = oracle.readings(str(tmp_path / "table"))
    assert state.files.keys() == set(scan.files["path"].to_pylist()) == {"part-1.parquet", "part-2.parquet"}
    lake.close()


@pytest.mark.parametrize("elsewhere", ["/", "/other/part-1.parquet", "s3://other/part-1.parquet"])
def test_a_remove_of_a_path_outside_removes_nothing(tmp_path, elsewhere):
    files = dict(tables.with_vectors().files)
    remove = {"remove": {"path": elsewhere, "deletionTimestamp": 1, "dataChange": True}}
    files["_delta_log/00000000000000000002.json"] = json.dumps(remove).encode()
    write(Draft(files, {}, Random(1), ""), tmp_path / "table")
    lake = DirectLake(str(tmp_path))
    scan, _ = lake.table(str(tmp_path / "table")).plan()
    [state] = oracle.readings(str(tmp_path / "table"))
    assert state.files.keys() == set(scan.files["path"].to_pylist()) > {"part-1.parquet"}
    lake.close()


def test_only_needed_parts_of_a_checkpoint_are_read(tmp_path):
    """Tombstones do not affect rows: if only they are damaged, both rows and an error are right."""
    table = tables.Builder("x")
    adds = [table.data(f"part-{number}.parquet", number * 20, number * 20 + 20) for number in range(2)]
    table.commit(tables.PROTOCOL, tables.metadata(), *adds)
    actions = [tables.PROTOCOL, tables.metadata(), adds[0], tables.removed(adds[1])]
    body = tables.checkpoint_file(actions)
    column = next(
        chunk
        for group in [pq.ParquetFile(pa.BufferReader(body)).metadata.row_group(0)]
        for chunk in map(group.column, range(group.num_columns))
        if chunk.path_in_schema == "remove.path"
    )
    start = column.dictionary_page_offset
    body = (
        body[:start] + b"\xff" * column.total_compressed_size + body[start + column.total_compressed_size :]
    )
    name = f"_delta_log/{0:020}.checkpoint.parquet"
    write(Draft(table.files | {name: body}, {}, Random(1), ""), tmp_path / "table")
    found = [sorted(state.files) for state in oracle.readings(str(tmp_path / "table"))]
    assert found == [["part-0.parquet", "part-1.parquet"], ["part-0.parquet"]]


def test_a_case_is_reproducible(tmp_path):
    for number in range(50):
        first, second = (make(f"builtin-{number}", tmp_path) for _ in range(2))
        assert first.draft.files == second.draft.files
        assert first.damage == second.damage
        assert first.damage


def test_the_oracle_counts_the_rows_of_undamaged_tables(tmp_path):
    expected = {
        "plain": 60,
        "with_vectors": 101,
        "partitioned": 40,
        "with_checkpoint": 100,
        "with_v2_checkpoint": 80,
        "with_parts": 80,
        "with_compaction": 60,
    }
    found = {}
    for table in tables.builtin():
        folder = tmp_path / table.name
        for path, content in table.files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(content)
        states = oracle.readings(folder)
        assert states
        assert all(state.looks_like(states[0]) for state in states)
        found[table.name] = oracle.number_of_rows(folder, states[0])
    assert found == expected


@pytest.mark.parametrize(
    ("behaviour", "outcome", "word"),
    [
        ("import os; os.abort()", "WRONG crash", "SIGABRT"),
        ("import sys; sys.exit('no more')", "WRONG crash", "no more"),
        ("import time; time.sleep(60)", "WRONG hang", "seconds"),
    ],
)
def test_a_worker_that_dies_or_hangs_is_reported_and_replaced(behaviour, outcome, word, monkeypatch):
    monkeypatch.setattr(campaign, "_STARTING", 1)
    script = f"""
import json
while True:
    name = input()
    if name == "bad":
        {behaviour}
    print(json.dumps({{"case": name, "damage": [], "outcome": "same rows", "detail": ""}}), flush=True)
"""
    command = (sys.executable, "-c", script)
    results = list(campaign.run(["a", "bad", "b", "c"], processes=1, patience=2, command=command))
    assert [result["outcome"] for result in results] == ["same rows", outcome, "same rows", "same rows"]
    assert word in results[1]["detail"]
    assert json.dumps(results[1])


def test_the_canary_sees_what_native_libraries_open(tmp_path):
    (tmp_path / "outside").mkdir()
    secret = tmp_path / "outside" / "secret.parquet"
    secret.write_bytes(tables.plain().files["part-2.parquet"])
    canary = Canary(tmp_path / "outside")
    canary.start()
    assert canary.opened() == []
    secret.stat()
    assert canary.opened() == []
    assert pq.ParquetFile(secret).metadata.num_rows == 40
    assert canary.opened() == ["secret.parquet"]
    canary.close()


def test_files_opened_by_the_oracle_do_not_count(tmp_path, monkeypatch):
    """A compaction replaces a commit that is a link to the outside, so only the oracle reads the commit."""
    outside, folder = tmp_path / "outside", tmp_path / "table"
    outside.mkdir()
    files = dict(tables.with_compaction().files)
    (outside / "secret.json").write_bytes(files.pop("_delta_log/00000000000000000001.json"))
    files["part-2.parquet"], files["part-4.parquet"] = files["part-4.parquet"], files["part-2.parquet"]
    draft = Draft(files, {}, Random(1), str(outside), {"_delta_log/00000000000000000001.json": "secret.json"})
    write(draft, folder)
    for file in (folder / "_delta_log" / "00000000000000000001.json", outside / "secret.json"):
        os.utime(file, (1, 1), follow_symlinks=False)  # a recent commit is checked again
    canary, lake = Canary(outside), DirectLake(str(folder))
    canary.start()
    monkeypatch.setattr("tests.fuzz.judge._predicate", lambda *_: "id = 45")  # it now has part-4's statistics
    judged = Judge(Case("x", tables.with_compaction(), draft, [], Random(1)), Baseline([], None), str(folder))
    found = judged.judge_skipping(*judged.read(lake))
    assert isinstance(found, Suspicion)
    assert canary.opened() == []
    assert judged.settled(found) is None
    assert canary.opened() == ["secret.json"]
    canary.close()
    lake.close()


def test_opens_by_python_are_seen(tmp_path):
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    for folder in (inside, outside):
        folder.mkdir()
        (folder / "file").write_bytes(b"x")
    opens = Opens([inside])
    opens.on = True
    (inside / "file").read_bytes()
    (outside / "file").read_bytes()
    opens.on = False
    assert opens.found == [str(outside / "file")]


def test_links_lead_out_of_the_damaged_table(tmp_path):
    (tmp_path / "outside").mkdir()
    linked = next(
        case
        for case in (make(f"builtin-{number}", tmp_path / "outside") for number in range(1000))
        if case.draft.links
    )
    write(linked.draft, tmp_path / "table")
    [path, *_] = linked.draft.links
    assert (tmp_path / "table" / path).is_symlink()
