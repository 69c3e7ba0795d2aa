"""Credentials from AssumeRole, of AWS STS and compatible services, with a session policy for a single table.

They allow what both the role *and* the policy allow, so the role is the upper limit.

Tested in `tests/integration/contract/test_credentials.py`.
"""

import importlib.util
import json
import logging
import os
import re
import threading
from typing import Any, Final
from urllib.parse import unquote

from delvec_errors import BadRequest, CredentialVendingUnsupported, StorageDenied, StorageError
from delvec_service.credentials.vending import Use, VendedCredentials

__all__ = ["AwsSts", "session_policy"]

_OF_THE_SERVICE: Final = ("_delta_log", "_delvec/clones", "_delvec/quarantines", "_delvec/quarantined")
"""Folders of a table that only the service writes to."""
_OF_ENGINES: Final = "_delvec/scans"
"""The folder where engines may also delete: their own lists of files."""
_STAGED: Final = (
    "*.parquet",
    "*.bin",
    "_delta_log/_staged_commits/*.json",
    "_delta_log/",
    "_delta_log/_staged_commits/",
)
"""What clients of the catalog write: data, changes, deletion vectors, and staged commits, and the markers by which Hadoop makes
folders. Nothing else is allowed to them."""
_FIRST_COMMIT: Final = f"_delta_log/{0:020}.json"
_NOT_STAGED: Final = ("_delta_log/*.parquet", "_delvec/*")
"""What these patterns match besides: checkpoints, and the service's own files."""
_WRITE_ACTIONS: Final = ("s3:PutObject", "s3:AbortMultipartUpload", "s3:ListMultipartUploadParts")
_PATTERN: Final = re.compile(r"[*?$]")
_NOT_IN_SESSION_NAMES: Final = re.compile(r"[^\w+=,.@-]", re.ASCII)
_LONGEST_SESSION_NAME: Final = 64
_NO_STS: Final = frozenset({"InvalidAction", "MethodNotAllowed", "NotImplemented", "UnsupportedOperation"})
_CONNECT_SECONDS: Final = 5
_READ_SECONDS: Final = 15
_MAX_SHOWN: Final = 300


class AwsSts:
    """Issues sessions of one role. The service assumes it with the keys from its own environment.

    Args:
        role_arn: the role.
        seconds: how long a session lasts.

    Raises:
        BadRequest: botocore is not installed.
    """

    def __init__(self, role_arn: str, seconds: int) -> None:
        if importlib.util.find_spec("botocore") is None:
            raise BadRequest(
                "DELVEC_CREDENTIAL_ROLE_ARN requires botocore, which is not installed: pip install '.[aws]' in "
                "Delvec's clone.",
                setting="DELVEC_CREDENTIAL_ROLE_ARN",
            )
        self._role_arn = role_arn
        self._seconds = seconds
        self._lock = threading.Lock()
        self._client: Any = None

    def vend(self, location: str, operation: Use, principal: str) -> VendedCredentials:
        """Issue credentials; see :meth:`~delvec_service.credentials.vending.CredentialVendor.vend`."""
        from botocore.exceptions import (
            BotoCoreError,
            ClientError,
            NoCredentialsError,
            PartialCredentialsError,
        )
        from botocore.parsers import ResponseParserError

        policy = session_policy(location, operation, self._role_arn)
        name = _NOT_IN_SESSION_NAMES.sub("-", f"delvec-{principal}")[:_LONGEST_SESSION_NAME]
        try:
            credentials = self._sts().assume_role(
                RoleArn=self._role_arn,
                RoleSessionName=name,
                DurationSeconds=self._seconds,
                Policy=json.dumps(policy, separators=(",", ":")),
            )["Credentials"]
        except ClientError as error:
            raise _refused(error, location) from error
        except (ResponseParserError, KeyError) as error:
            raise _no_sts(location) from error
        except (NoCredentialsError, PartialCredentialsError) as error:
            raise StorageDenied(
                f"The service has no keys for AWS STS: {error}. Configure them as described in docs/object-stores.md."
            ) from error
        except BotoCoreError as error:
            raise StorageError(
                f"AWS STS did not answer, so no credentials can be issued for {location}: {str(error)[:_MAX_SHOWN]}; "
                "try again.",
                location=location,
            ) from error
        config = {
            "s3.access-key-id": credentials["AccessKeyId"],
            "s3.secret-access-key": credentials["SecretAccessKey"],
            "s3.session-token": credentials["SessionToken"],
            "s3.session-token-expires-at-ms": str(int(credentials["Expiration"].timestamp() * 1000)),
        }
        for key, variable in (("client.region", "AWS_REGION"), ("s3.endpoint", "AWS_ENDPOINT_URL")):
            if value := os.environ.get(variable):
                config[key] = value
        return VendedCredentials(credentials["Expiration"], config)

    def _sts(self) -> Any:
        with self._lock:
            if self._client is None:
                from botocore.config import Config
                from botocore.session import Session

                # At level DEBUG it logs the answers of STS.
                logging.getLogger("botocore").setLevel(logging.WARNING)
                options = Config(
                    connect_timeout=_CONNECT_SECONDS,
                    read_timeout=_READ_SECONDS,
                    retries={"total_max_attempts": 3, "mode": "standard"},
                )
                region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"
                self._client = Session().create_client("sts", region_name=region, config=options)
            return self._client


