"""``benchfarm farm``: plans for the phones of many hosts, steering it, and a host's worker."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

from orchestrator.app import time_limits
from orchestrator.app.options import Texts, arg, opt
from orchestrator.cli.frame import DryRun, Json, command
from orchestrator.cli.live import observer_for_stderr
from orchestrator.cli.result import CUT_EXIT_CODE, CommandResult, format_of, shown
from orchestrator.cli.terminal import say, tell
from orchestrator.errors import InterruptedByUserError, UsageError
from orchestrator.extensions.farm import control, host
from orchestrator.extensions.farm import submit as submitting
from orchestrator.extensions.farm.control import WATCH_S, held_text, is_open, read_state, wait_for
from orchestrator.extensions.farm.host import WorkerRequest
from orchestrator.extensions.farm.phones import away_text
from orchestrator.extensions.farm.submit import Submitted
from orchestrator.plugins import Settings
from orchestrator.records.answers import DoneAnswer
from orchestrator.tables.column import DATA, EVERYWHERE, NESTED, Column, Kind, fields_of
from orchestrator.tables.escapes import one_line
from orchestrator.tables.table import Table
from orchestrator.units import format_duration

#: Submissions that are over of which the newest are listed.
_RECENT: Final = 20
#: Cases without time that are listed of a phone.
_CUT_LISTED: Final = 20

#: As far as the database's integers go.
Priority = Annotated[
    int, opt("--priority", "Larger numbers run first.", min=-(2**31), max=2**31 - 1)
]
_Scopes = Annotated[Texts, arg("farm, host:NAME or phone:SERIAL (default: the whole farm).")]


@command("farm worker")
def worker(settings: Settings, request: WorkerRequest) -> CommandResult:
    """Run the queue's jobs on this host's phones.

    Example: benchfarm farm worker
    """
    done = host.work(
        settings,
        request,
        tell=partial(tell, settings.log_format, "worker"),
        observer=partial(observer_for_stderr, settings.log_format),
    )
    text = f"{done.jobs} jobs ended on {done.host}"
    if done.drained:
        text += f"; {done.drained} is drained: 'benchfarm farm pause --undo {done.drained}', then start the worker again"
    return CommandResult(text=text, data=done)


@dataclass(frozen=True, kw_only=True)
class SubmitOptions:
    """How a plan is submitted."""

    priority: Priority = 0
    name: Annotated[str, opt("--name", "Name of the submission. It must be new.")] = ""
    once: Annotated[
        str,
        opt(
            "--once",
            "Name of a submission that is made once; {date} in it is today's. Run again, it does nothing.",
        ),
    ] = ""
    watch: Annotated[
        bool,
        opt(
            "--watch", "Wait until all its jobs have ended. The exit code is that of 'farm status'."
        ),
    ] = False
    out: Annotated[
        Path | None, opt("--out -o", "With --watch: file for one report of all its phones.")
    ] = None


@command("farm submit")
def submit(
    settings: Settings,
    plan: Annotated[Path, arg("Plan file (YAML).")],
    options: SubmitOptions,
) -> CommandResult:
    """Queue a plan for every matching phone of the farm.

    Example: benchfarm farm submit nightly.yaml
    """
    name, once, out = options.name, options.once, options.out
    if out is not None and not options.watch:
        raise UsageError("--out is for a report of what was measured", hint="add --watch")
    format_of("", out, ("html", "text", "markdown", "csv", "json"), default="html")
    if name and once:
        raise UsageError("--name and --once both name the submission", hint="give one of them")
    done = submitting.submit(
        settings, plan, priority=options.priority, name=name or once, once=bool(once)
    )
    if done.is_known:
        sent = CommandResult(
            text=f"{done.submission}: submitted before, {len(done.jobs)} jobs", data=vars(done)
        )
        return _ended(settings, sent, done, out) if options.watch else sent
    lines = [
        f"{done.submission}: {len(done.jobs)} jobs queued, for {', '.join(job.serial for job in done.jobs)}"
    ]
    lines[0] += f"; {done.files} files, {done.uploaded} of them new to the farm"
    lines += [
        f"after the jobs of {other} on {', '.join(phones)}"
        for other, phones in done.overlaps.items()
    ]
    lines += [f"{serial}: not meant: {reason}" for serial, reason in done.left_out.items()]
    lines += [
        f"{serial}: its host's own program is used: {why[0]}"
        for serial, why in done.without_program.items()
    ]
    # 1 also where it names a phone that has no job, or means one that is away.
    sent = CommandResult(
        text="\n".join(map(one_line, lines)), data=vars(done), exit_code=int(not done.is_whole)
    )
    return _ended(settings, sent, done, out) if options.watch else sent


def _ended(
    settings: Settings, sent: CommandResult, done: Submitted, out: Path | None
) -> CommandResult:
    """Wait for the end of a submission and return its status, with one report.

    Ctrl-C ends the waiting, jobs go on.
    """
    submission = done.submission
    tell(settings.log_format, "submitted", sent.text)
    try:
        wait_for(settings, submission, lambda text: tell(settings.log_format, "waiting", text))
    except KeyboardInterrupt:
        hint = f"'benchfarm farm status {submission}' shows them, 'benchfarm farm cancel {submission}' ends them"
        raise InterruptedByUserError(
            f"nobody waits for {submission} any more; its jobs continue", hint=hint
        ) from None
    ended = status(settings, submission)
    assert isinstance(ended.data, dict), "as status makes it"
    text, data = ended.text, {**vars(done), "outcome": ended.data}
    # Without any run there is nothing to report.
    if out is not None and "done" in {job["status"] for job in ended.data["jobs"]}:
        from orchestrator.cli.reports import report

        text, data = (
            f"{text}\n\n{report(settings, (submission,), out).text}",
            {**data, "report": out},
        )
    return CommandResult(text=text, data=data, exit_code=sent.exit_code or ended.exit_code)


@command("farm status", has_table=True)
def farm_status(
    settings: Settings,
    submission: Annotated[
        str, arg("Name of a submission (default: all open ones, and recent failures).")
    ] = "",
    watch: Annotated[bool, opt("--watch", "Repeat until no job waits or runs.")] = False,
    as_json: Json = False,
) -> CommandResult:
    """List hosts, phones and jobs.

    Example: benchfarm farm status
    """
    is_terminal, before = sys.stdout.isatty(), ""
    while True:
        result = status(settings, submission)
        assert isinstance(result.data, dict), "as status makes it"
        if as_json or not watch or not is_open(result.data["jobs"]):
            return result
        if result.text != before:
            say(f"{result.text}\n", end="" if is_terminal else "\n", clears=is_terminal)
            before = result.text
        time.sleep(WATCH_S)


def status(settings: Settings, submission: str) -> CommandResult:
    """Tell of the hosts, their phones and the jobs.

    Of one submission also what there was no time for.

    The exit code is 1 when a job asked for failed or a run of it gave no result, else 6 when the
    time didn't reach for all.
    """
    state = read_state(settings, submission)
    phones = [
        *state.phones,
        *({**row, "state": "away", "reason": away_text(row)} for row in state.away),
    ]
    jobs = [job for job in state.jobs if submission or job["status"] in {"waits", "runs", "failed"}]
    counts: dict[str, Counter[str]] = {}
    for job in state.jobs:
        counts.setdefault(job["submission"], Counter())[job["status"]] += 1
    recent = Table(
        name="submissions",
        caption="Newest submissions",
        columns=_SUBMISSIONS,
        rows=[*counts.items()][-_RECENT:],
        nothing="nothing was submitted yet",
    )
    parts: list[str | Table[Any]] = [
        Table(name="hosts", caption="Hosts", columns=_HOSTS, rows=state.hosts),
        "",
        Table(name="phones", caption="Phones", columns=_PHONES, rows=phones),
        "",
        Table(name="jobs", caption="Jobs", columns=_JOBS, rows=jobs),
    ]
    parts += [] if submission else ["", recent]
    if state.clashes:
        parts += ["", *(f"{serial}: {row['reason']}" for serial, row in state.clashes.items())]
    parts += ["", held_text(state.holds)] if state.holds else []
    for serial, items in state.no_time_for.items():
        parts += [f"{serial}: {time_limits.told(items)}", *map(_cut_text, items[:_CUT_LISTED])]
        if len(items) > _CUT_LISTED:
            parts.append(f"  and {len(items) - _CUT_LISTED} more, which --json lists")
    has_failed = bool(submission) and any(job["status"] == "failed" for job in state.jobs)
    return shown(
        *parts,
        facts=fields_of(state, "clashes", "holds", "no_time_for", "without_result"),
        exit_code=int(has_failed or bool(state.without_result))
        or CUT_EXIT_CODE * bool(state.no_time_for),
    )


def _cut_text(item: Mapping[str, object]) -> str:
    threads = f", {item['threads']} threads" if item["threads"] else ""
    return one_line(
        f"  {item['model']}, {item['delegate']}{threads}, {item['tool']}: {item['reason']}"
    )


def _job_state(job: Mapping[str, Any]) -> str:
    if job["status"] == "waits" and job["waits_s"]:
        return f"waits {format_duration(job['waits_s'])}"
    return str(job["status"])


def _job_note(job: Mapping[str, Any]) -> str:
    return "; ".join(
        text for text in ("came later" if job["came_later"] else "", str(job["note"])) if text
    )


_Row = Mapping[str, Any]


def _key(name: str, head: str = "", kind: Kind = Kind.TEXT) -> Column[_Row]:
    """Return the column of a row's key; only programs get one without a head."""
    return Column(name, head, lambda row: row.get(name), kind, forms=EVERYWHERE if head else DATA)


