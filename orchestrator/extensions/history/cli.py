"""``benchfarm history`` and ``serve``: changes over nightly runs, and the pages that show them."""

from __future__ import annotations

import json
import secrets
import signal
import socket
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from typer import Argument, Option

from orchestrator.errors import UsageError
from orchestrator.files import write_file
from orchestrator.installation import require_packages
from orchestrator.plugins import (
    CommandResult,
    Message,
    Out,
    Settings,
    Texts,
    command,
    format_of,
    reporting_workspace,
    share_of,
    tables_result,
    tell,
    to_json,
)
from orchestrator.records.history import LEAST_CHANGE, Annotation
from orchestrator.tables.escapes import markdown_text, one_line, wrap
from orchestrator.tables.table import Column, Form, Table
from orchestrator.units import counted

if TYPE_CHECKING:
    from orchestrator.extensions.history import changes as history
    from orchestrator.extensions.history.regressions import Regressions, SeriesChange
    from orchestrator.extensions.history.web import Access

_SELECTION = (
    "A series key or its beginning, or words that must all match: delegate=gpu,GPU=*640*. The words are delegate, "
    "model, serial, phone, soc, GPU, tool and threads."
)


#: A token that is shorter can be guessed.
_MIN_TOKEN: Final = 16
_HERE: Final = "127.0.0.1"
_MADE_UP: Final = "'openssl rand -hex 16' makes one up"


@command("history changes")
def changes(
    settings: Settings,
    *,
    since: Annotated[
        str, Option("--since", help="30d, 4w or a date (default: changes of the last 14 nights).")
    ] = "",
    series: Annotated[Texts, Option("--series", help=f"{_SELECTION} Repeat for several.")] = None,
    threshold: Annotated[
        str, Option("--threshold", help="Smallest change to report, at least 2%.")
    ] = f"{LEAST_CHANGE:.0%}",
    confirm: Annotated[
        bool,
        Option(
            "--confirm",
            help="Measure old against new on the same phone for each unconfirmed change.",
        ),
    ] = False,
    form: Annotated[
        str,
        Option("--format", "-f", help="text, markdown or json (default: by --out, else text)."),
    ] = "",
    fail_on: Annotated[
        str,
        Option("--fail-on", help="Exit code 1 for slowdowns: unrefuted, confirmed, or never."),
    ] = "unrefuted",
    notify: Annotated[
        Texts,
        Option("--notify", help="With exit code 1, send the report: a webhook's URL, or @FILE."),
    ] = None,
    out: Out = None,
) -> CommandResult:
    """Report changes in all series, with their size and cause.

    Example: benchfarm history changes --since 30d
    """
    from orchestrator.extensions.history import changes as history
    from orchestrator.extensions.history.notifying import find_receiver, send
    from orchestrator.extensions.history.regressions import Question
    from orchestrator.extensions.history.site import first_night

    share = share_of(threshold, "--threshold", least=LEAST_CHANGE, most=1.0)
    form = format_of(form, out, ("text", "markdown", "json"), default="text")
    receivers = [find_receiver(text, settings) for text in notify or ()]
    with reporting_workspace(settings, makes_store=False) as workspace:
        question = Question(
            since=first_night(since, workspace),
            selections=tuple(series or ()),
            threshold=share,
        )
        checked = history.find_changes(workspace, question, confirm=confirm, fail_on=fail_on)
    text = render_changes(checked, form)
    if out is not None:
        write_file(out, text.encode())
        text = f"{out}\n\n{one_line(checked.nothing)}" if checked.nothing else f"{out}"
    data = {**_data(checked.regressions), "fails": checked.fails}
    undelivered = []
    if receivers and checked.fails:
        content, report = json.loads(to_json(data)), render_changes(checked, "text")
        message = Message(content=content, text=report)
        undelivered = [reason for receiver in receivers if (reason := send(receiver, message))]
    for reason in undelivered:
        tell(settings.log_format, "notify", reason, level="error")
    return CommandResult(
        text=text, data={**data, "undelivered": undelivered}, exit_code=int(checked.fails)
    )


