"""Access to every endpoint by role and namespace, generated from OpenAPI; an endpoint without a rule fails."""

from datetime import UTC, datetime

import pytest
from tests.integration.service.conftest import SCHEMA

from delvec_kernel import locations
from delvec_service.api import iceberg_catalog_routes, uc_classic_routes, uc_delta_routes, uc_preview_routes
from delvec_service.auth.principals import ROLES
from delvec_service.auth.rules import RULES, rule_of
from delvec_service.store.models import DroppedTableRow

ADMIN = "the-configured-token"
CONTENT = {"version": "2025-02-03", "enable": True, "config": {}}
NEEDS = {
    "reader": {
        *("get_table", "clone_table", "get_snapshot", "plan_scan", "plan_of_changes", "plan_of_additions"),
        *("find_commit", "get_commit", "get_history", "get_detail", "get_health", "list_health_samples"),
        *("vend_credentials", "check_table", "list_conflicts", "list_applicable_policies", "get_policy"),
        "list_quarantines",
        "list_tasks",
        "get_snapshots",
    },
    "writer": {
        *("begin_transaction", "commit", "allocate_deletion_vectors", "delete_rows", "update_rows"),
        *("report_task", "commit_transaction"),
    },
    "maintainer": {
        *("rename_table", "alter_table", "optimize_table", "compact_deletion_vectors", "write_checkpoint"),
        *(
            "vacuum_table",
            "undo_vacuum",
            "purge_vacuumed",
            "restore_table",
            "repair_table",
            "convert_to_iceberg",
            "generate_manifests",
            "lease_table",
            "release_table",
            "record_run",
            "plan_maintenance",
        ),
        "drop_policy",
    },
    "admin": {"forget_table", "undrop_table", "delete_dropped_table"},
}
"""What is asked of the table, or the policy, that the path or the body names. Said here a second time: a rule is not changed by accident."""
TABLES = {
    "get_snapshots": {"tables": ["{namespace}.orders"]},
    "commit_transaction": {
        "tables": [{"table": "{namespace}.orders", "commit": {"read-version": 0, "operation": "READ"}}]
    },
}
"""Bodies that name tables."""
OF_BODIES = {
    "begin_table": ("maintainer", {"name": "{namespace}.begun", "schema": SCHEMA}, None),
    "register_table": ("maintainer", {"name": "{namespace}.made", "schema": SCHEMA}, None),
    "convert_to_delta": ("admin of all", {"name": "{namespace}.x", "location": "{root}/elsewhere"}, None),
    "set_policy": (
        "maintainer",
        {"name": "p_{namespace}", "type": "system.vacuum", "content": CONTENT, "pattern": "{namespace}.*"},
        None,
    ),
    "grant_role": ("admin", {"grantee": "somebody", "role": "reader", "namespace": "{namespace}"}, None),
    "revoke_role": ("admin", None, {"grantee": "somebody", "namespace": "{namespace}"}),
}
OF_SERVICE = {"metrics", "list_audit", "list_tokens", "create_token", "revoke_token"}
LISTS = {
    "find_transaction",
    "get_fleet",
    "list_all_conflicts",
    "list_conflicts",
    "list_all_tasks",
    "list_tables",
    "list_dropped_tables",
    "list_health",
    "list_events",
    "list_runs",
    "list_policies",
    "list_grants",
}
OF_ANYBODY = {"config", "get_access"}
OPEN = {"livez", "readyz"}


def operations(client):
    """Yield method, path and id of every request; those that delete tables or policies are last."""
    found = [
        (method.upper(), path, operation["operationId"])
        for path, methods in client.get("/openapi.json").json()["paths"].items()
        for method, operation in methods.items()
    ]
    return sorted(found, key=lambda one: (one[0] == "DELETE", one[2] == "forget_table"))


def bearer(token):
    return {"Authorization": f"Bearer {token}"}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    """A service with a table in each of two namespaces, and for each role a principal that has it in `sales`."""
    from tests.support.in_process_service import running_service

    root = tmp_path_factory.mktemp("matrix")
    settings = {"token": ADMIN, "roots": (str(root),), "database_url": f"sqlite:///{root / 'store.db'}"}
    with running_service(**settings) as client:
        client.root = root
        client.tokens = {"admin of all": ADMIN}
        for role in ("nothing", *ROLES):
            made = client.post("/v1/tokens", json={"name": f"the-{role}"}, headers=bearer(ADMIN))
            assert made.status_code == 201, made.text
            client.tokens[role] = made.json()["token"]
            if role != "nothing":
                grant = {"grantee": f"the-{role}", "role": role, "namespace": "sales"}
                assert client.post("/v1/grants", json=grant, headers=bearer(ADMIN)).status_code == 200
        yield client


def prepare(client):
    """Create the objects of requests if they do not exist (any more)."""
    headers = bearer(ADMIN)
    for namespace in ("sales", "hr"):
        table = {"name": f"{namespace}.orders", "location": str(client.root / f"{namespace}.db" / "orders")}
        if client.post("/v1/tables", json=table, headers=headers).status_code == 404:
            made = client.post("/v1/tables", json={**table, "schema": SCHEMA}, headers=headers)
            assert made.status_code == 201, made.text
        # Its folder is missing, so that it stays dropped.
        dropped = DroppedTableRow(
            catalog="",
            id=f"dropped-{namespace}",
            name=f"{namespace}.dropped",
            location=locations.canonical(str(client.root / f"{namespace}.db" / "gone")),
            created_at=datetime.now(UTC),
            dropped_at=datetime.now(UTC),
            is_being_deleted=False,
        )
        with client.service.database.write() as session:
            session.merge(dropped)
        body = {
            "name": f"of_{namespace}",
            "type": "system.vacuum",
            "content": CONTENT,
            "pattern": f"{namespace}.*",
        }
        assert client.post("/v1/policies", json=body, headers=headers).status_code == 200
        grant = {"grantee": "somebody", "role": "reader", "namespace": namespace}
        assert client.post("/v1/grants", json=grant, headers=headers).status_code == 200


