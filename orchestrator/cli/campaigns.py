"""A workspace that shows its progress, as the live view of a campaign, as lines or as JSON; and the
results of measured campaigns.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from orchestrator.cli.commands import Reporting
from orchestrator.cli.output import (
    CUT_EXIT_CODE,
    LOCK,
    CommandResult,
    Streamed,
    ignore_stop_signals,
    joined,
    room,
    say,
    tell,
    write_line,
)
from orchestrator.errors import HostStorageError, InterruptedByUserError, StoreError, UsageError
from orchestrator.settings import Settings
from orchestrator.tables.escapes import WIDTH, one_line, wrap
from orchestrator.units import format_bytes

if TYPE_CHECKING:
    from orchestrator.app.measuring import MeasuredCampaign
    from orchestrator.app.workspace import Workspace
    from orchestrator.artifacts.fetch import Progress
    from orchestrator.ports import Observer
    from orchestrator.records.build_spec import BuildSpec
    from orchestrator.records.campaign import Campaign

#: Bytes between two lines, where the server sends no length.
_LINE_BYTES: Final = 8 << 20


class LineObserver:
    """Prints a line for each event, with the time of day; for logs and outputs other than
    terminals.
    """

    def on_event(self, event: object) -> None:
        """Print the event, if it has a line for people."""
        from orchestrator.app.status import event_text
        from orchestrator.engine.events import Notice

        if text := event_text(event):
            line = (
                text
                if isinstance(event, Notice)
                else f"{datetime.now().astimezone():%H:%M:%S} {text}"
            )
            with LOCK:
                say(line, err=True)


def observer_for_stderr(log_format: str = "text") -> Observer:
    """Return an observer that writes progress to standard error: JSON, a live view, else lines."""
    if log_format == "json":
        return JsonObserver()
    if sys.stderr.isatty():
        from rich.console import Console

        from orchestrator.cli.live import TerminalObserver

        console = Console(stderr=True)
        # A "dumb" terminal, as in editors, can't be drawn on.
        if console.is_terminal and not console.is_dumb_terminal:
            return TerminalObserver(console)
    return LineObserver()


class JsonObserver:
    """Writes a JSON object for each event of one campaign."""

    def __init__(self) -> None:
        self._campaign_id = ""

    def on_event(self, event: object) -> None:
        """Write the event, with the campaign's id and its keys."""
        from orchestrator.app.status import event_record
        from orchestrator.engine.events import Notice

        record = event_record(event)
        if record is not None and not isinstance(event, Notice):
            self._campaign_id = str(record.get("campaign_id", self._campaign_id))
            record = {"campaign_id": self._campaign_id, **record}
        if record is not None:
            write_line(**record)


def downloads_on_stderr(log_format: str) -> Progress:
    """Return a callback that prints a download's progress: a line for each tenth of a file."""
    steps: dict[str, int] = {}

    def on_progress(name: str, received: int, total: int | None) -> None:
        step = received * 10 // total if total else received // _LINE_BYTES
        if steps.get(name) != step:
            steps[name] = step
            share = f" of {format_bytes(total)} ({step * 10} %)" if total else ""
            text = f"{name}: {format_bytes(received)}{share}"
            tell(
                log_format, "download", text, file=name, received_bytes=received, total_bytes=total
            )

    return on_progress


@contextmanager
def reporting_workspace(
    settings: Settings, wait: str = "", *, makes_store: bool = True
) -> Iterator[Workspace]:
    """Open a workspace that writes progress to standard error and offers to download missing
    programs. ``wait`` is the text of ``--wait``, for phones in use.

    When Ctrl-C ends a campaign, its results so far are printed. The error names the campaign, also
    when no phone is running.
    """
    from orchestrator.app.time_limits import span_of
    from orchestrator.app.workspace import Workspace
    from orchestrator.clock import Deadline

    observer = observer_for_stderr(settings.log_format)
    with Workspace(settings, makes_store=makes_store, observer=observer) as workspace:
        workspace.on_missing = _download_offer(workspace)
        workspace.wait = Deadline(span_of("--wait", wait))
        try:
            yield workspace
        except (StoreError, HostStorageError) as error:
            if error.campaign_id:
                then = f"resume it then: benchfarm run --resume {error.campaign_id}"
                error.hint = "; ".join(filter(None, (error.hint, then)))
            raise
        except (InterruptedByUserError, KeyboardInterrupt) as error:
            # Ctrl-C may be pressed several times.
            ignore_stop_signals()
            if not workspace.measured:
                raise
            from orchestrator.app.measuring import CampaignInterruptedError, interruption_error

            stop = error
            if not isinstance(stop, CampaignInterruptedError):
                stop = interruption_error(workspace)
            if settings.log_format == "text":
                _print_measured(workspace, stop.campaign)
            raise stop from None
        finally:
            if workspace.measured:
                # The work is done, and is told once all is closed.
                ignore_stop_signals()


