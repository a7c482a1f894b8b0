"""A farm of many hosts and its schedules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestrator.cli.frame import LOOK, Deed, Json, app, command, filled, group, later
from orchestrator.errors import StoreError, UsageError

if TYPE_CHECKING:
    from orchestrator.app import farm_control, farm_schedules
    from orchestrator.cli import farm, status
else:
    farm, status = later("farm status")
    farm_control, farm_schedules = later("farm_control farm_schedules", of="app")

_farm = group("farm", "Run plans on the phones of many hosts.")
_Scopes = Annotated[list[str] | None, typer.Argument(help="farm, host:NAME or phone:SERIAL (default: the whole farm).")]
#: As far as the database's integers go.
_Priority = Annotated[int, typer.Option("--priority", min=-(2**31), max=2**31 - 1, help="Larger numbers run first.")]
_Submission = Annotated[str, typer.Argument(help="Name of a submission.")]


def farm_command(parent: typer.Typer, name: str) -> Callable[[Callable[..., Deed]], Callable[..., None]]:
    """Declare a command as ``frame.command`` does; it raises StoreError when the farm's packages aren't installed."""

    def declare(function: Callable[..., Deed]) -> Callable[..., None]:
        @wraps(function)
        def checked(**given: Any) -> Deed:  # noqa: ANN401 - as typer read them
            missing = [item for item in ("procrastinate", "psycopg", "psycopg_pool") if find_spec(item) is None]
            if missing:
                raise StoreError(f"a farm needs {', '.join(missing)}", hint="pip install 'benchfarm[farm]'")
            return function(**given)

        return command(parent, name)(checked)

    return declare


@dataclass(frozen=True, kw_only=True)
class WorkerOptions:
    """What 'farm worker' reads."""

    name: Annotated[str, typer.Option("--name", help="Name of this host in the farm (default: its network name).")] = ""
    dead_after_s: Annotated[
        float,
        typer.Option("--dead-after", min=2, help="Seconds without a heartbeat after which a host counts as dead."),
    ] = 30.0
    look_s: Annotated[
        float | None,
        typer.Option(
            "--every", min=0.1, help="Seconds between two polls of the queue (default: 2, or --dead-after / 4)."
        ),
    ] = None
    until_empty: Annotated[bool, typer.Option("--until-empty", help="Exit when no job waits for this host.")] = False
    idle_look_s: Annotated[
        float, typer.Option("--idle-every", min=0, help="Seconds between two checks of an idle phone. 0: no checks.")
    ] = 180.0
    metrics_port: Annotated[
        int | None, typer.Option("--metrics-port", help="Port for Prometheus metrics of this host.", min=0, max=65535)
    ] = None
    metrics_host: Annotated[
        str,
        typer.Option("--metrics-host", help="Address for them. Any other than this computer's own requires a token."),
    ] = "127.0.0.1"
    token_file: Annotated[
        Path | None, typer.Option("--token-file", help="File with the token for them ($BENCHFARM_TOKEN).")
    ] = None


@farm_command(_farm, "worker")
def _worker(options: WorkerOptions) -> Deed:
    """Run the queue's jobs on this host's phones.

    Example: benchfarm farm worker
    """
    import socket

    from orchestrator.app.access import Listening
    from orchestrator.app.farm_worker import WorkerRequest

    metrics = None
    if options.metrics_port is not None:
        metrics = Listening(host=options.metrics_host, port=options.metrics_port, token_file=options.token_file)
    request = filled(WorkerRequest, options, host=options.name or socket.gethostname(), metrics=metrics)
    return lambda settings: farm.work(settings, request)


@farm_command(_farm, "submit")
def _submit(
    plan: Annotated[Path, typer.Argument(help="Plan file (YAML).")],
    priority: _Priority = 0,
    name: Annotated[str, typer.Option("--name", help="Name of the submission. It must be new.")] = "",
    waits: Annotated[
        bool, typer.Option("--wait", help="Wait until all its jobs have ended. The exit code is that of 'farm status'.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="With --wait: file for one report of all its phones.")
    ] = None,
) -> Deed:
    """Queue a plan for every matching phone of the farm.

    Example: benchfarm farm submit nightly.yaml
    """
    if waits:
        return lambda settings: farm.submit_and_wait(settings, plan, priority=priority, name=name, out=out)
    if out is not None:
        raise UsageError("--out is for a report of what was measured", hint="add --wait")
    return lambda settings: farm.submit(settings, plan, priority=priority, name=name)


@farm_command(_farm, "status")
def _status(
    submission: Annotated[
        str, typer.Argument(help="Name of a submission (default: all open ones, and recent failures).")
    ] = "",
    keep_on: Annotated[bool, typer.Option("--watch", help="Repeat until no job waits or runs.")] = False,
    as_json: Json = False,
) -> Deed:
    """List hosts, phones and jobs.

    Example: benchfarm farm status
    """
    return lambda settings: (farm.watch if keep_on and not as_json else farm.status)(settings, submission)


@farm_command(_farm, "cancel")
def _cancel(
    submission: _Submission,
    phones: Annotated[
        list[str] | None, typer.Option("--phone", help="Cancel only this phone's jobs. Repeat for several.")
    ] = None,
) -> Deed:
    """Cancel a submission's jobs. Results stay.

    Example: benchfarm farm cancel nightly
    """
    return lambda settings: farm_control.cancel(settings, submission, phones or [])


@farm_command(_farm, "pause")
def _pause(scopes: _Scopes = None) -> Deed:
    """Pause dispatch. Running jobs continue.

    Example: benchfarm farm pause host:lab-2
    """
    return lambda settings: farm_control.hold(settings, scopes or [], "pause")


@farm_command(_farm, "drain")
def _drain(scopes: _Scopes = None) -> Deed:
    """Pause dispatch, and end workers after their jobs.

    Example: benchfarm farm drain host:lab-2
    """
    return lambda settings: farm_control.hold(settings, scopes or [], "drain")


@farm_command(_farm, "resume")
def _go_on(scopes: _Scopes = None) -> Deed:
    """Resume dispatch after a pause or a drain.

    Example: benchfarm farm resume
    """
    return lambda settings: farm_control.release(settings, scopes or [])


@farm_command(_farm, "forget")
def _forget(
    scopes: Annotated[list[str], typer.Argument(metavar="SCOPE...", help="host:NAME or phone:SERIAL.")],
) -> Deed:
    """Remove hosts or absent phones from the farm for good.

    Example: benchfarm farm forget host:lab-2
    """
    return lambda settings: farm_control.forget(settings, scopes)


@farm_command(_farm, "clean")
def _clean(
    older_than: Annotated[str, typer.Option("--older-than", help="Delete jobs that ended before this age.")] = "30 d",
    is_trial: Annotated[bool, typer.Option("--dry-run", help="Only list what would be deleted.")] = False,
) -> Deed:
    """Delete old jobs and files that no job needs. Results stay.

    Example: benchfarm farm clean --dry-run
    """
    return lambda settings: farm_control.clean(settings, older_than=older_than, is_trial=is_trial)


_schedule = typer.Typer(help="Run plans at set times.", **LOOK)
_farm.add_typer(_schedule, name="schedule")
_Name = Annotated[str, typer.Argument(help="Name of a schedule.")]


@dataclass(frozen=True, kw_only=True)
class AddOptions:
    """What 'farm schedule add' reads."""

    name: Annotated[str, typer.Argument(help="Name of the schedule. Its submissions are named after it.")]
    plan: Annotated[Path, typer.Argument(help="Plan file (YAML). It is stored as it is now, with its files.")]
    cron: Annotated[str, typer.Option("--cron", help='minute hour day month weekday, for example "0 1 * * *".')]
    timezone: Annotated[
        str, typer.Option("--timezone", help="Time zone of --cron and --window, such as Europe/Berlin.")
    ] = "UTC"
    priority: _Priority = 0
    window: Annotated[str, typer.Option("--window", help="When it may measure, 01:00-06:00 (default: the plan's).")] = (
        ""
    )
    budget: Annotated[str, typer.Option("--budget", help="Time budget per phone, 5h, at most the plan's.")] = ""
    grace: Annotated[str, typer.Option("--grace", help="Skip a time that is overdue by more than this.")] = "1h"
    replace: Annotated[bool, typer.Option("--replace", help="Replace a schedule of this name.")] = False


@farm_command(_schedule, "add")
def _add(options: AddOptions) -> Deed:
    """Submit a plan at set times.

    Example: benchfarm farm schedule add nightly nightly.yaml --cron "0 1 * * *"
    """
    from orchestrator.app.farm_schedules import ScheduleRequest

    request = filled(ScheduleRequest, options)
    return lambda settings: farm.add_schedule(settings, request)


@farm_command(_schedule, "list")
def _list() -> Deed:
    """List schedules, with their next and missed times.

    Example: benchfarm farm schedule list
    """
    return farm.list_schedules


@farm_command(_schedule, "remove")
def _remove(name: _Name) -> Deed:
    """Remove a schedule. Its submissions stay.

    Example: benchfarm farm schedule remove nightly
    """
    return lambda settings: farm_schedules.remove(settings, name)


@farm_command(_schedule, "pause")
def _pause_schedule(name: _Name) -> Deed:
    """Pause a schedule. Missed times are not run later.

    Example: benchfarm farm schedule pause nightly
    """
    return lambda settings: farm_schedules.pause(settings, name, paused=True)


@farm_command(_schedule, "resume")
def _resume_schedule(name: _Name) -> Deed:
    """Resume a paused schedule.

    Example: benchfarm farm schedule resume nightly
    """
    return lambda settings: farm_schedules.pause(settings, name, paused=False)


@command(app, "status")
def _farm_now(
    keep_on: Annotated[bool, typer.Option("--watch", help="Repeat until no campaign runs.")] = False,
    every_s: Annotated[float, typer.Option("--every", min=0.2, help="Seconds between two updates.")] = 2.0,
    as_json: Json = False,
) -> Deed:
    """Show what each phone does now, and what is left.

    Example: benchfarm status --watch
    """
    return lambda settings: (
        status.watch(settings, every_s=every_s) if keep_on and not as_json else status.status(settings)
    )
