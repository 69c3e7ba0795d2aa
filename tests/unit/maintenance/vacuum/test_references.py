"""The files that VACUUM keeps, tested with random tables: no referenced file is ever deleted."""

from datetime import timedelta
from random import Random
from urllib.parse import quote, unquote
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delvec_errors import BadRequest, CorruptDeletionVector, LocationNotAllowed, RetentionTooShort
from delvec_kernel.actions.actions import AddFile, Cdc, RemoveFile
from delvec_kernel.deletion_vectors.deletion_vector import Descriptor, encode_uuid, file_name
from delvec_kernel.file_index.file_rows import DELETION_VECTOR
from delvec_kernel.locations import canonical_relative, log_path
from delvec_maintenance.vacuum.references import References, removed_files
from delvec_maintenance.vacuum.retention import Retention, hidden_names

LOCATION = "file:///data/my%20table"
HOUR = 3_600_000

LETTERS = "ab =%+#?&é漢:'\\\u200b\n~._-$"


def name(dice):
    """Return a file or directory name, with every character that some encoding changes."""
    found = "".join(dice.choices(LETTERS, k=dice.randint(1, 6)))
    return found if found.strip(".") else f"x{found}"


def path(dice):
    return "/".join(name(dice) for _ in range(dice.randint(1, 3)))


def spelling(dice, stored):
    """Return one of the ways in which a log may refer to a file of the table."""
    encoded = log_path(stored)
    return dice.choice(
        [
            encoded,
            quote(stored, safe="/"),
            # Unencoded, as some writers do.
            stored if set(stored) <= set("ab%é漢/") else encoded,
            f"{LOCATION}/{encoded}",
            f"file:/data/my%20table/{encoded}",
            f"/data/my%20table/{encoded}",
            f"file:///linked/{encoded.rpartition('/')[2]}",
        ]
    )


def case(dice):
    """Return files in storage, actions, and the files they reference."""
    stored = list({path(dice) for _ in range(dice.randint(0, 8))})
    actions, referred = [], set()
    for one in stored:
        kind = dice.choice(["add", "remove", "cdc", None])
        if kind is None:
            continue
        referred.add(one)
        spelled = spelling(dice, one)
        made = {
            "add": AddFile(spelled, {}, 1, 0),
            "remove": RemoveFile(spelled, 1),
            "cdc": Cdc(spelled, {}, 1),
        }
        actions.append(made[kind])
    for number in range(dice.randint(0, 3)):
        prefix, identifier = dice.choice(["", name(dice)]), UUID(int=dice.getrandbits(128))
        one = f"{prefix}/{file_name(identifier)}" if prefix else file_name(identifier)
        stored.append(one)
        text = encode_uuid(prefix, identifier)
        vector = dice.choice(
            [Descriptor("u", text, 1, 34, 1), Descriptor("p", f"{LOCATION}/{log_path(one)}", 1, 34, 1)]
        )
        for owner in range(dice.randint(0, 2)):  # shared by data files, or unreferenced
            referred.add(one)
            data_file = f"owner-{number}-{owner}.parquet"
            actions.append(
                dice.choice(
                    [
                        AddFile(data_file, {}, 1, 0, deletion_vector=vector),
                        RemoveFile(data_file, 1, deletion_vector=vector),
                    ]
                )
            )
    return stored, actions, referred


@settings(max_examples=1000, deadline=None)
@given(st.integers(0, 2**64))
def test_referenced_files_are_kept_in_any_spelling(seed):
    stored, actions, referred = case(Random(seed))
    kept = References(LOCATION)
    kept.add_actions(actions)
    listed = pa.array([canonical_relative(one) for one in stored], pa.string())
    let_go = {one for one, stays in zip(stored, kept.has(listed), strict=True) if not stays}
    assert not let_go & referred
    # All others are deleted, except files that share a name with a foreign URL, or that an unencoded % may mean.
    elsewhere = any("/linked/" in action.path for action in actions)
    assert elsewhere or any("%" in one for one in stored) or let_go == set(stored) - referred


