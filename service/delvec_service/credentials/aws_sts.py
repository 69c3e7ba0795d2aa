"""Credentials by AssumeRole, of AWS STS and what speaks its protocol, with a session policy that has one table in it.

What they may is what the role may *and* the policy says, so that the role is the most that any of them can do.
"""

import importlib.util
import json
import logging
import os
import re
import threading
from typing import Any, Final
from urllib.parse import unquote

from delvec_kernel.errors import (
    BadRequest,
    CredentialVendingUnsupported,
    StorageDenied,
    StorageError,
)
from delvec_kernel.wire.access import StorageOperation
from delvec_service.credentials.vending import VendedCredentials

__all__ = ["AwsSts", "session_policy"]

_OF_THE_SERVICE: Final = ("_delta_log", "_delvec/clones", "_delvec/quarantines", "_delvec/quarantined")
"""Folders of a table in which the service alone writes."""
_OF_ENGINES: Final = "_delvec/scans"
"""Where an engine also deletes: its own lists of files."""
_PATTERN: Final = re.compile(r"[*?$]")
_NOT_IN_SESSION_NAMES: Final = re.compile(r"[^\w+=,.@-]", re.ASCII)
_LONGEST_SESSION_NAME: Final = 64
_NO_STS: Final = frozenset({"InvalidAction", "MethodNotAllowed", "NotImplemented", "UnsupportedOperation"})
_CONNECT_SECONDS: Final = 5
_READ_SECONDS: Final = 15
_SHOWN: Final = 300


class AwsSts:
    """Hands out sessions of one role. The service's own keys, which it assumes the role with, are those of its environment.

    Args:
        role_arn: the role.
        seconds: how long a session lasts.

    Raises:
        BadRequest: botocore is not installed.
    """

    def __init__(self, role_arn: str, seconds: int) -> None:
        if importlib.util.find_spec("botocore") is None:
            raise BadRequest(
                "DELVEC_CREDENTIAL_ROLE_ARN is set, and botocore, which asks AWS STS, is not installed: pip install '.[aws]' "
                "in Delvec's clone.",
                setting="DELVEC_CREDENTIAL_ROLE_ARN",
            )
        self._role_arn = role_arn
        self._seconds = seconds
        self._lock = threading.Lock()
        self._client: Any = None

    def vend(self, location: str, operation: StorageOperation, principal: str) -> VendedCredentials:
        """Make credentials; as :meth:`~delvec_service.credentials.vending.CredentialVendor.vend`."""
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
            found = self._sts().assume_role(
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
                f"The service has no keys to ask AWS STS with: {error}. Give it some: docs/object-stores.md."
            ) from error
        except BotoCoreError as error:
            raise StorageError(
                f"AWS STS did not answer, so that there are no credentials for {location}: {str(error)[:_SHOWN]}; try again.",
                location=location,
            ) from error
        config = {
            "s3.access-key-id": found["AccessKeyId"],
            "s3.secret-access-key": found["SecretAccessKey"],
            "s3.session-token": found["SessionToken"],
            "s3.session-token-expires-at-ms": str(int(found["Expiration"].timestamp() * 1000)),
        }
        for key, variable in (("client.region", "AWS_REGION"), ("s3.endpoint", "AWS_ENDPOINT_URL")):
            if value := os.environ.get(variable):
                config[key] = value
        return VendedCredentials(found["Expiration"], config)

    def _sts(self) -> Any:
        with self._lock:
            if self._client is None:
                from botocore.config import Config
                from botocore.session import Session

                # At its level DEBUG it logs what STS answers.
                logging.getLogger("botocore").setLevel(logging.WARNING)
                options = Config(
                    connect_timeout=_CONNECT_SECONDS,
                    read_timeout=_READ_SECONDS,
                    retries={"total_max_attempts": 3, "mode": "standard"},
                )
                region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"
                self._client = Session().create_client("sts", region_name=region, config=options)
            return self._client