@command("history selftest", has_table=True)
def selftest(settings: Settings) -> CommandResult:
    """Test which artificial slowdowns are found, and how soon.

    Example: benchfarm history selftest

    Nothing is measured or stored. The newest nights of up to 20 series are made slower, one series
    at a time.
    """
    from orchestrator.extensions.history.changes import (
        DETECTIONS,
        MIN_NIGHTS,
        NIGHTS,
        detections,
    )
    from orchestrator.extensions.history.regressions import campaign_nights, read_nights
    from orchestrator.plugins import Workspace

    with Workspace(settings, makes_store=False) as workspace:
        store = workspace.store
        nights = read_nights(store, campaign_nights(store, store.campaigns()))
    table = Table(
        name="selftest",
        caption="Steps in this lab's own series, and how they are found",
        columns=DETECTIONS,
        rows=[item for item in detections(nights.table.latency_us) if item.series],
        nothing=f"no series has {MIN_NIGHTS} nights yet: a step can't be told from noise",
        notes=[f"found: reported within {NIGHTS} nights"],
    )
    return tables_result(table)


@command("history expect", has_table=True)
def annotate(
    settings: Settings,
    selection: Annotated[str | None, Argument(help=_SELECTION, metavar="SERIES")] = None,
    night: Annotated[
        str, Argument(help="First day of the new level, 2026-03-09.", metavar="DATE")
    ] = "",
    text: Annotated[str, Argument(help="Why the change is expected.", metavar="TEXT")] = "",
    remove: Annotated[
        str | None, Option("--remove", help="Remove the expected change of this id.")
    ] = None,
) -> CommandResult:
    """Record an expected change (default: list them).

    Example: benchfarm history expect delegate=gpu 2026-03-09 "new GPU driver"

    Example: benchfarm history expect --remove 3

    'benchfarm history changes' lists expected changes last. They don't change its exit code.
    """
    from orchestrator.extensions.history import changes as history
    from orchestrator.plugins import Workspace

    # An empty argument is an unset variable of a script, not a missing argument.
    is_new = selection is not None
    if is_new and (not (selection and night and text) or remove is not None):
        raise UsageError("an expected change is SERIES DATE TEXT", hint="give all three, in quotes")
    # A mistyped store's name must not make a store.
    with Workspace(settings, makes_store=is_new and settings.is_default_store) as workspace:
        if selection is not None:
            annotation, fitting = history.expect(workspace, selection, night, text)
            message = f"expected change {annotation.annotation_id}: {fitting} series match now"
            return CommandResult(text=message, data={**asdict(annotation), "series": fitting})
        if remove is None:
            rows = list(workspace.store.annotations())
            return tables_result(
                Table(
                    name="annotations",
                    caption="Expected changes",
                    columns=_ANNOTATIONS,
                    rows=rows,
                    nothing="no change is expected",
                )
            )
        if not workspace.store.delete_annotation(remove):
            raise UsageError(
                f"there is no expected change {remove!r}",
                hint="'benchfarm history expect' lists them",
            )
    return CommandResult(
        text=f"expected change {remove} is removed", data={"annotation_id": remove}
    )


_ANNOTATIONS: Final[Sequence[Column[Annotation]]] = (
    Column("annotation_id", "id", lambda row: row.annotation_id),
    Column("night", value=lambda item: f"{item.night}"),
    Column("selection", "series", lambda row: row.selection),
    Column("text", value=lambda row: row.text, shown=lambda item: one_line(item.text)),
)

#: The nights that pages show.
Since = Annotated[
    str, Option("--since", help="90d, 12w or a date (default: the newest 90 nights).")
]


@command("history site")
def write_site(
    settings: Settings,
    out: Annotated[
        Path,
        Option(
            "--out", "-o", help="Folder for the pages: an empty one, or one that holds such pages."
        ),
    ],
    since: Since = "",
) -> CommandResult:
    """Write history pages for any web server.

    Example: benchfarm history site --out pages
    """
    from orchestrator.extensions.history import pages as site_pages
    from orchestrator.plugins import Workspace

    with Workspace(settings, makes_store=False) as workspace:
        done = site_pages.build(workspace, out, since=since)
    text = (
        f"{done.path}: {done.series} series, {done.reports} reports; "
        f"{done.written} pages written, {done.unchanged} unchanged, {done.removed} removed"
    )
    return CommandResult(text=text, data=done)


def find_token(settings: Settings, token: str, token_file: Path | None) -> str:
    """Return the token of the file, the option or the environment, empty for none.

    Raises UsageError when the file can't be read, the token is too short to be one, or there are
    two.
    """
    from orchestrator.extensions.history.notifying import secret_in

    if token and token_file is not None:
        raise UsageError("--token and --token-file are two tokens", hint="leave one of them out")
    given = secret_in(token_file, "--token-file") if token_file else token or settings.token
    # A new one, or none, is no mistake; an empty file is.
    token = secrets.token_urlsafe(24) if given == "new" else given
    has_one = bool(token) or token_file is not None
    if has_one and (len(token) < _MIN_TOKEN or not token.isascii() or not token.isprintable()):
        raise UsageError(
            f"a token must have {_MIN_TOKEN} letters or more, and nothing but ASCII",
            hint=_MADE_UP,
        )
    return token


