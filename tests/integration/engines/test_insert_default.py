"""INSERT ... VALUES with DEFAULT, in SQL on each engine."""

import pytest

import delvec

IDENTITY = {
    "delta.identity.start": 1,
    "delta.identity.step": 1,
    "delta.identity.allowExplicitInsert": True,
}
COLUMNS = {
    "id": ("long", IDENTITY),
    "name": ("string", {"CURRENT_DEFAULT": "'nobody'"}),
    "score": ("integer", {"CURRENT_DEFAULT": "1 + 1"}),
    "note": ("string", {}),
    "upper_name": ("string", {"delta.generationExpression": "upper(name)"}),
}


@pytest.fixture
def insert(lake, engine, tmp_path):
    """Insert rows, and return all rows of the table without the ids."""
    fields = [
        {"name": name, "type": kind, "nullable": True, "metadata": metadata}
        for name, (kind, metadata) in COLUMNS.items()
    ]
    location = tmp_path / "t"
    lake.create_table(location, {"type": "struct", "fields": fields})

    def insert(values):
        lake.sql(f"INSERT INTO delta.`{location}` {values}", engine=engine)
        rows = lake.table(location).to_arrow().to_pylist()
        assert len({row["id"] for row in rows}) == len(rows)
        return sorted(tuple(list(row.values())[1:]) for row in rows)

    return insert


def test_default_is_the_default_of_the_column(insert):
    """In some rows, in all, and where there is no default."""
    found = insert("(name, score, note) VALUES ('a', DEFAULT, default), (DEFAULT, 7, 'n')")
    assert found == [("a", 2, None, "A"), ("nobody", 7, "n", "NOBODY")]
    found = insert("VALUES (DEFAULT, 'b', DEFAULT, 'DEFAULT', DEFAULT)")
    assert found[1] == ("b", 2, "DEFAULT", "B")
    assert len(insert("(name, score) VALUES (DEFAULT, DEFAULT), (DEFAULT, DEFAULT)")) == 5


def test_a_computed_column_is_given_in_all_rows_or_in_none(insert):
    with pytest.raises(delvec.BadRequest, match="'id' is computed for rows that say DEFAULT"):
        insert("(id, name) VALUES (DEFAULT, 'a'), (7, 'b')")