def session_policy(location: str, operation: StorageOperation, role_arn: str = "") -> dict[str, Any]:
    """Return the policy for the files of one table.

    Reading is reading below the location, and listing there. Writing puts files, and replaces and deletes nothing that the service
    keeps: no log, no note of clones, no quarantine.

    Args:
        location: of a table, canonical.
        operation: what is to be possible.
        role_arn: whose partition of AWS it is in.

    Raises:
        CredentialVendingUnsupported: no policy can mean this location and no other.
    """
    bucket, _, key = location.removeprefix("s3://").partition("/")
    key = unquote(key).strip("/")
    if _PATTERN.search(f"{bucket}{key}"):
        raise CredentialVendingUnsupported(
            f"There are no credentials to hand out for {location}: policies take the characters * ? $ in its path for patterns, "
            "which other tables might match. Use a location without them.",
            location=location,
        )
    if bucket.endswith("--x-s3"):
        raise CredentialVendingUnsupported(
            f"There are no credentials to hand out for {location}: it is a directory bucket, which has sessions of its own "
            "for all of its files.",
            location=location,
        )
    partition = role_arn.split(":")[1] if role_arn.startswith("arn:aws") else "aws"
    arn = f"arn:{partition}:s3:::{bucket}"
    table = f"{arn}/{key}" if key else arn
    listing: dict[str, Any] = {"Effect": "Allow", "Action": "s3:ListBucket", "Resource": arn}
    if key:  # with the slash: without it, names of tables that begin alike would show
        listing["Condition"] = {"StringLike": {"s3:prefix": f"{key}/*"}}
    statements: list[dict[str, Any]] = [
        {"Effect": "Allow", "Action": "s3:GetObject", "Resource": f"{table}/*"},
        listing,
        {"Effect": "Allow", "Action": "s3:GetBucketLocation", "Resource": arn},
    ]
    if operation == "READ_WRITE":
        puts = ["s3:PutObject", "s3:AbortMultipartUpload", "s3:ListMultipartUploadParts"]
        statements += [
            {"Effect": "Allow", "Action": puts, "Resource": f"{table}/*"},
            {"Effect": "Allow", "Action": "s3:DeleteObject", "Resource": f"{table}/{_OF_ENGINES}/*"},
            {
                "Effect": "Deny",
                "Action": ["s3:PutObject", "s3:DeleteObject"],
                "Resource": [f"{table}/{folder}/*" for folder in _OF_THE_SERVICE],
            },
        ]
    if os.environ.get("AWS_SERVER_SIDE_ENCRYPTION", "").startswith("aws:kms") or os.environ.get(
        "AWS_SSE_KMS_KEY_ID"
    ):
        keys = ["kms:Decrypt", "kms:GenerateDataKey"] if operation == "READ_WRITE" else ["kms:Decrypt"]
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
    code = str(answered.get("Code", ""))[:_SHOWN]
    if code in _NO_STS or status in (404, 405, 501):
        return _no_sts(location)
    said = f"{code}: {str(answered.get('Message', ''))[:_SHOWN]}".rstrip(".: ")
    if status >= 500 or status == 429:  # noqa: PLR2004 - HTTP's
        return StorageError(
            f"AWS STS did not hand out credentials for {location}: {said}; try again.", location=location
        )
    return StorageDenied(
        f"AWS STS did not hand out credentials for {location}: {said}. The service's own identity has to be allowed to assume the "
        "role of DELVEC_CREDENTIAL_ROLE_ARN, for DELVEC_CREDENTIAL_SECONDS.",
        location=location,
    )


def _no_sts(location: str) -> CredentialVendingUnsupported:
    return CredentialVendingUnsupported(
        f"There are no credentials to hand out for {location}: what answers at AWS_ENDPOINT_URL (or AWS_ENDPOINT_URL_STS) is no "
        "STS. Give the engine credentials of its own, and take DELVEC_CREDENTIAL_ROLE_ARN away: docs/object-stores.md.",
        location=location,
    )
