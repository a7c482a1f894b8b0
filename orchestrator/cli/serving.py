"""``benchfarm history site`` and ``benchfarm serve``: the history's pages in a folder, and from the live store."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace

from orchestrator.app import site
from orchestrator.app.access import Listening, access_of, address_of, require_packages
from orchestrator.app.farm_beside import queue_beside
from orchestrator.app.site import TITLE, SiteRequest, first_night
from orchestrator.bootstrap import Farm, Settings
from orchestrator.cli.progress import tell
from orchestrator.cli.result import CommandResult
from orchestrator.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeRequest:
    """The options of ``benchfarm serve``."""

    listening: Listening = field(default_factory=lambda: Listening(port=8080))
    since: str = ""
    title: str = TITLE
    #: Whether who hasn't the token may read.
    anyone_reads: bool = False


def build(settings: Settings, request: SiteRequest) -> CommandResult:
    """Write or renew the pages; raises UsageError, HostStorageError."""
    with Farm(settings, makes_store=False) as farm:
        done = site.build(farm, request)
    text = (
        f"{done.path}: {done.series} series, {done.reports} reports; "
        f"{done.written} pages written, {done.unchanged} unchanged, {done.removed} removed"
    )
    if done.kept:
        text += f"\nleft as they are, since somebody changed them: {', '.join(done.kept[:5])}"
    return CommandResult(text=text, data=done)


def run(settings: Settings, request: ServeRequest) -> CommandResult:
    """Serve until interrupted; raises UsageError."""
    require_packages("benchfarm serve")
    from orchestrator.app.gauges import Numbers
    from orchestrator.app.serving import LiveAnswers, LivePages
    from orchestrator.serve import app as web
    from orchestrator.serve.metrics import page

    access = replace(access_of(settings, request.listening), anyone_reads=request.anyone_reads)
    if request.anyone_reads and not access.token:
        raise UsageError("--anyone-reads is about a server with a token", hint="give --token-file, or leave it out")
    with ExitStack() as stack:
        farm = stack.enter_context(Farm(settings))
        pages = LivePages(farm, since=first_night(request.since, farm), title=request.title)
        # A store that can't be opened is told now, not at the first request.
        farm.store.campaigns()
        queue = queue_beside(settings, stack)
        numbers = Numbers(farm, queue)
        answers = LiveAnswers(farm, queue, pages, can_be_steered=bool(access.token))
        listening = stack.enter_context(web.listen(request.listening.host, request.listening.port))
        url = f"{address_of(listening)}/"
        if request.listening.token == "new":  # noqa: S105 - a word, no secret
            # Nobody else knows one that was made up; what was given stays out of logs.
            url += f"?token={access.token}"
        tell(settings.log_format, "serving", url, url=url)
        tell(
            settings.log_format, "serving", "the farm, live: /farm; its API: /api/v1; numbers for Prometheus: /metrics"
        )
        tell(settings.log_format, "serving", "Ctrl-C ends it")
        with suppress(KeyboardInterrupt):
            more = {"metrics": lambda: page(numbers.families())}
            web.serve(web.make_app(pages, access=access, more=more, source=answers), listening)
    return CommandResult(text="", data={"url": url})
