"""S3 keys that another catalog issues for a table, or for one that is being created.

Tested in `tests/integration/service/catalog_client/test_credentials.py`.
"""

import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final

from delvec_contract.unity_catalog import IssuedCredentials, StorageCredentialsAnswer
from delvec_errors import (
    CatalogUnavailable,
    CredentialVendingUnsupported,
    InvalidLocation,
    PermissionDenied,
    TableNotFound,
)
from delvec_kernel import locations
from delvec_storage.table_credentials import S3Keys, forget_credentials, use_credentials

__all__ = ["CatalogKeys"]

_SPARE_SECONDS: Final = 300.0
_ASK_AGAIN_SECONDS: Final = 60.0
_S3_KEY: Final = "s3.access-key-id"


class CatalogKeys:
    """S3 keys that a catalog issues for one table, renewed before they expire. Safe to share between threads.

    Args:
        catalog: its name.
        table: for errors.
        location: the table's, canonical.
        ask: asks the catalog for credentials for an operation.
    """

    def __init__(
        self, catalog: str, table: str, location: str, ask: Callable[[str], StorageCredentialsAnswer]
    ) -> None:
        self._catalog = catalog
        self._table = table
        self._location = location
        self._asking = ask
        self._lock = threading.Lock()
        self._issued: IssuedCredentials | None = None
        self._is_used = False
        self._ask_again = 0.0

    def are_used(self, *, has_others: bool) -> bool:
        """Open the table's files with the catalog's keys from now on; return False if it issues none.

        Args:
            has_others: whether those of the environment will do instead: then only keys that can write are used.

        Raises:
            CatalogUnavailable: or a sibling: the catalog does not answer, and there are no others.
        """
        if not self._location.startswith("s3:"):
            return False
        with self._lock:
            if not self._is_used and time.monotonic() >= self._ask_again:
                if self._are_issued(has_others=has_others):
                    self._is_used = True
                    use_credentials(self._location, self)
                self._ask_again = time.monotonic() + _ASK_AGAIN_SECONDS
            return self._is_used

    def close(self) -> None:
        """Forget them."""
        with self._lock:
            if self._is_used:
                forget_credentials(self._location, self)
                self._is_used = False

    def _are_issued(self, *, has_others: bool) -> bool:
        try:
            self._issued = self._fitting("READ_WRITE") if has_others else self._ask()
        except (CatalogUnavailable, PermissionDenied, TableNotFound):
            if not has_others:
                raise
        return self._issued is not None

    def __call__(self) -> S3Keys:
        """Return keys that are valid for some minutes."""
        issued = self._current()
        expires = issued.expiration_time_ms
        return {
            "access_key_id": issued.config[_S3_KEY],
            "secret_access_key": issued.config.get("s3.secret-access-key", ""),
            "token": issued.config.get("s3.session-token"),
            "expires_at": None if expires is None else datetime.fromtimestamp(expires / 1000, UTC),
        }

    def settings(self) -> Mapping[str, Any]:
        """Return the catalog's region, unless the environment sets one. A catalog does not choose the endpoint."""
        region = self._current().config.get("client.region")
        return {} if region is None or os.environ.get("AWS_REGION") else {"region": region}

    def _current(self) -> IssuedCredentials:
        with self._lock:
            if self._issued is None or _expires_soon(self._issued):
                self._issued = self._ask()
            if self._issued is None:
                raise CredentialVendingUnsupported(
                    f"The catalog '{self._catalog}' no longer issues S3 credentials for table '{self._table}'."
                )
            return self._issued

    def _ask(self) -> IssuedCredentials | None:
        with suppress(PermissionDenied, CatalogUnavailable, TableNotFound):
            return self._fitting("READ_WRITE")
        return self._fitting("READ")

    def _fitting(self, operation: str) -> IssuedCredentials | None:
        answer = self._asking(operation)
        fitting = [
            each
            for each in answer.storage_credentials
            if _S3_KEY in each.config and _is_prefix(each.prefix, self._location)
        ]
        return max(fitting, key=lambda each: len(each.prefix), default=None)


def _is_prefix(prefix: str, location: str) -> bool:
    try:
        return locations.within(location, locations.canonical(prefix))
    except InvalidLocation:
        return False


def _expires_soon(issued: IssuedCredentials) -> bool:
    expires = issued.expiration_time_ms
    return expires is not None and expires / 1000 - time.time() < _SPARE_SECONDS