def make_access(
    token: str,
    host: str = _HERE,
    *,
    allow_host: Sequence[str] = (),
    anyone_reads: bool = False,
) -> Access:
    """Return the access rules; raises UsageError when there is no token where one is needed."""
    from orchestrator.extensions.history import web
    from orchestrator.plugins import is_loopback

    is_local = is_loopback(host)
    if not is_local and not token:
        raise UsageError(
            f"{host} can be reached by other computers: that needs a token",
            hint=f"--token-file FILE or $BENCHFARM_TOKEN; {_MADE_UP}; on 127.0.0.1 only this computer can connect",
        )
    if anyone_reads and not token:
        raise UsageError(
            "--anyone-reads is about a server with a token",
            hint="give --token-file, or leave it out",
        )
    return web.Access(
        hosts=(*allow_host, *(() if is_local else (host, socket.gethostname()))),
        any_address=not is_local,
        token=token,
        anyone_reads=anyone_reads,
    )


def http_address(listening: socket.socket) -> str:
    """Return ``http://host:port`` of a listening socket."""
    address = listening.getsockname()
    name = f"[{address[0]}]" if ":" in address[0] else address[0]
    return f"http://{name}:{address[1]}"


@command("serve")
def serve(
    settings: Settings,
    *,
    host: Annotated[
        str,
        Option(
            "--host",
            help="Address to listen on. Any other than this computer's own requires a token.",
        ),
    ] = _HERE,
    port: Annotated[
        int, Option("--port", help="Port. 0 takes a free one.", min=0, max=65535)
    ] = 8080,
    token: Annotated[
        str,
        Option(
            "--token",
            help="Token for reading and for actions ($BENCHFARM_TOKEN). 'new' creates one.",
        ),
    ] = "",
    token_file: Annotated[
        Path | None, Option("--token-file", help="File that holds the token.")
    ] = None,
    allow_host: Annotated[
        Texts,
        Option("--allow-host", help="Another name of this server. Repeat for several."),
    ] = None,
    anyone_reads: Annotated[
        bool,
        Option("--anyone-reads", help="Require the token for actions only, not for reading."),
    ] = False,
    since: Since = "",
) -> CommandResult:
    """Serve the history pages and the live page of the farm.

    Example: benchfarm serve --port 8080

    /farm shows phones, queue and tonight's progress; with a token it also pauses, resumes, cancels
    and releases. /api/v1 answers with the same as JSON, /metrics with numbers for
    Prometheus.
    """
    from orchestrator.extensions.history.site import first_night
    from orchestrator.plugins import Workspace, queue_beside

    require_packages("benchfarm serve", "fastapi", "uvicorn", "prometheus_client")
    from orchestrator.extensions.history import api, web
    from orchestrator.extensions.history.farm_now import FarmNow
    from orchestrator.extensions.history.metrics import Numbers
    from orchestrator.extensions.history.web import LivePages

    access = make_access(
        find_token(settings, token, token_file),
        host,
        allow_host=allow_host or (),
        anyone_reads=anyone_reads,
    )
    with ExitStack() as stack:
        workspace = stack.enter_context(Workspace(settings))
        # Report what can't be read now, not at the first request.
        first_night(since, workspace)
        workspace.store.campaigns()
        queue = queue_beside(settings, stack)
        farm = FarmNow(workspace, queue, can_be_steered=bool(access.token))
        pages = LivePages(workspace, farm, since=since)
        numbers = Numbers(workspace, farm, lambda: pages.site().news)
        opened = stack.enter_context(web.listen(host, port))
        url = f"{http_address(opened)}/"
        if token == "new":  # noqa: S105 - a word, no secret
            # Only this log has a new token; a given one stays out of logs.
            url += f"?token={access.token}"

        def page_at(path: str) -> web.ServedPage | None:
            return numbers.page() if path == "metrics" else pages.page(path)

        answers = api.make_api(workspace, queue, pages.site, farm)
        server = web.make_server(web.make_app(page_at, access=access, api_app=answers))

        def end(*_: object) -> None:
            server.should_exit = True

        # The server handles signals once it runs; before, they would break its event loop's setup.
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:
                stack.callback(signal.signal, number, signal.signal(number, end))
        tell(settings.log_format, "serving", url, url=url)
        addresses = "the farm, live: /farm; its API: /api/v1; numbers for Prometheus: /metrics"
        tell(settings.log_format, "serving", addresses)
        tell(settings.log_format, "serving", "Ctrl-C ends it")
        server.run(sockets=[opened])
    return CommandResult(text="", data={"url": url})


