"""The service's log: one JSON object per line, through the standard library's logging.

Nothing is configured by importing this: in a process that embeds the service, its own logging decides.
"""

import logging
import sys
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

import structlog

__all__ = ["AUDIT", "audit_logger", "configure", "facts", "logger", "note", "of_request"]

AUDIT: Final = "delvec_service.audit"
"""The name of the stream of audit entries, so that a process that embeds the service may send them elsewhere."""
_LONGEST: Final = 8000
_LONGEST_FACT: Final = 300
_FACTS: Final[ContextVar[dict[str, Any] | None]] = ContextVar("delvec_request_facts", default=None)
"""What is known of the request; its threads share it, so that the line at its end has what they found out."""


@contextmanager
def of_request(request_id: str) -> Iterator[None]:
    """Have every line that is written for a request say whose it is, and what :meth:`note` was told of it."""
    token = _FACTS.set({"request_id": request_id})
    try:
        yield
    finally:
        _FACTS.reset(token)


def note(**facts: Any) -> None:
    """Have the lines that are written for this request from now on say more: its table, principal, transaction; None says nothing."""
    known = _FACTS.get()
    if known is not None:
        for name, value in facts.items():
            if value is not None:
                known[name] = value[:_LONGEST_FACT] if isinstance(value, str) else value


def facts() -> Mapping[str, Any]:
    """Return what is known of this request."""
    return _FACTS.get() or {}


def _noted(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    for name, value in (_FACTS.get() or {}).items():
        event.setdefault(name, value)
    return event


def _capped(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Cut what is long out of its middle: how a traceback begins and ends says most."""
    for key, value in event.items():
        if isinstance(value, str) and len(value) > _LONGEST:
            half = _LONGEST // 2
            event[key] = f"{value[:half]} [{len(value) - _LONGEST} characters] {value[-half:]}"
    return event


def _json_lines(name: str) -> Any:
    return structlog.wrap_logger(
        logging.getLogger(name),
        processors=[
            structlog.stdlib.filter_by_level,
            _noted,
            structlog.stdlib.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            _capped,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )


logger: Any = _json_lines("delvec_service")
audit_logger: Any = _json_lines(AUDIT)


def configure(level: str) -> None:
    """Write the log of a service process, the web server's included, to standard error."""
    foreign = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[
            structlog.stdlib.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
        ],
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.format_exc_info,
            _capped,
            structlog.processors.JSONRenderer(),
        ],
    )
    logging.captureWarnings(capture=True)
    for name, formatter in (
        ("delvec_service", logging.Formatter("%(message)s")),
        ("uvicorn", foreign),
        ("asyncio", foreign),
        ("py.warnings", foreign),
    ):
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(formatter)
        log = logging.getLogger(name)
        log.handlers = [handler]
        log.propagate = False
        log.setLevel(level.upper())
    # At every log level: the audit stream is not noise to be turned down. Its lines go where the service's go.
    logging.getLogger(AUDIT).setLevel(logging.INFO)
