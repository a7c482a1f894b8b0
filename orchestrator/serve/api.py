"""The API under ``/api/v1``: what the farm does, what is stored, and, for who brings the token, steering it.

What is read needs what the pages need. What changes something needs the token as ``Authorization: Bearer``: no other
site's script can send that, and no cookie stands in for it. Its description is ``/api/v1/openapi.json``.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Annotated, Any, Final, Protocol

from fastapi import FastAPI, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.encoders import jsonable_encoder
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, StreamingResponse

from orchestrator.errors import BenchfarmError, UsageError
from orchestrator.serve.answers import (
    CampaignAnswer,
    ChangeAnswer,
    DeviceAnswer,
    DoneAnswer,
    ErrorAnswer,
    FarmAnswer,
    HoldRequest,
    JobAnswer,
    OneSeriesAnswer,
    RunAnswer,
    SeriesAnswer,
    SubmissionRequest,
)

PATH: Final = "/api/v1"
#: Who looks on at once; others ask again now and then.
MOST_STREAMS: Final = 16
#: So often what goes on is looked at, and so often a word is sent when nothing does: a proxy would end what is silent.
_LOOK_S: Final = 1.0
_ALIVE_S: Final = 15.0

_Offset = Annotated[int, Query(ge=0)]
_Limit = Annotated[int, Query(ge=1, le=1000)]


class ApiSource(Protocol):
    """Where answers come from; called from several threads. Each may raise BenchfarmError."""

    def farm(self) -> FarmAnswer:
        """Return the farm as it is now."""
        ...

    def jobs(self, submission: str) -> Sequence[JobAnswer]:
        """Return the jobs of a submission, or all open and the newest others."""
        ...

    def campaigns(self) -> Sequence[CampaignAnswer]:
        """Return the campaigns, newest first."""
        ...

    def runs(self, campaign: str, *, offset: int, limit: int) -> Sequence[RunAnswer]:
        """Return some runs of a campaign or submission; raises UsageError for one that isn't there."""
        ...

    def series(self) -> Sequence[SeriesAnswer]:
        """Return all series, worst first."""
        ...

    def one_series(self, series_key: str) -> OneSeriesAnswer | None:
        """Return a series with its nights, None when there is none."""
        ...

    def changes(self) -> Sequence[ChangeAnswer]:
        """Return all changes, newest first."""
        ...

    def hold(self, scope: str, kind: str) -> DoneAnswer:
        """Pause or drain a part of the farm."""
        ...

    def resume(self, scope: str) -> DoneAnswer:
        """End a pause or drain."""
        ...

    def submit(self, schedule: str) -> DoneAnswer:
        """Queue a schedule's plan now."""
        ...

    def cancel(self, submission: str, serials: Sequence[str]) -> DoneAnswer:
        """Cancel a submission, or some phones' part of it."""
        ...

    def release(self, serial: str) -> DoneAnswer:
        """End a phone's quarantine."""
        ...


def make_api(source: ApiSource, *, is_ending: Callable[[], bool], most_streams: int = MOST_STREAMS) -> FastAPI:
    """Return the application that is mounted at ``PATH``.

    ``is_ending``: whether the server wants to end, so that open streams of events do. ``most_streams``: at once.
    """
    refused: dict[int | str, dict[str, Any]] = {
        status: {"model": ErrorAnswer} for status in (401, 403, 404, 409, 422, 503)
    }
    api = FastAPI(
        title="benchfarm",
        version="1",
        description=(__doc__ or "").partition("\n\n")[2],
        docs_url=None,
        redoc_url=None,
        responses=refused,
    )
    streams = _Streams(source, is_ending, most_streams)

    @api.exception_handler(BenchfarmError)
    async def _refused(_: Request, error: BenchfarmError) -> Response:
        status = 409 if isinstance(error, UsageError) else 503
        return refusal(status, str(error), error.hint)

    @api.exception_handler(RequestValidationError)
    async def _misread(_: Request, error: RequestValidationError) -> Response:
        faults = (f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors())
        return refusal(422, "; ".join(faults), f"{PATH}/openapi.json describes what is asked for")

    _reading(api, source, streams)
    _steering(api, source)
    return api


