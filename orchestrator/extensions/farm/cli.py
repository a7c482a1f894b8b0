"""``benchfarm farm``: plans for the phones of many hosts, steering it, and a host's worker."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

from orchestrator.app import time_limits
from orchestrator.app.options import Texts, arg, opt
from orchestrator.cli.frame import Json, command
from orchestrator.cli.progress import observer_for_stderr, tell
from orchestrator.cli.result import CUT_EXIT_CODE, CommandResult, format_of, table
from orchestrator.cli.terminal import say
from orchestrator.errors import InterruptedByUserError, UsageError
from orchestrator.extensions.farm import control, host
from orchestrator.extensions.farm import submit as submitting
from orchestrator.extensions.farm.control import WATCH_S, held_text, is_open, read_state, wait_for
from orchestrator.extensions.farm.host import WorkerRequest
from orchestrator.extensions.farm.phones import away_text
from orchestrator.extensions.farm.submit import Submitted
from orchestrator.plugins import Settings
from orchestrator.records.answers import DoneAnswer
from orchestrator.tables.escapes import one_line
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
        text += f"; {done.drained} is drained: 'benchfarm farm resume {done.drained}', then start the worker again"
    return CommandResult(text=text, data=done)


@command("farm submit")
def submit(
    settings: Settings,
    plan: Annotated[Path, arg("Plan file (YAML).")],
    priority: Priority = 0,
    name: Annotated[str, opt("--name", "Name of the submission. It must be new.")] = "",
    once: Annotated[
        str,
        opt(
            "--once",
            "Name of a submission that is made once; {date} in it is today's. Run again, it does nothing.",
        ),
    ] = "",
    wait: Annotated[
        bool,
        opt(
            "--wait", "Wait until all its jobs have ended. The exit code is that of 'farm status'."
        ),
    ] = False,
    out: Annotated[
        Path | None, opt("--out -o", "With --wait: file for one report of all its phones.")
    ] = None,
) -> CommandResult:
    """Queue a plan for every matching phone of the farm.

    Example: benchfarm farm submit nightly.yaml
    """
    if out is not None and not wait:
        raise UsageError("--out is for a report of what was measured", hint="add --wait")
    format_of("", out, ("html", "text", "markdown", "csv", "json"), default="html")
    if name and once:
        raise UsageError("--name and --once both name the submission", hint="give one of them")
    done = submitting.submit(settings, plan, priority=priority, name=name or once, once=bool(once))
    if done.is_known:
        sent = CommandResult(
            text=f"{done.submission}: submitted before, {len(done.jobs)} jobs", data=vars(done)
        )
        return _ended(settings, sent, done, out) if wait else sent
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
    return _ended(settings, sent, done, out) if wait else sent


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


@command("farm status")
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
    is_terminal, shown = sys.stdout.isatty(), ""
    while True:
        result = status(settings, submission)
        assert isinstance(result.data, dict), "as status makes it"
        if as_json or not watch or not is_open(result.data["jobs"]):
            return result
        if result.text != shown:
            say(f"{result.text}\n", end="" if is_terminal else "\n", clears=is_terminal)
            shown = result.text
        time.sleep(WATCH_S)


def status(settings: Settings, submission: str) -> CommandResult:
    """Tell of the hosts, their phones and the jobs.

    Of one submission also what there was no time for.

    The exit code is 1 when a job asked for failed or a run of it gave no result, else 6 when the
    time didn't reach for all.
    """
    state = read_state(settings, submission)
    hosts = [
        (row["name"], row["state"], row["benchfarm_version"], row["note"]) for row in state.hosts
    ]
    phones = [
        (
            row["serial"],
            row["host"],
            f"job {row['job']}" if row["state"] == "busy" else row["reason"] or row["state"],
        )
        for row in state.phones
    ]
    phones += [(row["serial"], "", away_text(row)) for row in state.away]
    jobs = [
        (
            str(j["job_id"]),
            j["submission"],
            j["serial"],
            _job_state(j),
            str(j["priority"]),
            j["host"],
            _job_note(j),
        )
        for j in state.jobs
        if submission or j["status"] in {"waits", "runs", "failed"}
    ]
    lines = [table(("host", "state", "benchfarm", "note"), hosts)]
    lines += ["", table(("phone", "host", "state"), phones)]
    lines += ["", table(("job", "submission", "phone", "status", "priority", "host", "note"), jobs)]
    if not submission:
        lines += ["", *_recent(state.jobs)]
    lines += (
        ["", *(f"{serial}: {row['reason']}" for serial, row in state.clashes.items())]
        if state.clashes
        else []
    )
    lines += ["", held_text(state.holds)] if state.holds else []
    for serial, items in state.no_time_for.items():
        lines += [f"{serial}: {time_limits.told(items)}", *map(_cut_text, items[:_CUT_LISTED])]
        lines += (
            [f"  and {len(items) - _CUT_LISTED} more, which --json lists"]
            if len(items) > _CUT_LISTED
            else []
        )
    has_failed = bool(submission) and any(job["status"] == "failed" for job in state.jobs)
    return CommandResult(
        text="\n".join(lines),
        data=vars(state),
        exit_code=int(has_failed or bool(state.without_result))
        or CUT_EXIT_CODE * bool(state.no_time_for),
    )


def _recent(jobs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return what became of the newest submissions, the newest last."""
    counts: dict[str, Counter[str]] = {}
    for job in jobs:
        counts.setdefault(job["submission"], Counter())[job["status"]] += 1
    rows = [
        (name, ", ".join(f"{count} {status}" for status, count in sorted(of_status.items())))
        for name, of_status in [*counts.items()][-_RECENT:]
    ]
    return [table(("submission", "jobs"), rows)] if rows else []


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


@command("farm cancel")
def cancel(
    settings: Settings,
    submission: Annotated[str, arg("Name of a submission.")],
    phones: Annotated[
        Texts, opt("--phone", "Cancel only this phone's jobs. Repeat for several.")
    ] = (),
) -> DoneAnswer:
    """Cancel a submission's jobs. Results stay.

    Example: benchfarm farm cancel nightly
    """
    return control.cancel(settings, submission, phones)


@command("farm pause")
def pause(settings: Settings, scopes: _Scopes = ()) -> DoneAnswer:
    """Pause dispatch. Running jobs continue.

    Example: benchfarm farm pause host:lab-2
    """
    return control.hold(settings, scopes, "pause")


@command("farm drain")
def drain(settings: Settings, scopes: _Scopes = ()) -> DoneAnswer:
    """Pause dispatch, and end workers after their jobs.

    Example: benchfarm farm drain host:lab-2
    """
    return control.hold(settings, scopes, "drain")


@command("farm resume")
def resume(settings: Settings, scopes: _Scopes = ()) -> DoneAnswer:
    """Resume dispatch after a pause or a drain.

    Example: benchfarm farm resume
    """
    return control.release(settings, scopes)


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
    dry_run: Annotated[bool, opt("--dry-run", "Only list what would be deleted.")] = False,
) -> DoneAnswer:
    """Delete old jobs and files that no job needs. Results stay.

    Example: benchfarm farm clean --dry-run
    """
    return control.clean(settings, older_than=older_than, is_trial=dry_run)


@command("farm doctor")
def doctor(
    settings: Settings,
    with_host: Annotated[bool, opt("--host/--no-host", "Include this host.")] = True,
) -> CommandResult:
    """Check queue, clocks, hosts and phones.

    Example: benchfarm farm doctor
    """
    from orchestrator.cli.devices import findings
    from orchestrator.extensions.farm.doctor import of_farm

    return findings(settings, of_farm, host=with_host)