def _print_measured(workspace: Workspace, campaign: Campaign) -> None:
    """Print the results of a stopped campaign, as at its end."""
    if campaign.terms.pairing is not None:
        from orchestrator.app.comparing import pair_comparison
        from orchestrator.tables.comparisons import to_text

        say(to_text(pair_comparison(workspace, campaign), room(err=True) or WIDTH), err=True)
        return
    from orchestrator.app.stored import report_data
    from orchestrator.report.tables import text_lines

    text, looks = joined(text_lines(report_data(workspace, [campaign]), room(err=True)))
    say(text, looks=looks, err=True)


@contextmanager
def reporting(workspace: Workspace, measured: MeasuredCampaign) -> Iterator[list[str]]:
    """Raise the fault that ended a device's part after its campaign was reported, or failed to be.

    The results of the other devices stay: the yielded list takes lines with their places, which are
    printed then. The fault has its own exit code.
    """
    where = list[str]()
    try:
        yield where
    finally:
        if measured.result.fault is not None:
            keys = {"campaign_id": measured.campaign.campaign_id}
            for text in where:
                workspace.notice("report", text, keys=keys)
        measured.checked()


def campaign_result(
    workspace: Workspace, measured: MeasuredCampaign, options: Reporting
) -> CommandResult:
    """Write a campaign's report, and return its result; raises the fault that ended a device's
    part.
    """
    from orchestrator.app.measuring import run_reader, stop_reasons
    from orchestrator.app.stored import write_report
    from orchestrator.report.tables import text_lines
    from orchestrator.report.winners import fastest_table, next_steps, winners

    campaign = measured.campaign
    path: Path | None = None
    with reporting(workspace, measured) as where:
        data = measured.data
        try:
            path = write_report(workspace.settings, data, [campaign], options.out)
            where.append(f"{measured.runs_text}; report: {path}")
        except (UsageError, HostStorageError) as error:
            # The results are stored; the report can be rendered again.
            where.append(f"the report could not be written: {error}")
            where.append(f"'benchfarm report {campaign.campaign_id} --out FILE' renders it again")
    again = run_reader(workspace, measured.campaigns)
    best = winners(data.contests)
    won = fastest_table(best)
    advice = next_steps(data.contests, campaign.terms, data.skipped)
    lines = [*text_lines(data, room(), legend=options.legend), ("", "")]
    # Lines to be typed or opened aren't wrapped.
    lines += [(line, "doubt") for text in measured.problems for line in wrap(text, room() or WIDTH)]
    lines += [(text, "") for text in [*advice, *where]]
    whole, looks = joined(lines)
    return CommandResult(
        text=whole,
        looks=looks,
        data={
            **facts_of(measured),
            "stopped": Streamed(lambda: stop_reasons(campaign, again())),
            "without_result": measured.without_result,
            "nothing_clean": measured.nothing_clean,
            "winners": [won.record(item) for item in best],
            "next": advice,
            "report": path,
            "runs": Streamed(again),
        },
        is_kept=True,
        exit_code=HostStorageError.exit_code if path is None else exit_code_of([measured]),
    )


def exit_code_of(measured: Sequence[MeasuredCampaign]) -> int:
    """Return the exit code of measured campaigns: 1 where a requested result is missing, 6 where
    the time was too short for some.
    """
    is_cut = any(item.cut for item in measured)
    return int(any(item.is_lacking for item in measured)) or CUT_EXIT_CODE * is_cut


def facts_of(measured: MeasuredCampaign) -> dict[str, object]:
    """Return the JSON keys of a measured campaign."""
    from orchestrator.tables.table import fields_of

    return {
        "campaign_id": measured.campaign.campaign_id,
        **fields_of(measured.result, "status", "stored", "not_run", "left", "lost"),
        "no_time_for": measured.cut,
        "lacking": measured.opened.choice.lacking,
        "missing": measured.missing,
        "left_out": measured.opened.left_out,
    }


def _download_offer(workspace: Workspace) -> Callable[[Sequence[BuildSpec]], None]:
    """Return a function that asks for each missing program whether to download it, and does so."""
    #: Each program is offered once.
    offered: set[BuildSpec] = set()

    def offer(specs: Sequence[BuildSpec]) -> None:
        from orchestrator.app.builds import fetch_builds

        if not (workspace.settings.may_ask and sys.stdin.isatty() and sys.stderr.isatty()):
            return
        for spec in [spec for spec in dict.fromkeys(specs) if spec not in offered]:
            offered.add(spec)
            # A program without a URL must be built; the later error says how.
            if spec.source.url and _is_confirmed(spec):
                on_progress = downloads_on_stderr(workspace.settings.log_format)
                fetch_builds(workspace, [spec.name], [spec.abi], on_progress)

    return offer


def _is_confirmed(spec: BuildSpec) -> bool:
    say(
        one_line(
            f"{spec.name} for {spec.abi} is not on this computer; it comes from {spec.source.url}"
        ),
        err=True,
    )
    say("Download it now? [Y/n] ", err=True, end="")
    # An empty line is the default; the end of the input is no answer.
    return sys.stdin.readline().lower() in {"\n", "y\n", "yes\n"}
