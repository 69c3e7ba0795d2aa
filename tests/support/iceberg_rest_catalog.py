"""An in-memory Iceberg REST catalog for tests that accepts registrations and commits according to the specification.

Like Iceberg's own, it checks requirements, the order of snapshots, and that ids in updates exist.
"""

import json
import threading
from contextlib import contextmanager
from urllib.parse import unquote
from urllib.request import urlopen

from werkzeug.serving import make_server
from werkzeug.wrappers import Request, Response

ROUTES = [
    "GET /v1/{prefix}/namespaces/{namespace}",
    "HEAD /v1/{prefix}/namespaces/{namespace}",
    "POST /v1/{prefix}/namespaces",
    "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "POST /v1/{prefix}/namespaces/{namespace}/register",
]


class RefusedError(Exception):
    """An error response."""

    def __init__(self, status, kind, message):
        super().__init__(message)
        self.status, self.kind = status, kind


class RestCatalog:
    """The catalog.

    Attributes:
        tables: metadata and its location by (namespace, name).
        commits: number of accepted commits.
        before_commit: called once, before the next commit is processed.
        refuse: an HTTP status with which to answer the next commits.
    """

    def __init__(self):
        self.namespaces, self.tables = set(), {}
        self.commits, self.before_commit, self.refuse = 0, None, None

    def __call__(self, environ, start_response):
        request = Request(environ)
        try:
            body = self._answer(request)
            response = Response(json.dumps(body), 200, content_type="application/json")
        except RefusedError as error:
            found = {"error": {"message": str(error), "type": error.kind, "code": error.status}}
            response = Response(json.dumps(found), error.status, content_type="application/json")
        return response(environ, start_response)

    def _answer(self, request):
        parts = [unquote(part) for part in request.path.strip("/").split("/")][1:]
        match request.method, parts:
            case "GET", ["config"]:
                return {"defaults": {}, "overrides": {}, "endpoints": ROUTES}
            case "POST", ["namespaces"]:
                self.namespaces.add(tuple(request.json["namespace"]))
                return {"namespace": request.json["namespace"]}
            case "GET" | "HEAD", ["namespaces", name]:
                if tuple(name.split("\x1f")) not in self.namespaces:
                    raise RefusedError(404, "NoSuchNamespaceException", "no such namespace")
                return {"namespace": name.split("\x1f")}
            case "POST", ["namespaces", name, "register"]:
                return self._register(name, request.json)
            case "GET", ["namespaces", name, "tables", table]:
                return self._load(name, table)
            case "POST", ["namespaces", name, "tables", table]:
                return self._commit(name, table, request.json)
        raise RefusedError(404, "NotFoundException", request.path)

    def _load(self, namespace, name):
        found = self.tables.get((namespace, name))
        if found is None:
            raise RefusedError(404, "NoSuchTableException", "no such table")
        return found

    def _register(self, namespace, wanted):
        if (namespace,) not in {(".".join(one),) for one in self.namespaces}:
            raise RefusedError(404, "NoSuchNamespaceException", "no such namespace")
        key = namespace, wanted["name"]
        if key in self.tables:
            raise RefusedError(409, "AlreadyExistsException", "there is a table")
        location = wanted["metadata-location"]
        with urlopen(location) as file:
            self.tables[key] = {"metadata-location": location, "metadata": json.load(file), "config": {}}
        return self.tables[key]

    def _commit(self, namespace, name, wanted):
        if self.before_commit is not None:
            first, self.before_commit = self.before_commit, None
            first()
        if self.refuse is not None:
            raise RefusedError(self.refuse, "RefusedException", "it will not have it")
        before = self._load(namespace, name)
        metadata = json.loads(json.dumps(before["metadata"]))
        for one in wanted["requirements"]:
            self._require(metadata, one)
        for one in wanted["updates"]:
            self._update(metadata, one)
        self.commits += 1
        location = f"{metadata['location']}/metadata/{self.commits:05d}-by-catalog.metadata.json"
        self.tables[namespace, name] = {"metadata-location": location, "metadata": metadata, "config": {}}
        return {"metadata-location": location, "metadata": metadata}

    @staticmethod
    def _require(metadata, one):
        match one["type"]:
            case "assert-table-uuid":
                holds = metadata["table-uuid"] == one["uuid"]
            case "assert-ref-snapshot-id":
                holds = metadata["refs"].get(one["ref"], {}).get("snapshot-id") == one["snapshot-id"]
            case other:
                raise RefusedError(400, "BadRequestException", other)
        if not holds:
            raise RefusedError(409, "CommitFailedException", f"requirement failed: {one}")

    def _update(self, metadata, one):
        match one["action"]:
            case "add-schema":
                _check(
                    one["schema"]["schema-id"] == len(metadata["schemas"]), "ids of schemas follow each other"
                )
                metadata["schemas"].append(one["schema"])
            case "set-current-schema":
                _check(
                    any(each["schema-id"] == one["schema-id"] for each in metadata["schemas"]),
                    "no such schema",
                )
                metadata["current-schema-id"] = one["schema-id"]
            case "add-spec":
                metadata["partition-specs"].append(one["spec"])
            case "set-default-spec":
                metadata["default-spec-id"] = one["spec-id"]
            case "set-properties":
                metadata["properties"] |= one["updates"]
            case _:
                _update_snapshots(metadata, one)


def _update_snapshots(metadata, one):
    snapshots = {each["snapshot-id"] for each in metadata["snapshots"]}
    match one["action"]:
        case "add-snapshot":
            snapshot = one["snapshot"]
            _check(snapshot["snapshot-id"] not in snapshots, "the snapshot is there")
            _check(snapshot["sequence-number"] > metadata["last-sequence-number"], "an old sequence number")
            if metadata["format-version"] >= 3:
                _check(snapshot["first-row-id"] >= metadata["next-row-id"], "row ids that were given")
                metadata["next-row-id"] = snapshot["first-row-id"] + snapshot["added-rows"]
            metadata["last-sequence-number"] = snapshot["sequence-number"]
            metadata["snapshots"].append(snapshot)
        case "set-snapshot-ref":
            _check(one["snapshot-id"] in snapshots, "no such snapshot")
            metadata["refs"][one["ref-name"]] = {"snapshot-id": one["snapshot-id"], "type": one["type"]}
            metadata["current-snapshot-id"] = one["snapshot-id"]
        case "remove-snapshot-ref":
            metadata["refs"].pop(one["ref-name"], None)
        case "remove-snapshots":
            gone = set(one["snapshot-ids"])
            metadata["snapshots"] = [
                each for each in metadata["snapshots"] if each["snapshot-id"] not in gone
            ]
            metadata["snapshot-log"] = []
        case other:
            raise RefusedError(400, "BadRequestException", other)


def _check(holds, what):
    if not holds:
        raise RefusedError(400, "ValidationException", what)


@contextmanager
def running():
    """Serve a catalog; yields its URL and the catalog."""
    catalog = RestCatalog()
    server = make_server("127.0.0.1", 0, catalog, threaded=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", catalog
    finally:
        server.shutdown()
        thread.join(10)
