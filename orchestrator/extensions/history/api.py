"""The API under ``/api/v1``: the state of the farm, stored results, and, with the token, control of
the farm.

Reading requires the same as the pages. Requests that change something require the token as
``Authorization: Bearer``: other sites' scripts can't send it, and no cookie replaces it. The API is
described in ``/api/v1/openapi.json``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Annotated, Any, Final

from fastapi import Depends, FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException

from orchestrator.errors import BenchfarmError, NotFoundError, UsageError
from orchestrator.extensions.history.answers import (
    CampaignAnswer,
    ChangeAnswer,
    ErrorAnswer,
    LeftOutAnswer,
    OneSeriesAnswer,
    PauseRequest,
    RunAnswer,
    SeriesAnswer,
)
from orchestrator.extensions.history.farm_now import FarmNow
from orchestrator.extensions.history.site import Site
from orchestrator.plugins import (
    Queue,
    QueueSource,
    Workspace,
    find_campaigns,
    queue_source,
    release_phone,
)
from orchestrator.records.answers import DeviceAnswer, DoneAnswer, FarmAnswer, JobAnswer, answer_of
from orchestrator.records.case import Serial

PATH: Final = "/api/v1"

#: At most 2**53: no store has more rows, and JSON's numbers are exact up to there.
Offset = Annotated[int, Query(ge=0, le=2**53)]
Limit = Annotated[int, Query(ge=1, le=1000)]
Phones = Annotated[list[str] | None, Query()]
#: For the description only: `changes_something` selects the requests that need the token.
_TOKEN: Final = [Depends(HTTPBearer(scheme_name="token", auto_error=False))]


def make_api(
    workspace: Workspace, queue: Queue | None, site_now: Callable[[], Site], farm_now: FarmNow
) -> FastAPI:
    """Return the application that is mounted at ``PATH``; its answers are made in several threads."""
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
        status = 409 if isinstance(error, UsageError) else 503
        return refusal(404 if isinstance(error, NotFoundError) else status, str(error), error.hint)

    @api.exception_handler(HTTPException)
    async def _unknown(_: Request, error: HTTPException) -> Response:
        response = refusal(
            error.status_code, error.detail, f"{PATH}/openapi.json describes the paths"
        )
        # Of a method that a path doesn't have: those that it has.
        response.headers.update(error.headers or {})
        return response

    @api.exception_handler(RequestValidationError)
    async def _misread(_: Request, error: RequestValidationError) -> Response:
        faults = (f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors())
        return refusal(422, "; ".join(faults), f"{PATH}/openapi.json describes the parameters")

    @api.get("/farm")
    def farm() -> FarmAnswer:
        """Return the farm as it is now."""
        return farm_now.read()

    @api.get("/devices")
    def devices() -> Sequence[DeviceAnswer]:
        """Return all phones."""
        return farm_now.read().devices

    @api.get("/jobs")
    def jobs(submission: str = "", offset: Offset = 0, limit: Limit = 100) -> Sequence[JobAnswer]:
        """Return the jobs of a submission, or all open and the newest others."""
        rows = queue.jobs(submission) if queue is not None else []
        return [answer_of(JobAnswer, row) for row in rows[offset : offset + limit]]

    @api.get("/submissions/{submission}/left_out")
    def left_out(submission: str) -> Sequence[LeftOutAnswer]:
        """Return the phones that a submission selects and that have no job of it."""
        if queue is not None and not queue.jobs(submission):
            raise NotFoundError(
                f"there is no submission {submission!r}", hint=f"{PATH}/jobs lists the open ones"
            )
        reasons = queue.left_out(submission) if queue is not None else {}
        return [LeftOutAnswer(serial=serial, reason=why) for serial, why in reasons.items()]

    @api.get("/campaigns")
    def campaigns(offset: Offset = 0, limit: Limit = 100) -> Sequence[CampaignAnswer]:
        """Return the campaigns, newest first."""
        return site_now().campaigns[offset : offset + limit]

    @api.get("/runs")
    def runs(campaign: str, offset: Offset = 0, limit: Limit = 100) -> Sequence[RunAnswer]:
        """Return some runs of a campaign or submission, in the order of storing."""
        store = workspace.store
        chosen = [item.campaign_id for item in find_campaigns(store, campaign)]
        return [
            answer_of(
                RunAnswer,
                run,
                serial=run.case.serial,
                model=run.case.model_name,
                configuration=run.case.configuration,
                invocation=run.invocation + 1,
                quality=run.verdict.quality.word,
            )
            for run in islice(store.runs(campaign_ids=chosen, skipped=offset), limit)
        ]

    @api.get("/series")
    def series(offset: Offset = 0, limit: Limit = 100) -> Sequence[SeriesAnswer]:
        """Return the series over the nights, worst first."""
        site = site_now()
        return [site.series_answer(row) for row in site.series[offset : offset + limit]]

    @api.get("/series/{series_key}")
    def one_series(series_key: str) -> OneSeriesAnswer:
        """Return a series with its nights."""
        site = site_now()
        row = next((row for row in site.series if row.key == series_key), None)
        if row is None:
            raise NotFoundError("there is no series of this key")
        return OneSeriesAnswer(
            series=site.series_answer(row),
            nights=tuple(site.night_figures(row)),
            changes=tuple(site.change_answer(change) for change in row.changes),
        )

    @api.get("/changes")
    def changes(offset: Offset = 0, limit: Limit = 100) -> Sequence[ChangeAnswer]:
        """Return the changes of series, the newest first and of a night the largest first."""
        return site_now().change_answers[offset : offset + limit]

    @api.get("/access", dependencies=_TOKEN)
    def access() -> DoneAnswer:
        """Confirm the token: a request without it is refused before."""
        return DoneAnswer(text="the token is right")

    @api.post("/pauses", dependencies=_TOKEN)
    def pause(pause_request: PauseRequest) -> DoneAnswer:
        """Pause the farm, a host or a phone; needs the token."""
        return steered(lambda source: source.pause(workspace.settings, [pause_request.scope]))

    @api.delete("/pauses", dependencies=_TOKEN)
    def resume(scope: str) -> DoneAnswer:
        """End a pause; needs the token."""
        return steered(lambda source: source.resume(workspace.settings, [scope]))

    @api.delete("/submissions/{submission}", dependencies=_TOKEN)
    def cancel(submission: str, phone: Phones = None) -> DoneAnswer:
        """Cancel a submission, or some phones' part of it; needs the token."""
        return steered(lambda source: source.cancel(workspace, submission, phone or []))

    @api.delete("/quarantine/{serial}", dependencies=_TOKEN)
    def release(serial: str) -> DoneAnswer:
        """Release a phone from quarantine; needs the token."""
        done = release_from_quarantine(workspace, queue, serial)
        farm_now.read(is_fresh=True)
        return done

    def steered(act: Callable[[QueueSource], DoneAnswer]) -> DoneAnswer:
        """Run an action of the queue's source; StoreError for a queue of another version."""
        if queue is None:
            raise UsageError(
                "this store has no farm's queue", hint="a farm needs a store on PostgreSQL"
            )
        done = act(queue_source())
        farm_now.read(is_fresh=True)
        return done

    return api


