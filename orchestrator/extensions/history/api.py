"""The API under ``/api/v1``: what the farm does, what is stored, and, for who brings the token,
steering it.

What is read needs what the pages need. What changes something needs the token as ``Authorization:
Bearer``: no other site's script can send that, and no cookie stands in for it. Its description is
``/api/v1/openapi.json``.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

from fastapi import Depends, FastAPI, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.encoders import jsonable_encoder
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, StreamingResponse

from orchestrator.errors import BenchfarmError, UsageError
from orchestrator.records.answers import ErrorAnswer, FarmAnswer

PATH: Final = "/api/v1"
#: Listeners to events at once; others ask again now and then.
MOST_STREAMS: Final = 16
#: Seconds between two readings of the farm for listeners, and between two comments when nothing
#: changes: a proxy would end what is silent.
_READ_S: Final = 1.0
_ALIVE_S: Final = 15.0

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


def make_api(
    routes: Sequence[Route],
    farm: Callable[[], FarmAnswer],
    *,
    is_ending: Callable[[], bool],
    most_streams: int = MOST_STREAMS,
) -> FastAPI:
    """Return the application that is mounted at ``PATH``.

    Args:
        routes: The requests that it answers, beside the events.
        farm: Returns the farm as it is now, for the events.
        is_ending: Whether the server wants to end, so that open streams of events do.
        most_streams: Streams at once.
    """
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
    listening: set[Request] = set()

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

    @api.get(
        "/farm/events",
        summary="The same whenever it changes, as server-sent events",
        response_class=StreamingResponse,
        responses={
            200: {
                "content": {"text/event-stream": {}},
                "description": "Events, each with a FarmAnswer.",
            }
        },
    )
    async def _events(request: Request) -> Response:
        if len(listening) >= most_streams:
            return refusal(
                503,
                f"{most_streams} pages are kept up to date already",
                "ask /farm again and again",
            )
        # A proxy in front passes each event on at once, and keeps none.
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(_stream(request), media_type="text/event-stream", headers=headers)

    async def _stream(request: Request) -> AsyncIterator[bytes]:
        listening.add(request)
        try:
            sent, silent_s = b"", 0.0
            while not is_ending() and not await request.is_disconnected():
                known = await run_in_threadpool(
                    lambda: json.dumps(jsonable_encoder(farm())).encode()
                )
                if known != sent:
                    yield b"event: farm\ndata: " + known + b"\n\n"
                    sent, silent_s = known, 0.0
                elif silent_s >= _ALIVE_S:
                    yield b": nothing new\n\n"
                    silent_s = 0.0
                await asyncio.sleep(_READ_S)
                silent_s += _READ_S
        finally:
            listening.discard(request)

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