def session_policy(location: str, operation: Use, role_arn: str = "") -> dict[str, Any]:
    """Return the policy for the files of one table.

    Reading allows reading and listing below the location. Writing allows putting files, but not replacing or deleting
    the service's own files: the log, records of clones, quarantines. Clients of the catalog put data files and
    staged commits only, and to create a table its first version; what is not in that list is denied.

    Args:
        location: the canonical location of a table.
        operation: the permitted operation.
        role_arn: determines the AWS partition.

    Raises:
        CredentialVendingUnsupported: no policy can be limited to this location.
    """
    bucket, _, key = location.removeprefix("s3://").partition("/")
    key = unquote(key).strip("/")
    if _PATTERN.search(f"{bucket}{key}"):
        raise CredentialVendingUnsupported(
            f"No credentials can be issued for {location}: policies treat the characters * ? $ in its path as "
            "patterns, which other tables might match. Use a location without them.",
            location=location,
        )
    if bucket.endswith("--x-s3"):
        raise CredentialVendingUnsupported(
            f"No credentials can be issued for {location}: it is in a directory bucket, whose sessions cover all of "
            "its files.",
            location=location,
        )
    partition = role_arn.split(":")[1] if role_arn.startswith("arn:aws") else "aws"
    arn = f"arn:{partition}:s3:::{bucket}"
    table = f"{arn}/{key}" if key else arn
    listing: dict[str, Any] = {"Effect": "Allow", "Action": "s3:ListBucket", "Resource": arn}
    if key:  # with the slash: otherwise tables whose names start the same way would be listed, too
        listing["Condition"] = {"StringLike": {"s3:prefix": f"{key}/*"}}
    # Hadoop asks for an object of the folder's name before it lists the folder, and takes a refusal for an error.
    readable = [table, f"{table}/*"] if key else f"{table}/*"
    statements: list[dict[str, Any]] = [
        {"Effect": "Allow", "Action": "s3:GetObject", "Resource": readable},
        listing,
        {"Effect": "Allow", "Action": "s3:GetBucketLocation", "Resource": arn},
    ]
    if operation == "READ_WRITE":
        statements += [
            {"Effect": "Allow", "Action": list(_WRITE_ACTIONS), "Resource": f"{table}/*"},
            {"Effect": "Allow", "Action": "s3:DeleteObject", "Resource": f"{table}/{_OF_ENGINES}/*"},
            {
                "Effect": "Deny",
                "Action": ["s3:PutObject", "s3:DeleteObject"],
                "Resource": [f"{table}/{folder}/*" for folder in _OF_THE_SERVICE],
            },
        ]
    elif operation != "READ":
        puts = [*_STAGED, _FIRST_COMMIT] if operation == "CREATE" else _STAGED
        statements += [
            {
                "Effect": "Allow",
                "Action": list(_WRITE_ACTIONS),
                "Resource": [f"{table}/{path}" for path in puts],
            },
            {
                "Effect": "Deny",
                "Action": "s3:PutObject",
                "Resource": [f"{table}/{path}" for path in _NOT_STAGED],
            },
        ]
    if os.environ.get("AWS_SERVER_SIDE_ENCRYPTION", "").startswith("aws:kms") or os.environ.get(
        "AWS_SSE_KMS_KEY_ID"
    ):
        keys = ["kms:Decrypt"] if operation == "READ" else ["kms:Decrypt", "kms:GenerateDataKey"]
        statements.append(
            {
                "Effect": "Allow",
                "Action": keys,
                "Resource": "*",
                "Condition": {"StringLike": {"kms:ViaService": "s3.*.amazonaws.com"}},
            }
        )
    return {"Version": "2012-10-17", "Statement": statements}


def _refused(error: Any, location: str) -> Exception:
    answered = error.response.get("Error", {})
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    code = str(answered.get("Code", ""))[:_MAX_SHOWN]
    if code in _NO_STS or status in (404, 405, 501):
        return _no_sts(location)
    message = f"{code}: {str(answered.get('Message', ''))[:_MAX_SHOWN]}".rstrip(".: ")
    if status >= 500 or status == 429:  # noqa: PLR2004 - HTTP's
        return StorageError(
            f"AWS STS did not issue credentials for {location}: {message}; try again.", location=location
        )
    return StorageDenied(
        f"AWS STS did not issue credentials for {location}: {message}. The service's own identity must be allowed to "
        "assume the role DELVEC_CREDENTIAL_ROLE_ARN for DELVEC_CREDENTIAL_SECONDS.",
        location=location,
    )


def _no_sts(location: str) -> CredentialVendingUnsupported:
    return CredentialVendingUnsupported(
        f"No credentials can be issued for {location}: the endpoint in AWS_ENDPOINT_URL (or AWS_ENDPOINT_URL_STS) "
        "does not support STS. Give the engine its own credentials, and unset DELVEC_CREDENTIAL_ROLE_ARN: "
        "docs/object-stores.md.",
        location=location,
    )
