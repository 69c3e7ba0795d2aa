"""Credentials of single tables, for stores that else take the process's own from the environment."""

import threading
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, Protocol, TypedDict

from delvec_kernel import locations

__all__ = ["CredentialProvider", "S3Keys", "credentials_of", "forget_credentials", "use_credentials"]

_lock: Final = threading.Lock()
_providers: Final[dict[str, list["CredentialProvider"]]] = {}


class S3Keys(TypedDict):
    """Keys as obstore takes them."""

    access_key_id: str
    secret_access_key: str
    token: str | None
    expires_at: datetime | None


class CredentialProvider(Protocol):
    """Gets the keys of a table's files, and gets new ones before those expire."""

    def __call__(self) -> S3Keys:
        """Return keys that hold for some minutes at least."""

    def settings(self) -> Mapping[str, Any]:
        """Return where the store is, as obstore's options; the environment's win."""


def use_credentials(location: str, provider: CredentialProvider) -> None:
    """Open the files below a location with a provider's keys from now on; of several providers the last one counts."""
    with _lock:
        _providers.setdefault(location, []).append(provider)


def forget_credentials(location: str, provider: CredentialProvider) -> None:
    """Take back what :func:`use_credentials` did."""
    with _lock:
        found = [each for each in _providers.get(location, ()) if each is not provider]
        if found:
            _providers[location] = found
        else:
            _providers.pop(location, None)


def credentials_of(location: str) -> CredentialProvider | None:
    """Return the provider of the innermost location that one holds for; None where the environment's keys do."""
    if not _providers:
        return None
    with _lock:
        around = [each for each in _providers if locations.within(location, each)]
        return _providers[max(around, key=len)][-1] if around else None
