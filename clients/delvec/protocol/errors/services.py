"""What a service or an engine needs and does not have."""

from delvec.protocol.errors.root import DelvecError

__all__ = [
    "AtomicCreateUnsupported",
    "DeadlineExceeded",
    "EngineUnavailable",
    "InternalError",
    "ServiceUnavailable",
    "StorageDenied",
    "StorageError",
    "StorageFull",
    "UnusableFile",
]


class StorageError(DelvecError):
    """The object store or file system answered with an error."""

    type, code, status, retryable = "StorageError", "STORAGE_ERROR", 502, True


class AtomicCreateUnsupported(StorageError):
    """The file system cannot create a file atomically (no hard links), so commits would not be safe."""

    type, code, status, retryable = "AtomicCreateUnsupported", "ATOMIC_CREATE_UNSUPPORTED", 501, False


class StorageFull(StorageError):
    """There is no space left, or a quota is used up."""

    type, code, status, retryable = "StorageFull", "STORAGE_FULL", 507, False


class StorageDenied(StorageError):
    """The process lacks the right to do that there, or the file system is read-only."""

    type, code, status, retryable = "StorageDenied", "STORAGE_DENIED", 502, False


class UnusableFile(StorageError):
    """What is there is no regular file (a FIFO, device, socket, directory, circle of links), or over a limit of size."""

    type, code, status, retryable = "UnusableFile", "UNUSABLE_FILE", 422, False


class ServiceUnavailable(DelvecError):
    """The service cannot be reached or is not ready; nothing was done."""

    type, code, status, retryable = "ServiceUnavailable", "SERVICE_UNAVAILABLE", 503, True


class DeadlineExceeded(DelvecError):
    """The service did not finish the request in its time; it may still be carried out."""

    type, code, status, retryable = "DeadlineExceeded", "DEADLINE_EXCEEDED", 504, True


class EngineUnavailable(DelvecError):
    """The engine asked for is not installed or cannot start (for example, no Java for Spark)."""

    type, code, status = "EngineUnavailable", "ENGINE_UNAVAILABLE", 501


class InternalError(DelvecError):
    """A defect in Delvec; the message names the request, the log has the traceback."""

    type, code, status = "InternalError", "INTERNAL_ERROR", 500