def test_many_files_are_distinguished():
    kept = References(LOCATION)
    live = pa.array([f"d={n % 7}/part-{n}.parquet" for n in range(100_000)])
    kept.add_paths(live)
    assert np.all(kept.has(live))
    kept.add_paths(pa.array(["one-more.parquet"]))
    others = pa.array([f"d={n % 7}/part-{n}-x.parquet" for n in range(100_000)])
    assert np.all(kept.has(live))
    assert not np.any(kept.has(others))


def test_without_references_nothing_is_kept():
    assert not References(LOCATION).has(pa.array(["a.parquet"])).any()
    assert len(References(LOCATION).has(pa.array([], pa.string()))) == 0


@pytest.mark.parametrize(
    ("vector", "error"),
    [
        ({"storageType": "x", "pathOrInlineDv": "a"}, CorruptDeletionVector),
        ({"storageType": "u", "pathOrInlineDv": None}, CorruptDeletionVector),
        ({"storageType": "u", "pathOrInlineDv": "not a uuid"}, CorruptDeletionVector),
        (
            {"storageType": "u", "pathOrInlineDv": "../x" + encode_uuid("", UUID(int=1))},
            CorruptDeletionVector,
        ),
    ],
)
def test_a_descriptor_without_a_file_raises(vector, error):
    with pytest.raises(error):
        References(LOCATION).add_vectors(pa.array([None, vector], DELETION_VECTOR))


def test_a_path_out_of_the_table_raises():
    with pytest.raises(LocationNotAllowed):
        References(LOCATION).add_paths(pa.array(["../other/a.parquet"]))


def test_removed_files_include_vectors_that_are_named_by_an_absolute_path():
    vectors = [Descriptor("p", f"{place}/v.bin", 1, 34, 1) for place in (LOCATION, "s3://bucket/elsewhere")]
    removes = [RemoveFile(f"{n}.parquet", 0, size=9, deletion_vector=each) for n, each in enumerate(vectors)]

    assert removed_files(removes, LOCATION) == {"0.parquet": 9, "v.bin": 34, "1.parquet": 9}


def test_inline_vectors_need_no_file():
    kept = References(LOCATION)
    kept.add_vectors(pa.array([{"storageType": "i", "pathOrInlineDv": "abc"}, None], DELETION_VECTOR))
    assert not kept.has(pa.array(["abc"])).any()


@given(
    configured=st.integers(0, 10**6),
    hours=st.none() | st.floats(0, 10**6),
    enforce=st.booleans(),
    now=st.integers(10**12, 10**13),
)
def test_retention_is_at_least_the_tables_and_a_day_unless_overridden(configured, hours, enforce, now):
    own = timedelta(hours=configured)
    try:
        found = Retention.of(own, hours, enforce=enforce, table="t")
    except RetentionTooShort:
        assert enforce
        assert round(hours * HOUR) < configured * HOUR
        return
    assert found.removed_before(now) <= now
    assert found.written_before(now) <= found.removed_before(now)
    if enforce:
        assert found.removed_before(now) <= now - configured * HOUR
        assert found.written_before(now) <= now - 24 * HOUR


@pytest.mark.parametrize("hours", [-1, float("nan"), float("inf"), -float("inf")])
def test_invalid_hours_are_refused(hours):
    with pytest.raises(BadRequest):
        Retention.of(timedelta(days=7), hours, enforce=False, table="t")


@pytest.mark.parametrize(
    ("name", "hidden"),
    [
        ("part-0.parquet", False),
        ("_delta_log", True),
        ("_staged", True),
        (".crc", True),
        ("_change_data", False),
        ("_delta_index", False),
        ("_day=1", False),
        ("_daylight=1", True),
        ("_day", True),
    ],
)
def test_hidden_names_are_those_of_delta_spark(name, hidden):
    assert hidden_names(["_day"])(name) is hidden


@pytest.mark.parametrize("stored", ["a%20é.parquet", "a%20b.parquet", "é=%C3%A9/x.parquet"])
def test_unencoded_paths_keep_both_possible_files(stored):
    """And so is the file that the encoded text would mean, since either may be right."""
    kept = References(LOCATION)
    kept.add_actions([AddFile(stored, {}, 1, 0)])

    listed = [stored, unquote(stored), "other.parquet"]
    assert kept.has(pa.array(map(canonical_relative, listed), pa.string())).tolist() == [True, True, False]
