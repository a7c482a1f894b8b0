"""The API under ``/api/v1``: what the farm does, what is stored, and, for who brings the token,
steering it.

What is read needs what the pages need. What changes something needs the token as ``Authorization:
Bearer``: no other site's script can send that, and no cookie stands in for it. Its description is
``/api/v1/openapi.json``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

from fastapi import Depends, FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse

from orchestrator.errors import BenchfarmError, UsageError
from orchestrator.records.answers import ErrorAnswer

PATH: Final = "/api/v1"

#: No store has more of anything, and no counter ends there.
Offset = Annotated[int, Query(ge=0, le=2**53)]
Limit = Annotated[int, Query(ge=1, le=1000)]
Phones = Annotated[list[str] | None, Query()]


class MissingError(UsageError):
    """What was asked for isn't there."""


@dataclass(frozen=True, slots=True)
class Route:
    """One request of the API."""

    method: str
    path: str
    summary: str
    #: Its parameters and what it returns are the request's; called from several threads. May raise
    #: BenchfarmError.
    answer: Callable[..., Any]

    @property
    def needs_token(self) -> bool:
        """Whether only the token lets the request pass."""
        return changes_something(self.method, f"{PATH}{self.path}")


def make_api(routes: Sequence[Route]) -> FastAPI:
    """Return the application that is mounted at ``PATH`` and answers these requests."""
    api = FastAPI(
        title="benchfarm",
        version="1",
        description=(__doc__ or "").partition("\n\n")[2],
        docs_url=None,
        redoc_url=None,
        responses={status: {"model": ErrorAnswer} for status in (401, 403, 404, 409, 422, 503)},
        default_response_class=_AsciiResponse,
        dependencies=[Depends(_check_texts)],
    )

    @api.exception_handler(BenchfarmError)
    async def _refused(_: Request, error: BenchfarmError) -> Response:
        status = (
            404
            if isinstance(error, MissingError)
            else 409
            if isinstance(error, UsageError)
            else 503
        )
        return refusal(status, str(error), error.hint)

    @api.exception_handler(RequestValidationError)
    async def _misread(_: Request, error: RequestValidationError) -> Response:
        faults = (f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors())
        return refusal(422, "; ".join(faults), f"{PATH}/openapi.json describes what is asked for")

    for route in routes:
        api.add_api_route(
            route.path,
            route.answer,
            methods=[route.method],
            summary=route.summary,
            openapi_extra={"security": [{"token": []}]} if route.needs_token else None,
        )
    described = api.openapi

    def _described() -> dict[str, object]:
        found = described()
        found["servers"] = [{"url": PATH}]
        found["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        return found

    api.openapi = _described  # type: ignore[method-assign]
    return api


def changes_something(method: str, path: str) -> bool:
    """Whether a request is one of those that only the token lets pass."""
    return path.startswith(f"{PATH}/") and (
        method in {"POST", "DELETE"} or path == f"{PATH}/access"
    )


def refusal(status: int, error: str, hint: str = "") -> Response:
    """Return why a request is refused, as the API says it."""
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else {}
    return _AsciiResponse({"error": error, "hint": hint}, status_code=status, headers=headers)


class _AsciiResponse(JSONResponse):
    """JSON in ASCII: names of files and what phones say may hold what UTF-8 has no bytes for."""

    def render(self, content: Any) -> bytes:  # noqa: ANN401 - any JSON value
        """Return the body."""
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii")


async def _check_texts(request: Request) -> None:
    """Raise RequestValidationError for text that no database takes: with NUL, or with half of a
    character.
    """
    try:
        given = json.loads(await request.body() or b"null")
    except ValueError:
        # FastAPI says what is wrong with it.
        given = None
    where = {
        "path": request.scope["path"],
        "query": list(request.query_params.multi_items()),
        "body": given,
    }
    for place, value in where.items():
        text = json.dumps(value, ensure_ascii=False)
        if "\\u0000" in text or any("\ud800" <= char <= "\udfff" for char in text):
            raise RequestValidationError(
                [{"loc": (place,), "msg": "holds a character that is no text"}]
            )
