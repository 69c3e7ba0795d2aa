"""Alterations of a table: columns, properties, constraints, protocol."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

from delvec.ddl import AddedColumn, parse_added_columns, parse_type
from delvec_commands.dml.identity_marks import reached
from delvec_commands.reading import ReadableTable
from delvec_commands.table_service import TableService, request
from delvec_contract import operations
from delvec_contract.alterations import AlterRequest
from delvec_errors import ConcurrentModification, ConstraintViolation, UnsupportedOperation
from delvec_kernel.alter_table.change_types import (
    AddColumns,
    AddConstraint,
    AddFeature,
    ChangeColumn,
    ClusterBy,
    DropColumns,
    DropConstraint,
    DropFeature,
    NewColumn,
    RenameColumn,
    SetComment,
    SetProperties,
    SyncIdentity,
    TableChange,
    UnsetProperties,
    UpgradeProtocol,
)
from delvec_kernel.constraints.declared import DEFAULT
from delvec_kernel.schema.char_varchar import CHARACTERS
from delvec_kernel.schema.column_paths import backticked
from delvec_kernel.schema.types import GENERATION, StructField, schema_from

__all__ = ["Alterations", "Altered"]

_ATTEMPTS: Final = 5


@dataclass(frozen=True)
class Altered:
    """The result of an alteration.

    Attributes:
        version: the version of the commit; None if the table already was as requested.
        operation: its name in the table's history, None without a version.
    """

    version: int | None
    operation: str | None


class Alterations:
    """Alters a table: each call is one commit, all calls within :meth:`together` are one.

    A column is named by a path: ``address.city``, ``tags.element``, with backticks around names with characters other
    than letters, digits and underscores. Alterations apply to the newest version; other writers may commit meanwhile.
    Constraints and NOT NULL also apply to existing rows: before the commit, the table's engine checks those that
    statistics do not cover.

    Every method returns :class:`Altered`, or within :meth:`together` None, and raises:
        InvalidTableChange: the table does not allow the change; the message says why, and what would help.
        BadRequest: or a subclass: a value, type, name or expression is invalid.
        ConstraintViolation: existing rows violate the new constraint.
        UnsupportedWriterFeature: the table requires an unsupported writer feature.
        MetadataChanged: other writers keep changing the table's metadata.

    Attributes:
        committed: of :meth:`together`: the result, once the block has ended; None if it altered nothing.
    """

    committed: Altered | None = None

    def __init__(self, service: TableService, table: ReadableTable) -> None:
        self._service = service
        self._table = table
        self._waiting: list[TableChange] | None = None

    @contextmanager
    def together(self) -> Iterator["Alterations"]:
        """Commit all alterations of a ``with`` block together; none if the block raises."""
        block = Alterations(self._service, self._table)
        block._waiting = []
        yield block
        if block._waiting:
            block.committed = self._commit(block._waiting)

    # --- columns --------------------------------------------------------------------------------------

    def add_columns(
        self, columns: Any, *, first: bool = False, after: str | None = None, into: str | None = None
    ) -> Altered | None:
        """Add columns; they are NULL in existing rows.

        Args:
            columns: Spark DDL (``'age int, born date'``), in which a column may be a field of a struct, and have a
                place, as in ALTER TABLE (``'address.zip string AFTER city'``); or an Arrow, PySpark or Delta schema.
            first: place the columns first.
            after: place the columns after this one.
            into: path of a struct to add them to as fields.
        """
        if isinstance(columns, str):
            added = parse_added_columns(columns)
            if any(each.struct or each.place for each in added):
                return self._apply(request(AddColumns, columns=[_placed(each, into) for each in added]))
            fields: Sequence[StructField] = [each.column for each in added]
        else:
            fields = schema_from(columns).fields
        new_columns = []
        for number, field in enumerate(fields):
            # Each is placed after the one before it, so that they stay in order.
            place = (
                {"first": first, "after": after}
                if not number or not (first or after)
                else {"after": fields[number - 1].name}
            )
            new_columns.append(_new_column(field, into, place))
        return self._apply(request(AddColumns, columns=new_columns))

    def rename_column(self, column: str, to: str) -> Altered | None:
        """Rename a column or a field of a struct; the table needs ``delta.columnMapping.mode=name``."""
        return self._apply(request(RenameColumn, column=column, to=to))

    def drop_columns(self, columns: str | Iterable[str], *, if_exists: bool = False) -> Altered | None:
        """Drop columns or fields of structs; the table needs ``delta.columnMapping.mode=name``."""
        names = [columns] if isinstance(columns, str) else list(columns)
        return self._apply(request(DropColumns, columns=names, if_exists=if_exists))

    def change_type(self, column: str, to: str) -> Altered | None:
        """Widen the type of a column (``'bigint'``); the table needs ``delta.enableTypeWidening=true``."""
        field = parse_type(to, column)
        _check_plain(field)
        return self._apply(request(ChangeColumn, column=column, type=field.type.to_json()))

    def set_not_null(self, column: str) -> Altered | None:
        """Set a column NOT NULL; existing rows are checked first."""
        return self._apply(request(ChangeColumn, column=column, nullable=False))

    def drop_not_null(self, column: str) -> Altered | None:
        """Allow NULL in a column."""
        return self._apply(request(ChangeColumn, column=column, nullable=True))

    def set_default(self, column: str, expression: str) -> Altered | None:
        """Set a column's default, a Spark SQL expression that reads no columns.

        It applies to rows written without the column from now on; existing rows do not change.
        """
        return self._apply(request(ChangeColumn, column=column, default=expression))

    def drop_default(self, column: str) -> Altered | None:
        """Drop a column's default."""
        return self._apply(request(ChangeColumn, column=column, default=""))

    def sync_identity(self, column: str) -> Altered | None:
        """Continue an identity column after the highest value in the table, including values that users inserted.

        Reads statistics, and the rows of files without usable ones. The high-water mark never goes back.
        """
        return self._apply(request(SyncIdentity, column=column))

    def comment_column(self, column: str, comment: str | None) -> Altered | None:
        """Comment on a column; None removes the comment."""
        return self._apply(request(ChangeColumn, column=column, comment=comment or ""))

    def move_column(self, column: str, *, first: bool = False, after: str | None = None) -> Altered | None:
        """Move a column to the first place, or after another column."""
        return self._apply(request(ChangeColumn, column=column, first=first, after=after))

    # --- the rest -------------------------------------------------------------------------------------

    def set_properties(self, properties: Mapping[str, str], *, allow_unknown: bool = False) -> Altered | None:
        """Set table properties; table features that they need are added to the protocol.

        Args:
            properties: ``delta.*`` and others.
            allow_unknown: also set ``delta.*`` properties that Delvec does not know.
        """
        return self._apply(
            request(
                SetProperties,
                properties=dict(properties),
                allow_unknown=allow_unknown,
            )
        )

    def unset_properties(self, names: str | Iterable[str], *, if_exists: bool = False) -> Altered | None:
        """Unset table properties; features stay in the protocol."""
        given = [names] if isinstance(names, str) else list(names)
        return self._apply(request(UnsetProperties, names=given, if_exists=if_exists))

    def enable_deletion_vectors(self) -> Altered | None:
        """Enable deletion vectors; readers must support them from then on."""
        return self.set_properties({"delta.enableDeletionVectors": "true"})

    def add_constraint(self, name: str, expression: str) -> Altered | None:
        """Add a CHECK constraint, a Boolean expression that must be true for every row, including existing ones."""
        return self._apply(request(AddConstraint, name=name, expression=expression))

    def drop_constraint(self, name: str, *, if_exists: bool = False) -> Altered | None:
        """Drop a CHECK constraint."""
        return self._apply(request(DropConstraint, name=name, if_exists=if_exists))

    def add_feature(self, feature: str) -> Altered | None:
        """Add a table feature to the protocol, and those that it needs."""
        return self._apply(request(AddFeature, feature=feature))

    def drop_feature(self, feature: str, *, truncate_history: bool = False) -> Altered | None:
        """Drop a table feature from the protocol; not within :meth:`together`.

        First turns off what uses the feature. A reader feature takes four more versions, and checkpoints.

        Args:
            feature: its name in the Delta protocol.
            truncate_history: delete older versions; only for ``checkpointProtection``.
        """
        return self._apply(request(DropFeature, feature=feature, truncate_history=truncate_history))

    def upgrade_protocol(self, min_reader_version: int, min_writer_version: int) -> Altered | None:
        """Upgrade the protocol to a reader and a writer version."""
        return self._apply(
            request(
                UpgradeProtocol,
                min_reader_version=min_reader_version,
                min_writer_version=min_writer_version,
            )
        )

    def comment(self, comment: str | None) -> Altered | None:
        """Comment on the table; None removes the comment."""
        return self._apply(request(SetComment, comment=comment))

    def cluster_by(self, columns: str | Sequence[str]) -> Altered | None:
        """Set the clustering columns; none turns clustering off."""
        names = [columns] if isinstance(columns, str) else list(columns)
        return self._apply(request(ClusterBy, columns=names))

    # --------------------------------------------------------------------------------------------------

    def _apply(self, change: TableChange) -> Altered | None:
        if self._waiting is None:
            return self._commit([change])
        self._waiting.append(change)
        return None

    def _commit(self, changes: Sequence[TableChange]) -> Altered:
        conditions = [condition for condition in map(_required, changes) if condition is not None]
        for number in range(_ATTEMPTS):
            verified_version = self._verify(conditions) if conditions else None
            newest_version = self._table.version() if verified_version is None else verified_version
            if any(isinstance(change, SyncIdentity) for change in changes):
                changes, verified_version = (
                    [self._with_identity_end(change, newest_version) for change in changes],
                    newest_version,
                )
            try:
                return self._send(changes, verified_version, newest_version)
            except ConcurrentModification:
                # New rows were committed, or the table was replaced: check again.
                if verified_version is None or number == _ATTEMPTS - 1:
                    raise
        raise AssertionError("the last attempt returns or raises")

    def _with_identity_end(self, change: TableChange, version: int) -> TableChange:
        if not isinstance(change, SyncIdentity):
            return change
        return replace(change, reached=reached(self._table, change.column, version))

    def _send(self, changes: Sequence[TableChange], verified: int | None, seen: int) -> Altered:
        body = request(
            AlterRequest,
            changes=list(changes),
            verified_version=verified,
            read_version=seen,
            engine_info=self._table.engine.name,
        )
        done = self._service.call(operations.ALTER_TABLE, body, table=self._table.id)
        return Altered(done.version, done.operation)

    def _verify(self, conditions: Sequence[str]) -> int:
        """Return the newest version once all its rows satisfy the conditions.

        Raises:
            ConstraintViolation: some do not.
        """
        version: int | None = None
        for condition in conditions:
            violation = f"NOT ({condition}) OR ({condition}) IS NULL"
            if version is None:
                version = self._table.plan(predicate=violation)[0].version
            count = self._table.count(violation, version=version)
            if count:
                raise ConstraintViolation(
                    f"{count:,} row{'s' if count > 1 else ''} of table '{self._table.name}' (version {version}) do not "
                    f"satisfy {condition}; correct or delete them first. They match: {violation}.",
                    table=self._table.name,
                    version=version,
                    count=count,
                )
        assert version is not None  # noqa: S101 - called with at least one condition
        return version


