"""OpenTelemetry traces of requests and their steps."""

import httpx
import pytest
from tests.support.asgi_transport import EmbeddedTransport

from delvec_service import app as application
from delvec_service.config import Settings
from delvec_service.telemetry import tracing

otel = pytest.importorskip("opentelemetry.sdk.trace", reason="opentelemetry-sdk is an extra")

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def traced(tmp_path, monkeypatch):
    """Yield a client of a service that traces, and its spans so far."""
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    kept = InMemorySpanExporter()
    provider = otel.TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    monkeypatch.setattr(tracing, "tracing", lambda: tracing.Tracing(provider))
    app = application.create_app(Settings(database_url=f"sqlite:///{tmp_path / 'store.db'}"))
    with httpx.Client(transport=EmbeddedTransport(app), base_url="http://delvec.test") as client:
        yield client, kept.get_finished_spans


def test_a_request_is_a_trace_with_what_was_done_for_it(traced, tmp_path):
    client, spans = traced
    schema = {"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]}
    client.post("/v1/tables", json={"location": str(tmp_path / "people"), "schema": schema})
    change = {"change": "add-columns", "columns": [{"column": "a", "type": "long"}]}
    body = {"operation": "ADD COLUMNS", "read-version": 0, "table-changes": [change]}
    answer = client.post("/v1/tables/people/commits", json=body, headers={"traceparent": PARENT})
    assert answer.status_code == 200, answer.text

    ours = [span for span in spans() if f"{span.context.trace_id:032x}" in PARENT]
    by_name = {span.name: span for span in ours}
    request = by_name["POST /v1/tables/{table}/commits"]
    assert request.attributes["http.response.status_code"] == 200
    assert by_name["commit"].parent.span_id == request.context.span_id
    assert by_name["commit"].attributes["delvec.table"] == "people"
    assert by_name["storage create"].parent.span_id == by_name["commit"].context.span_id

    exposed = client.get("/metrics", headers={"Accept": "application/openmetrics-text"}).text
    assert f'trace_id="{PARENT.split("-")[1]}"' in exposed


def test_the_standard_variables_decide(monkeypatch):
    for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_TRACES_EXPORTER", "OTEL_SDK_DISABLED"):
        monkeypatch.delenv(name, raising=False)
    assert tracing.tracing() is None
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "console")
    found = tracing.tracing()
    assert found is not None
    found.close()
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")
    assert tracing.tracing() is None
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "nobody-has-this")
    assert tracing.tracing() is None
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "console")
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    assert tracing.tracing() is None
