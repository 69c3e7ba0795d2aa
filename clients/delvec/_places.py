"""Where files are: local paths, and obstore stores for everything else."""

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from obstore.exceptions import BaseError
from obstore.store import MemoryStore, ObjectStore, from_url

from delvec.protocol import locations
from delvec.protocol.errors import LocationNotAllowed, StorageError

__all__ = ["Allowed", "Place", "locate", "storage_errors", "store_for"]

Allowed = Callable[[str], bool]

_MAX_STORES: Final = 64
_PROVIDERS: Final = ("AWS_", "GOOGLE_", "AZURE_")
_RETRIES: Final = {"max_retries": 6, "retry_timeout": timedelta(seconds=60)}

_lock = threading.Lock()
_memory: dict[str, MemoryStore] = {}
_stores: OrderedDict[tuple[Any, ...], ObjectStore] = OrderedDict()


@dataclass(frozen=True, slots=True)
class Place:
    """Where a file is: a local path, or a store and the key in it.

    Attributes:
        url: the file's absolute URL, percent-encoded, for messages.
    """

    url: str
    local: Path | None
    store: ObjectStore | None
    key: str

    @property
    def remote(self) -> ObjectStore:
        """The store of a file that is not local."""
        if self.store is None:
            raise TypeError(f"{self.url} is a local file")
        return self.store


def store_for(location: str) -> ObjectStore:
    """Return the obstore store rooted at ``location``, the same one for the same location and environment.

    ``memory:`` locations live as long as the process and are shared by all its threads.

    Raises:
        StorageError: the location's scheme is unknown, its configuration incomplete, or the local directory
            missing: nothing is created.
    """
    if location.startswith("memory:"):
        with _lock:
            return _memory.setdefault(location, MemoryStore())
    environment = tuple(sorted(item for item in os.environ.items() if item[0].startswith(_PROVIDERS)))
    key = (location, environment)
    with _lock:
        if key in _stores:
            _stores.move_to_end(key)
            return _stores[key]
    options: dict[str, Any] = {}
    if not location.startswith("file:"):
        options["retry_config"] = _RETRIES
        if dict(environment).get("AWS_ENDPOINT_URL", "").startswith("http://"):
            options["client_options"] = {"allow_http": True}
    with storage_errors("open", location):
        store = from_url(location, **options)
    with _lock:
        store = _stores.setdefault(key, store)
        while len(_stores) > _MAX_STORES:
            _stores.popitem(last=False)
    return store


def locate(location: str, path: str, *, allowed: Allowed | None = None) -> Place:
    """Return where the file ``path`` of the table at ``location`` is.

    Args:
        location: the table's canonical location.
        path: as in the log: URL-encoded, relative or absolute.
        allowed: decides by URL whether a file outside ``location`` may be touched, following links; without it,
            none may.

    Raises:
        LocationNotAllowed: the file lies outside ``location`` and is not allowed, or a symbolic link leads
            where ``allowed`` does not.
        InvalidLocation: an absolute path is of an unknown kind.
    """
    url = locations.resolve(location, path)
    inside = locations.within(url, location)
    if not inside and not (allowed is not None and allowed(url)):
        raise LocationNotAllowed(
            f"The file {url} lies outside its table's location {location}; "
            "allow its directory (DELVEC_ROOTS) if the table may use it.",
            file=url,
        )
    local = locations.local_path(url)
    if local is not None:
        if inside and allowed is not None and os.path.realpath(local) != str(local) and not allowed(url):
            raise LocationNotAllowed(
                f"A symbolic link leads from the file {url} out of what may be read; put the file itself there, or "
                "allow the directory that it is in (DELVEC_ROOTS).",
                file=url,
            )
        return Place(url, local, None, str(local))
    parent = location if inside else _root_outside(url)
    return Place(url, None, store_for(parent), unquote(url[len(parent) + 1 :]))


def _root_outside(url: str) -> str:
    """Return the root of the store for a file that is not below its table's location."""
    if url.startswith("memory:"):
        with _lock:
            holding = [location for location in _memory if locations.within(url, location)]
        if holding:
            return max(holding, key=len)
    return url.rpartition("/")[0]


@contextmanager
def storage_errors(verb: str, name: str, *, writing: bool = False) -> Iterator[None]:
    """Turn what storage raises into StorageError.

    What a caller decides by passes: that a file to be read is missing, or that a file to be written exists.
    """
    try:
        yield
    except (OSError, BaseError, ValueError) as error:
        if writing and isinstance(error, FileExistsError):
            raise
        # Under a parent that is a file there is nothing either. When writing, it is the bucket that is missing.
        if not writing and isinstance(error, (FileNotFoundError, NotADirectoryError)):
            raise FileNotFoundError(f"{name} does not exist") from error
        # obstore appends the server's document and a dump of its own internals.
        reason = str(error).partition("\n")[0].partition(": <?xml")[0][:500]
        raise StorageError(
            f"Cannot {verb} {name}: {reason}; try again, or check storage.", file=name
        ) from error
