"""Resolves file locations: to local paths, or to obstore stores and keys.

Tested in `tests/integration/contract/test_files.py` and `tests/integration/contract/test_refused_reads.py`.
"""

import errno
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from cachetools import LRUCache
from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError
from obstore.store import MemoryStore, ObjectStore, from_url

from delvec_errors import (
    DelvecError,
    InvalidLocation,
    LocationNotAllowed,
    StorageDenied,
    StorageError,
    StorageFull,
    UnusableFile,
)
from delvec_kernel import locations
from delvec_storage import local_files as _local_files
from delvec_storage.table_credentials import credentials_of

__all__ = ["Allowed", "FileLocation", "answered_status", "locate", "storage_errors", "store_for"]

Allowed = Callable[[str], bool]
"""Decides by canonical URL, with links resolved, whether a file may be accessed."""

_MAX_STORES: Final = 64
_PROVIDERS: Final = ("AWS_", "GOOGLE_", "AZURE_")
_AZURE_ENDPOINTS: Final = ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT")
_ENDPOINTS: Final = {"s3": ("AWS_ENDPOINT_URL",), "az": _AZURE_ENDPOINTS, "abfss": _AZURE_ENDPOINTS}
"""Variables that set a custom endpoint, by scheme; an http:// value counts as the user's consent to plain HTTP."""
_RETRIES: Final = {"max_retries": 6, "retry_timeout": timedelta(seconds=60)}

_lock = threading.Lock()
_memory: dict[str, MemoryStore] = {}
_stores: LRUCache[tuple[Any, ...], ObjectStore] = LRUCache(_MAX_STORES)


@dataclass(frozen=True, slots=True)
class FileLocation:
    """The location of a file: a local path, or a store and a key.

    Attributes:
        url: the file's absolute URL, percent-encoded, for messages.
    """

    url: str
    local: Path | None
    store: ObjectStore | None
    key: str
    _location: str
    _allowed: Allowed | None

    def opened_directory(self, *, create: bool = False, durable: bool = False) -> AbstractContextManager[int]:
        """Open the directory of a local file; see :func:`delvec_storage.local_files.opened_directory`.

        Raises:
            LocationNotAllowed: a link leads to a location that is not allowed.
            OSError: it cannot be opened.
        """
        return _local_files.opened_directory(self.path.parent, self.check, create=create, durable=durable)

    def check(self, real: str) -> None:
        """Reject a path reached through links, unless it is allowed or inside the table's real location.

        Raises:
            LocationNotAllowed: it is neither.
        """
        url = locations.canonical(real)
        if self._allowed is not None:
            if self._allowed(url):
                return
        else:
            table = locations.local_path(self._location)
            if table is not None and locations.within(url, locations.canonical(os.path.realpath(table))):
                return
        raise LocationNotAllowed(
            f"The file {self.url} is a symbolic link to {real}, which is outside the allowed directories; "
            "replace the link by the file, or allow its directory (DELVEC_ROOTS).",
            file=self.url,
        )

    @property
    def path(self) -> Path:
        """The path of a local file."""
        if self.local is None:
            raise TypeError(f"{self.url} is not a local file")
        return self.local

    @property
    def remote(self) -> ObjectStore:
        """The store of a file that is not local."""
        if self.store is None:
            raise TypeError(f"{self.url} is a local file")
        return self.store


def store_for(location: str) -> ObjectStore:
    """Return the obstore store rooted at ``location``, cached by location, credentials and environment.

    Uses the credentials registered for the location's table (:func:`use_credentials`), or else the environment's.

    ``memory:`` stores live as long as the process and are shared by all its threads.

    Raises:
        StorageError: the location's scheme is unknown, its configuration incomplete, or the local directory
            missing (none is created).
    """
    if location.startswith("memory:"):
        with _lock:
            return _memory.setdefault(location, MemoryStore())
    environment = tuple(sorted(item for item in os.environ.items() if item[0].startswith(_PROVIDERS)))
    provider = credentials_of(location) if location.startswith("s3:") else None
    key = (location, environment, provider)
    with _lock:
        store = _stores.get(key)
    if store is not None:
        return store
    options: dict[str, Any] = {}
    if not location.startswith("file:"):
        options["retry_config"] = _RETRIES
        endpoints = _ENDPOINTS.get(location.partition(":")[0], ())
        endpoint = next((value for name, value in environment if name in endpoints), "")
        if provider is not None:
            given = provider.settings()
            endpoint = endpoint or given.get("endpoint", "")
            options |= {**given, "credential_provider": provider}
        if endpoint.startswith("http://"):
            options["client_options"] = {"allow_http": True}
    with storage_errors("open", location):
        store = from_url(location, **options)
    with _lock:
        return _stores.setdefault(key, store)


