"""The web application: pages from a source, and their protection from strangers and from other
sites' scripts.

Only GET and HEAD are answered, and only for paths that the source has: no path of a request is
ever a file's. Requests that change something are part of the API (api.py) and need the token in a
header of their own. A request must name one of this server's host names, so that a site whose name
points here (DNS rebinding) gets nothing. Pages load nothing from elsewhere, and their policy
forbids it.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import math
import re
import resource
import secrets
import socket
import struct
import threading
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from typing import Final
from urllib.parse import quote

import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import PlainTextResponse, RedirectResponse
from uvicorn.protocols.http.h11_impl import H11Protocol

from orchestrator.errors import BenchfarmError, UsageError
from orchestrator.extensions.history import api
from orchestrator.extensions.history import pages as site_pages
from orchestrator.extensions.history.answers import ChangeAnswer
from orchestrator.extensions.history.farm_now import Cached, FarmNow
from orchestrator.extensions.history.site import Site, first_night, gather, report_marks
from orchestrator.plugins import Workspace
from orchestrator.records import frozen
from orchestrator.records.case import CampaignId
from orchestrator.tables.html import page_policy

_COOKIE: Final = "benchfarm-token"
#: Open connections, at most; and at most a quarter of the process' descriptors: the rest is for
#: measurements in the same process.
_MAX_CONNECTIONS: Final = 64
#: A host and its port in a request: a name, an address, or an IPv6 address in brackets.
_HOST: Final = re.compile(r"(?:\[(?P<v6>[0-9a-f:.]+)\]|(?P<name>[^:\[\]\s]+))(?::[0-9]{1,5})?")
#: Seconds after which a browser retries a page that couldn't be read.
_RETRY_S: Final = 5
#: Timeout for a whole request, and for the client to read on, seconds.
_REQUEST_S: Final = 10.0
#: Body of a request that changes something, at most.
_MAX_BYTES: Final = 64 * 1024
_MEDIA_TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
}
_HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_CLOSED: Final = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"


@frozen
class ServedPage:
    """The response for one path."""

    content: bytes
    media_type: str
    policy: str = _CLOSED
    #: The content's ETag.
    tag: str = ""


def make_page(path: str, content: bytes, kind: str = "site") -> ServedPage:
    """Return the response for a path; a page's policy is that of its kind and follows from the
    templates, never from the page, whose data may contain a script.
    """
    ending = path.rpartition(".")[2]
    is_page = ending == "html"
    return ServedPage(
        content=content,
        media_type=_MEDIA_TYPES[ending],
        policy=f"{page_policy(kind)}; frame-ancestors 'none'" if is_page else _CLOSED,
        tag=f'"{hashlib.sha256(content).hexdigest()[:32]}"',
    )


@frozen
class Access:
    """The access rules of the server."""

    #: Names and addresses that a request may name as its host, beside loopback's.
    hosts: Collection[str] = ()
    #: Whether a request may name any address: for a server that listens on all of them.
    any_address: bool = False
    #: Empty: reading needs no token, and nothing can be changed.
    token: str = ""
    #: Whether reading needs no token.
    anyone_reads: bool = False

    def knows(self, header: str) -> bool:
        """Whether a request's Host header names this server."""
        name = _host_name(header)
        names = {"localhost", "127.0.0.1", "::1", *(host.lower() for host in self.hosts)}
        return name in names or (self.any_address and is_address(name))

    def admits(self, request: Request) -> bool:
        """Whether a request may read; every comparison of the token takes the same time."""
        if not self.token or self.anyone_reads:
            return True
        has_token = self.lets_steer(request)
        return same(self.reading_key, request.cookies.get(_COOKIE, "")) or has_token

    @property
    def reading_key(self) -> str:
        """The cookie's value. It isn't the token, as every port of this host gets cookies; it only
        allows reading.
        """
        return hmac.new(self.token.encode(), b"benchfarm: reading", hashlib.sha256).hexdigest()

    def lets_steer(self, request: Request) -> bool:
        """Whether a request has the token in the header that no other site's script can send."""
        scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
        return bool(self.token) and scheme.lower() == "bearer" and same(self.token, bearer)


def same(token: str, text: str) -> bool:
    """Whether a text is the token, in a time that tells nothing about it."""
    return secrets.compare_digest(token.encode(), text.encode(errors="replace"))


