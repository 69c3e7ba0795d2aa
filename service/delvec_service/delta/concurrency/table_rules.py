"""What is not about rows: protocol, metadata, domain metadata and application transactions, as delta-spark has it."""

from delvec.protocol.errors import (
    ConcurrentModification,
    ConcurrentTransaction,
    MetadataChanged,
    ProtocolChanged,
)
from delvec_service.delta.concurrency import metadata_changes
from delvec_service.delta.concurrency.ours import ROW_TRACKING, Ours
from delvec_service.delta.concurrency.verdict import Conflict
from delvec_service.delta.concurrency.winner import Winner
from delvec_service.delta.features import reader_features, writer_features
from delvec_service.delta.table_changes.clustering import CLUSTERING_DOMAIN

__all__ = ["TableRules"]


class TableRules:
    """Follows what the winners make of the table itself."""

    def __init__(self, ours: Ours) -> None:
        self._ours = ours
        self._before = ours.before

    def conflict(self, winner: Winner) -> Conflict | None:
        """Return what of ``winner`` is in our way, and take note of the rest."""
        if not (winner.protocol or winner.metadata or winner.domains or winner.txns):
            return None
        return self._protocol(winner) or self._metadata(winner) or self._domains(winner) or self._txns(winner)

    def _protocol(self, winner: Winner) -> Conflict | None:
        new = winner.protocol
        if new is None:
            return None
        if self._ours.changes.protocol is not None:
            return self._conflict(
                ProtocolChanged, winner, "changed the table's protocol, as this commit does,"
            )
        if self._before is None:
            return self._conflict(ProtocolChanged, winner, "changed the table's protocol")
        metadata, old = self._before
        dropped = (reader_features(old) - reader_features(new)) | (
            writer_features(old) - writer_features(new)
        )
        if dropped:
            named = ", ".join(sorted(dropped))
            return self._conflict(ProtocolChanged, winner, f"dropped the table feature {named}")
        self._before = metadata, new
        return None

    def _metadata(self, winner: Winner) -> Conflict | None:
        new = winner.metadata
        if new is None:
            return None
        if self._ours.changes.metadata is not None:
            return self._conflict(
                MetadataChanged, winner, "changed the table's metadata, as this commit does,"
            )
        if self._before is None:
            return self._conflict(MetadataChanged, winner, "changed the table's metadata")
        old, protocol = self._before
        matters = metadata_changes.that_matter(old, new, protocol)
        if metadata_changes.turns_row_tracking_on(old, new) and self._ours.changes.copies_rows:
            # Written before rows had ids to bring along; what is read again has them.
            matters = [*matters, "delta.enableRowTracking"]
        if matters:
            named = ", ".join(matters[:5])
            return self._conflict(MetadataChanged, winner, f"changed the table's metadata ({named})")
        self._before = new, protocol
        return None

    def _domains(self, winner: Winner) -> Conflict | None:
        for each in self._ours.changes.domains:
            # Row ids are given anew at each attempt.
            if each.domain in winner.domains and each.domain != ROW_TRACKING:
                what = f"changed the domain metadata '{each.domain}', as this commit does,"
                return self._conflict(ConcurrentTransaction, winner, what)
        for name, domain in winner.domains.items():
            feature = self._gone_with(name)
            if feature is not None and not domain.removed:
                what = f"set the domain metadata '{name}', which needs the table feature {feature} that this commit drops,"
                return self._conflict(ConcurrentTransaction, winner, what)
        return None

    def _gone_with(self, domain: str) -> str | None:
        """Return the feature without which the table, as we leave it, has no such domain metadata."""
        protocol = self._ours.changes.protocol
        if protocol is None:
            return None
        needed = ("domainMetadata", *(["clustering"] if domain == CLUSTERING_DOMAIN else []))
        return next((feature for feature in needed if feature not in writer_features(protocol)), None)

    def _txns(self, winner: Winner) -> Conflict | None:
        application = self._ours.changes.app_transaction
        if application is None or application.app_id not in winner.txns:
            return None
        reached = winner.txns[application.app_id].version
        what = f"brought application '{application.app_id}' to its transaction {reached}"
        return self._conflict(ConcurrentTransaction, winner, what)

    def _conflict(self, kind: type[ConcurrentModification], winner: Winner, what: str) -> Conflict:
        return Conflict(kind, self._ours.changes, winner, (), what, is_of_the_table=True)
