"""Registered tables: register, create, open, unregister.

Tested in `tests/integration/service/tables/test_tables.py`.
"""

import re
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Final, overload

from delvec_contract.tables import TABLE_NAME
from delvec_errors import (
    BadRequest,
    CatalogUnavailable,
    CorruptTable,
    DelvecError,
    LocationNotAllowed,
    NotADeltaTable,
    RequestTooLarge,
    StorageError,
    TableAlreadyExists,
    UnsupportedOperation,
)
from delvec_kernel.actions.actions import Action, CommitInfo, first_of
from delvec_kernel.features.managed_tables import MANAGED, is_catalog_managed
from delvec_kernel.locations import table_id
from delvec_kernel.log.commit_file import serialize_commit
from delvec_kernel.log.log_segment import commit_path
from delvec_service.catalog_client.catalog_table import CatalogTable
from delvec_service.catalog_client.catalogs import Catalogs
from delvec_service.catalog_client.staged_table import TableToCreate
from delvec_service.snapshots.loader import SnapshotLoader
from delvec_service.snapshots.log_reader import LogReader
from delvec_service.store.clones import CloneStore
from delvec_service.store.dropped_tables import DroppedTables
from delvec_service.store.objects import MAX_COMMIT_BYTES, ObjectStore
from delvec_service.store.open_table import OpenTable
from delvec_service.store.registry import Registry, TableRecord, not_found
from delvec_service.tables.named_files import NamedFiles
from delvec_service.tables.namespace_roots import NamespaceRoots
from delvec_service.tables.new_table import NewTable
from delvec_service.tables.places import UNRESTRICTED, Places, Requester, check_reserved
from delvec_service.telemetry.observer import NO_OBSERVER, Observer
from delvec_storage.roots import Roots

__all__ = ["Tables", "already_exists"]

_OPENED_SECONDS: Final = 1.0
_MAX_OPENED: Final = 10_000
_NAME: Final = re.compile(TABLE_NAME)
_PAGE: Final = 200
_CREATIONS: Final = uuid.UUID("6f0c9a35-4c36-4d0c-8a35-1a4b3b1f6f0e")


