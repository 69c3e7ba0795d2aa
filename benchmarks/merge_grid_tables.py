"""The table and the sources of Delta's MERGE benchmark: ``web_returns`` of TPC-DS, and samples of it."""

import json
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

__all__ = ["Share", "write_source", "write_web_returns"]

_INTEGERS = {
    "wr_returned_date_sk": (2_450_820, 2_453_010),
    "wr_returned_time_sk": (0, 86_400),
    "wr_item_sk": (1, 18_001),
    "wr_refunded_customer_sk": (1, 100_001),
    "wr_refunded_cdemo_sk": (1, 1_920_801),
    "wr_refunded_hdemo_sk": (1, 7_201),
    "wr_refunded_addr_sk": (1, 50_001),
    "wr_returning_customer_sk": (1, 100_001),
    "wr_returning_cdemo_sk": (1, 1_920_801),
    "wr_returning_hdemo_sk": (1, 7_201),
    "wr_returning_addr_sk": (1, 50_001),
    "wr_web_page_sk": (1, 61),
    "wr_reason_sk": (1, 36),
    "wr_order_number": (0, 0),
    "wr_return_quantity": (1, 101),
}
_MONEY = (
    "wr_return_amt",
    "wr_return_tax",
    "wr_return_amt_inc_tax",
    "wr_fee",
    "wr_return_ship_cost",
    "wr_refunded_cash",
    "wr_reversed_charge",
    "wr_account_credit",
    "wr_net_loss",
)
_KEYS = ("wr_item_sk", "wr_order_number")
_NULLS = 0.045
"""Share of NULLs in the columns that are not keys, as in TPC-DS."""
_MAX_ITEMS = 1 << 20
"""Above every item."""


@dataclass(frozen=True)
class Share:
    """What a source samples: shares of the table's files, and of their rows.

    Attributes:
        files: share of the files.
        matched: share of their rows whose keys the source has.
        new: share of their rows that the source has under keys of its own.
    """

    files: float
    matched: float
    new: float


def write_web_returns(path: Path, rows: int) -> None:
    """Write ``rows`` rows of ``web_returns`` in the order of their order numbers, as dsdgen does; reproducible.

    About two thirds of the orders have returns of one item, the others of up to three.
    """
    random = np.random.default_rng(20)
    columns = {}
    for name, (least, end) in _INTEGERS.items():
        if name == "wr_order_number":
            columns[name] = pa.array(np.sort(random.integers(1, rows, rows)))
            continue
        values = random.integers(least, end, rows)
        mask = None if name in _KEYS else random.random(rows) < _NULLS
        columns[name] = pa.array(values, pa.int64() if name == "wr_item_sk" else pa.int32(), mask=mask)
    cent = pa.scalar(Decimal("0.01"), pa.decimal128(3, 2))
    for name in _MONEY:
        cents = pa.array(random.integers(0, 1_000_000, rows), mask=random.random(rows) < _NULLS)
        amounts = pc.multiply(cents.cast(pa.decimal128(19, 0)), cent)
        columns[name] = amounts.cast(pa.decimal128(7, 2))
    table = pa.table(columns)
    # Orders do not have an item twice: the keys of the table are unique, as those of TPC-DS.
    unique = np.unique(np.stack([table[name].to_numpy() for name in _KEYS]), axis=1, return_index=True)[1]
    pq.write_table(table.take(pa.array(np.sort(unique))), path, compression="zstd")


def write_source(table: Path, share: Share, path: Path) -> None:
    """Write the source of a case: a sample of some of the table's files, evenly spread; reproducible."""
    random = np.random.default_rng(35)
    files = _files(table)
    count = max(1, round(share.files * len(files)))
    chosen = [files[number * len(files) // count] for number in range(count)]
    rows = pa.concat_tables([pq.read_table(file) for file in chosen])
    parts = []
    for part, fraction in (("matched", share.matched), ("new", share.new)):
        sample = rows.filter(pa.array(random.random(rows.num_rows) < fraction))
        amount = sample.column_names.index("wr_return_quantity")
        sample = sample.set_column(
            amount, sample.field(amount), pa.array(random.integers(1, 101, sample.num_rows), pa.int32())
        )
        if part == "new":
            sample = _with_other_items(sample, rows, random)
        parts.append(sample)
    source = pa.concat_tables(parts)
    order = pa.array(random.permutation(source.num_rows))
    pq.write_table(source.take(order), path, compression="zstd")


def _with_other_items(sample: pa.Table, rows: pa.Table, random: np.random.Generator) -> pa.Table:
    """Return the sample with items that its orders do not have, so that files cannot be skipped by the range of any key."""
    least, end = _INTEGERS["wr_item_sk"]
    items = random.integers(least, end, sample.num_rows)
    is_new = ~np.isin(_keys(sample["wr_order_number"].to_numpy(), items), _keys(*_key_columns(rows)))
    column = sample.column_names.index("wr_item_sk")
    sample = sample.set_column(column, sample.field(column), pa.array(items))
    _, first = np.unique(_keys(*_key_columns(sample)), return_index=True)
    return sample.take(pa.array(first[is_new[first]]))


def _key_columns(rows: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    return rows["wr_order_number"].to_numpy(), rows["wr_item_sk"].to_numpy()


def _keys(orders: np.ndarray, items: np.ndarray) -> np.ndarray:
    return orders.astype(np.int64) * _MAX_ITEMS + items


def _files(table: Path) -> list[Path]:
    log = sorted((table / "_delta_log").glob("*.json"))
    actions = [json.loads(line) for file in log for line in file.read_text().splitlines()]
    return sorted(table / unquote(action["add"]["path"]) for action in actions if "add" in action)