def _phone_state(row: _Row) -> str:
    return f"job {row['job']}" if row["state"] == "busy" else row["reason"] or row["state"]


_HOSTS: Final[Sequence[Column[_Row]]] = (
    _key("name", "host"),
    _key("state", "state"),
    _key("benchfarm_version", "benchfarm"),
    _key("note", "note"),
)
_PHONES: Final[Sequence[Column[_Row]]] = (
    _key("serial", "phone"),
    # An absent phone's last host stands in its state.
    replace(_key("host", "host"), shown=lambda row: "" if row["state"] == "away" else row["host"]),
    replace(_key("state", "state"), shown=_phone_state),
    _key("reason"),
    _key("unusable"),
    _key("job", kind=Kind.COUNT),
    _key("silent_s", kind=Kind.NUMBER),
    _key("seen_at", kind=Kind.MOMENT),
    replace(_key("labels", kind=Kind.RECORD), forms=NESTED),
)
_JOBS: Final[Sequence[Column[_Row]]] = (
    _key("job_id", "job"),
    _key("submission", "submission"),
    _key("serial", "phone"),
    replace(_key("status", "status"), shown=_job_state),
    _key("priority", "priority", Kind.COUNT),
    _key("host", "host"),
    replace(_key("note", "note"), shown=_job_note),
    _key("plan_name"),
    _key("campaign_id"),
    _key("waits_s", kind=Kind.NUMBER),
    _key("came_later", kind=Kind.FLAG),
)
_SUBMISSIONS: Final[Sequence[Column[tuple[str, Counter[str]]]]] = (
    Column("submission", "submission", lambda row: row[0]),
    Column(
        "jobs",
        "jobs",
        lambda row: dict(row[1]),
        Kind.RECORD,
        shown=lambda row: ", ".join(
            f"{count} {status}" for status, count in sorted(row[1].items())
        ),
    ),
)