def _parts(regressions: Regressions) -> list[tuple[str, Table[Any]]]:
    """Return the parts of the report: a heading and its table each."""
    from orchestrator.extensions.history.changes import CHANGES, OUTPUTS

    parts: list[tuple[str, Table[Any]]] = [
        (group.sentence, Table(name="changes", caption="", columns=CHANGES, rows=group.members))
        for group in regressions.groups
    ]
    outputs = Table(name="outputs", caption="", columns=OUTPUTS, rows=regressions.outputs)
    return [*parts, ("outputs against the reference", outputs)] if regressions.outputs else parts


def _heading(regressions: Regressions) -> str:
    from orchestrator.extensions.history.changepoint import SEGMENT_NIGHTS
    from orchestrator.extensions.history.regressions import SILENT_NIGHTS

    count, nights = len(regressions.changes), counted(regressions.nights, "night")
    changes = (
        f"{counted(count, 'change')} since {regressions.since}"
        if regressions.since
        else f"{counted(count, 'new change')} in the last 14 nights, more where a series lacks nights"
    )
    sentences = [f"{changes}, in {regressions.series} series over {nights}"]
    minimum = 2 * SEGMENT_NIGHTS
    if regressions.series and regressions.nights < minimum:
        sentences.append(f"it takes {minimum} nights to find a change")
    if worse := sum(item.is_worse for item in regressions.outputs):
        sentences.append(f"the outputs of {worse} turned wrong or drifted")
    if regressions.silent:
        phones = ", ".join(dict.fromkeys(item.case.serial for item in regressions.silent))
        problem = f"have no figure in the newest {SILENT_NIGHTS} nights"
        sentences.append(f"{len(regressions.silent)} series ({phones}) {problem}")
    if regressions.other_figures:
        sentences.append(
            f"{regressions.other_figures} series changed between means and medians, nights before"
            " that aren't compared"
        )
    return "; ".join(sentences)


def render_changes(checked: history.Changes, form: str) -> str:
    """Return the changes found as ``text``, ``markdown`` or ``json``."""
    from orchestrator.tables.renderers import as_markdown

    regressions = checked.regressions
    if form == "json":
        return to_json(_data(regressions))
    is_markdown = form == "markdown"

    def paragraph(text: str, mark: str) -> list[str]:
        if is_markdown:
            return [f"{mark}{markdown_text(one_line(text))}"]
        return wrap(one_line(text), following="    ")

    lines = paragraph(_heading(regressions), "## ")
    for heading, table in _parts(regressions):
        lines += ["", *paragraph(heading, "### ")]
        if is_markdown:
            lines += ["", as_markdown(table).rstrip()]
            continue
        first, *columns = table.of(Form.TEXT)
        for row in table.listed:
            cells = [(column.head, column.cells([row])[0]) for column in columns]
            words = [first.cells([row])[0], *(f"{head} {cell}" for head, cell in cells if cell)]
            lines += wrap(f"  {one_line(', '.join(words))}", following="    ")
    if checked.nothing:
        nothing = one_line(checked.nothing)
        lines += ["", markdown_text(nothing) if is_markdown else nothing]
    return "\n".join(lines)


def _data(regressions: Regressions) -> dict[str, object]:
    def change_data(item: SeriesChange) -> dict[str, object]:
        series = item.series
        return {
            "series_key": series.key,
            "case": series.case,
            "phone": series.facts.title,
            "is_virtual": series.is_virtual,
            **{part.name: getattr(item, part.name) for part in fields(item)[1:]},
            "configuration": series.case.configuration,
        }

    return {
        "since": regressions.since,
        "nights": regressions.nights,
        "series": regressions.series,
        "groups": [
            {
                "sentence": group.sentence,
                "series": group.series,
                "changes": [change_data(item) for item in group.members],
            }
            for group in regressions.groups
        ],
        "outputs": [
            {**change_data(item), "is_worse": item.is_worse} for item in regressions.outputs
        ],
        "silent": [item.key for item in regressions.silent],
        "other_figures": regressions.other_figures,
    }
