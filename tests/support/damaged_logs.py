"""Corrupts a table's log the way defective writers do, by appending handwritten commits."""

import json
from pathlib import Path
from urllib.parse import unquote, urlsplit

from pyroaring import BitMap64

from delvec_kernel.deletion_vectors.deletion_vector import Descriptor, inline


def folder(table):
    return Path(unquote(urlsplit(table.location).path))


def actions(table, version):
    lines = (folder(table) / "_delta_log" / f"{version:020d}.json").read_text().splitlines()
    return [json.loads(line) for line in lines]


def newest(table):
    return max(int(path.stem) for path in (folder(table) / "_delta_log").glob("*[0-9].json"))


def foreign(table, operation, *added, read_version=None):
    """Commit like a defective writer; return the version."""
    version = newest(table) + 1
    info = {"operation": operation, "engineInfo": "Trino", "timestamp": 1_700_000_000_000}
    if read_version is not None:
        info["readVersion"] = read_version
    text = "\n".join(map(json.dumps, [{"commitInfo": info}, *added])) + "\n"
    (folder(table) / "_delta_log" / f"{version:020d}.json").write_text(text)
    return version


def adds(table):
    """Return the newest add of each live path."""
    live = {}
    for version in range(newest(table) + 1):
        for action in actions(table, version):
            gone = action.get("remove")
            known = gone and live.get(gone["path"])
            if known and known.get("deletionVector") == gone.get("deletionVector"):
                del live[gone["path"]]
        for action in actions(table, version):
            if "add" in action:
                live[action["add"]["path"]] = action["add"]
    return live


def only_add(table):
    (found,) = adds(table).values()
    return found


def marking(add, rows, **stats):
    """Return an add of the same file with these rows deleted."""
    known = json.loads(add["stats"]) | {"tightBounds": False} | stats
    return {"add": add | {"deletionVector": inline(BitMap64(rows)).to_json(), "stats": json.dumps(known)}}


def removing(add, vector=None):
    found = {"path": add["path"], "deletionTimestamp": 1_700_000_000_000, "dataChange": True}
    return {"remove": found | ({} if vector is None else {"deletionVector": vector})}


def vector_file(table, add):
    return folder(table) / Descriptor.from_json(add["deletionVector"]).relative_path()
