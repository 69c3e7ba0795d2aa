"""``Idempotency-Key``: a request that is sent again gets the answer of the first.

:class:`MutationRoute` is the class of every route that changes something, except commits, which search the log and use the
parts of this module directly.

Tested in `tests/integration/service/commits/test_idempotency.py`.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Annotated, Any, ClassVar, Final, TypeAlias

from fastapi import Depends, Header, Request, Response

from delvec_errors import BadRequest, DelvecError
from delvec_service.api import problems
from delvec_service.api.authorizer import ACCESS
from delvec_service.api.bodies import CheckedRequest
from delvec_service.api.lanes import Kind, in_thread
from delvec_service.api.routes import Route
from delvec_service.auth.request_access import Access
from delvec_service.commits.idempotency import Answers, is_final, request_hash
from delvec_service.store.answers import Claim, StoredAnswer, Taken

__all__ = ["REPLAYED", "IdempotencyKey", "MutationRoute", "replay"]

REPLAYED: Final = {"Idempotent-Replay": "true"}
"""The header that marks an answer as a replay."""

_FIRST_PAUSE_SECONDS: Final = 0.02
_LONGEST_PAUSE_SECONDS: Final = 0.5

IdempotencyKey: TypeAlias = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=128,
        pattern=r"^[!-~]+$",
        description=(
            "Identifies this request so that it can be retried: a retry returns the first answer with "
            "`Idempotent-Replay: true`, and nothing is done twice. Use a new key for each new request."
        ),
    ),
]


async def _declared(key: IdempotencyKey = None) -> str | None:
    return key


class MutationRoute(Route):
    """A route whose requests may have an idempotency key.

    The key is claimed before the work begins. Final answers are stored under it;
    after any other answer the key is free again.
    """

    kind: ClassVar[Kind] = "changes"

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        if (options.get("methods") or {"GET"}) != {"GET"}:
            # Declares the header, which is read before FastAPI resolves dependencies.
            options["dependencies"] = [*(options.get("dependencies") or ()), Depends(_declared)]
        super().__init__(path, endpoint, **options)

    def handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return FastAPI's handler, run once per key."""
        handle = super().handler()

        async def once(request: Request) -> Response:
            key = request.headers.get("idempotency-key")
            if not key or request.method in ("GET", "HEAD"):
                return await handle(request)
            _check(key)
            answers: Answers = request.app.state.service.answers
            claim = await _claimed(answers, key, _hash(request))
            if isinstance(claim, StoredAnswer):
                access: Access | None = request.scope.get(ACCESS)
                if access is not None:
                    access.is_decided = (
                        True  # authorized by the first request, from the same principal with the same roles
                    )
                return replay(claim)
            try:
                response = await handle(request)
            except DelvecError as error:
                if not is_final(error):
                    await in_thread(answers.release, claim)
                    raise
                response = problems.answer(error)
            except Exception:
                await in_thread(answers.release, claim)
                raise
            await in_thread(answers.keep, key, claim.request_hash, response.status_code, bytes(response.body))
            return response

        return once


class MaintenanceRoute(MutationRoute):
    """A route for table maintenance: its requests take long, so they have a lane of their own."""

    kind = "maintenance"


def replay(answer: StoredAnswer) -> Response:
    """Replay a stored answer."""
    media_type = "application/json" if answer.body else None
    return Response(answer.body or None, answer.status, REPLAYED, media_type)


def _check(key: str) -> None:
    if len(key) > 128 or not all("!" <= character <= "~" for character in key):  # noqa: PLR2004
        raise BadRequest(
            "An Idempotency-Key must have 1 to 128 printable ASCII characters and no spaces; use a UUID."
        )


def _hash(request: Request) -> str:
    body = request.parsed if isinstance(request, CheckedRequest) else None
    access: Access | None = request.scope.get(ACCESS)
    principal = None if access is None else access.principal
    # Other principals must not see this answer, nor the same one after its roles changed: to them the key is taken.
    # Superusers may see it.
    whose: tuple[Any, ...] = ()
    if access is not None and principal is not None and not principal.is_superuser:
        roles = sorted((grant.scope, grant.target, grant.role) for grant in access.rights.grants)
        whose = (principal.name, roles)
    return request_hash(request.method, request.url.path, request.url.query, body, *whose)


async def _claimed(answers: Answers, key: str, hashed: str) -> Claim | StoredAnswer:
    """Claim the key, or return its stored answer; waits for a request that holds the key until its claim expires."""
    pause = _FIRST_PAUSE_SECONDS
    while isinstance(found := await in_thread(answers.claim, key, hashed), Taken):
        await asyncio.sleep(pause)
        pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)
    return found
