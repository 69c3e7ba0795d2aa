"""The root of the tree, and the way over the wire."""

from collections.abc import Iterator
from typing import Any, ClassVar

__all__ = [
    "DelvecError",
    "error_classes",
    "from_wire",
]


class DelvecError(Exception):
    """The root: something that Delvec can name went wrong.

    Attributes:
        message: one sentence: what happened, where, what to do.
        details: JSON-ready facts for programs, among them ``table``, ``version`` and ``file`` where known.
    """

    type: ClassVar[str] = "DelvecError"
    code: ClassVar[str] = "DELVEC_ERROR"
    status: ClassVar[int] = 500
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.details = {key: value for key, value in details.items() if value is not None}

    def __reduce__(self) -> tuple[Any, ...]:
        # Spark pickles what a task raises; keyword-only details would be lost by the default.
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
        # An engine may make classes that are one of its own, too; see delvec.engines.pyspark.typed_errors.
        if child.__bases__ == (root,):
            yield from error_classes(child)


def from_wire(body: dict[str, Any]) -> DelvecError:
    """Return the error that an envelope describes; an unknown ``type`` becomes a plain DelvecError."""
    error = body.get("error", {})
    classes = {cls.type: cls for cls in error_classes()}
    cls = classes.get(error.get("type", ""), DelvecError)
    details = error.get("details") or {}
    return _rebuild(cls, str(error.get("message", "the service gave no message")), details)


def _rebuild(cls: type[DelvecError], message: str, details: dict[str, Any]) -> DelvecError:
    return cls(message, **details)
