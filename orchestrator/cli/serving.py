"""``benchfarm serve``: the site's pages from the live store."""

from __future__ import annotations

import secrets
import socket
import threading
import time
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Final

import typer

from orchestrator.bootstrap import Farm, Settings
from orchestrator.cli.result import CommandResult
from orchestrator.cli.site import TITLE, campaign_html, first_night, gather
from orchestrator.errors import UsageError
from orchestrator.records.identity import CampaignId
from orchestrator.report import site_pages
from orchestrator.report.site import Site, SiteCampaign

if TYPE_CHECKING:
    from orchestrator.serve.app import ServedPage

#: A token that is shorter can be guessed.
_LEAST_TOKEN: Final = 16
#: Seconds for which the pages stay as they are, and how many times as long as gathering them took.
_LEAST_AGE_S: Final = 2.0
_AGE_FACTOR: Final = 10.0
_KEPT_REPORTS: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeRequest:
    """The options of ``benchfarm serve``."""

    host: str = "127.0.0.1"
    port: int = 8080
    token: str = ""
    allowed_hosts: tuple[str, ...] = ()
    since: str = ""
    title: str = TITLE


class LivePages:
    """The pages of a store as it is now; gathered again when something was stored since."""

    def __init__(self, farm: Farm, *, since: date | None, title: str) -> None:
        self._farm = farm
        self._since = since
        self._title = title
        self._lock = threading.Lock()
        self._known: tuple[Site, dict[CampaignId, str]] | None = None
        self._seen: object = None
        self._fresh_until_s = 0.0
        self._reports: OrderedDict[str, bytes] = OrderedDict()

    def page(self, path: str) -> ServedPage | None:
        """Return the page of a path, None when there is none."""
        from orchestrator.serve.app import page_of

        with self._lock:
            content = self._content(path)
        return None if content is None else page_of(path or "index.html", content)

    def _content(self, path: str) -> bytes | None:
        if path.startswith("assets/"):
            shared = (site_pages.style_file(), site_pages.script_file())
            known = {item.path: item.content for item in shared}
            if path not in known:
                library = site_pages.library_file(self._farm.settings.cache_folder)
                known[library.path] = library.content
            return known.get(path)
        site, marks = self._current()
        if path in ("", "index.html"):
            return site_pages.overview_page(site).encode()
        folder, _, name = path.partition("/")
        if folder == "series" and name in site.by_name:
            return site_pages.series_page(site, site.by_name[name]).encode()
        if folder != "campaigns":
            return None
        if name in ("", "index.html"):
            return site_pages.campaigns_page(site).encode()
        campaign = next((item for item in site.campaigns if item.page == name), None)
        return None if campaign is None else self._report(campaign, marks[campaign.campaign_id])

    def _report(self, campaign: SiteCampaign, mark: str) -> bytes:
        key = f"{campaign.campaign_id} {mark}"
        if key not in self._reports:
            self._reports[key] = campaign_html(self._farm, campaign.campaign_id).encode()
            while len(self._reports) > _KEPT_REPORTS:
                self._reports.popitem(last=False)
        self._reports.move_to_end(key)
        return self._reports[key]

    def _current(self) -> tuple[Site, dict[CampaignId, str]]:
        begin_s = time.monotonic()
        if self._known is not None and begin_s < self._fresh_until_s:
            return self._known
        store = self._farm.store
        seen = (
            [(item.campaign_id, item.status, item.finished_at) for item in store.campaigns()],
            dict(store.progress()),
            list(store.annotations()),
            list(store.confirmations()),
        )
        if self._known is None or seen != self._seen:
            site, marks = gather(store, since=self._since, title=self._title)
            self._known, self._seen = (site, dict(marks)), seen
        took_s = time.monotonic() - begin_s
        self._fresh_until_s = time.monotonic() + max(_LEAST_AGE_S, _AGE_FACTOR * took_s)
        return self._known


def run(settings: Settings, request: ServeRequest) -> CommandResult:
    """Serve until interrupted; raises UsageError."""
    try:
        from orchestrator.serve import app as web
    except ImportError as error:
        raise UsageError(
            f"'benchfarm serve' needs {error.name}, which isn't installed",
            hint="install it with: pip install 'benchfarm[serve]'",
        ) from error
    token = secrets.token_urlsafe(24) if request.token == "new" else request.token  # noqa: S105 - a word, no secret
    is_local = web.is_loopback(request.host)
    if not is_local and not token:
        raise UsageError(
            f"{request.host} can be reached by other computers: that needs --token",
            hint="'--token new' makes one up and tells it; or leave out --host, and only this computer can connect",
        )
    if token and len(token) < _LEAST_TOKEN:
        raise UsageError(f"--token must have {_LEAST_TOKEN} letters or more", hint="'--token new' makes one up")
    access = web.Access(
        hosts=(*request.allowed_hosts, *(() if is_local else (request.host, socket.gethostname()))),
        any_address=not is_local,
        token=token,
    )
    with Farm(settings) as farm:
        pages = LivePages(farm, since=first_night(request.since, farm), title=request.title)
        # A store that can't be opened is told now, not at the first request.
        farm.store.campaigns()
        with web.listen(request.host, request.port) as listening:
            address = listening.getsockname()
            name = f"[{address[0]}]" if ":" in address[0] else address[0]
            url = f"http://{name}:{address[1]}/{f'?token={token}' if token else ''}"
            typer.echo(f"{url}\nCtrl-C ends it", err=True)
            with suppress(KeyboardInterrupt):
                web.serve(web.make_app(pages, access=access), listening)
    return CommandResult(text="", data={"url": url})
