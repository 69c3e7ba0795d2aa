"""Conformance to the OpenAPI document: Schemathesis sends valid and invalid requests, and checks the responses."""

import json
import os
import subprocess
import sys

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.served import served

EXAMPLES = os.environ.get("DELVEC_CONFORMANCE_EXAMPLES", "2")
"""For each operation, besides the examples of the document and the limits of each field."""
SEED = os.environ.get("DELVEC_FUZZ_SEED", "1")
TOKEN = "secret"
FILE = "part-00000-4f6d.snappy.parquet"
"""The data file that the examples of the document name; they also name these columns, and versions up to 7."""
ROWS = pa.table(
    {
        "id": pa.array(range(10), pa.int64()),
        "age": pa.array(range(15, 25), pa.int64()),
        "name": [f"n{number}" for number in range(10)],
        "country": ["NZ", "PE"] * 5,
        "active": [True] * 10,
    }
)
TYPES = {"id": "long", "age": "long", "name": "string", "country": "string", "active": "boolean"}
PREDICATES = ["age < 18", "country = 'NZ' OR id IS NULL", "id IN (1, 2)", "no_such_column = 1", "id >"]
SETTINGS = """
base-url = "{url}"
headers = {{ Authorization = "Bearer {token}" }}
request-timeout = 600
seed = {seed}
warnings = false
suppress-health-check = ["all"]
continue-on-failure = true

[generation]
max-examples = {examples}
no-shrink = true
database = "none"

[phases]
stateful.enabled = false

[checks]
# What is right in form need not be right: a column may be missing, and a page token another list's.
positive_data_acceptance.enabled = false
# What breaks the limit of a field may break that of the body first.
negative_data_rejection.expected-statuses = ["400", "401", "403", "404", "405", "406", "409", "413", "415", "422"]
"""


def fill(client, create, folder):
    """Create a table of version 7 that the examples of the document fit, and return its name."""
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in TYPES.items()]
    properties = {"delta.enableDeletionVectors": "true", "delta.enableChangeDataFeed": "true"}
    table = create(client, folder, schema={"type": "struct", "fields": fields}, properties=properties)
    for name in (FILE, *(f"{number}.parquet" for number in range(2, 8))):
        pq.write_table(ROWS, folder / name)
        size = (folder / name).stat().st_size
        add = {"path": name, "size": size, "modificationTime": 0, "partitionValues": {}}
        assert table.append({**add, "stats": json.dumps({"numRecords": len(ROWS)})}).status_code == 200
    assert table.version() == 7
    return table.name


def told(document, names, folder):
    """Return a document whose requests find something, and which describes no answer only as any other."""
    kept, spare = names[:-1], names[-1:]
    for path, operations in document["paths"].items():
        for operation in operations.values():
            del operation["responses"]["default"]
            changes_names = operation["operationId"] in ("forget_table", "rename_table")
            for parameter in operation.get("parameters", ()):
                if "{%s}" % parameter["name"] in path and parameter["name"] == "table":  # noqa: UP031
                    parameter["schema"] = {"type": "string", "enum": spare if changes_names else kept}
    locations = [str(folder / name) for name in ("one", "two", "three")]
    for shape in document["components"]["schemas"].values():
        for name, values in (("predicate", PREDICATES), ("location", locations)):
            if name in shape.get("properties", {}):
                said = shape["properties"][name]
                shape["properties"][name] = {"anyOf": [{"type": "string", "enum": values}, said]}
    return json.loads(json.dumps(document).replace('"/data/', f'"{folder}/'))


@pytest.mark.timeout(3600)
@pytest.mark.full("thousands of requests; test_openapi_fuzz.py sends some to each route in the gate")
def test_every_answer_is_described(tmp_path, create):
    tables = tmp_path / "tables"
    tables.mkdir()
    described, settings = tmp_path / "openapi.json", tmp_path / "schemathesis.toml"
    with served(tables, TOKEN) as url:
        settings.write_text(SETTINGS.format(url=url, token=TOKEN, seed=SEED, examples=EXAMPLES))
        with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=600) as client:
            names = [fill(client, create, tables / name) for name in ("people", "orders", "spare")]
            document = client.get("/openapi.json").json()
        described.write_text(json.dumps(told(document, names, tables)))
        program = "from schemathesis.cli import schemathesis; schemathesis()"
        ran = subprocess.run(
            [
                *(sys.executable, "-c", program, "--config-file", str(settings)),
                *("run", str(described), "--no-color"),
            ],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )

    assert ran.returncode == 0, ran.stdout[-20_000:] + ran.stderr[-2000:]
