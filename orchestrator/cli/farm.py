"""``benchfarm farm``: giving plans to a farm of many hosts, looking at it, steering it."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from orchestrator.app import farm_submitting, nights
from orchestrator.app.closing import close_cancelled
from orchestrator.app.farm_beside import WATCH_S, is_open, shortcomings, wait_for
from orchestrator.app.farm_payload import contents_of
from orchestrator.app.farm_phones import away_text
from orchestrator.bootstrap import Farm, Settings
from orchestrator.cli.files import format_of
from orchestrator.cli.progress import tell
from orchestrator.cli.result import CUT_EXIT_CODE, CommandResult, table
from orchestrator.cli.terminal import say
from orchestrator.config.farm_documents import read_labels
from orchestrator.errors import InterruptedByUserError, UsageError
from orchestrator.quantities import parse_age
from orchestrator.queueing.newcomers import HOST_SILENT_S
from orchestrator.queueing.queue import FarmQueue
from orchestrator.records.identity import CampaignId
from orchestrator.report.escapes import one_line
from orchestrator.units import format_bytes, format_duration

#: So many submissions are told of, of those that are over.
_RECENT: Final = 20
#: So many cases that there was no time for are listed of a phone.
_CUT_LISTED: Final = 20


def submit(settings: Settings, path: Path, *, priority: int, name: str) -> CommandResult:
    """Queue a plan; the exit code is 1 when it names a phone that has no job, or means one that is away."""
    done = farm_submitting.submit(settings, path, priority=priority, name=name)
    jobs = [job for _, job in done.jobs]
    lines = [f"{done.submission}: {len(jobs)} jobs queued, for {', '.join(job.serial for job in jobs)}"]
    lines[0] += f"; {done.files} files, {done.uploaded} of them new to {done.place or 'the farm'}"
    if done.waits:
        lines[0] += f"; their window opens at {done.opens_at:%Y-%m-%d %H:%M} UTC"
    lines += [f"{serial}: not meant: {reason}" for serial, reason in done.left_out.items()]
    lines += [f"{serial}: its host's own program is used: {why[0]}" for serial, why in done.without_program.items()]
    return CommandResult(
        text="\n".join(map(one_line, lines)),
        data={
            "submission": done.submission,
            "jobs": [
                {"job_id": number, "serial": job.serial, "campaign_id": job.campaign_id} for number, job in done.jobs
            ],
            "files": done.files,
            "uploaded": done.uploaded,
            "opens_at": done.opens_at,
            "left_out": done.left_out,
            "away": done.away,
            "without_program": done.without_program,
        },
        exit_code=int(not done.is_whole),
    )


def submit_and_wait(settings: Settings, path: Path, *, priority: int, name: str, out: Path | None) -> CommandResult:
    """Submit a plan, wait for the end of all its jobs and return what became of them, as ``status`` does.

    ``out``: for one report of all its phones. Ctrl-C ends the waiting; the jobs go on.
    """
    from orchestrator.cli import reports

    format_of("", out, reports.FORMATS, default="html")
    sent = submit(settings, path, priority=priority, name=name)
    assert isinstance(sent.data, dict), "as submit makes it"
    submission = sent.data["submission"]
    tell(settings.log_format, "submitted", sent.text)
    try:
        with FarmQueue(settings.store) as queue:
            wait_for(queue, submission, lambda text: tell(settings.log_format, "waiting", text))
    except KeyboardInterrupt:
        hint = f"'benchfarm farm status {submission}' shows them, 'benchfarm farm cancel {submission}' ends them"
        raise InterruptedByUserError(f"nobody waits for {submission} any more; its jobs continue", hint=hint) from None
    ended = status(settings, submission)
    assert isinstance(ended.data, dict), "as status makes it"
    text, data = ended.text, {**sent.data, "outcome": ended.data}
    # Without any run there is nothing to report.
    if out is not None and "done" in {job["status"] for job in ended.data["jobs"]}:
        report = reports.render(settings, (submission,), form="", out=out, published=False)
        text, data = f"{text}\n\n{report.text}", {**data, "report": out}
    return CommandResult(text=text, data=data, exit_code=sent.exit_code or ended.exit_code)


def status(settings: Settings, submission: str) -> CommandResult:
    """Tell of the hosts, their phones and the jobs; of one submission also what there was no time for.

    The exit code is 1 when a job asked for failed or a run of it gave no result, else 6 when the time didn't reach for
    all.
    """
    with FarmQueue(settings.store) as queue, Farm(settings) as farm:
        hosts, phones, jobs, holds = queue.hosts(), queue.phones(), queue.jobs(submission), queue.holds()
        away = queue.away()
        cut = _cut(farm, jobs) if submission else {}
        lacking = shortcomings(farm.store, jobs) if submission else {}
    if submission and not jobs:
        raise UsageError(f"there is no submission {submission!r}", hint="'benchfarm farm status' lists all")
    for host in hosts:
        host["state"] = "silent" if host["silent_s"] > HOST_SILENT_S else holds.get(f"host:{host['name']}", "alive")
    for phone in phones:
        del phone["facts"]
        phone["labels"] = read_labels(phone["labels"]).model_dump()
    lines = [
        table(
            ("host", "state", "benchfarm", "note"),
            [(h["name"], h["state"], h["benchfarm_version"], h["note"]) for h in hosts],
        )
    ]
    told = [(p["serial"], p["host"], _phone_state(p, holds)) for p in phones]
    told += [(row["serial"], "", away_text(row)) for row in away]
    lines += ["", table(("phone", "host", "state"), told)]
    open_jobs = [job for job in jobs if submission or job["status"] in {"waits", "runs", "failed", "replaced"}]
    rows = [
        (str(j["job_id"]), j["submission"], j["serial"], _job_state(j), str(j["priority"]), j["host"], _job_note(j))
        for j in open_jobs
    ]
    lines += ["", table(("job", "submission", "phone", "status", "priority", "host", "note"), rows)]
    if not submission:
        lines += ["", *_recent(jobs)]
    lines += ["", _held(holds)] if holds else []
    for serial, items in cut.items():
        lines += [f"{serial}: {nights.told(items)}", *map(_cut_text, items[:_CUT_LISTED])]
        lines += [f"  and {len(items) - _CUT_LISTED} more, which --json lists"] if len(items) > _CUT_LISTED else []
    has_failed = bool(submission) and any(job["status"] == "failed" for job in jobs)
    return CommandResult(
        text="\n".join(lines),
        data={
            "hosts": hosts,
            "phones": phones,
            "away": [{key: row[key] for key in ("serial", "host", "seen_at")} for row in away],
            "jobs": jobs,
            "holds": holds,
            "no_time_for": cut,
            "without_result": {serial: given.without_result for serial, given in lacking.items()},
        },
        exit_code=int(has_failed or bool(lacking)) or CUT_EXIT_CODE * bool(cut),
    )


def watch(settings: Settings, submission: str, *, every_s: float = WATCH_S) -> CommandResult:
    """Show the status again and again until no job waits or runs; Ctrl-C ends it too. See ``status``."""
    is_terminal = sys.stdout.isatty()
    shown = ""
    while True:
        result = status(settings, submission)
        assert isinstance(result.data, dict), "as status makes it"
        if not is_open(result.data["jobs"]):
            return result
        if result.text != shown:
            say(f"{result.text}\n", end="" if is_terminal else "\n", clears=is_terminal)
            shown = result.text
        time.sleep(every_s)


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


def _scope_text(scope: str) -> str:
    return "the whole farm" if scope == "farm" else scope


def _cut_text(item: Mapping[str, object]) -> str:
    threads = f", {item['threads']} threads" if item["threads"] else ""
    return one_line(f"  {item['model']}, {item['delegate']}{threads}, {item['tool']}: {item['reason']}")


def _cut(farm: Farm, jobs: Sequence[Mapping[str, Any]]) -> dict[str, list[dict[str, object]]]:
    """Return what each phone of a submission had no time for, by serial number; phones with time for all aside."""
    serials = {CampaignId(job["campaign_id"]): job["serial"] for job in jobs}
    left_out = nights.stored_left_out(farm.store, list(serials))
    return {serials[campaign_id]: items for campaign_id, items in left_out.items()}


def _phone_state(phone: Mapping[str, object], holds: Mapping[str, str]) -> str:
    """Return what becomes of a phone, as people are told: also which job it does, and what keeps it from one."""
    scopes = ("farm", f"host:{phone['host']}", f"phone:{phone['serial']}")
    words = {
        "busy": f"job {phone['job']}",
        "unusable": str(phone["unusable"]),
        "silent": "its host is silent",
        "held": "; ".join(f"{scope}: {holds[scope]}" for scope in scopes if scope in holds),
    }
    state = str(phone["state"])
    return words.get(state) or state


def _job_state(job: Mapping[str, Any]) -> str:
    if job["status"] == "waits" and job["waits_s"]:
        return f"waits {format_duration(job['waits_s'])}"
    return str(job["status"])


def _job_note(job: Mapping[str, Any]) -> str:
    came = [
        "came later" if job["came_later"] else "",
        f"in the place of {job['replaces']}" if job["replaces"] else "",
        str(job["note"]),
        f"{job['replaced_by']} takes its place" if job["replaced_by"] else "",
    ]
    return "; ".join(text for text in came if text)


def cancel(settings: Settings, submission: str, serials: Sequence[str]) -> CommandResult:
    """Cancel a submission, or some phones' part of it: what waits at once, what runs once its phone is restored.

    What is left of their campaigns is abandoned, of what waits at once, of what runs by its worker.
    """
    with FarmQueue(settings.store) as queue, Farm(settings) as farm:
        jobs = queue.jobs(submission)
        if not jobs:
            raise UsageError(f"there is no submission {submission!r}", hint="'benchfarm farm status' lists all")
        unknown = sorted(set(serials) - {job["serial"] for job in jobs})
        if unknown:
            raise UsageError(f"{submission} has no job for {', '.join(unknown)}")
        stopped = queue.cancel(submission, list(serials) or None)
        over = [job["campaign_id"] for job in jobs if stopped.get(job["job_id"], "doing") != "doing"]
        closed = close_cancelled(farm, map(CampaignId, over))
    waiting, running, abandoned = (list(stopped.values()).count(status) for status in ("todo", "doing", "failed"))
    text = f"{submission}: {waiting} jobs cancelled, {running} are being stopped"
    if abandoned:
        text += f"; no phone takes the place of {abandoned} that failed any more"
    if closed:
        text += f"; what was left of {closed} that had begun is abandoned"
    data = {"submission": submission, "jobs": sorted(stopped), "running": running, "closed": closed}
    return CommandResult(text=text, data=data)


def clean(settings: Settings, *, older_than: str, is_trial: bool) -> CommandResult:
    """Forget old jobs and take files away that no job needs, at the farm and on this host; raises UsageError."""
    try:
        older_than_s = parse_age(older_than)
    except ValueError as error:
        raise UsageError(f"--older-than: {error}", hint="a number with its unit, for example 30d") from error
    with FarmQueue(settings.store) as queue:
        contents = contents_of(settings, queue)
        found = contents.clean(older_than_s=older_than_s, is_trial=is_trial)
        copies = contents.clean_copies(is_trial=is_trial)
    what = "would be taken away" if is_trial else "were taken away"
    return CommandResult(
        text=f"{found.jobs} jobs and {found.files} files ({format_bytes(found.size_bytes)}) of the farm, "
        f"{copies.files} copies ({format_bytes(copies.size_bytes)}) of this host {what}",
        data={"trial": is_trial, "farm": found, "host": copies},
    )


def hold(settings: Settings, scopes: Sequence[str], kind: str) -> CommandResult:
    """Pause or drain hosts or phones (``host:NAME``, ``phone:SERIAL``) or the whole farm."""
    named = _checked(scopes)
    with FarmQueue(settings.store) as queue:
        known = {f"host:{row['name']}" for row in queue.hosts()} | {f"phone:{row['serial']}" for row in queue.phones()}
        unknown = [scope for scope in named if scope != "farm" and scope not in known]
        if unknown:
            raise UsageError(
                f"{', '.join(unknown)}: the farm has none of that name",
                hint="'benchfarm farm status' lists what it has",
            )
        for scope in named:
            queue.hold(scope, kind)
        holds = queue.holds()
    return CommandResult(text=_held(holds), data={"holds": holds})


def release(settings: Settings, scopes: Sequence[str]) -> CommandResult:
    """End pauses and drains; raises UsageError for one that isn't there."""
    with FarmQueue(settings.store) as queue:
        named = _checked(scopes)
        for scope in named:
            if not queue.release(scope):
                raise UsageError(f"{scope} isn't held", hint="'benchfarm farm status' lists what is")
        holds = queue.holds()
    lines = [f"{_scope_text(scope)} goes on" for scope in named]
    return CommandResult(text="\n".join([*lines, *([_held(holds)] if holds else [])]), data={"holds": holds})


