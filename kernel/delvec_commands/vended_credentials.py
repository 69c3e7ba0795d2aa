"""Short-lived object store credentials, issued by the service for one table each.

Tested in `tests/integration/contract/test_credentials.py`.
"""

import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from delvec_commands.table_service import TableService
from delvec_contract import operations
from delvec_contract.access import StorageOperation
from delvec_errors import CredentialVendingUnsupported
from delvec_storage.table_credentials import S3Keys

__all__ = ["StorageCredentials", "TableCredentials", "storage_credentials"]

_SPARE_SECONDS: Final = 300.0
"""Credentials are renewed this long before they expire, so that running reads can finish."""
_TEMPORARY: Final = "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider"


@dataclass(frozen=True)
class StorageCredentials:
    """Short-lived credentials for the files of one table.

    Attributes:
        prefix: URL prefix of the files.
        operation: ``READ`` or ``READ_WRITE``.
        expires_at: in UTC.
        config: the secrets, by the names of Iceberg REST: ``s3.access-key-id``, ``s3.secret-access-key``, ``s3.session-token``.
    """

    prefix: str
    operation: StorageOperation
    expires_at: datetime
    config: Mapping[str, str] = field(repr=False)

    def hadoop(self) -> dict[str, str]:
        """Return the settings of Hadoop's S3A for the bucket: for ``hadoopConfiguration()``, or with ``spark.hadoop.`` before each."""
        bucket = f"fs.s3a.bucket.{self.prefix.split('/')[2]}"
        hadoop_conf = {
            f"{bucket}.aws.credentials.provider": _TEMPORARY,
            f"{bucket}.access.key": self.config["s3.access-key-id"],
            f"{bucket}.secret.key": self.config["s3.secret-access-key"],
            f"{bucket}.session.token": self.config["s3.session-token"],
        }
        for name, key in (("endpoint", "s3.endpoint"), ("endpoint.region", "client.region")):
            if key in self.config:
                hadoop_conf[f"{bucket}.{name}"] = self.config[key]
        return hadoop_conf


def storage_credentials(
    service: TableService, table_id: str, operation: StorageOperation
) -> StorageCredentials:
    """Ask for credentials; see :meth:`delvec.DeltaTable.storage_credentials`."""
    answered = service.call(operations.VEND_CREDENTIALS, parameters={"operation": operation}, table=table_id)
    [found] = answered.storage_credentials
    expires_at = datetime.fromtimestamp(found.expiration_time_ms / 1000, UTC)
    return StorageCredentials(found.prefix, found.operation, expires_at, found.config)


class TableCredentials:
    """Keys for the files of one table, requested on demand and renewed before they expire. Thread-safe.

    They allow writing if the connection's token does, otherwise only reading.
    """

    def __init__(self, service: TableService, table_id: str) -> None:
        self._service = service
        self._table_id = table_id
        self._lock = threading.Lock()
        self._found: StorageCredentials | None = None

    def __call__(self) -> S3Keys:
        """Return keys that are valid for some minutes."""
        found = self._current()
        return {
            "access_key_id": found.config["s3.access-key-id"],
            "secret_access_key": found.config["s3.secret-access-key"],
            "token": found.config.get("s3.session-token"),
            "expires_at": found.expires_at,
        }

    def settings(self) -> Mapping[str, Any]:
        """Return the service's region and endpoint, unless the environment sets them."""
        config, s3_options = self._current().config, {}
        for option, key, variable in (
            ("region", "client.region", "AWS_REGION"),
            ("endpoint", "s3.endpoint", "AWS_ENDPOINT_URL"),
        ):
            if key in config and not os.environ.get(variable):
                s3_options[option] = config[key]
        return s3_options

    def _current(self) -> StorageCredentials:
        with self._lock:
            if self._found is None or self._found.expires_at.timestamp() - time.time() < _SPARE_SECONDS:
                self._found = storage_credentials(self._service, self._table_id, self._operation())
                if "s3.access-key-id" not in self._found.config:
                    raise CredentialVendingUnsupported(
                        f"The service hands out credentials for {self._found.prefix} of a kind that this version of "
                        "Delvec does not support; upgrade Delvec."
                    )
            return self._found

    def _operation(self) -> StorageOperation:
        role = self._service.call(operations.GET_ACCESS, parameters={"table": self._table_id}).role
        return "READ" if role == "reader" else "READ_WRITE"
