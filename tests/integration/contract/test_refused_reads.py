"""Reads that an object store refuses the DuckDB engine are storage errors, not damage or an invalid predicate."""

import duckdb
import pytest

import delvec
from delvec_errors import CorruptTable, MissingDataFile, StorageDenied, StorageError
from delvec_storage import file_locations, files


def document(code, message):
    body = f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code><Message>{message}</Message></Error>'
    return [("Content-Type", "application/xml")], body.encode()


def refuse(status, code, message):
    headers, body = document(code, message)

    def answer(request):
        # Like S3, answer HEAD without a body.
        is_data = request.key.endswith(".parquet") and request.kind in ("GET", "HEAD")
        return (status, headers, body if request.kind == "GET" else b"") if is_data else None

    return answer


def cut(request):
    """Close the connection in the middle of the body."""
    if not (request.key.endswith(".parquet") and request.kind == "GET"):
        return None
    start, _, end = request.range.removeprefix("bytes=").partition("-")
    size = int(end) - int(start) + 1
    headers = [
        ("Content-Length", str(size)),
        ("Content-Range", f"bytes {start}-{end}/100000"),
        ("ETag", '"1"'),
    ]
    headers += [("Last-Modified", "Mon, 01 Jan 2024 00:00:00 GMT")]
    return "206 Partial Content", headers, b"x" * (size // 2)


FAULTS = {
    "throttled": (
        refuse("503 Slow Down", "SlowDown", "Reduce your rate."),
        StorageError,
        "503.*SlowDown: Reduce",
    ),
    "expired": (
        refuse("400 Bad Request", "ExpiredToken", "It expired."),
        StorageDenied,
        "ExpiredToken: It exp",
    ),
    "no such key": (
        refuse("403 Forbidden", "InvalidAccessKeyId", "No key."),
        StorageDenied,
        "InvalidAccessKeyId",
    ),
    "denied": (refuse("403 Forbidden", "AccessDenied", "Access Denied"), StorageDenied, "AccessDenied"),
    "cut": (cut, StorageError, "body error"),
}

COMMANDS = {
    "read": lambda lake: lake.table("refused").to_arrow(),
    "read where": lambda lake: lake.table("refused").to_arrow(predicate="length(s) > 5"),
    "delete": lambda lake: lake.table("refused").delete("length(s) > 5 AND id = 3"),
    "update": lambda lake: lake.table("refused").update({"s": "'y'"}, "id = 3"),
    "merge": lambda lake: (
        lake.table("refused")
        .merge([{"id": 1, "s": "q"}], "target.id = source.id")
        .when_matched_update_all()
        .execute()
    ),
    "changes": lambda lake: lake.table("refused").changes(0).to_arrow(),
    "SQL": lambda lake: lake.sql("SELECT sum(length(s)) FROM refused"),
}


@pytest.fixture
def lake(s3_location, monkeypatch):
    monkeypatch.setattr(file_locations, "_RETRIES", {"max_retries": 1})
    with delvec.connect(database_url="sqlite://") as connection:
        table = connection.create_table(
            s3_location,
            "id long, s string",
            name="refused",
            properties={"delta.enableChangeDataFeed": "true"},
        )
        table.append([{"id": number, "s": "x" * number} for number in range(100)])
        yield connection


@pytest.mark.parametrize("fault", FAULTS)
def test_a_refused_read_is_a_storage_error(lake, s3_server, fault):
    answer, kind, reason = FAULTS[fault]
    table = lake.table("refused")
    s3_server.fault = answer
    try:
        for name, command in COMMANDS.items():
            with pytest.raises(StorageError, match=reason) as caught:
                command(lake)
            assert type(caught.value) is kind, name
            assert caught.value.retryable == (kind is StorageError)
            assert caught.value.details["table"] == "refused"
            message = caught.value.message
            assert "Traceback" not in message
            assert "\n" not in message
            assert "<" not in message
    finally:
        s3_server.fault = None
    assert (table.count(), table.version()) == (100, 1)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_lazily_read_relation_fails_with_a_one_sentence_error(lake, s3_server, fault):
    answer, kind, reason = FAULTS[fault]
    relation = lake.table("refused").to_duckdb()
    s3_server.fault = answer
    try:
        with pytest.raises(duckdb.Error, match=f"{kind.__name__}: Cannot read s3://.*{reason}") as caught:
            relation.fetchall()
    finally:
        s3_server.fault = None
    assert "Traceback" not in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_a_file_that_is_missing_or_too_short_is_damage(lake, s3_server):
    table = lake.table("refused")
    missing = ("404 Not Found", *document("NoSuchKey", "The specified key does not exist."))
    s3_server.fault = lambda request: missing if request.key.endswith(".parquet") else None
    try:
        with pytest.raises(MissingDataFile, match=r"part-.*does not exist") as caught:
            table.to_arrow()
        path = caught.value.details["file"]
    finally:
        s3_server.fault = None
    files.write_file(table.location, path, b"PAR1")
    with pytest.raises(CorruptTable, match=path) as caught:
        table.to_arrow()
    assert "Traceback" not in caught.value.message


def test_a_refused_head_is_access_denied_even_without_a_body(s3_location, s3_server):
    s3_server.fault = refuse("400 Bad Request", "ExpiredToken", "It expired.")
    try:
        with pytest.raises(StorageDenied, match="400 Bad Request; check the credentials"):
            files.stat(s3_location, "a.parquet")
    finally:
        s3_server.fault = None
