"""Which store hands out credentials for a table: the seam that stores are added at."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from delvec_kernel.errors import CredentialVendingUnsupported
from delvec_kernel.wire.access import StorageOperation

__all__ = ["CredentialVending", "CredentialVendor", "VendedCredentials"]


@dataclass(frozen=True)
class VendedCredentials:
    """What opens the files of one table, and no others, for a while.

    Attributes:
        expires_at: with a time zone.
        config: the secrets and what goes with them, by the names that Iceberg REST gives them.
    """

    expires_at: datetime
    config: Mapping[str, str] = field(repr=False)


class CredentialVendor(Protocol):
    """A kind of store that can make credentials."""

    def vend(self, location: str, operation: StorageOperation, principal: str) -> VendedCredentials:
        """Make credentials for what is below a location.

        Args:
            location: of a table, canonical.
            operation: reading alone, or writing of data files, too: never of the log, which is the service's.
            principal: who asked, for the store's own records.

        Raises:
            CredentialVendingUnsupported: the store makes none, or none for this location.
            StorageDenied: it refuses to.
            StorageError: it did not answer.
        """


class CredentialVending:
    """Asks the store that a table is in.

    Args:
        vendors: by the scheme of locations.
    """

    def __init__(self, vendors: Mapping[str, CredentialVendor]) -> None:
        self._vendors = vendors

    def vend(self, location: str, operation: StorageOperation, principal: str) -> VendedCredentials:
        """Make credentials; as :meth:`CredentialVendor.vend`."""
        scheme = location.partition(":")[0]
        vendor = self._vendors.get(scheme)
        if vendor is None:
            how = (
                "the service has no role to assume (DELVEC_CREDENTIAL_ROLE_ARN)"
                if scheme == "s3"
                else f"Delvec knows no store of {scheme}: that makes them"
            )
            raise CredentialVendingUnsupported(
                f"There are no credentials to hand out for {location}: {how}. Give the engine credentials of its own: "
                "docs/object-stores.md.",
                location=location,
            )
        return vendor.vend(location, operation, principal)