def locate(
    location: str, path: str, *, is_allowed: Allowed | None = None, inside: bool = False
) -> FileLocation:
    """Resolve the file ``path`` of the table at ``location``.

    Symbolic links are checked when the file is opened, since they may change until then.

    Args:
        location: the table's canonical location.
        path: the path, as in the log: URL-encoded, relative or absolute.
        is_allowed: decides by URL, with links resolved, whether a file outside ``location`` may be accessed; none may by
            default.
        inside: whether the path itself must be inside, though links may lead out; for writes and deletes.

    Raises:
        LocationNotAllowed: the file is outside ``location`` and is not allowed.
        InvalidLocation: an absolute path has an unknown scheme.
    """
    url = locations.resolve(location, path)
    is_inside = locations.within(url, location)
    if not is_inside and (inside or is_allowed is None or not is_allowed(url)):
        raise LocationNotAllowed(
            f"The file {url} is outside its table's location {location}; allow its directory (DELVEC_ROOTS) "
            "if the table may use it.",
            file=url,
        )
    local = locations.local_path(url)
    if local is not None:
        return FileLocation(url, local, None, str(local), location, is_allowed)
    parent = location if is_inside else _root_outside(url)
    return FileLocation(url, None, store_for(parent), unquote(url[len(parent) + 1 :]), location, is_allowed)


def _root_outside(url: str) -> str:
    """Return the root of the store for a file outside its table's location."""
    if url.startswith("memory:"):
        with _lock:
            holding = [location for location in _memory if locations.within(url, location)]
        if holding:
            return max(holding, key=len)
    elif credentials_of(url) is None:
        return "/".join(url.split("/", 3)[:3])  # the bucket: a clone names files in many folders
    return url.rpartition("/")[0]


_MISSING: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG})
"""Errors for a missing file, including a parent that is a file and a name too long to exist."""
_KINDS: Final[Mapping[int, tuple[type[DelvecError], str]]] = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), (StorageFull, "free space, then try again")),
    **dict.fromkeys(
        (errno.EACCES, errno.EPERM, errno.EROFS),
        (StorageDenied, "give the user of this process the permission"),
    ),
    **dict.fromkeys((errno.ELOOP, errno.EISDIR, errno.ENODEV), (UnusableFile, "put a regular file there")),
    errno.ENOTDIR: (
        UnusableFile,
        "a file is where a directory is needed: choose another location, or move that file away",
    ),
    errno.ENAMETOOLONG: (InvalidLocation, "choose a shorter name"),
}


@contextmanager
def storage_errors(verb: str, name: str, *, writing: bool = False) -> Iterator[None]:
    """Convert storage errors to a DelvecError: StorageError if a retry may help.

    Errors that callers handle pass through: a missing file on reads, an existing file on writes.
    """
    try:
        yield
    except (OSError, BaseError, ValueError) as error:
        if writing and isinstance(error, FileExistsError):
            raise
        code = error.errno if isinstance(error, OSError) else None
        # On writes, a missing "file" is the bucket.
        if not writing and (isinstance(error, FileNotFoundError) or code in _MISSING):
            raise FileNotFoundError(f"{name} does not exist") from error
        kind, advice = _KINDS.get(code or 0, (StorageError, "try again, or check storage"))
        reason = _first_line(str(error))
        if isinstance(error, BaseError):
            reason, is_denied = _answer(error)
            if is_denied:
                kind, advice = StorageDenied, _DENIED_ADVICE
        raise kind(f"Cannot {verb} {name}: {reason}; {advice}.", file=name) from error


_STATUS: Final = re.compile(r"non-2xx status code: ((\d{3})[A-Za-z ]*)")
_CODE: Final = re.compile(r"<Code>([^<]{1,100})</Code>")
_MESSAGE: Final = re.compile(r"<Message>([^<]{1,300})</Message>")
_DENIED: Final = frozenset(
    {
        "AccessDenied",
        "AccountProblem",
        "AllAccessDisabled",
        "AuthenticationFailed",
        "AuthorizationFailure",
        "AuthorizationPermissionMismatch",
        "ExpiredToken",
        "InsufficientAccountPermissions",
        "InvalidAccessKeyId",
        "InvalidAuthenticationInfo",
        "InvalidClientTokenId",
        "InvalidSecurity",
        "InvalidToken",
        "NotSignedUp",
        "RequestExpired",
        "RequestTimeTooSkewed",
        "SignatureDoesNotMatch",
        "TokenRefreshRequired",
    }
)
"""Error codes for denied access in S3, GCS and Azure; S3 sends several of them with status 400."""
_DENIED_ADVICE: Final = "check the credentials, their expiry and their permissions"


def answered_status(error: BaseError) -> int | None:
    """Return the HTTP status of an object store's error response, if obstore's error contains it."""
    found = _STATUS.search(str(error))
    return int(found[2]) if found else None


def _first_line(text: str) -> str:
    """Return a message without the store's XML document or obstore's debug output."""
    return text.partition("\n")[0].partition("<?xml")[0].rstrip(" :")[:500]


def _answer(error: BaseError) -> tuple[str, bool]:
    """Return a short form of an object store's answer, and whether it denies access."""
    text = str(error)
    status, code, message = (pattern.search(text) for pattern in (_STATUS, _CODE, _MESSAGE))
    is_denied = isinstance(error, PermissionDeniedError | UnauthenticatedError)
    if status is None:
        return _first_line(text), is_denied
    if code is None:
        # S3's answer to HEAD has no body, and status 400 for expired credentials.
        return f"storage answered {status[1].strip()}", is_denied or status[2] in ("400", "401", "403")
    reason = f"{code[1]}: {message[1]}" if message else code[1]
    is_denied |= code[1] in _DENIED or status[2] in ("401", "403")
    return f"storage answered {status[1].strip()} ({reason.rstrip('.')})", is_denied
