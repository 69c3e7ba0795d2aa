"""Issues credentials for tables, by the kind of store; other stores can be added here."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, Protocol, TypeAlias

from delvec_errors import CredentialVendingUnsupported

__all__ = ["CredentialVending", "CredentialVendor", "Use", "VendedCredentials"]

Use: TypeAlias = Literal["READ", "READ_WRITE", "COMMIT", "CREATE"]
"""What credentials are for: reading; also writing data files; also staging commits of a managed table; also writing the first
version of a table that is not in the catalog yet."""


@dataclass(frozen=True)
class VendedCredentials:
    """Temporary access to the files of one table and no others.

    Attributes:
        expires_at: with a time zone.
        config: the secrets and related settings, under their names in Iceberg REST.
    """

    expires_at: datetime
    config: Mapping[str, str] = field(repr=False)


class CredentialVendor(Protocol):
    """A kind of store that can issue credentials."""

    def vend(self, location: str, operation: Use, principal: str) -> VendedCredentials:
        """Issue credentials for the files below a location.

        Args:
            location: the canonical location of a table.
            operation: what for; never for log entries after the first, which only the service writes.
            principal: who requested them, for the store's own records.

        Raises:
            CredentialVendingUnsupported: the store cannot issue credentials, or not for this location.
            StorageDenied: the store denied the request.
            StorageError: the store did not answer.
        """


class CredentialVending:
    """Selects the vendor for a table's store.

    Args:
        vendors: by URL scheme.
    """

    def __init__(self, vendors: Mapping[str, CredentialVendor]) -> None:
        self._vendors = vendors

    def vend(self, location: str, operation: Use, principal: str) -> VendedCredentials:
        """Issue credentials; see :meth:`CredentialVendor.vend`."""
        scheme = location.partition(":")[0]
        vendor = self._vendors.get(scheme)
        if vendor is None:
            how = (
                "the service has no role to assume (DELVEC_CREDENTIAL_ROLE_ARN)"
                if scheme == "s3"
                else f"Delvec cannot issue credentials for {scheme}: locations"
            )
            raise CredentialVendingUnsupported(
                f"No credentials can be issued for {location}: {how}. Give the engine its own credentials: "
                "docs/object-stores.md.",
                location=location,
            )
        return vendor.vend(location, operation, principal)