def forget(settings: Settings, scopes: Sequence[str]) -> CommandResult:
    """Take hosts and phones out of the farm that are gone for good (``host:NAME``, ``phone:SERIAL``).

    Raises UsageError for a host that lives, and a phone that a host announces.
    """
    named = dict.fromkeys(scopes)
    for scope in named:
        if not scope.startswith(("host:", "phone:")):
            raise UsageError(f"{scope!r} names neither a host nor a phone", hint="write host:NAME or phone:SERIAL")
    hosts = [scope for scope in named if scope.startswith("host:")]
    with FarmQueue(settings.store) as queue:
        gone = {scope: queue.forget_host(scope.removeprefix("host:")) for scope in hosts}
        phones = {
            scope: queue.forget_phone(scope.removeprefix("phone:")) for scope in named if scope.startswith("phone:")
        }
    lines = [_forgotten(scope, what) for scope, what in gone.items()]
    lines += [f"{scope}: forgotten" + (f", with its {held}" if held else "") for scope, held in phones.items()]
    return CommandResult(text="\n".join(map(one_line, lines)), data={"hosts": gone, "phones": list(phones)})


def _forgotten(scope: str, what: Mapping[str, Any]) -> str:
    parts = [f"phones {', '.join(what['phones'])}" if what["phones"] else "no phone"]
    parts += [f"its {what['hold']}"] if what["hold"] else []
    jobs = f"; jobs that wait for another host: {', '.join(map(str, what['jobs']))}" if what["jobs"] else ""
    return f"{scope}: forgotten, with {' and '.join(parts)}{jobs}"


def _checked(scopes: Sequence[str]) -> list[str]:
    for scope in scopes:
        kind, _, name = scope.partition(":")
        if scope != "farm" and not (kind in {"host", "phone"} and name):
            raise UsageError(f"{scope!r} names nothing", hint="write farm, host:NAME or phone:SERIAL")
    return list(scopes or ["farm"])


def _held(holds: Mapping[str, str]) -> str:
    return "\n".join(f"{_scope_text(scope)} is held: {kind}" for scope, kind in sorted(holds.items()))
