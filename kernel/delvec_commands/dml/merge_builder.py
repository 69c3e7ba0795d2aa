"""The clauses of a MERGE, as built by a user.

Tested in `tests/integration/engines/test_merge.py` and `tests/unit/commands/dml/test_schema_evolution.py`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, Self

from delvec_commands.peer_names import MERGE_HINTS, no_attribute
from delvec_commands.transaction import Metrics
from delvec_errors import BadRequest

__all__ = ["MergeBuilder", "MergeStatement", "When"]


@dataclass(frozen=True)
class When:
    """One clause, as given.

    Attributes:
        match: which rows it applies to.
        action: what happens to them.
        values: by column; None for all columns of the source, and for a delete.
        predicate: SQL text.
    """

    match: Literal["matched", "not-matched", "not-matched-by-source"]
    action: Literal["update", "delete", "insert"]
    values: Mapping[str, Any] | None = None
    predicate: str | None = None

    @property
    def name(self) -> str:
        """For errors."""
        return f"WHEN {self.match.replace('-', ' ').upper()} {self.action.upper()}"


@dataclass(frozen=True)
class MergeStatement:
    """A whole MERGE.

    Attributes:
        source: as given.
        on: SQL text.
        source_alias: alias of the source.
        target_alias: alias of the table.
        merge_schema: whether columns that only the source has are added to the table.
        clauses: in order.
    """

    source: Any
    on: str
    source_alias: str = "source"
    target_alias: str = "target"
    merge_schema: bool = False
    clauses: Sequence[When] = ()

    def check(self) -> None:
        """Refuse invalid statements before anything is read.

        Raises:
            BadRequest: no clause, a clause that can never apply, or equal aliases.
        """
        if not self.clauses:
            raise BadRequest("A MERGE needs at least one clause: .when_matched_update_all(), for example.")
        if self.source_alias.lower() == self.target_alias.lower():
            raise BadRequest(
                f"Source and target have the same alias '{self.source_alias}'; give them different aliases."
            )
        for match in ("matched", "not-matched", "not-matched-by-source"):
            alike = [clause for clause in self.clauses if clause.match == match]
            early = next((clause for clause in alike[:-1] if clause.predicate is None), None)
            if early is not None:
                raise BadRequest(
                    f"{early.name} has no condition, so the clauses of its kind after it can never apply; only the "
                    "last clause of a kind may have no condition."
                )


class MergeBuilder:
    """Builds a MERGE: each ``when_…`` returns a new builder, and :meth:`execute` runs the MERGE.

    Of the clauses of a kind, only the first whose predicate is true for a row applies to it. Predicates and values may
    name columns of both sides where rows matched, of the source where they are inserted, and of the target where no
    source row matched. Values are as in :meth:`delvec.DeltaTable.update`.
    """

    def __init__(self, statement: MergeStatement, run: Callable[..., Metrics]) -> None:
        self._statement = statement
        self._run = run

    if not TYPE_CHECKING:  # to type checkers an unknown name would be a method of any type

        def __getattr__(self, name: str) -> Any:
            raise no_attribute("MergeBuilder", name, MERGE_HINTS)

    def __repr__(self) -> str:
        clauses = "; ".join(clause.name for clause in self._statement.clauses)
        return f"MergeBuilder(on={self._statement.on!r}, clauses=[{clauses}])"

    def when_matched_update(
        self,
        set: Mapping[str, Any] | None = None,  # noqa: A002 - as in SQL
        predicate: str | None = None,
        *,
        updates: Mapping[str, Any] | None = None,
    ) -> Self:
        """Update columns of matched rows; others keep their values. ``updates`` is deltalake's name of ``set``."""
        return self._with(When("matched", "update", _values(set, updates), predicate))

    def when_matched_update_all(self, predicate: str | None = None) -> Self:
        """Update all columns of matched rows from the source's columns of the same names."""
        return self._with(When("matched", "update", None, predicate))

    def when_matched_delete(self, predicate: str | None = None) -> Self:
        """Delete matched rows."""
        return self._with(When("matched", "delete", None, predicate))

    def when_not_matched_insert(
        self,
        values: Mapping[str, Any] | None = None,
        predicate: str | None = None,
        *,
        updates: Mapping[str, Any] | None = None,
    ) -> Self:
        """Insert unmatched source rows; other columns get their default, or NULL. ``updates``: deltalake's ``values``."""
        return self._with(When("not-matched", "insert", _values(values, updates), predicate))

    def when_not_matched_insert_all(self, predicate: str | None = None) -> Self:
        """Insert unmatched source rows with all columns of the same names."""
        return self._with(When("not-matched", "insert", None, predicate))

    def when_not_matched_by_source_update(
        self,
        set: Mapping[str, Any] | None = None,  # noqa: A002 - as in SQL
        predicate: str | None = None,
        *,
        updates: Mapping[str, Any] | None = None,
    ) -> Self:
        """Update columns of rows that no source row matched. ``updates`` is deltalake's name of ``set``."""
        return self._with(When("not-matched-by-source", "update", _values(set, updates), predicate))

    def when_not_matched_by_source_delete(self, predicate: str | None = None) -> Self:
        """Delete rows that no source row matched."""
        return self._with(When("not-matched-by-source", "delete", None, predicate))

    def execute(
        self, *, dry_run: bool = False, retries: int | None = None, user_metadata: str | None = None
    ) -> Metrics:
        """Run the MERGE as one commit.

        Args:
            dry_run: commit and write nothing; the result says what would happen to each file.
            retries: how often to retry after a conflict; by default the connection's. A source that can be read only
                once is not retried.
            user_metadata: text for the table's history.

        Returns:
            Delta's metrics of a merge, and the version in ``.version``: None if nothing changed.

        Raises:
            MultipleMatches: several source rows would change one row.
            UnknownColumn: or ``AmbiguousColumn``, ``InvalidPredicate``, ``SchemaMismatch``: a clause is invalid.
            ConstraintViolation: a new row violates a constraint of the table.
            ConcurrentModification: or a subclass: another writer won on the last attempt, too.
            CommitOutcomeUnknown: the response was lost, and the service does not know the outcome of the commit.
        """
        return self._run(self._statement, dry_run=dry_run, retries=retries, user_metadata=user_metadata)

    def run_by(self, run: Callable[..., Metrics]) -> Self:
        """Return a builder whose :meth:`execute` passes the statement to ``run``; for EXPLAIN."""
        return type(self)(self._statement, run)

    def _with(self, clause: When) -> Self:
        clauses = (*self._statement.clauses, clause)
        return type(self)(replace(self._statement, clauses=clauses), self._run)


def _values(given: Mapping[str, Any] | None, updates: Mapping[str, Any] | None) -> Mapping[str, Any]:
    found = updates if given is None else given
    if found is None or (given is not None and updates is not None):
        raise BadRequest("A clause takes one dictionary of values by column: {'age': 'source.age'}.")
    return found