def _required(change: TableChange) -> str | None:
    """Return what every row must satisfy for a change."""
    if isinstance(change, AddConstraint):
        return change.expression
    if isinstance(change, ChangeColumn) and change.nullable is False:
        return f"{change.column} IS NOT NULL"
    return None


def _check_plain(field: StructField) -> None:
    """Refuse definitions that a column of an existing table cannot get, rather than ignore them."""
    if CHARACTERS in field.metadata:
        raise UnsupportedOperation(
            f"Column '{field.name}' cannot get the type {field.metadata[CHARACTERS]} in an existing table. Use the "
            "type string, and add a constraint such as length(name) <= 10.",
            operation=str(field.metadata[CHARACTERS]),
        )
    metadata_key = next(
        (key for key in field.metadata if key in (DEFAULT, GENERATION) or "identity" in key), None
    )
    if metadata_key is not None:
        raise UnsupportedOperation(
            f"Column '{field.name}' cannot be added with {metadata_key}: existing rows would have no value. "
            + (
                "Add the column without it, then call set_default(), which applies to new rows."
                if metadata_key == DEFAULT
                else "Add the column without it."
            ),
            operation=metadata_key,
        )


def _placed(added: AddedColumn, into: str | None) -> NewColumn:
    """Return a column whose text says where it belongs."""
    parts = ([] if into is None else [into]) + ([added.struct] if added.struct else [])
    return _new_column(added.column, ".".join(parts) or None, added.place)


def _new_column(field: StructField, into: str | None, place: Mapping[str, Any]) -> NewColumn:
    _check_plain(field)
    name = backticked(field.name)
    comment = field.metadata.get("comment")
    return request(
        NewColumn,
        column=name if into is None else f"{into}.{name}",
        type=field.type.to_json(),
        comment=None if comment is None else str(comment),
        nullable=field.nullable,
        **place,
    )