def is_address(name: str) -> bool:
    """Whether a name is an IP address."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _host_name(header: str) -> str:
    """Return the name of ``name:port``, of ``[address]:port`` the address; empty for anything else."""
    match = _HOST.fullmatch(header.strip().lower())
    return (match["v6"] or match["name"]) if match is not None else ""


def make_app(
    page_at: Callable[[str], ServedPage | None],
    *,
    access: Access,
    api_app: FastAPI | None = None,
) -> FastAPI:
    """Return the application.

    Args:
        page_at: returns the page of a path without its leading ``/``, None for none; called from
            several threads.
        access: the access rules.
        api_app: the application under ``api.PATH``.
    """
    app = FastAPI(title="benchfarm", docs_url=None, redoc_url=None, openapi_url=None)
    if api_app is not None:
        app.mount(api.PATH, api_app)

    @app.middleware("http")
    async def _guard(
        request: Request, call_next: Callable[[Request], Awaitable[Response]]
    ) -> Response:
        response = _refusal(request, access) or await call_next(request)
        for name, value in _HEADERS.items():
            response.headers.setdefault(name, value)
        response.headers.setdefault("Content-Security-Policy", _CLOSED)
        return response

    @app.exception_handler(BenchfarmError)
    async def _unread(_: Request, error: BenchfarmError) -> Response:
        # A browser retries by itself: the store may be back.
        text = (
            f"These pages can't be read now: {error}\n\nThis page asks again every {_RETRY_S} s.\n"
        )
        return PlainTextResponse(
            text, status_code=503, headers={"Retry-After": f"{_RETRY_S}", "Refresh": f"{_RETRY_S}"}
        )

    @app.api_route("/{path:path}", methods=["GET", "HEAD"])
    async def _page(path: str, request: Request) -> Response:
        page = await run_in_threadpool(page_at, path)
        if page is None:
            return PlainTextResponse("There is no such page.\n", status_code=404)
        headers = {"Content-Security-Policy": page.policy, "Cache-Control": "no-cache"}
        if page.tag:
            headers["ETag"] = page.tag
            if page.tag in request.headers.get("if-none-match", ""):
                return Response(status_code=304, headers=headers)
        return Response(page.content, media_type=page.media_type, headers=headers)

    return app


def _refusal(request: Request, access: Access) -> Response | None:
    """Return the refusal of a request; None for one that may pass."""
    if not access.knows(request.headers.get("host", "")):
        return PlainTextResponse("This server isn't known by that name.\n", status_code=421)
    if api.changes_something(request.method, request.scope["path"]):
        return _refused_change(request, access)
    if request.method not in {"GET", "HEAD"}:
        return PlainTextResponse(
            "These pages can only be read.\n", status_code=405, headers={"Allow": "GET, HEAD"}
        )
    if access.token and "token" in request.query_params:
        if not same(access.token, request.query_params["token"]):
            return _unknown()
        # Remove the token from the address, so that no browser history and no log has it. The new
        # address is relative: a proxy may serve these pages under a path of its own.
        response = RedirectResponse(
            f"./{quote(request.scope['path'].rpartition('/')[2])}", status_code=303
        )
        response.set_cookie(
            _COOKIE,
            access.reading_key,
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )
        return response
    return None if access.admits(request) else _unknown()


def _refused_change(request: Request, access: Access) -> Response | None:
    if not access.token:
        return api.refusal(
            403,
            "the server was started without a token: it is read-only",
            "serve --token-file FILE",
        )
    if not access.lets_steer(request):
        return api.refusal(401, "this needs the token", "send it as 'Authorization: Bearer TOKEN'")
    length = request.headers.get("content-length", "0")
    has_length = length.isdecimal() and len(length) <= 9
    if "transfer-encoding" in request.headers or not has_length or int(length) > _MAX_BYTES:
        return api.refusal(413, f"a request needs a Content-Length of at most {_MAX_BYTES} bytes")
    return None


def _unknown() -> Response:
    return PlainTextResponse(
        "This needs the token that the server was started with: open /?token=TOKEN once, "
        "or send it as 'Authorization: Bearer TOKEN'.\n",
        status_code=401,
        headers={"WWW-Authenticate": "Bearer"},
    )


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket; port 0 takes a free one. Raises UsageError."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        raise UsageError(
            f"can't listen on {host} port {port}: {getattr(error, 'strerror', None) or error}",
            hint="choose another port, or 0 for any that is free",
        ) from error


class _Guarded(H11Protocol):
    """A connection that is closed when it is idle or its client doesn't read for a time, and when
    there are too many and it is the oldest.
    """

    begun_s = 0.0
    #: Bytes that the client hadn't read at the last check.
    _unread = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin."""
        super().connection_made(transport)
        self.begun_s = self.loop.time()
        self._later = self.loop.call_later(_REQUEST_S, self._end_idle)
        # Aborted ones stay in the list for a moment.
        connections = (item for item in self.connections if isinstance(item, _Guarded))
        open_connections = [item for item in connections if not item.transport.is_closing()]
        if len(open_connections) > _max_connections():
            min(open_connections, key=lambda item: item.begun_s).drop()

    def drop(self) -> None:
        """End the connection at once; the system drops unread bytes, too."""
        linger = struct.pack("ii", 1, 0)
        self.transport.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, linger
        )
        self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._later.cancel()
        super().connection_lost(exc)

    def _end_idle(self) -> None:
        unread, self._unread = self._unread, self.transport.get_write_buffer_size()
        is_silent = self.cycle is None or self.cycle.response_complete
        if is_silent or 0 < unread <= self._unread:
            self.drop()
        else:
            self._later = self.loop.call_later(_REQUEST_S, self._end_idle)