def filled(value, client, namespace):
    if isinstance(value, str):
        return value.replace("{namespace}", namespace).replace("{root}", str(client.root))
    if isinstance(value, dict) and value is not SCHEMA:
        return {key: filled(each, client, namespace) for key, each in value.items()}
    if isinstance(value, list):
        return [filled(each, client, namespace) for each in value]
    return value


def outcome(answer):
    """Return whether a request was allowed, denied, or not found."""
    code = answer.json()["error"]["code"] if answer.status_code >= 400 else ""
    assert answer.status_code < 500, answer.text
    assert answer.status_code != 401, answer.text
    if code in ("TABLE_NOT_FOUND", "POLICY_NOT_FOUND"):
        return "nothing there"
    return "refused" if code == "PERMISSION_DENIED" else "let in"


def holds(role, needed):
    return role == "admin of all" or (role in ROLES and ROLES.index(role) >= ROLES.index(needed))


def expected(operation, role, namespace):
    has = role if namespace == "sales" or role == "admin of all" else "nothing"
    for needed, of_role in NEEDS.items():
        if operation in of_role:
            return "nothing there" if has == "nothing" else "let in" if holds(has, needed) else "refused"
    if operation in OF_BODIES:
        needed = OF_BODIES[operation][0]
        allowed = has == needed if needed == "admin of all" else holds(has, needed)
        return "let in" if allowed else "refused"
    if operation in OF_SERVICE:
        return "let in" if has == "admin of all" else "refused"
    assert operation in LISTS | OF_ANYBODY | OPEN, f"say here who may {operation}, and in auth/rules.py"
    return "let in"


@pytest.mark.every_case("a right too much must not pass the gate")
@pytest.mark.parametrize("role", ["nothing", *ROLES, "admin of all"])
@pytest.mark.parametrize("namespace", ["sales", "hr"])
def test_each_request_is_for_those_who_have_the_role(guarded, role, namespace):
    wrong = {}
    prepare(guarded)
    for method, path, operation in operations(guarded):
        given = TABLES.get(operation, {} if method == "POST" else None)
        _, body, query = OF_BODIES.get(operation, (None, given, None))
        address = path.format(
            table=f"{namespace}.orders",
            version=0,
            policy=f"of_{namespace}",
            token="unknown",
            quarantine="unknown",
            dropped=f"{namespace}.dropped",
            transaction="unknown",
        )
        answer = guarded.request(
            method,
            address,
            headers=bearer(guarded.tokens[role]),
            json=filled(body, guarded, namespace),
            params=filled(query, guarded, namespace),
        )
        if outcome(answer) != expected(operation, role, namespace):
            wrong[operation] = (outcome(answer), expected(operation, role, namespace), answer.text[:200])

    assert not wrong


def test_every_request_has_a_rule_and_every_rule_a_request(guarded):
    described = {f"{method} {path}" for method, path, _ in operations(guarded)}

    catalog = {
        f"{method} {route.path}"
        for router in (
            *iceberg_catalog_routes.routers,
            *uc_delta_routes.routers,
            *uc_classic_routes.routers,
            *uc_preview_routes.routers,
        )
        for route in router.routes
        for method in route.methods - {"HEAD"}
    }
    assert described | catalog | {"GET /docs", "GET /openapi.json"} == set(RULES)


def test_without_a_token_nothing_but_probes_and_the_description_answers(guarded):
    for method, path, operation in operations(guarded):
        names = {
            "table": "t",
            "policy": "p",
            "token": "t",
            "quarantine": "q",
            "dropped": "d",
            "transaction": "x",
        }
        answer = guarded.request(method, path.format(version=0, **names))
        assert (answer.status_code == 401) == (operation not in OPEN), (operation, answer.text)
    assert guarded.get("/docs").status_code == 200
    assert guarded.get("/v1/unknown").status_code == 401


def test_a_route_without_a_rule_is_closed_to_all(running):
    with running(token=ADMIN) as client:
        client.app.add_api_route("/v1/added", lambda: {"rows": "secret"})

        answer = client.get("/v1/added", headers=bearer(ADMIN))

        assert answer.status_code == 403
        assert "no access rule" in answer.json()["error"]["message"]
        assert client.get("/v1/not-added", headers=bearer(ADMIN)).status_code == 404
        assert client.put("/v1/tables", headers=bearer(ADMIN)).status_code == 405


@pytest.mark.parametrize(
    ("method", "path", "rule"),
    [
        ("GET", "/v1/tables/x/commits/3", "GET /v1/tables/{table}/commits/{version}"),
        ("HEAD", "/docs", "GET /docs"),
        ("POST", "/v1/tables/x/deletion-vectors/compact", "POST /v1/tables/{table}/deletion-vectors/compact"),
        ("GET", "/v1/tables/", None),
        ("GET", "/livez/", None),
        ("GET", "/docs/x", None),
        ("PATCH", "/v1/tables/x", None),
    ],
)
def test_a_rule_is_found_by_the_whole_path(method, path, rule):
    found = rule_of(method, path)

    assert (None if found is None else found[0]) == (None if rule is None else RULES[rule])
