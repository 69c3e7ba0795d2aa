"""Per-table credentials, for stores that otherwise use those of the environment."""

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
    """Provides the keys for a table's files, and renews them before they expire."""

    def __call__(self) -> S3Keys:
        """Return keys that are valid for at least some minutes."""

    def settings(self) -> Mapping[str, Any]:
        """Return the store's settings as obstore options; the environment takes precedence."""


def use_credentials(location: str, provider: CredentialProvider) -> None:
    """Use a provider's keys for files below a location; the last of several providers wins."""
    with _lock:
        _providers.setdefault(location, []).append(provider)


def forget_credentials(location: str, provider: CredentialProvider) -> None:
    """Undo :func:`use_credentials`."""
    with _lock:
        found = [each for each in _providers.get(location, ()) if each is not provider]
        if found:
            _providers[location] = found
        else:
            _providers.pop(location, None)


def credentials_of(location: str) -> CredentialProvider | None:
    """Return the provider of the innermost enclosing location; None to use the environment's keys."""
    if not _providers:
        return None
    with _lock:
        around = [each for each in _providers if locations.within(location, each)]
        return _providers[max(around, key=len)][-1] if around else None
