"""The role that each request needs: the only table of access rules.

Where tokens are required, a request without a rule is denied, so new endpoints are closed until they are listed here.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from delvec_contract.access import Role

__all__ = ["RULES", "Rule", "only_reads", "rule_of"]


@dataclass(frozen=True, slots=True)
class Rule:
    """What a request needs.

    Attributes:
        on: ``nothing``: not even a token. ``token``: any principal. ``table``: ``role`` on the table that the path
            names. ``answer``: any principal; the answer only contains what it may see. ``body``: ``role`` on what the
            body or the query names. ``service``: ``role`` on everything. For ``answer`` and ``body`` the handler
            checks :class:`~delvec_service.auth.request_access.Access`, and an answer without a check is not sent.
        role: the lowest sufficient role.
        names_another: whether the body names another table, which the handler also checks.
        operation: its name in the audit log, which is its operationId; None: it changes nothing.
        only_denied: whether the audit log only records it if it was denied: it prepares changes, and makes none.
        counts: which limit it counts towards, besides that of requests.
    """

    on: Literal["nothing", "token", "table", "answer", "body", "service"]
    role: Role | None = None
    names_another: bool = False
    operation: str | None = None
    only_denied: bool = False
    counts: Literal["plan", "commit"] | None = None

    def does(self, operation: str) -> "Rule":
        """Return the rule of a request that changes something."""
        return replace(self, operation=operation)

    def commits(self, operation: str) -> "Rule":
        """Return the rule of a request that creates a version of the table."""
        return replace(self, operation=operation, counts="commit")

    def prepares(self, operation: str) -> "Rule":
        """Return the rule of a request that prepares changes."""
        return replace(self, operation=operation, only_denied=True)


_OPEN: Final = Rule("nothing")
_READ: Final = Rule("table", "reader")
_PLAN: Final = replace(_READ, counts="plan")
_WRITE: Final = Rule("table", "writer")
_MAINTAIN: Final = Rule("table", "maintainer")
_LIST: Final = Rule("answer", "reader")

_SCHEMA: Final = "/catalogs/{catalog}/schemas/{schema}"

RULES: Final[Mapping[str, Rule]] = {
    "GET /livez": _OPEN,
    "GET /readyz": _OPEN,
    "GET /openapi.json": _OPEN,
    "GET /docs": _OPEN,
    "GET /metrics": Rule("service", "reader"),
    "GET /v1/config": Rule("token"),
    "GET /v1/access": Rule("token"),
    # Tables
    "GET /v1/tables": _LIST,
    "POST /v1/new-tables": Rule("body", "maintainer").prepares("begin_table"),
    "POST /v1/tables": Rule("body", "maintainer").does("register_table"),
    "GET /v1/tables/{table}": _READ,
    "DELETE /v1/tables/{table}": Rule("table", "admin").does("forget_table"),
    "GET /v1/dropped-tables": _LIST,
    "POST /v1/dropped-tables/{dropped}/undrop": Rule("body", "admin").does("undrop_table"),
    "POST /v1/dropped-tables/{dropped}/delete": Rule("body", "admin").does("delete_dropped_table"),
    "POST /v1/tables/{table}/rename": Rule("table", "maintainer", names_another=True).does("rename_table"),
    "POST /v1/tables/{table}/alter": _MAINTAIN.commits("alter_table"),
    "POST /v1/tables/{table}/clone": Rule("table", "reader", names_another=True).does("clone_table"),
    "POST /v1/convert": Rule("body", "maintainer").does("convert_to_delta"),
    # Reading
    "GET /v1/tables/{table}/snapshot": _READ,
    "POST /v1/tables/{table}/plan": _PLAN,
    "POST /v1/tables/{table}/changes": _PLAN,
    "POST /v1/tables/{table}/additions": _PLAN,
    "GET /v1/tables/{table}/commits": _READ,
    "GET /v1/tables/{table}/commits/{version}": _READ,
    "GET /v1/tables/{table}/history": _READ,
    "GET /v1/tables/{table}/detail": _READ,
    "GET /v1/tables/{table}/health": _READ,
    "GET /v1/tables/{table}/health/samples": _READ,
    "GET /v1/tables/{table}/conflicts": _READ,
    "GET /v1/tables/{table}/check": _READ,
    "GET /v1/health": _LIST,
    "GET /v1/fleet": _LIST,
    "GET /v1/conflicts": _LIST,
    "GET /v1/events": _LIST,
    # Its handler requires the writer role for credentials that can write.
    "GET /v1/tables/{table}/credentials": _READ.does("vend_credentials"),
    # Writing
    "POST /v1/tables/{table}/transactions": _WRITE.prepares("begin_transaction"),
    "POST /v1/tables/{table}/commits": _WRITE.commits("commit"),
    "POST /v1/tables/{table}/deletion-vectors": _WRITE.prepares("allocate_deletion_vectors"),
    "POST /v1/tables/{table}/delete": _WRITE.commits("delete_rows"),
    "POST /v1/tables/{table}/update": _WRITE.commits("update_rows"),
    "POST /v1/transactions": Rule("body", "writer").commits("commit_transaction"),
    "GET /v1/transactions/{transaction}": _LIST,
    "POST /v1/snapshots": Rule("body", "reader"),
    # Maintenance
    "POST /v1/tables/{table}/optimize": _MAINTAIN.commits("optimize_table"),
    "POST /v1/tables/{table}/deletion-vectors/compact": _MAINTAIN.commits("compact_deletion_vectors"),
    "POST /v1/tables/{table}/checkpoint": _MAINTAIN.does("write_checkpoint"),
    "POST /v1/tables/{table}/vacuum": _MAINTAIN.does("vacuum_table"),
    "GET /v1/tables/{table}/quarantines": _READ,
    "POST /v1/tables/{table}/quarantines/{quarantine}/undo": _MAINTAIN.does("undo_vacuum"),
    "POST /v1/tables/{table}/quarantines/{quarantine}/purge": _MAINTAIN.does("purge_vacuumed"),
    "POST /v1/tables/{table}/restore": _MAINTAIN.commits("restore_table"),
    "POST /v1/tables/{table}/repair": _MAINTAIN.commits("repair_table"),
    "POST /v1/tables/{table}/generate": _MAINTAIN.does("generate_manifests"),
    "POST /v1/tables/{table}/iceberg": _MAINTAIN.does("convert_to_iceberg"),
    "POST /v1/tables/{table}/maintenance-lease": _MAINTAIN.prepares("lease_table"),
    "DELETE /v1/tables/{table}/maintenance-lease": _MAINTAIN.prepares("release_table"),
    "GET /v1/tables/{table}/maintenance-plan": _MAINTAIN,
    "POST /v1/tables/{table}/maintenance-runs": _MAINTAIN.prepares("record_run"),
    # Writers rewrite files, too, and commit them.
    "POST /v1/tables/{table}/maintenance-tasks": _WRITE.prepares("report_task"),
    "GET /v1/tables/{table}/maintenance-tasks": _READ,
    "GET /v1/maintenance-runs": _LIST,
    "GET /v1/maintenance-tasks": _LIST,
    "GET /v1/policies": _LIST,
    "POST /v1/policies": Rule("body", "maintainer").does("set_policy"),
    "GET /v1/policies/{policy}": Rule("body", "reader"),
    "DELETE /v1/policies/{policy}": Rule("body", "maintainer").does("drop_policy"),
    "GET /v1/tables/{table}/policies": _READ,
    # Tokens, grants and the audit log
    "GET /v1/tokens": Rule("service", "admin"),
    "POST /v1/tokens": Rule("service", "admin").does("create_token"),
    "DELETE /v1/tokens/{token}": Rule("service", "admin").does("revoke_token"),
    "GET /v1/audit": Rule("body", "maintainer"),
    "GET /v1/grants": Rule("answer", "admin"),
    "POST /v1/grants": Rule("body", "admin").does("grant_role"),
    "DELETE /v1/grants": Rule("body", "admin").does("revoke_role"),
    # The Iceberg catalog, where a path names a table in two parts
    **{
        f"{request} /iceberg/v1{prefix}{path}": rule
        for prefix in ("", "/v3")
        for request, path, rule in (
            ("GET", "/config", Rule("token")),
            ("GET", "/namespaces", _LIST),
            ("GET", "/namespaces/{namespace}", _LIST),
            ("GET", "/namespaces/{namespace}/tables", _LIST),
            ("GET", "/namespaces/{namespace}/tables/{table}", Rule("body", "reader")),
            ("POST", "/namespaces/{namespace}/tables/{table}/metrics", Rule("body", "reader")),
            ("POST", "/namespaces/{namespace}/tables/{table}/plan", Rule("body", "reader", counts="plan")),
            ("GET", "/namespaces/{namespace}/tables/{table}/plan/{plan_id}", Rule("body", "reader")),
            ("DELETE", "/namespaces/{namespace}/tables/{table}/plan/{plan_id}", Rule("body", "reader")),
            ("POST", "/namespaces/{namespace}/tables/{table}/tasks", Rule("body", "reader")),
        )
    },
    # The Unity Catalog APIs, where a path names a table in two or three parts
    **{
        f"{request} /api/2.1/unity-catalog/delta/v1{path}": rule
        for request, path, rule in (
            ("GET", "/config", Rule("token")),
            (
                "POST",
                f"{_SCHEMA}/staging-tables",
                Rule("body", "maintainer").prepares("stage_managed_table"),
            ),
            ("GET", "/staging-tables/{staging}/credentials", Rule("body", "maintainer")),
            ("POST", f"{_SCHEMA}/tables", Rule("body", "maintainer").does("create_managed_table")),
            ("GET", f"{_SCHEMA}/tables/{{table}}", Rule("body", "reader")),
            ("POST", f"{_SCHEMA}/tables/{{table}}", Rule("body", "writer").commits("update_managed_table")),
            ("DELETE", f"{_SCHEMA}/tables/{{table}}", Rule("body", "admin").does("drop_managed_table")),
            (
                "POST",
                f"{_SCHEMA}/tables/{{table}}/rename",
                Rule("body", "maintainer").does("rename_managed_table"),
            ),
            (
                "GET",
                f"{_SCHEMA}/tables/{{table}}/credentials",
                Rule("body", "reader").does("vend_managed_credentials"),
            ),
            ("POST", f"{_SCHEMA}/tables/{{table}}/metrics", Rule("body", "writer")),
            ("GET", "/temporary-path-credentials", Rule("body", "maintainer")),
        )
    },
    **{
        f"{request} /api/2.1/unity-catalog{path}": rule
        for request, path, rule in (
            ("GET", "/metastore_summary", Rule("token")),
            ("GET", "/catalogs", Rule("token")),
            ("GET", "/catalogs/{catalog}", Rule("token")),
            ("GET", "/schemas", _LIST),
            ("POST", "/schemas", Rule("token")),
            ("GET", "/schemas/{schema}", Rule("token")),
            ("DELETE", "/schemas/{schema}", Rule("token")),
            ("GET", "/tables", _LIST),
            ("POST", "/tables", Rule("body", "maintainer").does("create_catalog_table")),
            ("POST", "/staging-tables", Rule("body", "maintainer").prepares("stage_catalog_table")),
            ("GET", "/delta/preview/commits", Rule("body", "reader")),
            ("POST", "/delta/preview/commits", Rule("body", "writer").commits("preview_commit")),
            ("GET", "/tables/{full_name}", Rule("body", "reader")),
            ("DELETE", "/tables/{full_name}", Rule("body", "admin").does("drop_catalog_table")),
            ("POST", "/temporary-path-credentials", Rule("body", "maintainer")),
            (
                "POST",
                "/temporary-table-credentials",
                Rule("body", "reader").does("vend_temporary_credentials"),
            ),
        )
    },
}


_NOTED_READS: Final = {
    request.rpartition("/")[2]
    for request, rule in RULES.items()
    if request.startswith("GET ") and rule.operation
}


def only_reads(method: str, path: str) -> bool:
    """Whether the audit log ignores a request, as it does most; decided without looking up its rule."""
    return method in ("GET", "HEAD") and path.rpartition("/")[2] not in _NOTED_READS


@dataclass
class _Node:
    """A path segment: the segments that follow it, and the rule of the path that ends with it."""

    named: dict[str, "_Node"] = field(default_factory=dict)
    any: "tuple[str, _Node] | None" = None
    rules: dict[str, Rule] = field(default_factory=dict)


def _tree() -> _Node:
    root = _Node()
    for request, rule in RULES.items():
        method, _, path = request.partition(" ")
        node = root
        for part in path.split("/")[1:]:
            if part.startswith("{"):
                node.any = node.any or (part[1:-1], _Node())
                node = node.any[1]
            else:
                node = node.named.setdefault(part, _Node())
        node.rules[method] = rule
    return root


_TREE: Final = _tree()


def rule_of(method: str, path: str) -> tuple[Rule, dict[str, str]] | None:
    """Return the rule of a request, and its path parameters; None if there is none."""
    method = "GET" if method == "HEAD" else method
    for node, found in _paths(_TREE, path.split("/")[1:], {}):
        if method in node.rules:
            return node.rules[method], found
    return None


def _paths(
    node: _Node, parts: list[str], path_parameters: dict[str, str]
) -> Iterator[tuple[_Node, dict[str, str]]]:
    if not parts:
        yield node, path_parameters
        return
    if parts[0] in node.named:
        yield from _paths(node.named[parts[0]], parts[1:], path_parameters)
    if node.any is not None and parts[0]:
        name, following = node.any
        yield from _paths(following, parts[1:], {**path_parameters, name: parts[0]})
