"""Session policies of credentials that moto's STS has issued, evaluated by moto and not by Delvec's code."""

import json

from moto.iam.access_control import IAMPolicy, PermissionResult
from moto.sts.models import sts_backends
from tests.support.s3_bucket import BUCKET

_ACTIONS = {"GET": "s3:GetObject", "HEAD": "s3:GetObject", "PUT": "s3:PutObject", "POST": "s3:PutObject"}
_ACTIONS |= {"DELETE": "s3:DeleteObject"}


def assumed_roles():
    """Return the sessions of roles, the oldest first."""
    return sts_backends["123456789012"]["aws"].assumed_roles


def session_of(access_key):
    """Return the session of an access key; None if it is not one of STS."""
    return next((role for role in assumed_roles() if role.access_key_id == access_key), None)


def allows(policy, action, key, bucket=BUCKET):
    """Return whether a policy allows an action."""
    resource = f"arn:aws:s3:::{bucket}/{key}" if key is not None else f"arn:aws:s3:::{bucket}"
    return IAMPolicy(json.dumps(policy)).is_action_permitted(action, resource) is PermissionResult.PERMITTED


def refusal(request):
    """Return the answer to a request that its session does not allow, and None to any other."""
    session = session_of(request.access_key)
    if session is None:
        return None
    policy = json.loads(session.policy)
    if request.kind == "LIST":
        [listing] = [one for one in policy["Statement"] if one["Action"] == "s3:ListBucket"]
        prefix = listing["Condition"]["StringLike"]["s3:prefix"].removesuffix("*")
        permitted = request.key.startswith(prefix)
    else:
        permitted = allows(policy, _ACTIONS[request.kind], request.key)
    body = b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"
    return None if permitted else ("403 Forbidden", [("Content-Type", "application/xml")], body)
