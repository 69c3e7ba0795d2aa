"""The relational tables: names, and a ledger of what was begun.

None of it is the truth about a table of data: that is the Delta log. No row refers to another by foreign key,
because the ledger is to outlive a registration that is dropped and made again.
"""

from datetime import UTC, datetime
from typing import Final

from sqlalchemy import BigInteger, DateTime, Dialect, Index, String, Text, TypeDecorator
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

__all__ = ["REVISION", "Base", "LedgerFileRow", "TableRow", "TransactionRow"]

REVISION: Final = "0001"
"""The newest migration; the database is migrated only where it is behind this."""


class _Moment(TypeDecorator[datetime]):
    """A moment in UTC; SQLite forgets the zone."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        del dialect
        return value.replace(tzinfo=UTC) if value is not None and value.tzinfo is None else value


class Base(DeclarativeBase):
    """The metadata that migrations are compared with."""

    type_annotation_map = {datetime: _Moment()}  # noqa: RUF012 - SQLAlchemy's own name for it


class TableRow(Base):
    """A registered table."""

    __tablename__ = "tables"

    id: Mapped[str] = mapped_column(String(36), primary_key=True)
    name: Mapped[str] = mapped_column(String(128), unique=True)
    location: Mapped[str] = mapped_column(String(2000), unique=True)
    created_at: Mapped[datetime]


class TransactionRow(Base):
    """A transaction that was begun, and what is known of its end."""

    __tablename__ = "transactions"

    table_id: Mapped[str] = mapped_column(String(36), primary_key=True)
    id: Mapped[str] = mapped_column(String(128), primary_key=True)
    operation: Mapped[str] = mapped_column(String(64))
    state: Mapped[str] = mapped_column(String(16))
    version: Mapped[int | None] = mapped_column(BigInteger)
    created_at: Mapped[datetime]


class LedgerFileRow(Base):
    """A file that Delvec was about to write; recorded before its first byte."""

    __tablename__ = "ledger_files"
    __table_args__ = (Index("ledger_files_by_transaction", "table_id", "transaction_id"),)

    table_id: Mapped[str] = mapped_column(String(36), primary_key=True)
    path: Mapped[str] = mapped_column(Text, primary_key=True)
    transaction_id: Mapped[str] = mapped_column(String(128))
    kind: Mapped[str] = mapped_column(String(32))
    state: Mapped[str] = mapped_column(String(16))
    created_at: Mapped[datetime]
