"""upper() and lower() in DuckDB SQL equal Python's, and so Java's, for every character and in context."""

import duckdb
import pyarrow as pa
import pytest

from delvec_engines.duckdb.dialect_functions import lower, upper

TEXTS = [
    "ΑΣ",
    "ΑΣΑ",
    "Σ",
    "ΟΔΟΣ ΟΔΟΣ",
    "ΣΣ",
    "ΑΣΣ",
    "ΑΣ, ΒΣ!",
    "Iİ",
    "straße",
    "ﬁne",
    "x Σ y",
    "ΑΣΒΣ",
    "aΣ",
    "",
    None,
]


@pytest.mark.parametrize("padding", ["", " || ''" * 40], ids=["a column", "a long expression"])
def test_every_character_has_the_letters_that_it_has_in_java(padding):
    characters = [chr(code) for code in range(1, 0x30000) if not 0xD800 <= code < 0xE000]
    texts = pa.table({"c": characters + TEXTS})
    value = f"c{padding}"
    with duckdb.connect() as connection:
        connection.register("texts", texts)
        query = f"SELECT c, {upper(value)}, {lower(value)} FROM texts"
        found = connection.execute(query).fetchall()
    assert len(found) == len(texts)
    assert [row for row in found if row[0] is not None and row[1:] != (row[0].upper(), row[0].lower())] == []
    assert found[-1] == (None, None, None)


@pytest.mark.parametrize("text", ["ΑΣ.", "Α'Σ", "ΑΣ_Α"])  # noqa: RUF001
def test_a_sigma_that_cannot_be_decided_is_an_error(text):
    with duckdb.connect() as connection, pytest.raises(duckdb.Error, match="sigma"):
        connection.execute(f"SELECT {lower('c')} FROM (SELECT ? AS c)", [text]).fetchall()
