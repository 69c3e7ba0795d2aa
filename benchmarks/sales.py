"""A fact table like TPC-DS's store_sales, its dimension, and the refreshes of its rounds; reproducible.

Every value is a hash of a ticket's number and a line's, so that the rows of any ticket can be made again.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.contenders import CODEC
from benchmarks.dml_contenders import Merge
from benchmarks.dml_tables import variant
from benchmarks.tables import made_once

__all__ = [
    "ITEMS",
    "QUERIES",
    "SALES",
    "TICKETS",
    "Refresh",
    "make_tables",
    "refreshes",
    "rows_of",
    "staying_ticket",
]

_ON = "t.ss_ticket_number = s.ss_ticket_number AND t.ss_item_sk = s.ss_item_sk"
"""The primary key."""
TICKETS = 240_000
"""Tickets at scale 1, of 12 lines on average."""
ITEMS = 18_000
_FIRST_DAY, _DAYS = 2_450_816, 1_823
_CUSTOMERS, _STORES, _PROMOTIONS = 100_000, 12, 300
_MAX_LINES, _LINES_APART = 16, 32
_NULLS = 0.045
_INSERTED, _LATE, _DELETED, _RETURNED, _CORRECTED = 0.0075, 0.0025, 0.0075, 0.0025, 0.005
_PRICE = pa.decimal128(7, 2)
_CATEGORIES = (
    "Books Children Electronics Home Jewelry Men Music Shoes Sports Women".split()  # noqa: SIM905 - ten words
)
SALES = pa.schema(
    [
        ("ss_sold_date_sk", pa.int32()),
        ("ss_sold_time_sk", pa.int32()),
        ("ss_item_sk", pa.int32()),
        ("ss_customer_sk", pa.int32()),
        ("ss_store_sk", pa.int32()),
        ("ss_promo_sk", pa.int32()),
        ("ss_ticket_number", pa.int64()),
        ("ss_quantity", pa.int32()),
        ("ss_wholesale_cost", _PRICE),
        ("ss_list_price", _PRICE),
        ("ss_sales_price", _PRICE),
        ("ss_ext_sales_price", _PRICE),
        ("ss_ext_wholesale_cost", _PRICE),
        ("ss_net_profit", _PRICE),
    ]
)
QUERIES = {
    "days of a quarter": "SELECT ss_sold_date_sk, count(*) AS lines, sum(ss_ext_sales_price) AS sales FROM {sales} "
    f"WHERE ss_sold_date_sk BETWEEN {_FIRST_DAY + 900} AND {_FIRST_DAY + 989} GROUP BY ss_sold_date_sk ORDER BY ss_sold_date_sk",
    "best items": "SELECT ss_item_sk, sum(ss_quantity) AS pieces, avg(ss_sales_price) AS price FROM {sales} "
    "GROUP BY ss_item_sk ORDER BY pieces DESC, ss_item_sk LIMIT 100",
    "best customers": "SELECT ss_customer_sk, count(DISTINCT ss_ticket_number) AS tickets, sum(ss_net_profit) AS profit "
    "FROM {sales} WHERE ss_customer_sk IS NOT NULL GROUP BY ss_customer_sk ORDER BY profit DESC, ss_customer_sk LIMIT 100",
    "stores by price": "SELECT ss_store_sk, count(*) AS lines, avg(ss_list_price) AS price FROM {sales} "
    "WHERE ss_quantity BETWEEN 11 AND 15 AND ss_list_price > 50 GROUP BY ss_store_sk ORDER BY ss_store_sk",
    "one ticket": "SELECT * FROM {sales} WHERE ss_ticket_number = {ticket}",
    "all sales by category": "SELECT i_category, sum(ss_ext_sales_price) AS sales, sum(ss_net_profit) AS profit, "
    "sum(ss_ext_wholesale_cost) AS cost FROM {sales} JOIN {item} ON ss_item_sk = i_item_sk GROUP BY i_category ORDER BY i_category",
}
"""The queries of each round by name, with the names of the tables and a ticket that stays to fill in."""


@dataclass(frozen=True)
class Refresh:
    """What one round does to the table, in this order.

    Attributes:
        inserted: new sales, as a Parquet file.
        days: the first and the last day whose sales are deleted.
        returned: the tickets whose sales are deleted.
        corrections: other quantities and prices of existing tickets, and late tickets.
    """

    inserted: Path
    days: tuple[int, int]
    returned: Sequence[int]
    corrections: Merge

    @property
    def conditions(self) -> tuple[str, str]:
        """The conditions of the two DELETEs."""
        tickets = ", ".join(map(str, self.returned))
        between = f"ss_sold_date_sk BETWEEN {self.days[0]} AND {self.days[1]}"
        return between, f"ss_ticket_number IN ({tickets})"


def rows_of(tickets: np.ndarray, days: np.ndarray, *, corrected: bool = False) -> pa.Table:
    """Return the lines of the tickets, sold on these days; corrected ones have other quantities and prices."""
    lines = 8 + (_mixed(tickets, 1) % 9).astype(np.int64)
    ticket, day = np.repeat(tickets, lines), np.repeat(days, lines)
    line = np.arange(len(ticket)) - np.repeat(np.cumsum(lines) - lines, lines)
    single = ticket * _LINES_APART + line
    amounts = 20 if corrected else 10
    quantity = 1 + _below(single, amounts, 100)
    cost = 100 + _below(single, amounts + 1, 9_901)
    listed = cost * (100 + _below(single, amounts + 2, 101)) // 100
    price = listed * _below(single, amounts + 3, 101) // 100
    return pa.table(
        [
            day,
            28_800 + _below(ticket, 2, 50_000),
            # A step that shares no factor with the number of items: no ticket has an item twice.
            1 + (_below(ticket, 3, ITEMS) + line * 1_013) % ITEMS,
            pa.array(1 + _below(ticket, 4, _CUSTOMERS), mask=_chosen(ticket, 5, _NULLS)),
            1 + _below(ticket, 6, _STORES),
            pa.array(1 + _below(single, 7, _PROMOTIONS), mask=_chosen(single, 8, _NULLS)),
            ticket,
            quantity,
            *map(
                _prices, (cost, listed, price, quantity * price, quantity * cost, quantity * (price - cost))
            ),
        ],
        names=SALES.names,
    ).cast(SALES)


def refreshes(folder: Path, scale: float, rounds: int) -> Iterator[Refresh]:
    """Write the rows of ``rounds`` refreshes of the table of this scale into a new folder; yield the refreshes."""
    folder.mkdir(parents=True)
    draw = np.random.default_rng(11)
    many = _tickets(scale)
    days, live = _sold(many), np.ones(many, bool)
    stays = staying_ticket(scale)
    apart = max(1, round(_DAYS * _DELETED))
    spans = _FIRST_DAY + apart * draw.permutation(_DAYS // apart)
    spans = spans[(spans > days[stays]) | (spans + apart <= days[stays])]
    last_day, last_ticket = _FIRST_DAY + _DAYS, many
    for number in range(rounds):
        span = int(spans[number])
        live &= (days < span) | (days >= span + apart)
        live[stays] = False
        chosen = draw.choice(np.flatnonzero(live), _part(many, _RETURNED + _CORRECTED), replace=False)
        returned, corrected = np.split(chosen, [_part(many, _RETURNED)])
        live[returned] = False
        fresh = last_ticket + np.arange(_part(many, _INSERTED + _LATE))
        sold = last_day + np.arange(len(fresh)) * apart // len(fresh)
        late = np.arange(len(fresh)) % round((_INSERTED + _LATE) / _LATE) == 0
        last_day, last_ticket = last_day + apart, last_ticket + len(fresh)
        inserted, merged = folder / f"inserted-{number + 1}.parquet", folder / f"merged-{number + 1}.parquet"
        pq.write_table(rows_of(fresh[~late], sold[~late]), inserted)
        corrections = rows_of(corrected, days[corrected], corrected=True)
        pq.write_table(pa.concat_tables([corrections, rows_of(fresh[late], sold[late])]), merged)
        yield Refresh(inserted, (span, span + apart - 1), sorted(returned.tolist()), Merge(merged, _ON))


def staying_ticket(scale: float) -> int:
    """Return the ticket that no refresh changes, to look up."""
    return _tickets(scale) * 2 // 3


def make_tables(kept: Path, scratch: Path, scale: float, files: int) -> dict[str, Path]:
    """Return the tables of sales by kind of :data:`~benchmarks.dml_tables.FEATURES`, and ``item``; deltalake writes their files."""

    def make(folder: Path) -> None:
        many = _tickets(scale)
        numbers, days = np.arange(many), _sold(many)
        for part in np.array_split(numbers, files):
            _append(folder / "sales", rows_of(part, days[part]))
        _append(folder / "item", _items())

    made = made_once(kept / f"sales-{scale:g}-{files}-{CODEC}", make)
    tables = {kind: variant(made / "sales", scratch / f"sales-{kind}", kind) for kind in ("dv", "plain")}
    return tables | {"item": variant(made / "item", scratch / "item", "plain")}


def _append(table: Path, rows: pa.Table) -> None:
    import deltalake

    writing = deltalake.WriterProperties(compression=CODEC.upper())
    deltalake.write_deltalake(str(table), rows, mode="append", writer_properties=writing)


def _items() -> pa.Table:
    numbers = np.arange(1, ITEMS + 1)
    category = pa.array(_CATEGORIES).take(pa.array(_below(numbers, 30, len(_CATEGORIES))))
    columns = {"i_item_sk": pa.array(numbers, pa.int32()), "i_category": category}
    return pa.table(columns | {"i_current_price": _prices(9 + _below(numbers, 31, 9_991))})


def _tickets(scale: float) -> int:
    return max(1_000, round(TICKETS * scale))


def _part(many: int, share: float) -> int:
    return max(4, round(many * share))


def _sold(many: int) -> np.ndarray:
    """Return the days on which tickets were sold: their numbers are in the order of time, as in TPC-DS."""
    return _FIRST_DAY + np.arange(many) * _DAYS // many


def _mixed(values: np.ndarray, salt: int) -> np.ndarray:
    """Return the values hashed (SplitMix64)."""
    mixed = values.astype(np.uint64) * np.uint64(64) + np.uint64(salt)
    mixed = mixed * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def _below(values: np.ndarray, salt: int, limit: int) -> np.ndarray:
    return (_mixed(values, salt) % np.uint64(limit)).astype(np.int64)


def _chosen(values: np.ndarray, salt: int, share: float) -> np.ndarray:
    return _mixed(values, salt) % np.uint64(1_000) < np.uint64(round(1_000 * share))


def _prices(cents: np.ndarray) -> pa.Array:
    """Return cents as decimals, whose bytes are 128-bit integers."""
    words = np.stack([cents, cents >> 63], axis=1).astype("<i8")
    return pa.Array.from_buffers(_PRICE, len(cents), [None, pa.py_buffer(words.tobytes())])
