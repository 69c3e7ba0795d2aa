"""All errors that Delvec raises, in the client and the service: one tree below :class:`DelvecError`.

Each module lists its own; docs/errors.md has them all, with code, status and advice. An error is sent as
``{"error": {"message", "type", "code", "retryable", "details"}}``; :func:`from_wire` converts that back to the class that
was raised. Concurrency errors have Delta's exception name as ``type``, so that programs written for delta-spark recognize
them.
"""

from delvec_errors import commit_errors, request_errors, root, table_errors
from delvec_errors.commit_errors import *  # noqa: F403
from delvec_errors.request_errors import *  # noqa: F403
from delvec_errors.root import *  # noqa: F403
from delvec_errors.root import error_classes, from_wire
from delvec_errors.table_errors import *  # noqa: F403

__all__ = ["error_classes", "from_wire"]
__all__ += root.__all__
__all__ += commit_errors.__all__
__all__ += request_errors.__all__
__all__ += table_errors.__all__