def _max_connections() -> int:
    """Return the maximum number of open connections."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return (
        _MAX_CONNECTIONS
        if soft == resource.RLIM_INFINITY
        else max(1, min(_MAX_CONNECTIONS, soft // 4))
    )


def make_server(app: FastAPI) -> uvicorn.Server:
    """Return a server without identifying headers; ``should_exit`` ends it."""
    config = uvicorn.Config(
        app,
        http=_Guarded,
        # Requests of strangers fill no log. The backlog is small: without free descriptors, each
        # connection in it logs an error a second.
        log_level="error",
        access_log=False,
        server_header=False,
        date_header=False,
        backlog=16,
    )
    return uvicorn.Server(config)


_CACHED_REPORTS: Final = 8
#: The pages' contents are used for this many times the time that gathering them took.
_AGE_FACTOR: Final = 10.0


class LivePages:
    """The pages of a store as it is now; gathered again when something was stored or a run was read
    again.
    """

    def __init__(self, workspace: Workspace, farm: FarmNow, *, since: str) -> None:
        """``since``: the option of ``serve``; the nights of "30d" change every night."""
        self._workspace = workspace
        self._farm = farm
        self._since = since
        self._cached = Cached(self._gather, age_factor=_AGE_FACTOR)
        #: The state of the store that, with the reports' change tokens, shows a change.
        self._state: object = None
        #: Pages are rendered one after the other.
        self._lock = threading.Lock()
        self._report = lru_cache(maxsize=_CACHED_REPORTS)(self._make_report)
        #: The changes on the farm's page, and the state of night and campaigns that they are of.
        self._changes: tuple[object, Sequence[ChangeAnswer]] = (None, ())

    def page(self, path: str) -> ServedPage | None:
        """Return the page of a path, None when there is none."""
        if path in {"farm", "farm/now"}:
            farm = self._farm_page(is_part=path != "farm")
            return make_page("farm.html", farm.encode(), "farm")
        # The farm's page needs these files while the store can't be read.
        if path in (shared := site_pages.shared_files()):
            return make_page(path, shared[path].encode())
        path = f"{path}index.html" if path in {"", "campaigns/"} else path
        site = self.site()
        reports = {item.page: CampaignId(item.campaign_id) for item in site.campaigns}
        with self._lock:
            if path in reports:
                content = self._report(reports[path], site.marks[reports[path]])
                return make_page(path, content, "report")
            make = site_pages.all_pages(self._workspace, site).get(path)
            return make_page(path, make().encode()) if make is not None else None

    def site(self) -> Site:
        """Return the pages' contents now."""
        return self._cached.read()

    def _farm_page(self, *, is_part: bool) -> str:
        """Return the farm's page.

        Changes are computed again when a campaign began, ended or was hidden, or when a change was
        expected or confirmed: that reads the whole history, and every open page polls.
        """
        farm, store = self._farm.read(), self._workspace.store
        with suppress(BenchfarmError):
            if not farm.fault:
                mark = (farm.night.night, farm.night.left == 0, store.history_mark())
                if mark != self._changes[0]:
                    # The cached site may be older than the mark.
                    self._changes = (mark, recent_changes(self._cached.read(is_fresh=True)))
        now = self._workspace.clock.now()
        return site_pages.farm_page(farm, self._changes[1], now, is_part=is_part)

    def _make_report(self, campaign_id: CampaignId, _mark: str) -> bytes:
        return site_pages.campaign_html(self._workspace, campaign_id).encode()

    def _gather(self, before: Site | None) -> Site:
        """Return the site: ``before`` unless something was stored or a run was read again since."""
        store, first = self._workspace.store, first_night(self._since, self._workspace)
        state = (first, store.history_mark())
        if before is not None and state == self._state:
            campaigns = store.campaigns()
            campaigns_before = [item for item in campaigns if item.campaign_id in before.marks]
            if report_marks(store, campaigns_before) == before.marks:
                return before
        site = replace(gather(store, since=first), is_live=True)
        self._state = state
        return site


def recent_changes(site: Site) -> list[ChangeAnswer]:
    """Return the changes that began or ended in the last nights, without expected and refuted ones;
    the latest first, and of a night the largest.
    """
    hidden_states = {"expected", "refuted"}
    news = [change for change in site.news if change.state not in hidden_states]
    news.sort(key=lambda item: (item.ended or item.night, abs(math.log(item.ratio))), reverse=True)
    return [site.change_answer(change) for change in news]
