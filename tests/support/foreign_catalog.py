"""A Unity Catalog server of somebody else: it lists ratified commits until they are reported as published, and can misbehave."""

import json
import threading
import time
import uuid
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
from tests.support.catalog_client import SCHEMA, info

from delvec_kernel import locations

TOKEN = "the-catalogs-token"
BASE = "/api/2.1/unity-catalog"
MAX_UNPUBLISHED = 10
FEATURES = ["catalogManaged", "deletionVectors", "inCommitTimestamp", "v2Checkpoint"]
REQUIRED_FEATURES = [*FEATURES, "vacuumProtocolCheck"]


class ForeignTable:
    """A managed table, as the catalog has it."""

    def __init__(self, folder, *, is_new=True, **properties):
        self.uuid = str(uuid.uuid4())
        self.folder = Path(folder)
        self.location = locations.canonical(str(folder))
        self.properties = {
            "delta.enableDeletionVectors": "true",
            "delta.enableInCommitTimestamps": "true",
            "delta.checkpointPolicy": "v2",
            "io.unitycatalog.tableId": self.uuid,
            **properties,
        }
        self.latest = 0
        self.commits = {}
        self.names = {}
        self.allowed = []
        self.updates = []
        if not is_new:
            self._take_over()
            return
        now = time.time_ns() // 1_000_000
        metadata = {
            "id": str(uuid.uuid4()),
            "format": {"provider": "parquet", "options": {}},
            "schemaString": SCHEMA,
            "partitionColumns": [],
            "configuration": self.properties,
            "createdTime": now,
        }
        protocol = {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": [each for each in FEATURES if each != "inCommitTimestamp"],
            "writerFeatures": FEATURES,
        }
        self.log.mkdir(parents=True)
        self._write(
            self.log / f"{0:020}.json",
            [info("CREATE TABLE", now), {"protocol": protocol}, {"metaData": metadata}],
        )

    def _take_over(self):
        """Make a table of another project, with its log, one of the catalog."""
        lines = (self.log / f"{0:020}.json").read_text().splitlines()
        metadata = next(action["metaData"] for action in map(json.loads, lines) if "metaData" in action)
        self.properties = metadata["configuration"]
        self.uuid = self.properties.get("io.unitycatalog.tableId", self.uuid)
        self.latest = max(self.published())

    def ratify_file(self, path):
        """Make a staged file the next version."""
        stamp = json.loads(path.read_text().splitlines()[0])["commitInfo"]["inCommitTimestamp"]
        size = path.stat().st_size
        self.ratify(
            {
                "version": int(path.name[:20]),
                "timestamp": stamp,
                "file-name": path.name,
                "file-size": size,
                "file-modification-timestamp": stamp,
            }
        )

    @property
    def log(self):
        return self.folder / "_delta_log"

    def stage(self, ids, version=None, **commit_info):
        """Write a staged commit that appends rows, as another engine does; return the entry for add-commit."""
        version = self.latest + 1 if version is None else version
        name = f"part-{uuid.uuid4()}.parquet"
        pq.write_table(pa.table({"id": pa.array(ids, pa.int64())}), self.folder / name)
        stamp = max(time.time_ns() // 1_000_000, self.stamp() + 1)
        add = {
            "path": name,
            "partitionValues": {},
            "size": (self.folder / name).stat().st_size,
            "modificationTime": stamp,
            "dataChange": True,
            "stats": json.dumps({"numRecords": len(ids)}),
        }
        file = f"{version:020}.{uuid.uuid4()}.json"
        path = self.log / "_staged_commits" / file
        path.parent.mkdir(exist_ok=True)
        self._write(path, [info("WRITE", stamp, **commit_info), {"add": add}])
        return {
            "version": version,
            "timestamp": stamp,
            "file-name": file,
            "file-size": path.stat().st_size,
            "file-modification-timestamp": stamp,
        }

    def append(self, ids):
        """Commit rows as another engine does, and leave the commit unpublished."""
        self.ratify(self.stage(ids))

    def ratify(self, entry):
        self.latest = entry["version"]
        self.commits[self.latest] = entry
        self.names[self.latest] = entry["file-name"]

    def stamp(self):
        return max((entry["timestamp"] for entry in self.commits.values()), default=0)

    def published(self):
        """Return the versions in the log itself."""
        return sorted(int(path.stem) for path in self.log.glob("*.json") if path.stem.isdigit())

    def answer(self):
        return {
            "metadata": {
                "etag": "etag-1",
                "table-type": "MANAGED",
                "table-uuid": self.uuid,
                "location": self.location,
                "created-time": 1,
                "updated-time": 1,
                "columns": json.loads(SCHEMA),
                "properties": {**self.properties, "delta.feature.catalogManaged": "supported"},
            },
            "commits": [self.commits[version] for version in sorted(self.commits, reverse=True)],
            "latest-table-version": self.latest,
            "allowed-maintenance-operations": self.allowed,
        }

    def update(self, body):
        """Do what an update request says; return status and answer."""
        assert body["requirements"] == [{"type": "assert-table-uuid", "uuid": self.uuid}]
        actions = {each["action"]: each for each in body["updates"]}
        added = actions.get("add-commit")
        report = actions.get("set-latest-backfilled-version")
        if added is not None:
            entry = added["commit"]
            if entry["version"] <= self.latest:
                if self.names.get(entry["version"]) == entry["file-name"]:
                    return 200, self.answer()
                return error(409, "CommitVersionConflictException")
            if entry["version"] != self.latest + 1:
                return error(400, "InvalidParameterValueException")
            if len(self.commits) >= MAX_UNPUBLISHED:
                return error(429, "ResourceExhaustedException")
            assert (self.log / "_staged_commits" / entry["file-name"]).stat().st_size == entry["file-size"]
            self.ratify(entry)
        if report is not None:
            version = report["latest-published-version"]
            assert version in self.published()
            self.commits = {each: entry for each, entry in self.commits.items() if each > version}
        self.updates += body["updates"]
        return 200, self.answer()

    @staticmethod
    def _write(path, actions):
        path.write_text("".join(f"{json.dumps(action, separators=(',', ':'))}\n" for action in actions))


def error(status, kind, message="no"):
    return status, {"error": {"type": kind, "code": status, "message": message}}


class ForeignCatalog:
    """The server's state.

    ``instead`` is called with the method, the path, the body and what does the request, and returns status and answer.

    Attributes:
        tables: by full name.
        staged: the places of tables to be, by location, each with its id and its name.
        place: the folder below which it stages tables.
        created: the bodies of the requests that created tables.
        more: what its staging answers have besides.
    """

    def __init__(self):
        self.tables = {}
        self.staged = {}
        self.place = None
        self.created = []
        self.more = {}
        self.requests = []
        self.instead = None
        self.credentials = []
        self.lock = threading.Lock()

    def handle(self, method, path, query, body):
        self.requests.append((method, path))

        def act():
            with self.lock:
                return self._act(method, path, query, body)

        return act() if self.instead is None else self.instead(method, path, body, act)

    def _act(self, method, path, query, body):
        if path.startswith(f"{BASE}/delta/v1/catalogs/"):
            parts = [unquote(part) for part in path.removeprefix(f"{BASE}/delta/v1/").split("/")]
            if len(parts) == 5:
                make = self._stage if parts[4] == "staging-tables" else self._create
                return make(f"{parts[1]}.{parts[3]}.{body['name']}", body)
            table = self.tables.get(".".join((parts[1], parts[3], parts[5])))
            if table is None:
                return error(404, "NoSuchTableException")
            if parts[6:] != ["credentials"]:
                return self._use(method, ".".join((parts[1], parts[3], parts[5])), body)
        if path.endswith("/credentials"):
            return 200, {"storage-credentials": self.credentials}
        return self._names(path.removeprefix(BASE), query)

    def _use(self, method, name, body):
        if method == "DELETE":
            del self.tables[name]
            return 204, b""
        return (200, self.tables[name].answer()) if method == "GET" else self.tables[name].update(body)

    def _stage(self, name, _body):
        if name in self.tables:
            return error(409, "AlreadyExistsException")
        table_id = str(uuid.uuid4())
        location = locations.canonical(str(Path(self.place) / table_id))
        self.staged[location] = (table_id, name)
        answer = {
            "table-id": table_id,
            "table-type": "MANAGED",
            "location": location,
            "storage-credentials": self.credentials,
            "required-protocol": {
                "min-reader-version": 3,
                "min-writer-version": 7,
                "reader-features": [each for each in REQUIRED_FEATURES if each != "inCommitTimestamp"],
                "writer-features": REQUIRED_FEATURES,
            },
            "suggested-protocol": {"reader-features": [], "writer-features": ["rowTracking"]},
            "required-properties": {
                "delta.enableDeletionVectors": "true",
                "delta.checkpointPolicy": "v2",
                "delta.enableInCommitTimestamps": "true",
                "delta.rowTracking.materializedRowIdColumnName": None,
                "io.unitycatalog.tableId": table_id,
            },
        }
        return 200, {**answer, **self.more}

    def _create(self, name, body):
        """Create a table as the reference server does: from its staging place, once."""
        if name in self.tables:
            return error(409, "AlreadyExistsException")
        table_id, staged_name = self.staged.pop(body["location"], (None, None))
        if staged_name != name:
            return error(400, "InvalidParameterValueException", "no staging table is at the location")
        table = ForeignTable(locations.local_path(body["location"]), is_new=False)
        assert table.uuid == body["properties"]["io.unitycatalog.tableId"] == table_id
        assert set(REQUIRED_FEATURES) <= set(body["protocol"]["writer-features"])
        self.created.append(body)
        self.tables[name] = table
        return 200, table.answer()

    def _names(self, path, query):
        names = [name.split(".") for name in sorted(self.tables)]
        if path == "/catalogs":
            return 200, {"catalogs": [{"name": each} for each in sorted({name[0] for name in names})]}
        if path == "/schemas":
            found = sorted({name[1] for name in names if name[0] == query["catalog_name"]})
            return 200, {"schemas": [{"name": each} for each in found], "next_page_token": None}
        of_schema = [name for name in names if name[:2] == [query["catalog_name"], query["schema_name"]]]
        page = int(query.get("page_token", 0))
        shown = [self._listed(".".join(name)) for name in of_schema[page : page + 1]]
        more = str(page + 1) if page + 1 < len(of_schema) else None
        return 200, {"tables": shown, "next_page_token": more}

    def _listed(self, name):
        table = self.tables[name]
        metadata = table.answer()["metadata"]
        return {
            "name": name.rpartition(".")[2],
            "storage_location": table.location,
            "properties": metadata["properties"],
            "created_at": 1,
        }


@contextmanager
def foreign_catalog():
    """Yield a catalog and its URL."""
    catalog = ForeignCatalog()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            self._do("GET", None)

        def do_POST(self):
            self._do("POST", json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def do_DELETE(self):
            self._do("DELETE", None)

        def _do(self, method, body):
            assert self.headers["Authorization"] == f"Bearer {TOKEN}"
            url = urlsplit(self.path)
            query = {key: value for key, (value,) in parse_qs(url.query).items()}
            found = catalog.handle(method, url.path, query, body)
            if found is None:  # the connection breaks
                self.close_connection = True
                return
            status, answer, *headers = found
            data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            for name, value in headers:
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield catalog, f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
