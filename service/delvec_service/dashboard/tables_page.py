"""The list of tables.

Tested in `tests/integration/service/dashboard/test_tables.py`.
"""

from typing import Final, get_args
from urllib.parse import urlencode

from starlette.responses import Response

from delvec_contract.health import HealthSample
from delvec_contract.health_metrics import HealthOrder, metrics_of
from delvec_service.dashboard.paging import Pages
from delvec_service.dashboard.visit import Visit

__all__ = ["show"]

_PAGE_SIZE: Final = 50
_LABELS: Final = {field.replace("_", "-"): each.label for field, each in metrics_of(HealthSample).items()}
_ORDERS: Final = {order: _LABELS[order] for order in get_args(HealthOrder)}
"""Sort orders of the list, with their labels; tables that need most maintenance come first."""
_COLUMNS: Final = (
    ("Health", "score"),
    ("Scan debt", "scan-debt-seconds"),
    ("Deleted", "deleted-ratio"),
    ("In vain", "deleted-bytes"),
    ("Files", "num-files"),
    ("Small", "small-files"),
    ("Size", "size-in-bytes"),
)


async def show(visit: Visit) -> Response:
    """Show a page of the list."""
    order, search = visit.query.get("order-by", "score"), visit.query.get("search", "")[:128]
    filters = {"order-by": order if order in _ORDERS else "score"}
    filters |= {"search": search} if search else {}
    namespace = visit.query.get("namespace")
    filters |= {} if namespace is None else {"namespace": namespace[:128]}
    pages = Pages(visit, "/dashboard/tables", filters)
    listing = await visit.get("/v1/health", **filters, **pages.place, **{"page-size": str(_PAGE_SIZE)})
    return visit.page(
        "tables.html",
        tables=listing["tables"],
        first=listing["num-before"] + 1,
        last=listing["num-before"] + len(listing["tables"]),
        total=listing["num-tables"],
        orders=_ORDERS,
        columns=[
            (label, key, f"/dashboard/tables?{urlencode(filters | {'order-by': key})}")
            for label, key in _COLUMNS
        ],
        order=filters["order-by"],
        search=search,
        namespace=namespace,
        pages=pages.followed_by(listing["next-page-token"]),
    )
