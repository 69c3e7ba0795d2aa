"""What VACUUM keeps, attacked with random tables: no file that anything refers to is ever let go."""

from datetime import timedelta
from random import Random
from urllib.parse import quote, unquote
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delvec_kernel.actions.actions import AddFile, Cdc, RemoveFile
from delvec_kernel.deletion_vectors.deletion_vector import Descriptor, encode_uuid, file_name
from delvec_kernel.errors import BadRequest, CorruptDeletionVector, LocationNotAllowed, RetentionTooShort
from delvec_kernel.file_index.files import DELETION_VECTOR
from delvec_kernel.locations import canonical_relative, log_path
from delvec_kernel.vacuum.references import References
from delvec_kernel.vacuum.retention import Retention, hidden_names

LOCATION = "file:///data/my%20table"
HOUR = 3_600_000

LETTERS = "ab =%+#?&é漢:'\\\u200b\n~._-$"


def name(dice):
    """A name of a file or directory, with every character that some spelling changes."""
    found = "".join(dice.choices(LETTERS, k=dice.randint(1, 6)))
    return found if found.strip(".") else f"x{found}"


def path(dice):
    return "/".join(name(dice) for _ in range(dice.randint(1, 3)))


def spelling(dice, stored):
    """One of the ways in which a log may name a file of the table."""
    encoded = log_path(stored)
    return dice.choice(
        [
            encoded,
            quote(stored, safe="/"),
            # As it is: some writers do not encode.
            stored if set(stored) <= set("ab%é漢/") else encoded,
            f"{LOCATION}/{encoded}",
            f"file:/data/my%20table/{encoded}",
            f"/data/my%20table/{encoded}",
            f"file:///linked/{encoded.rpartition('/')[2]}",
        ]
    )


def case(dice):
    """Return files in storage, actions, and the files that these refer to."""
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
        for owner in range(dice.randint(0, 2)):  # several data files share it, or nothing refers to it
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
def test_no_file_that_an_action_refers_to_is_let_go_however_it_is_spelled(seed):
    stored, actions, referred = case(Random(seed))
    kept = References(LOCATION)
    kept.add_actions(actions)
    listed = pa.array([canonical_relative(one) for one in stored], pa.string())
    let_go = {one for one, stays in zip(stored, kept.has(listed), strict=True) if not stays}
    assert not let_go & referred
    # And the rest goes, but for what has the name of a file that seems to be elsewhere, or may be meant by a %.
    elsewhere = any("/linked/" in action.path for action in actions)
    assert elsewhere or any("%" in one for one in stored) or let_go == set(stored) - referred


def test_a_few_hundred_thousand_files_are_told_apart():
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
def test_a_vector_whose_file_is_not_known_lets_nothing_go(vector, error):
    with pytest.raises(error):
        References(LOCATION).add_vectors(pa.array([None, vector], DELETION_VECTOR))


def test_a_path_that_leads_out_of_the_table_lets_nothing_go():
    with pytest.raises(LocationNotAllowed):
        References(LOCATION).add_paths(pa.array(["../other/a.parquet"]))


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
def test_no_retention_goes_below_the_tables_or_a_day_but_by_the_override(configured, hours, enforce, now):
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
def test_what_is_no_number_of_hours_is_refused(hours):
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
def test_a_file_whose_name_looks_encoded_stays_where_a_writer_did_not_encode_it(stored):
    """And so does the file that the text means if it is encoded: which of the two is not known."""
    kept = References(LOCATION)
    kept.add_actions([AddFile(stored, {}, 1, 0)])

    listed = [stored, unquote(stored), "other.parquet"]
    assert kept.has(pa.array(map(canonical_relative, listed), pa.string())).tolist() == [True, True, False]