def release_from_quarantine(workspace: Workspace, queue: Queue | None, serial: str) -> DoneAnswer:
    """End a phone's quarantine, or ask its host to; raises UsageError."""
    if workspace.quarantine.reason(Serial(serial)):
        return release_phone(workspace, serial)
    if queue is not None and (host := queue.ask_release(serial)):
        text = f"{serial}: its host {host} releases it at its next check"
        return DoneAnswer(text=text, data={"host": host})
    raise UsageError(f"{serial} isn't in quarantine")


def changes_something(method: str, path: str) -> bool:
    """Whether a request needs the token."""
    return path.startswith(f"{PATH}/") and (
        method in {"POST", "DELETE"} or path == f"{PATH}/access"
    )


def refusal(status: int, error: str, hint: str = "") -> Response:
    """Return the API's response for a refused request."""
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else {}
    return _AsciiResponse({"error": error, "hint": hint}, status_code=status, headers=headers)


class _AsciiResponse(JSONResponse):
    """JSON in ASCII: file names and texts of phones may have characters that UTF-8 can't encode."""

    def render(self, content: Any) -> bytes:  # noqa: ANN401 - any JSON value
        """Return the body."""
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii")


async def _check_texts(request: Request) -> None:
    """Raise RequestValidationError for text that no database accepts: with NUL or with a lone
    surrogate.
    """
    try:
        body = json.loads(await request.body() or b"null")
    except ValueError:
        # FastAPI reports the error.
        body = None
    where = {
        "path": request.scope["path"],
        "query": list(request.query_params.multi_items()),
        "body": body,
    }
    for place, value in where.items():
        text = json.dumps(value, ensure_ascii=False)
        if "\\u0000" in text or any("\ud800" <= char <= "\udfff" for char in text):
            raise RequestValidationError(
                [{"loc": (place,), "msg": "holds a character that is no text"}]
            )
