"""OpenTelemetry traces, if it is installed and its standard environment variables request them.

Tested in `tests/integration/service/test_tracing.py`.
"""

import os
from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any, Final

from delvec_service.logs import logger

__all__ = ["Span", "Tracing", "tracing"]

_ENDPOINT_VARIABLES: Final = (
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_TRACES_EXPORTER",
)
_SERVER_ERROR: Final = 500


class Span:
    """A part of a trace, from :meth:`begin` to :meth:`end` on one thread; spans begun within it are children."""

    def __init__(
        self, tracer: Any, name: str, attributes: Mapping[str, str], kind: Any, parent: Any = None
    ) -> None:
        self._tracer, self._name, self._kind, self._parent = tracer, name, kind, parent
        self._attributes = {f"delvec.{key}": value for key, value in attributes.items()}

    def begin(self) -> None:
        """Begin, inside the current span of this thread or request."""
        from opentelemetry import context, trace

        self._span = self._tracer.start_span(
            self._name, context=self._parent, kind=self._kind, attributes=self._attributes
        )
        self._token = context.attach(trace.set_span_in_context(self._span, self._parent))

    @property
    def trace_id(self) -> str | None:
        """The trace's id in hexadecimal, or None if the trace is not recorded."""
        found = self._span.get_span_context()
        return f"{found.trace_id:032x}" if found.trace_flags.sampled else None

    def answered(self, method: str, route: str, status: int) -> None:
        """Record how an HTTP request ended, with OpenTelemetry's semantic conventions."""
        self._span.update_name(f"{method} {route}")
        self._span.set_attributes(
            {"http.request.method": method, "http.route": route, "http.response.status_code": status}
        )
        if status >= _SERVER_ERROR or not status:
            from opentelemetry.trace import StatusCode

            self._span.set_status(StatusCode.ERROR)

    def end(self, error: BaseException | None = None) -> None:
        """End the span, with the error if something failed."""
        from opentelemetry import context
        from opentelemetry.trace import StatusCode

        context.detach(self._token)
        if error is not None:
            self._span.set_attribute("error.type", type(error).__name__)
            self._span.set_status(StatusCode.ERROR)
        self._span.end()


class Tracing:
    """Makes the spans of a service.

    Args:
        provider: an OpenTelemetry tracer provider.
        owned: whether to shut it down on close.
    """

    def __init__(self, provider: Any, *, owned: bool = True) -> None:
        from opentelemetry.trace import SpanKind

        self._provider, self._owned = provider, owned
        self._tracer = provider.get_tracer("delvec_service")
        self._server, self._internal = SpanKind.SERVER, SpanKind.INTERNAL

    def request(self, scope: Any) -> Span:
        """Return the span of an HTTP request, inside the trace that its headers name."""
        from opentelemetry import propagate

        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        parent = propagate.extract(headers)
        return Span(self._tracer, "HTTP", {}, self._server, parent)

    def span(self, name: str, attributes: Mapping[str, str]) -> Span:
        """Return the span of a step."""
        return Span(self._tracer, name, attributes, self._internal)

    def close(self) -> None:
        """Export the remaining spans."""
        if self._owned:
            self._provider.shutdown()


def tracing() -> Tracing | None:
    """Return a tracer as configured by OpenTelemetry's standard variables, or None if they do not request traces.

    An existing provider is used: ``opentelemetry-instrument delvec serve`` sets one.
    """
    try:
        from opentelemetry import trace
    except ModuleNotFoundError:
        return None
    if os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return None
    found = trace.get_tracer_provider()
    if not isinstance(found, trace.ProxyTracerProvider):
        return Tracing(found, owned=False)
    if not any(os.environ.get(name) for name in _ENDPOINT_VARIABLES):
        return None
    exporters = _exporters()
    if not exporters:
        return None
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    named = os.environ.get("OTEL_SERVICE_NAME") or "service.name=" in os.environ.get(
        "OTEL_RESOURCE_ATTRIBUTES", ""
    )
    provider = TracerProvider(resource=Resource.create({} if named else {SERVICE_NAME: "delvec"}))
    for exporter in exporters:
        provider.add_span_processor(BatchSpanProcessor(exporter))
    return Tracing(provider)


def _exporters() -> list[Any]:
    """Return the exporters that OTEL_TRACES_EXPORTER names, from the entry points of OpenTelemetry's packages."""
    names = [name.strip() for name in os.environ.get("OTEL_TRACES_EXPORTER", "otlp").split(",")]
    exporters = []
    for name in names:
        if name in ("", "none"):
            continue
        if name == "otlp":
            protocol = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or os.environ.get(
                "OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"
            )
            name = "otlp_proto_grpc" if protocol == "grpc" else "otlp_proto_http"  # noqa: PLW2901
        try:
            (entry,) = entry_points(group="opentelemetry_traces_exporter", name=name)
            exporters.append(entry.load()())
        except (ImportError, ValueError) as error:
            logger.warning(
                "traces are not exported",
                exporter=name,
                reason=str(error)[:300],
                hint="install opentelemetry-sdk and the exporter's package: pip install 'delvec[traces]'",
            )
    return exporters
