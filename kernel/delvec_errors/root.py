"""The root of the error classes, and their conversion from and to the wire format.

Tested in `tests/architecture/test_documentation.py` and
`tests/integration/client/http/test_service_client.py`.
"""

from collections.abc import Iterator
from typing import Any, ClassVar

__all__ = [
    "AtomicCreateUnsupported",
    "CatalogUnavailable",
    "DeadlineExceeded",
    "DelvecError",
    "EngineUnavailable",
    "IcebergCatalogError",
    "IdentityProviderUnavailable",
    "InternalError",
    "ServiceUnavailable",
    "StorageDenied",
    "StorageError",
    "StorageFull",
    "UnusableFile",
    "VacuumIncomplete",
]


class DelvecError(Exception):
    """The base class of all errors that Delvec raises.

    Attributes:
        message: one sentence: what happened, where, what to do.
        details: JSON-compatible facts for programs, including ``table``, ``version`` and ``file`` if known. Errors in SQL also
            have ``line``, ``column_number``, and ``excerpt``, which ``str()`` shows below the message.
    """

    type: ClassVar[str] = "DelvecError"
    code: ClassVar[str] = "DELVEC_ERROR"
    status: ClassVar[int] = 500
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.details = {key: value for key, value in details.items() if value is not None}

    def __str__(self) -> str:
        excerpt = self.details.get("excerpt")
        return f"{self.message}\n{excerpt}" if excerpt else self.message

    def __reduce__(self) -> tuple[Any, ...]:
        # Spark pickles errors of tasks, and default pickling would lose the keyword-only details.
        return (_rebuild, (type(self), self.message, self.details))

    def to_wire(self) -> dict[str, Any]:
        """Return the error envelope of an HTTP answer."""
        return {
            "error": {
                "message": self.message,
                "type": self.type,
                "code": self.code,
                "retryable": self.retryable,
                "details": self.details,
            }
        }


def error_classes(root: type[DelvecError] = DelvecError) -> Iterator[type[DelvecError]]:
    """Yield ``root`` and every class below it."""
    yield root
    for child in root.__subclasses__():
        # Skip classes that engines derive with a second base; see delvec_engines.spark.typed_errors.
        if child.__bases__ == (root,):
            yield from error_classes(child)


def from_wire(body: dict[str, Any]) -> DelvecError:
    """Return the error in an envelope; an unknown ``type`` becomes a plain DelvecError."""
    error = body.get("error", {})
    classes = {cls.type: cls for cls in error_classes()}
    cls = classes.get(error.get("type", ""), DelvecError)
    details = error.get("details") or {}
    return _rebuild(cls, str(error.get("message", "the service gave no message")), details)


def _rebuild(cls: type[DelvecError], message: str, details: dict[str, Any]) -> DelvecError:
    return cls(message, **details)


class StorageError(DelvecError):
    """The object store or file system answered with an error."""

    type, code, status, retryable = "StorageError", "STORAGE_ERROR", 502, True


class AtomicCreateUnsupported(StorageError):
    """The file system cannot create a file atomically (no hard links), so commits would not be safe."""

    type, code, status, retryable = "AtomicCreateUnsupported", "ATOMIC_CREATE_UNSUPPORTED", 501, False


class StorageFull(StorageError):
    """There is no space left, or a quota is exhausted."""

    type, code, status, retryable = "StorageFull", "STORAGE_FULL", 507, False


class StorageDenied(StorageError):
    """The process lacks permission, its credentials are refused, or the file system is read-only."""

    type, code, status, retryable = "StorageDenied", "STORAGE_DENIED", 502, False


class UnusableFile(StorageError):
    """The path is not a regular file (a FIFO, device, socket, directory, link loop), or exceeds a size limit."""

    type, code, status, retryable = "UnusableFile", "UNUSABLE_FILE", 422, False


class CatalogUnavailable(StorageError):
    """Another catalog does not answer, refuses its token, or contradicts itself about a table that it manages."""

    type, code, status, retryable = "CatalogUnavailable", "CATALOG_UNAVAILABLE", 502, True


class VacuumIncomplete(StorageError):
    """Storage did not delete every file of a VACUUM; says what was deleted and what was not. Rerunning it is safe."""

    type, code, status, retryable = "VacuumIncomplete", "VACUUM_INCOMPLETE", 502, False


class IcebergCatalogError(DelvecError):
    """An Iceberg catalog refused a converted table, did not answer, or has another table of that name."""

    type, code, status, retryable = "IcebergCatalogError", "ICEBERG_CATALOG_ERROR", 502, True


class ServiceUnavailable(DelvecError):
    """The service cannot be reached or is not ready; nothing was done."""

    type, code, status, retryable = "ServiceUnavailable", "SERVICE_UNAVAILABLE", 503, True


class IdentityProviderUnavailable(ServiceUnavailable):
    """The identity provider's keys cannot be read and none are cached, so its tokens cannot be verified."""

    type, code = "IdentityProviderUnavailable", "IDENTITY_PROVIDER_UNAVAILABLE"


class DeadlineExceeded(DelvecError):
    """The service did not finish the request in time; it may still take effect."""

    type, code, status, retryable = "DeadlineExceeded", "DEADLINE_EXCEEDED", 504, True


class EngineUnavailable(DelvecError):
    """The engine asked for is not installed, or does not work here (for example, Spark's workers run another Python)."""

    type, code, status = "EngineUnavailable", "ENGINE_UNAVAILABLE", 501


class InternalError(DelvecError):
    """A defect in Delvec; the message names the request, the log has the traceback."""

    type, code, status = "InternalError", "INTERNAL_ERROR", 500