def _reading(api: FastAPI, source: ApiSource, streams: _Streams) -> None:
    @api.get("/farm", summary="The farm as it is now")
    def _farm() -> FarmAnswer:
        return source.farm()

    @api.get(
        "/farm/events",
        summary="The same whenever it changes, as server-sent events",
        response_class=StreamingResponse,
        responses={200: {"content": {"text/event-stream": {}}, "description": "Events, each with a FarmAnswer."}},
    )
    async def _events(request: Request) -> Response:
        return streams.open(request)

    @api.get("/devices", summary="All phones")
    def _devices() -> Sequence[DeviceAnswer]:
        return source.farm().devices

    @api.get("/jobs", summary="Jobs of a submission, or all open and the newest others")
    def _jobs(submission: str = "") -> Sequence[JobAnswer]:
        return source.jobs(submission)

    @api.get("/campaigns", summary="Stored campaigns, newest first")
    def _campaigns(offset: _Offset = 0, limit: _Limit = 100) -> Sequence[CampaignAnswer]:
        return source.campaigns()[offset : offset + limit]

    @api.get("/runs", summary="Runs of a campaign or submission, in the order in which they were stored")
    def _runs(campaign: str, offset: _Offset = 0, limit: _Limit = 100) -> Sequence[RunAnswer]:
        return source.runs(campaign, offset=offset, limit=limit)

    @api.get("/series", summary="Series over the nights, worst first")
    def _series(offset: _Offset = 0, limit: _Limit = 100) -> Sequence[SeriesAnswer]:
        return source.series()[offset : offset + limit]

    @api.get("/series/{series_key}", summary="One series with its nights", response_model=OneSeriesAnswer)
    def _one_series(series_key: str) -> OneSeriesAnswer | Response:
        return source.one_series(series_key) or _missing("there is no series of this key")

    @api.get("/changes", summary="Changes of series, newest first")
    def _changes(offset: _Offset = 0, limit: _Limit = 100) -> Sequence[ChangeAnswer]:
        return source.changes()[offset : offset + limit]


def _steering(api: FastAPI, source: ApiSource) -> None:
    bearer: dict[str, Any] = {"security": [{"token": []}]}

    @api.get("/access", summary="Whether the token that was sent may steer the farm", openapi_extra=bearer)
    def _access() -> DoneAnswer:
        # Guarded as the others below are.
        return DoneAnswer(text="the token is right")

    @api.post("/holds", summary="Pause or drain the farm, a host or a phone", openapi_extra=bearer)
    def _hold(wanted: HoldRequest) -> DoneAnswer:
        return source.hold(wanted.scope, wanted.kind)

    @api.delete("/holds", summary="End a pause or drain", openapi_extra=bearer)
    def _resume(scope: str) -> DoneAnswer:
        return source.resume(scope)

    @api.post("/submissions", summary="Submit a stored plan: a schedule's", openapi_extra=bearer)
    def _submit(wanted: SubmissionRequest) -> DoneAnswer:
        return source.submit(wanted.schedule)

    @api.delete("/submissions/{submission}", summary="Cancel a submission", openapi_extra=bearer)
    def _cancel(submission: str, phone: Annotated[list[str] | None, Query()] = None) -> DoneAnswer:
        return source.cancel(submission, phone or [])

    @api.delete("/quarantine/{serial}", summary="Release a phone from quarantine", openapi_extra=bearer)
    def _release(serial: str) -> DoneAnswer:
        return source.release(serial)

    described = api.openapi

    def _described() -> dict[str, object]:
        found = described()
        found["servers"] = [{"url": PATH}]
        found["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        return found

    api.openapi = _described  # type: ignore[method-assign]


def changes_something(method: str, path: str) -> bool:
    """Whether a request is one of those that only the token lets pass."""
    return path.startswith(f"{PATH}/") and (method in {"POST", "DELETE"} or path == f"{PATH}/access")


def refusal(status: int, error: str, hint: str = "") -> Response:
    """Return why a request is refused, as the API says it."""
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else {}
    return JSONResponse({"error": error, "hint": hint}, status_code=status, headers=headers)


def _missing(error: str) -> Response:
    return refusal(404, error)


class _Streams:
    """The open streams of events."""

    def __init__(self, source: ApiSource, is_ending: Callable[[], bool], most: int) -> None:
        self._source = source
        self._most = most
        self._is_ending = is_ending
        self._open = 0

    def open(self, request: Request) -> Response:
        """Return a stream, or a refusal when there are as many as there may be."""
        if self._open >= self._most:
            return refusal(503, f"{self._most} pages are kept up to date already", "ask /farm again and again")
        # A proxy in front passes each event on at once, and keeps none.
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(self._events(request), media_type="text/event-stream", headers=headers)

    def _known(self) -> bytes:
        return json.dumps(jsonable_encoder(self._source.farm())).encode()

    async def _events(self, request: Request) -> AsyncIterator[bytes]:
        self._open += 1
        try:
            sent, silent_s = b"", 0.0
            while not self._is_ending() and not await request.is_disconnected():
                known = await run_in_threadpool(self._known)
                if known != sent:
                    yield b"event: farm\ndata: " + known + b"\n\n"
                    sent, silent_s = known, 0.0
                elif silent_s >= _ALIVE_S:
                    yield b": nothing new\n\n"
                    silent_s = 0.0
                await asyncio.sleep(_LOOK_S)
                silent_s += _LOOK_S
        finally:
            self._open -= 1