class Tables:
    """Registered tables.

    Args:
        registry: names and locations.
        dropped: the managed tables that were dropped.
        roots: where tables may be, by their names.
        loader: reads snapshots.
        max_commit_bytes: larger JSON files of a log are rejected.
        by_folder: whether an unregistered name also refers to the table in the warehouse folder of that name.
        clones: the shallow clones that are recorded, whose logs name files of their sources.
        is_open: whether no token is required.
        shared: where there are no roots, places whose files every log may name.
        catalogs: other catalogs, whose tables are found by names that begin with the catalog's.
        observer: notified of requests to storage.

    Attributes:
        dropped: the same.
        roots: the same.
        places: decides who may use which location.
    """

    def __init__(
        self,
        registry: Registry,
        dropped: DroppedTables,
        roots: NamespaceRoots,
        loader: SnapshotLoader,
        *,
        max_commit_bytes: int = MAX_COMMIT_BYTES,
        by_folder: bool = False,
        clones: CloneStore,
        is_open: Callable[[], bool] = lambda: True,
        shared: Sequence[str] = (),
        catalogs: Catalogs | None = None,
        observer: Observer = NO_OBSERVER,
    ) -> None:
        self._catalogs = Catalogs({}) if catalogs is None else catalogs
        self._clones = clones
        self._shared = tuple(Roots(shared))
        self._max_commit_bytes = max_commit_bytes
        self._registry = registry
        self.dropped = dropped
        self.roots = roots
        self.places = Places(registry, roots, observer)
        self._named_files = NamedFiles(self.places, clones, loader, roots.everywhere, is_open)
        self._loader = loader
        self._by_folder = by_folder
        self._observer = observer
        self._opened: dict[str, tuple[OpenTable, float]] = {}

    @property
    def catalog(self) -> str:
        """The location that the registered names belong to, as the database spells it."""
        return self._registry.catalog

    def open(self, name_or_id: str, requester: Requester = UNRESTRICTED) -> OpenTable:
        """Return a registered table; see :meth:`find`.

        Raises:
            TableNotFound: no table has that name or id.
            AmbiguousTable: several tables match the name.
            LocationNotAllowed: the roots have changed, or a link now leads out of them.
        """
        return self.opening(self.find(name_or_id, requester))

    def opening(self, record: TableRecord) -> OpenTable:
        """Open a table whose record was found.

        Raises:
            LocationNotAllowed: the roots have changed, a link now leads out of them, or the location is in the log of
                another table.
        """
        check_reserved(record.location)
        roots = self.roots.of(record.name)
        roots.check(record.location)
        open_table = OpenTable(
            record,
            self.roots_of_files(record.location, roots),
            self._max_commit_bytes,
            self._observer,
            self._coordinator(record, roots),
        )
        if len(self._opened) >= _MAX_OPENED:
            self._opened.clear()
        self._opened[record.id] = (open_table, time.monotonic())
        return open_table

    def _coordinator(self, record: TableRecord, roots: Roots) -> CatalogTable | None:
        """Return the table in its catalog, if it is another's.

        Raises:
            LocationNotAllowed: only the catalog says that the table is there, and has no credentials for it: those of the
                service would open whatever the catalog names.
        """
        if self.catalog_of(record.name) is None:
            return None
        table = self._catalogs.table(record.name, record.location)
        self._check_credentials(table, record.name, roots)
        return table

    def _check_credentials(self, table: CatalogTable | TableToCreate, name: str, roots: Roots) -> bool:
        """Reject a place that is not in the roots, unless the catalog has credentials for it; return whether it is in them."""
        allowed = roots or (Roots(self._shared) if self._shared else None)
        is_inside = allowed is not None and allowed.allows(table.location)
        if not table.uses_credentials(has_others=is_inside) and not is_inside:
            raise LocationNotAllowed(
                f"The catalog of table '{name}' says that it is at {table.location}, which is in none of the roots, "
                "and issues no credentials for it. Add the place to roots= of connect(), or to DELVEC_ROOTS.",
                table=name,
                location=table.location,
            )
        return is_inside

    def catalog_of(self, name: str) -> str | None:
        """Return the other catalog that a name belongs to; None for a name of the service's own."""
        return self._catalogs.catalog_of(name)

    def unregistered(self, canonical: str, name: str | None) -> OpenTable:
        """Return a table that a client is creating at a location, to check what it has written there."""
        named = name or self.roots.called_by(canonical)
        record = TableRecord(table_id(canonical), named, canonical, datetime.now(UTC))
        roots = self.roots_of_files(canonical, self.roots_at(canonical, name))
        return OpenTable(record, roots, self._max_commit_bytes, self._observer)

    def opened(self, identifier: str) -> OpenTable | None:
        """Return the table of an id if :meth:`open` returned it in the last second, without I/O.

        An id is derived from the location, so the only change it can miss is that another replica unregistered the
        table, for up to a second. A name may be given to another table, so names are always looked up. Renaming keeps
        the roots: those that contain the location.
        """
        found = self._opened.get(identifier)
        return found[0] if found is not None and time.monotonic() - found[1] < _OPENED_SECONDS else None

    def at(self, location: str) -> TableRecord | None:
        """Return the table at a location, if it is registered.

        Raises:
            InvalidLocation: it is not a location.
            LocationNotAllowed: it is outside all roots of any owner.
        """
        return self._registry.at(self.roots.everywhere.canonical(location))

    def called_by(self, location: str) -> str:
        """Return the default name of a table at a location.

        Raises:
            InvalidLocation: it is not a location.
            LocationNotAllowed: it is outside all roots of any owner.
        """
        return self.roots.called_by(self.roots.everywhere.canonical(location))

    def within_roots(self, location: str, name: str | None) -> str:
        """Return the canonical location of an existing or new table; without a name, its default name there is used.

        Raises:
            InvalidLocation: it is not a location.
            LocationNotAllowed: it is outside the roots of the name.
        """
        if name is not None:
            return self.roots.of(name).canonical(location)
        canonical = self.roots.everywhere.canonical(location)
        self.roots_at(canonical, None).check(canonical)
        return canonical

    def roots_at(self, canonical: str, name: str | None) -> Roots:
        """Return the roots of a table at a canonical location with this name, or else with its default name."""
        if name is None and self.roots.namespaces:
            known = self._registry.at(canonical)
            name = self.roots.called_by(canonical) if known is None else known.name
        return self.roots.of(name or "")

    def roots_of_files(self, location: str, roots: Roots, sources: Sequence[str] = ()) -> Roots:
        """Return the roots of the files that the log of a table may name: those of the table's name.

        Without roots tables may be anywhere, but a log that names files anywhere could copy them into its table. So it may
        name those in the table's folder, in the tables of which Delvec made it a shallow clone, and in shared places. With
        roots it may name all in them but those of other tables, see :class:`NamedFiles`.

        Args:
            location: the table's canonical location.
            roots: the roots of the table's name.
            sources: more places that the caller names.
        """
        if roots:
            return self._named_files.roots(roots, location, sources)
        return Roots([location, *sources, *self._clones.above(location), *self._shared])

    def page(
        self, after: tuple[str, str], limit: int, namespace: str | None = None, *, directly: bool = False
    ) -> Sequence[TableRecord]:
        """Return tables ordered by name and id, starting after ``after``; those of other catalogs follow the others.

        The arguments are those of :meth:`Registry.page`.
        """
        if not self._catalogs:
            return self._registry.page(after, limit, namespace, directly=directly)
        own: list[TableRecord] = []
        last = after
        while self.catalog_of(after[0]) is None and len(own) < limit:
            page = self._registry.page(last, limit, namespace, directly=directly)
            own += [record for record in page if self.catalog_of(record.name) is None]
            if len(page) < limit:
                break
            last = (page[-1].name, page[-1].id)
        if len(own) >= limit:
            return own[:limit]
        listed = self._catalogs.records(namespace)
        if directly:
            listed = [record for record in listed if record.name.rpartition(".")[0] == (namespace or "")]
        if self.catalog_of(after[0]) is not None:
            listed = [record for record in listed if (record.name, record.id) > after]
        return [*own, *listed][:limit]

    def directly_in(
        self, namespace: str, default: str, after: tuple[str, str] = ("", "")
    ) -> Iterator[TableRecord]:
        """Yield the tables of a namespace, without those of namespaces below, page by page as they are asked for.

        Args:
            namespace: its name.
            default: what the namespace of tables in none is called; those that are really called so follow.
            after: name and id of the table to start after.
        """
        namespaces = [None, namespace] if namespace == default else [namespace]
        if after[0].startswith(f"{default}."):
            namespaces = [namespace]
        for each in namespaces:
            while page := self.page(after, _PAGE, each, directly=True):
                yield from page
                after = page[-1].name, page[-1].id
            after = ("", "")

    def namespaces(self, within: str | None = None) -> set[str]:
        """Return the namespaces of all tables; empty for that of tables in none; see :meth:`Registry.namespaces`."""
        own = {each for each in self._registry.namespaces(within) if self.catalog_of(f"{each}.t") is None}
        others = self._catalogs.records(within) if self._catalogs else ()
        return own | {record.name.rpartition(".")[0] for record in others}

    def rename(self, name_or_id: str, name: str) -> TableRecord:
        """Rename a table; its files, location and id stay the same.

        Raises:
            TableNotFound: no table has that name or id.
            AmbiguousTable: several tables match the name.
            TableAlreadyExists: the new name belongs to another table.
            LocationNotAllowed: the table is outside the roots of the new name.
        """
        found = self.find(name_or_id)
        self._check_own(found.name)
        self.roots.of(name).check(found.location)
        record = self._registry.rename(found, self._checked_name(name))
        self._opened.pop(record.id, None)
        return record

    def find(self, name_or_id: str, requester: Requester = UNRESTRICTED) -> TableRecord:
        """Return the table that a name or an id refers to: a registered one, or one in the warehouse.

        Of several tables, those that the requester does not see do not count; the caller has to check the table that is
        returned.

        Raises:
            TableNotFound: no table has that name or id.
            AmbiguousTable: several tables match the name.
        """
        if self.catalog_of(name_or_id) is not None:
            return self._in_catalog(name_or_id, requester)
        records = self._registry.called(name_or_id)
        if any(record.is_named or record.id == name_or_id for record in records):
            return records[0]
        place = self._place(name_or_id)
        if place is not None and all(record.location != place for record in records):
            # By the spelling of the name, not the folder's: file systems may treat different spellings as the same.
            records = [*records, self._registry.add(place, None, name_or_id)[0]]
        return self._registry.only(name_or_id, records, _seen_by(requester))

    def _in_catalog(self, name: str, requester: Requester) -> TableRecord:
        """Return the table that another catalog has under a name now.

        It is registered, so that its id is known as those of all others. A catalog cannot take over a table of the
        service, or of another catalog.

        Raises:
            TableNotFound: the catalog has none, or the requester may not see it.
            LocationNotAllowed: its place is another table's, or outside the roots of the name.
        """
        called = self._registry.called(name)
        if not requester.sees(called[0].id if called else "", name):
            raise not_found(name)
        location = self.roots.of(name).canonical(self._catalogs.load(name).location)
        record = self._registry.at(location)
        for other in called:
            if other.location != location:  # dropped since, or renamed
                self._registry.remove(other.id)
                self._opened.pop(other.id, None)
        if record is not None and record.name != name:
            if self.catalog_of(record.name) != self.catalog_of(name):
                raise LocationNotAllowed(
                    f"The catalog of table '{name}' says that it is at {location}, which is the place of another table. "
                    "Ask the catalog's operator.",
                    table=name,
                )
            return self._registry.rename(record, name)
        return record or self._added(location, name, UNRESTRICTED)[0]

    def _check_own(self, name: str) -> None:
        """Reject changes of names that another catalog gives.

        Raises:
            UnsupportedOperation: it gives this one.
        """
        catalog = self.catalog_of(name)
        if catalog is not None:
            raise UnsupportedOperation(
                f"Names that begin with '{catalog}.' are those of the catalog '{catalog}' (DELVEC_CATALOGS, or catalog= of "
                "connect()): create its tables there without a location of your own, rename them there, or choose another name.",
                table=name,
            )

    def _place(self, name: str) -> str | None:
        """Return the location of a named table in the warehouse; None if missing, or if it must not be used."""
        if not self._by_folder or self.roots.warehouse is None or not _NAME.fullmatch(name):
            return None
        try:
            roots = self.roots.of(name)
            place = roots.canonical(self.roots.folder(name))
            if not self._objects(place, roots).list_from("_delta_log"):
                return None
            if self._registry.at(place) is None:
                self.places.check(place, name)
        except DelvecError:
            return None
        return place

    def forget(self, name_or_id: str, *, purge: bool = False) -> TableRecord:
        """Unregister a table, delete its own policies, and return its record. Its files stay.

        A managed table can be brought back by name, with its policies and grants, until its files are deleted; so can any
        other whose files are to go (``purge``). One of another catalog is dropped there.

        Raises:
            TableNotFound: no table has that name or id.
            AmbiguousTable: several tables match the name.
            CommitOutcomeUnknown: the other catalog does not tell whether it has dropped it.
            UnsupportedOperation: another catalog decides on its files.
        """
        record = self.find(name_or_id) if self.catalog_of(name_or_id) else self._registry.get(name_or_id)
        if self.catalog_of(record.name) is not None:
            if purge:
                raise UnsupportedOperation(
                    f"The catalog of table '{record.name}' decides on its files: drop it without PURGE.",
                    table=record.name,
                )
            self._catalogs.drop(record.name)
            self._registry.remove(record.id)
        elif purge or self._is_managed(record):
            self.dropped.add(record)
        else:
            self._registry.remove(record.id)
        self._closed(record)
        return record

    def bring_back(self, record: TableRecord, name: str | None = None) -> TableRecord:
        """Register a dropped table again, as whatever it was called or under another name.

        Raises:
            NotADeltaTable: its folder is gone.
            TableAlreadyExists: the name belongs to another table.
            LocationNotAllowed: its files are being deleted, or it is outside the roots.
            DelvecError: its log cannot be read.
        """
        registered, is_new = self.register(record.location, name or record.name)
        if is_new:
            try:  # a deletion may have ended since its log was read
                LogReader(
                    self._objects(registered.location, self.roots.of(registered.name)), registered.name
                ).list_all()
            except NotADeltaTable:
                self.remove(registered)
                raise
        return registered

    def remove(self, record: TableRecord) -> None:
        """Forget a dropped table whose files are deleted, and whatever the database has of it."""
        self._registry.remove(record.id)
        self._closed(record)

    def _closed(self, record: TableRecord) -> None:
        self._opened.pop(record.id, None)
        self._loader.forget(record.location)

    def _is_managed(self, record: TableRecord) -> bool:
        """Whether a table is managed; one that cannot be read counts as not managed."""
        try:
            objects = self._objects(record.location, self.roots.of(record.name))
            return is_catalog_managed(self._loader.load(objects, record.name, checkpoints=False).protocol)
        except DelvecError:
            return False

    def register(
        self, location: str | None, name: str | None, requester: Requester = UNRESTRICTED
    ) -> tuple[TableRecord, bool]:
        """Register the Delta table at a location; return its record, and whether it is new.

        Raises:
            NotADeltaTable: there is no Delta log.
            UnsupportedReaderFeature: the table cannot be read.
            CorruptLog: its log or its schema cannot be read.
            TableAlreadyExists: the name belongs to another table.
            LocationNotAllowed: the location is outside the roots, or not the table's alone.
            PermissionDenied: it is not the requester's.
        """
        if location is None:
            raise BadRequest(f"To register '{name}' give its location; to create it give a schema.")
        name = self._checked_name(name)
        canonical = self.within_roots(location, name)
        default = self.roots.called_by(canonical)
        known = self._registry.at(canonical)
        is_new = known is None or not requester.sees(known.id, known.name)
        if is_new and requester.is_restricted:
            self.places.check(canonical, name or default, requester)  # first: the log may be somebody else's
        objects = self._objects(canonical, self.roots_at(canonical, name))
        # Both raise an error if it is not a table that can be read.
        snapshot = self._loader.load(objects, name or default)
        _ = snapshot.schema
        self._named_files.record_sources(objects, name or default, snapshot.version, requester)
        if is_new and not requester.is_restricted:
            self.places.check(
                canonical, name or default, requester
            )  # then: "not a table" says more than "above one"
        record, is_added = self._added(canonical, name, requester)
        self._opened.pop(record.id, None)  # its log may name the files of more tables now
        return record, is_added

    def _added(self, canonical: str, name: str | None, requester: Requester) -> tuple[TableRecord, bool]:
        """Add a table to the registry, unless another one took the name or the place meanwhile."""
        record, is_added = self._registry.add(
            canonical,
            name,
            self.roots.called_by(canonical),
            visible=_seen_by(requester),
            may_name=lambda known: requester.maintains(known.id, known.name),
        )
        if is_added:
            try:
                self.places.check_registered(canonical, requester, record)
            except DelvecError:
                self._registry.remove(record.id)
                raise
        return record, is_added

    def create(
        self, location: str | None, name: str | None, new: NewTable, requester: Requester = UNRESTRICTED
    ) -> tuple[TableRecord, int]:
        """Create a table, register it, and return its record and version.

        Raises:
            TableAlreadyExists: a Delta log already exists, or the name belongs to another table.
            InvalidSchema: the schema is not valid for a table.
            BadRequest: a property is unknown, or a table without a location has no warehouse.
            LocationNotAllowed: the location is outside the roots, or not the table's alone.
            PermissionDenied: it is not the requester's.
        """
        if name is not None and location is None and self.catalog_of(name) is not None:
            return self._create_in_catalog(name, new, requester)
        canonical, actions = self.planned(location, name, new, requester)
        return self.begin(canonical, name, new.transaction_id, actions, requester)

    def planned(
        self, location: str | None, name: str | None, new: NewTable, requester: Requester = UNRESTRICTED
    ) -> tuple[str, list[Action]]:
        """Return where a new table will be, and the actions of its version 0; changes nothing.

        Raises:
            UnsupportedOperation: another catalog decides where it will be.
            DelvecError: as for :meth:`create`.
        """
        if name is not None and location is None and self.catalog_of(name) is not None:
            raise UnsupportedOperation(
                f"The catalog of table '{name}' says where it is only once it is created: create it, then append its rows.",
                table=name,
            )
        properties = dict(new.properties)
        if new.is_managed:
            properties = {f"delta.feature.{MANAGED}": "supported", **properties}
        if new.is_managed and location is None:
            canonical = self.managed_place(str(name), new.transaction_id)
        else:
            canonical = self.place(location, name, new.transaction_id, requester)
        actions = new.first_version(properties, table_id(canonical))
        return canonical, actions

    def check_free(self, canonical: str, name: str | None) -> None:
        """Check that no other table has the name of a new one.

        Raises:
            TableAlreadyExists: one has.
        """
        if name is not None and self._registry.at(canonical) is None:
            self._registry.check_free(name, canonical)

    def _create_in_catalog(self, name: str, new: NewTable, requester: Requester) -> tuple[TableRecord, int]:
        """Create a managed table in another catalog: there it has no name before version 0 is written.

        Raises:
            TableAlreadyExists: another table has the name.
            InvalidTableChange: the table would not be what the catalog requires.
            LocationNotAllowed: the catalog's place is another table's, or outside the roots.
            CommitOutcomeUnknown: the catalog does not tell whether it was created.
            DelvecError: the catalog refused, or does not answer.
        """
        try:
            staged = self._catalogs.stage(name)
        except TableAlreadyExists:
            record = self._in_catalog(name, requester)
            if self._made_by(self.opening(record).objects, new.transaction_id):
                return record, 0  # the same request was sent before
            raise
        roots = self.roots.of(name)
        location = roots.canonical(staged.location)
        actions = new.first_version(staged.properties(new.properties), staged.table_id)
        data = serialize_commit(actions)
        self._check_size(location, len(data))
        try:
            if self._check_credentials(staged, name, roots):
                self.places.check(location, name)
            else:  # the catalog's credentials do not reach above the place
                check_reserved(location)
                self.places.check_registered(location, UNRESTRICTED, None)
            if not self._objects(location, roots).put_if_absent(commit_path(0), data):
                raise CatalogUnavailable(
                    f"The catalog of table '{name}' says that it is to be at {location}, where a table is already. Ask the "
                    "catalog's operator.",
                    table=name,
                )
            staged.create(actions)
        finally:
            staged.close()
        return self._in_catalog(name, requester), 0

    def place(
        self, location: str | None, name: str | None, transaction_id: str, requester: Requester = UNRESTRICTED
    ) -> str:
        """Return the canonical location for a new table, after checking that it may be there.

        Args:
            location: a path or URL; None to derive it from the name.
            name: the name of the new table.
            transaction_id: the transaction id of its version 0, which may already exist.
            requester: who asks.

        Raises:
            BadRequest: a table without a location has no warehouse, or the name is an id.
            LocationNotAllowed: the location is outside the roots, or not the table's alone.
            PermissionDenied: it is not the requester's.
        """
        name = self._checked_name(name)
        canonical = self.within_roots(location or self._place_of(name, transaction_id), name)
        known = self._registry.at(canonical)
        if known is not None and not requester.sees(known.id, known.name):
            known = None
        self.places.check(canonical, name or self.roots.called_by(canonical), requester, table=known)
        return canonical

    def managed_place(self, name: str, key: str) -> str:
        """Return a place that a managed table of that name shares with no earlier one: whoever may use the name may use it.

        Args:
            name: the name of the new table.
            key: identifies its creation: the same key has the same place.

        Raises:
            BadRequest: there is no warehouse.
            LocationNotAllowed: the place is inside another table.
        """
        return self.place(f"{self.roots.folder(name)}-{uuid.uuid5(_CREATIONS, key).hex}", name, key)

    def begin(
        self,
        canonical: str,
        name: str | None,
        transaction_id: str,
        actions: Sequence[Action],
        requester: Requester = UNRESTRICTED,
    ) -> tuple[TableRecord, int]:
        """Write version 0 of a table, register it, and return its record and version.

        Args:
            canonical: the location that :meth:`place` returned.
            name: the name of the new table.
            transaction_id: the transaction id of the version; if that already exists, it is returned.
            actions: the actions of the version.
            requester: who asks.

        Raises:
            TableAlreadyExists: a Delta log already exists, or the name belongs to another table.
            LocationNotAllowed: another table took the place meanwhile.
            RequestTooLarge: readers reject a log entry that large.
        """
        name = self._checked_name(name)
        objects = self._objects(canonical, self.roots_at(canonical, name))
        exists = already_exists(canonical)
        made = self._was_begun(objects, transaction_id)
        if made:
            return self._added(canonical, name, requester)[0], 0
        if made is False:
            raise exists
        known = self._registry.at(canonical)
        may_name = known is not None and requester.maintains(known.id, known.name)
        if known is not None and may_name and known.is_named and name not in (None, known.name):
            # The record of a table that is gone, as there is no log. The creator decides the name of the new one.
            self._registry.remove(known.id)
            self._opened.pop(known.id, None)
        # The name first: it can be released again, a created table cannot be undone.
        record, added = self._added(canonical, name, requester)
        try:
            data = serialize_commit(actions)
            self._check_size(canonical, len(data))
            created = objects.put_if_absent(commit_path(0), data)
        except DelvecError:
            if added:
                self._registry.remove(record.id)
            raise
        if not created and not self._made_by(objects, transaction_id):
            if added and not self._is_by_delvec(objects):
                # Another request of Delvec would have found this record, and relied on it; others know none.
                self._registry.remove(record.id)
            raise exists
        self._loader.created(canonical, 0, len(data))
        return record, 0

    def was_begun(self, canonical: str, name: str | None, transaction_id: str) -> bool | None:
        """Whether a transaction created the table at a location; None if no table exists.

        Args:
            canonical: the location that :meth:`place` returned.
            name: the name of the table.
            transaction_id: the transaction id of version 0.

        Raises:
            StorageError: storage did not answer.
        """
        return self._was_begun(self._objects(canonical, self.roots_at(canonical, name)), transaction_id)

    def _was_begun(self, objects: ObjectStore, transaction_id: str) -> bool | None:
        return self._made_by(objects, transaction_id) if objects.list_from("_delta_log") else None

    def _check_size(self, location: str, size: int) -> None:
        if size > self._max_commit_bytes:
            raise RequestTooLarge(
                f"Version 0 of the table at {location} has {size} bytes as JSON, and the limit is "
                f"{self._max_commit_bytes}; raise DELVEC_MAX_COMMIT_BYTES.",
                location=location,
            )

    @overload
    def _checked_name(self, name: str) -> str: ...

    @overload
    def _checked_name(self, name: None) -> None: ...

    def _checked_name(self, name: str | None) -> str | None:
        """Reject names that look like ids, since URLs accept both, and those of other catalogs."""
        if name is not None:
            self._check_own(name)
            try:
                uuid.UUID(name)
            except ValueError:
                return name
            raise BadRequest(f"'{name}' looks like a table's id; choose another name.")
        return None

    def _objects(self, location: str, roots: Roots) -> ObjectStore:
        return ObjectStore(
            location,
            is_allowed=self.roots_of_files(location, roots).allows,
            max_commit_bytes=self._max_commit_bytes,
            observer=self._observer,
        )

    def _made_by(self, objects: ObjectStore, transaction_id: str) -> bool:
        """Whether the transaction created the table: the request was sent before, and its answer was lost."""
        try:
            info = self._first_info(objects)
        except (CorruptTable, StorageError):
            return False
        return info is not None and info.txn_id == transaction_id

    def _is_by_delvec(self, objects: ObjectStore) -> bool:
        """Whether Delvec created the table; also if that is unknown."""
        try:
            info = self._first_info(objects)
        except (CorruptTable, StorageError) as error:
            return isinstance(error, StorageError)
        return info is not None and "Delvec/" in (info.engine_info or "")

    def _first_info(self, objects: ObjectStore) -> CommitInfo | None:
        first = LogReader(objects, objects.location).commit(0).actions
        return first_of(CommitInfo, first)

    def _place_of(self, name: str | None, transaction_id: str) -> str:
        """Return the location for a table created by name only: a former table's of that name, or the warehouse."""
        for known in () if name is None else self._registry.called(name):
            roots = self.roots.of(known.name)
            if known.is_named and roots.allows(known.location):
                objects = self._objects(known.location, roots)
                if not objects.list_from("_delta_log") or self._made_by(objects, transaction_id):
                    return known.location
        return self.roots.folder(name)


def _seen_by(requester: Requester) -> Callable[[TableRecord], bool]:
    return lambda record: requester.sees(record.id, record.name)


def already_exists(canonical: str) -> TableAlreadyExists:
    """Return the error for a new table at a location that has one."""
    return TableAlreadyExists(
        f"A Delta table already exists at {canonical} (DROP leaves files where they are). Open it by its location, "
        "replace it (CREATE OR REPLACE TABLE, replace=True, --replace), drop it with its files (DROP TABLE … PURGE, "
        "drop(…, purge=True), --purge), or create the new one elsewhere.",
        location=canonical,
    )
