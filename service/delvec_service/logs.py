"""The service's log: one JSON object per line, through the standard library's logging.

Importing this configures nothing: in a process that embeds the service, its own logging configuration applies.

Tested in `tests/integration/service/test_http.py`.
"""

import logging
import sys
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

import structlog

__all__ = ["AUDIT", "audit_logger", "bind_log_context", "configure", "log_context", "logger", "of_request"]

AUDIT: Final = "delvec_service.audit"
"""The logger of audit entries, so that a process that embeds the service can send them elsewhere."""
_MAX_LENGTH: Final = 8000
_LONGEST_FACT: Final = 300
_FACTS: Final[ContextVar[dict[str, Any] | None]] = ContextVar("delvec_request_facts", default=None)
"""Facts about the request, shared by its threads, so that the log line at its end has what they found out."""


@contextmanager
def of_request(request_id: str) -> Iterator[None]:
    """Add the request's facts to every log line written for it; see :meth:`note`."""
    token = _FACTS.set({"request_id": request_id})
    try:
        yield
    finally:
        _FACTS.reset(token)


def bind_log_context(**facts: Any) -> None:
    """Add facts to the log lines of this request from now on: its table, principal, transaction; None adds nothing."""
    known = _FACTS.get()
    if known is not None:
        for name, value in facts.items():
            if value is not None:
                known[name] = value[:_LONGEST_FACT] if isinstance(value, str) else value


def log_context() -> Mapping[str, Any]:
    """Return the facts about this request."""
    return _FACTS.get() or {}


def _noted(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    for name, value in (_FACTS.get() or {}).items():
        event.setdefault(name, value)
    return event


def _capped(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Cut the middle out of a long text: the beginning and end of a traceback say most."""
    for key, value in event.items():
        if isinstance(value, str) and len(value) > _MAX_LENGTH:
            half = _MAX_LENGTH // 2
            event[key] = f"{value[:half]} [{len(value) - _MAX_LENGTH} characters] {value[-half:]}"
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
    """Write the log of a service process, including the web server's, to standard error."""
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
    # At every log level: the audit log must not be turned down. Its lines go where the service's go.
    logging.getLogger(AUDIT).setLevel(logging.INFO)
