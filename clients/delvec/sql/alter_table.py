"""ALTER TABLE and COMMENT ON as the alterations of a table.

Tested in `tests/integration/client/sql/test_table_definitions.py`.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from delvec.alterations import Alterations, Altered
from delvec.catalog import Catalog
from delvec.sql.creation import table_properties
from delvec.sql.tokens import Cursor, newest_version

if TYPE_CHECKING:
    from delvec.sql.row_statements import OpenTable

__all__ = ["alter", "comment"]

_Alteration: TypeAlias = Callable[[Alterations], Altered | None]


def alter(lake: Catalog, cursor: Cursor, open_table: "OpenTable") -> Altered:
    """Run ALTER TABLE table, and one of the changes of :class:`~delvec.alterations.Alterations`, or RENAME TO name.

    Raises:
        InvalidStatement: it is another statement.
        DelvecError: as for the change.
    """
    cursor.expect("ALTER", "TABLE")
    name = newest_version(cursor)
    if cursor.take("RENAME", "TO"):
        renamed = newest_version(cursor)
        cursor.end()
        lake.rename(name.name, renamed.name)
        return Altered(None, "RENAME TABLE")
    changes = _changes(cursor)
    cursor.end()
    alterations = open_table(name).alter
    if len(changes) == 1:
        altered = changes[0](alterations)
        assert altered is not None  # noqa: S101 - None is for blocks only
        return altered
    with alterations.together() as block:
        for change in changes:
            change(block)
    return block.committed or Altered(None, None)


def comment(cursor: Cursor, open_table: "OpenTable") -> Altered:
    """Run COMMENT ON TABLE table IS 'text' | NULL, or COMMENT ON COLUMN table.column IS 'text' | NULL.

    Raises:
        InvalidStatement: it is another statement.
    """
    cursor.expect("COMMENT", "ON")
    column = None
    if not cursor.take("TABLE"):
        cursor.expect("COLUMN")
        name, column = cursor.column_of_table()
    else:
        name = newest_version(cursor)
    cursor.expect("IS")
    text = None if cursor.take("NULL") else cursor.literal("a comment in quotes, or NULL")
    cursor.end()
    alterations = open_table(name).alter
    altered = alterations.comment(text) if column is None else alterations.comment_column(column, text)
    assert altered is not None  # noqa: S101 - None is for blocks only
    return altered


def _changes(cursor: Cursor) -> list[_Alteration]:
    for words, parse in _FORMS.items():
        if cursor.take(*words):
            return parse(cursor)
    return cursor.fail(
        "ADD COLUMNS, DROP COLUMNS, RENAME COLUMN, ALTER COLUMN, ADD or DROP CONSTRAINT, SET or UNSET TBLPROPERTIES, "
        "CLUSTER BY, ADD or DROP FEATURE, or RENAME TO is expected"
    )


def _add_columns(cursor: Cursor) -> list[_Alteration]:
    in_parentheses = cursor.take("(")
    columns = cursor.columns()
    if in_parentheses:
        cursor.expect(")")
    return [lambda alter: alter.add_columns(columns)]


def _drop_columns(cursor: Cursor) -> list[_Alteration]:
    if_exists = cursor.take("IF", "EXISTS")
    columns = cursor.in_parentheses(cursor.column) if cursor.word() == "(" else [cursor.column()]
    while cursor.take(","):
        columns.append(cursor.column())
    return [lambda alter: alter.drop_columns(columns, if_exists=if_exists)]


def _rename_column(cursor: Cursor) -> list[_Alteration]:
    column = cursor.column()
    cursor.expect("TO")
    to = cursor.name("a column")
    return [lambda alter: alter.rename_column(column, to)]


def _alter_columns(cursor: Cursor) -> list[_Alteration]:
    """Parse one or more columns, each with one or more changes."""
    changes: list[_Alteration] = []
    while True:
        column = cursor.column()
        changes.append(_change_of(column, cursor))
        while not cursor.at_end and cursor.word() != ",":
            changes.append(_change_of(column, cursor))
        if not cursor.take(","):
            return changes


def _change_of(column: str, cursor: Cursor) -> _Alteration:
    if cursor.take("TYPE"):
        kind = cursor.anything(",", "COMMENT", "FIRST", "AFTER", "SET", "DROP")
        return lambda alter: alter.change_type(column, kind)
    if cursor.take("COMMENT"):
        text = cursor.literal("a comment in quotes")
        return lambda alter: alter.comment_column(column, text)
    if cursor.take("SET", "DEFAULT"):
        default = cursor.anything(",")
        return lambda alter: alter.set_default(column, default)
    if cursor.take("AFTER"):
        after = cursor.name("a column")
        return lambda alter: alter.move_column(column, after=after)
    for words, change in _CHANGES.items():
        if cursor.take(*words):
            return lambda alter: change(alter, column)
    return cursor.fail(
        "TYPE, COMMENT, FIRST, AFTER, SET NOT NULL, DROP NOT NULL, SET DEFAULT, DROP DEFAULT or SYNC IDENTITY is expected"
    )


_CHANGES: dict[tuple[str, ...], Callable[[Alterations, str], Altered | None]] = {
    ("SET", "NOT", "NULL"): Alterations.set_not_null,
    ("DROP", "NOT", "NULL"): Alterations.drop_not_null,
    ("DROP", "DEFAULT"): Alterations.drop_default,
    ("SYNC", "IDENTITY"): Alterations.sync_identity,
    ("FIRST",): lambda alter, column: alter.move_column(column, first=True),
}


def _add_constraint(cursor: Cursor) -> list[_Alteration]:
    name = cursor.name("a name")
    cursor.expect("CHECK", "(")
    expression = cursor.anything()
    cursor.expect(")")
    return [lambda alter: alter.add_constraint(name, expression)]


def _drop_constraint(cursor: Cursor) -> list[_Alteration]:
    if_exists = cursor.take("IF", "EXISTS")
    name = cursor.name("a name")
    return [lambda alter: alter.drop_constraint(name, if_exists=if_exists)]


def _set_properties(cursor: Cursor) -> list[_Alteration]:
    properties = table_properties(cursor)
    return [lambda alter: alter.set_properties(properties)]


def _unset_properties(cursor: Cursor) -> list[_Alteration]:
    if_exists = cursor.take("IF", "EXISTS")
    names = cursor.in_parentheses(lambda: cursor.text_or_path("a property"))
    return [lambda alter: alter.unset_properties(names, if_exists=if_exists)]


def _cluster_by(cursor: Cursor) -> list[_Alteration]:
    columns = [] if cursor.take("NONE") else cursor.in_parentheses(cursor.column)
    return [lambda alter: alter.cluster_by(columns)]


def _add_feature(cursor: Cursor) -> list[_Alteration]:
    feature = cursor.text_or_path("a feature")
    return [lambda alter: alter.add_feature(feature)]


def _drop_feature(cursor: Cursor) -> list[_Alteration]:
    feature = cursor.text_or_path("a feature")
    truncates = cursor.take("TRUNCATE", "HISTORY")
    return [lambda alter: alter.drop_feature(feature, truncate_history=truncates)]


_FORMS: dict[tuple[str, ...], Callable[[Cursor], list[_Alteration]]] = {
    ("ADD", "COLUMNS"): _add_columns,
    ("ADD", "COLUMN"): _add_columns,
    ("DROP", "COLUMNS"): _drop_columns,
    ("DROP", "COLUMN"): _drop_columns,
    ("RENAME", "COLUMN"): _rename_column,
    ("ALTER", "COLUMN"): _alter_columns,
    ("CHANGE", "COLUMN"): _alter_columns,
    ("ADD", "CONSTRAINT"): _add_constraint,
    ("DROP", "CONSTRAINT"): _drop_constraint,
    ("SET", "TBLPROPERTIES"): _set_properties,
    ("UNSET", "TBLPROPERTIES"): _unset_properties,
    ("CLUSTER", "BY"): _cluster_by,
    ("ADD", "FEATURE"): _add_feature,
    ("DROP", "FEATURE"): _drop_feature,
    # Without the word COLUMN.
    ("ALTER",): _alter_columns,
    ("CHANGE",): _alter_columns,
}
