"""``benchfarm farm``: plans for the phones of many hosts, control of the farm, a host's worker."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from typer import Argument, Option

from orchestrator.errors import UsageError
from orchestrator.plugins import (
    CUT_EXIT_CODE,
    CommandResult,
    DryRun,
    Json,
    Settings,
    Texts,
    command,
    observer_for_stderr,
    tables_result,
    tell,
    watched,
)
from orchestrator.records.answers import OPEN_JOBS, DoneAnswer, FarmAnswer
from orchestrator.records.case import CampaignId
from orchestrator.tables.escapes import one_line
from orchestrator.units import counted, format_bytes

if TYPE_CHECKING:
    from orchestrator.plugins import Workspace

#: Connections to the queue, at most: of a worker's jobs, and of its main loop.
_CONNECTIONS: Final = 3
_OWN_CONNECTIONS: Final = 2
#: Interval between two polls of the queue, at most, as a share of --dead-after: with rarer
#: heartbeats a live host counts as dead.
_POLL_SHARE: Final = 0.25


@command("farm worker")
def worker(
    settings: Settings,
    name: Annotated[
        str, Option("--name", help="Name of this host in the farm (default: its network name).")
    ] = "",
    *,
    dead_after_s: Annotated[
        float,
        Option(
            "--dead-after",
            help="Seconds without a heartbeat after which a host counts as dead.",
            min=2,
        ),
    ] = 30.0,
    poll_s: Annotated[
        float,
        Option(
            "--every",
            help="Seconds between two polls of the queue, at most --dead-after / 4.",
            min=0.1,
        ),
    ] = 2.0,
    until_empty: Annotated[
        bool,
        Option(
            "--until-empty",
            help="Exit when no job is due on this host, even if a failed one waits for its next"
            " try.",
        ),
    ] = False,
    idle_check_s: Annotated[
        float,
        Option(
            "--idle-every", help="Seconds between two checks of an idle phone. 0: no checks.", min=0
        ),
    ] = 180.0,
) -> CommandResult:
    """Run the queue's jobs on this host's phones.

    Example: benchfarm farm worker
    """
    from orchestrator.extensions.farm.job import Jobs
    from orchestrator.extensions.farm.manifest import ContentStore
    from orchestrator.extensions.farm.phones import HostPhones, Shared
    from orchestrator.extensions.farm.queue import FarmQueue
    from orchestrator.extensions.farm.worker import HostWorker
    from orchestrator.plugins import LiveInventory, Workspace

    host = name or socket.gethostname()

    def log(text: str, /, *, level: str = "info", **keys: object) -> None:
        line = one_line(f"farm: {text}")
        tell(settings.log_format, "worker", line, level=level, host=host, **keys)

    with ExitStack() as stack:
        queue = stack.enter_context(FarmQueue(settings.store, connections=_CONNECTIONS))
        # Its own connections: heartbeats don't wait for the jobs' transfers.
        own_queue = stack.enter_context(FarmQueue(settings.store, connections=_OWN_CONNECTIONS))
        opened = stack.enter_context(Workspace(settings))
        inventory = LiveInventory(opened.inventory_file)
        shared = Shared(settings=settings, store=opened.store, inventory=inventory)
        contents = ContentStore(queue, settings.cache_folder)
        contents.clean_copies()
        observer = partial(observer_for_stderr, settings.log_format)
        jobs = HostWorker(
            own_queue,
            HostPhones(shared, own_queue, host, idle_check_s=idle_check_s, say=log),
            Jobs(shared=shared, contents=contents, host=host, observer=observer, say=log),
            dead_after_s=dead_after_s,
            poll_s=min(poll_s, dead_after_s * _POLL_SHARE),
        ).run(until_empty=until_empty)
    return CommandResult(text=f"{jobs} jobs ended on {host}", data={"host": host, "jobs": jobs})


@command("farm submit")
def submit(
    settings: Settings,
    plan: Annotated[Path, Argument(help="Plan file (YAML).")],
    *,
    # The range of the database's integers.
    priority: Annotated[
        int,
        Option("--priority", help="Larger numbers run first.", min=-(2**31), max=2**31 - 1),
    ] = 0,
    name: Annotated[str, Option("--name", help="Name of the submission. It must be new.")] = "",
    once: Annotated[
        str,
        Option(
            "--once",
            help="Name of the submission, where {date} is the night's date. If it exists,"
            " nothing is submitted.",
        ),
    ] = "",
) -> CommandResult:
    """Queue a plan for every matching phone of the farm.

    Example: benchfarm farm submit nightly.yaml
    """
    from orchestrator.extensions.farm import submissions

    if name and once:
        raise UsageError("--name and --once both name the submission", hint="give one of them")
    done = submissions.submit(settings, plan, priority=priority, name=name or once, once=bool(once))
    phones = ", ".join(job.serial for job in done.jobs)
    if done.is_known:
        summary = counted(len(done.jobs), "job") if done.jobs else "its results are stored"
        lines = [f"{done.submission}: submitted before, {summary}"]
    else:
        lines = [f"{done.submission}: {counted(len(done.jobs), 'job')} queued, for {phones}"]
    for other, serials in done.overlaps.items():
        lines.append(f"after the jobs of {other} on {', '.join(serials)}")
    lines += _without_job(done.left_out)
    for serial, why in done.without_program.items():
        lines.append(f"{serial}: its host's own program is used: {why[0]}")
    # 1 also when a named phone has no job, or a selected one is away.
    return CommandResult(
        text="\n".join(map(one_line, lines)), data=vars(done), exit_code=int(not done.is_whole)
    )


def _without_job(left_out: Mapping[str, str]) -> list[str]:
    """Return a line per phone without a job."""
    return [f"{serial}: no job: {reason}" for serial, reason in left_out.items()]


@command("farm status", has_table=True)
def farm_status(
    settings: Settings,
    submission: Annotated[
        str, Argument(help="Name of a submission (default: all open ones, and recent failures).")
    ] = "",
    watch: Annotated[bool, Option("--watch", help="Repeat until no job waits or runs.")] = False,
    as_json: Json = False,
) -> CommandResult:
    """List hosts, phones and jobs.

    With SUBMISSION, the exit code is 1 when a job failed or was cancelled, a run has no result or a
    phone of the plan has no job, else 6 when the time budget was too small for every case.

    Example: benchfarm farm status
    """
    from orchestrator.extensions.farm import submissions
    from orchestrator.extensions.farm.queue import FarmQueue
    from orchestrator.plugins import Workspace, read_farm

    with FarmQueue(settings.store) as queue, Workspace(settings) as workspace:

        def read() -> tuple[CommandResult, bool]:
            farm = read_farm(workspace, queue, submission)
            if submission and not farm.jobs:
                raise submissions.unknown_submission(submission)
            left_out = queue.left_out(submission) if submission else {}
            result = _status(workspace, farm, left_out, is_one=bool(submission))
            return result, any(job.status in OPEN_JOBS for job in farm.jobs)

        return watched(read, settings.log_format, is_shown=not as_json) if watch else read()[0]


def _status(
    workspace: Workspace, farm: FarmAnswer, left_out: Mapping[str, str], *, is_one: bool
) -> CommandResult:
    """Return the farm as tables; for one submission also its missing results, by phone.

    ``left_out``: the phones that it selects and that have no job -> the reason.
    """
    from orchestrator.extensions.farm import submissions
    from orchestrator.plugins import left_out_text, stored_left_out
    from orchestrator.tables.farm import hosts_table, jobs_table, phones_table

    campaigns = {CampaignId(job.campaign_id): job.serial for job in farm.jobs if is_one}
    without_result = {
        campaigns[name]: counts.without_result
        for name, counts in workspace.store.result_counts(list(campaigns)).items()
        if counts.without_result
    }
    cut = stored_left_out(workspace.store, list(campaigns))
    no_time_for = {campaigns[name]: items for name, items in cut.items()}
    result = tables_result(
        hosts_table(farm),
        "",
        phones_table(farm, workspace.clock.now()),
        "",
        jobs_table(farm.jobs, workspace.clock.now()),
        "",
        submissions.paused_text(farm.pauses),
        *(f"{serial}: {left_out_text(items)}" for serial, items in no_time_for.items()),
        *_without_job(left_out),
    )
    is_lacking = is_one and any(job.status in {"failed", "cancelled"} for job in farm.jobs)
    data = {item.name: getattr(farm, item.name) for item in fields(farm)}
    return replace(
        result,
        data={
            **data,
            "left_out": left_out,
            "without_result": without_result,
            "no_time_for": no_time_for,
        },
        exit_code=1
        if is_lacking or without_result or left_out
        else CUT_EXIT_CODE * bool(no_time_for),
    )


@command("farm cancel")
def cancel(
    settings: Settings,
    submission: Annotated[str, Argument(help="Name of a submission.")],
    phones: Annotated[
        Texts,
        Option("--serial", "-s", help="Cancel only this phone's jobs. Repeat for several."),
    ] = None,
) -> DoneAnswer:
    """Cancel a submission's jobs. Results stay.

    Example: benchfarm farm cancel nightly
    """
    from orchestrator.extensions.farm import submissions
    from orchestrator.plugins import Workspace

    with Workspace(settings) as workspace:
        return submissions.cancel(workspace, submission, phones or ())


@command("farm pause")
def pause(
    settings: Settings,
    scopes: Annotated[
        Texts,
        Argument(help="farm, host:NAME or phone:SERIAL (default: the whole farm)."),
    ] = None,
    *,
    undo: Annotated[bool, Option("--undo", help="Resume dispatch after a pause.")] = False,
) -> DoneAnswer:
    """Pause dispatch, or resume it. Running jobs continue.

    Example: benchfarm farm pause host:lab-2

    Example: benchfarm farm pause --undo
    """
    from orchestrator.extensions.farm import submissions

    return (submissions.resume if undo else submissions.pause)(settings, scopes or ())


@command("farm forget")
def forget(
    settings: Settings,
    scopes: Annotated[list[str], Argument(help="host:NAME or phone:SERIAL.", metavar="SCOPE...")],
) -> DoneAnswer:
    """Remove hosts or absent phones from the farm for good.

    Example: benchfarm farm forget host:lab-2
    """
    from orchestrator.extensions.farm import submissions

    return submissions.forget(settings, scopes)


@command("farm clean")
def clean(
    settings: Settings,
    older_than: Annotated[
        str, Option("--older-than", help="Delete jobs that ended before this age.")
    ] = "30 d",
    dry_run: DryRun = False,
) -> DoneAnswer:
    """Delete old jobs and files that no job needs. Results stay.

    Example: benchfarm farm clean --dry-run
    """
    from orchestrator.extensions.farm.manifest import ContentStore
    from orchestrator.extensions.farm.queue import FarmQueue
    from orchestrator.plugins import age_of

    older_than_s = age_of("--older-than", older_than)
    with FarmQueue(settings.store) as queue:
        contents = ContentStore(queue, settings.cache_folder)
        cleaned = contents.clean(older_than_s=older_than_s, is_trial=dry_run)
    outcome = "would be deleted" if dry_run else "were deleted"
    size = format_bytes(cleaned.size_bytes)
    return DoneAnswer(
        text=f"{counted(cleaned.jobs, 'job')} and {counted(cleaned.files, 'file')} ({size}) of the"
        f" farm {outcome}",
        data={"trial": dry_run, "farm": cleaned},
    )