@command("farm cancel")
def cancel(
    settings: Settings,
    submission: Annotated[str, arg("Name of a submission.")],
    phones: Annotated[
        Texts, opt("--serial -s", "Cancel only this phone's jobs. Repeat for several.")
    ] = (),
) -> DoneAnswer:
    """Cancel a submission's jobs. Results stay.

    Example: benchfarm farm cancel nightly
    """
    return control.cancel(settings, submission, phones)


@command("farm pause")
def pause(
    settings: Settings,
    scopes: _Scopes = (),
    *,
    drain: Annotated[bool, opt("--drain", "End workers after their jobs.")] = False,
    undo: Annotated[bool, opt("--undo", "Resume dispatch after a pause or a drain.")] = False,
) -> DoneAnswer:
    """Pause dispatch, or resume it. Running jobs continue.

    Example: benchfarm farm pause host:lab-2 --drain

    Example: benchfarm farm pause --undo
    """
    if undo:
        return control.release(settings, scopes)
    return control.hold(settings, scopes, "drain" if drain else "pause")


@command("farm forget")
def forget(
    settings: Settings,
    scopes: Annotated[Texts, arg("host:NAME or phone:SERIAL.", metavar="SCOPE...")],
) -> DoneAnswer:
    """Remove hosts or absent phones from the farm for good.

    Example: benchfarm farm forget host:lab-2
    """
    return control.forget(settings, scopes)


@command("farm clean")
def clean(
    settings: Settings,
    older_than: Annotated[
        str, opt("--older-than", "Delete jobs that ended before this age.")
    ] = "30 d",
    dry_run: DryRun = False,
) -> DoneAnswer:
    """Delete old jobs and files that no job needs. Results stay.

    Example: benchfarm farm clean --dry-run
    """
    return control.clean(settings, older_than=older_than, is_trial=dry_run)
