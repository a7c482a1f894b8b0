"""A farm of many hosts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.frame import Json, group, show

_farm = group("farm", "Share plans among hosts and their phones, through a store on PostgreSQL.")
_Scopes = Annotated[
    list[str] | None, typer.Argument(help="farm, host:NAME or phone:SERIAL; the whole farm when left out.")
]
#: As far as the database's integers go.
_Priority = Annotated[int, typer.Option("--priority", min=-(2**31), max=2**31 - 1, help="Larger numbers go first.")]
_Submission = Annotated[str, typer.Argument(help="A submission's name.")]


def _require_packages() -> None:
    """Raise StoreError when the extra isn't installed."""
    from importlib.util import find_spec

    from orchestrator.errors import StoreError

    missing = [name for name in ("fsspec", "procrastinate", "psycopg", "psycopg_pool") if find_spec(name) is None]
    if missing:
        raise StoreError(f"a farm needs {', '.join(missing)}", hint="pip install 'benchfarm[farm]'")


@_farm.command("worker")
def _worker(
    name: Annotated[
        str, typer.Option("--name", help="This host's name in the farm; its network name if left out.")
    ] = "",
    dead_after_s: Annotated[
        float, typer.Option("--dead-after", min=2, help="Seconds of silence after which a host counts as dead.")
    ] = 30.0,
    look_s: Annotated[
        float | None,
        typer.Option("--every", min=0.1, help="Seconds between two looks at the queue; 2, or --dead-after / 4."),
    ] = None,
    until_empty: Annotated[bool, typer.Option("--until-empty", help="End when nothing waits for this host.")] = False,
    idle_look_s: Annotated[
        float, typer.Option("--idle-every", min=0, help="Seconds between two looks at a phone without a job; 0: none.")
    ] = 180.0,
    metrics_port: Annotated[
        int | None,
        typer.Option("--metrics-port", help="Serve numbers of this host for Prometheus here.", min=0, max=65535),
    ] = None,
    metrics_host: Annotated[
        str, typer.Option("--metrics-host", help="Address for that; any but this computer's own needs a token.")
    ] = "127.0.0.1",
    token_file: Annotated[
        Path | None, typer.Option("--token-file", help="File with the token to read them ($BENCHFARM_TOKEN).")
    ] = None,
    as_json: Json = False,
) -> None:
    """Do the queue's jobs on the phones of this host, until it is drained or stopped."""
    import socket

    _require_packages()
    from orchestrator.cli import access, farm_working

    metrics = None
    if metrics_port is not None:
        metrics = access.Listening(host=metrics_host, port=metrics_port, token_file=token_file)
    show(
        lambda settings: farm_working.work(
            settings,
            host=name or socket.gethostname(),
            dead_after_s=dead_after_s,
            look_s=look_s,
            until_empty=until_empty,
            idle_look_s=idle_look_s,
            metrics=metrics,
        ),
        as_json=as_json,
    )


@_farm.command("submit")
def _submit(
    plan: Annotated[Path, typer.Argument(help="A plan file.")],
    priority: _Priority = 0,
    name: Annotated[
        str, typer.Option("--name", help="The submission's name; given twice, the second one is refused.")
    ] = "",
    as_json: Json = False,
) -> None:
    """Queue a plan for every phone of the farm that fits it."""
    _require_packages()
    from orchestrator.cli import farm_submitting

    show(lambda settings: farm_submitting.submit(settings, plan, priority=priority, name=name), as_json=as_json)


@_farm.command("status")
def _status(
    submission: Annotated[
        str, typer.Argument(help="A submission's name; what is open, or failed lately, if left out.")
    ] = "",
    as_json: Json = False,
) -> None:
    """List hosts, phones and jobs."""
    _require_packages()
    from orchestrator.cli import farm

    show(lambda settings: farm.status(settings, submission), as_json=as_json)


@_farm.command("cancel")
def _cancel(
    submission: _Submission,
    phones: Annotated[
        list[str] | None, typer.Option("--phone", help="Only this phone's part (repeat for several).")
    ] = None,
    as_json: Json = False,
) -> None:
    """Cancel what waits of a submission and stop what runs; what is stored stays."""
    _require_packages()
    from orchestrator.cli import farm

    show(lambda settings: farm.cancel(settings, submission, phones or []), as_json=as_json)


@_farm.command("pause")
def _pause(scopes: _Scopes = None, as_json: Json = False) -> None:
    """Give out no new jobs; what runs goes on."""
    _require_packages()
    from orchestrator.cli import farm

    show(lambda settings: farm.hold(settings, scopes or [], "pause"), as_json=as_json)


@_farm.command("drain")
def _drain(scopes: _Scopes = None, as_json: Json = False) -> None:
    """Give out no new jobs, and let workers end when theirs are done."""
    _require_packages()
    from orchestrator.cli import farm

    show(lambda settings: farm.hold(settings, scopes or [], "drain"), as_json=as_json)


@_farm.command("go-on")
def _go_on(scopes: _Scopes = None, as_json: Json = False) -> None:
    """End a pause or a drain."""
    _require_packages()
    from orchestrator.cli import farm

    show(lambda settings: farm.release(settings, scopes or []), as_json=as_json)


@_farm.command("forget")
def _forget(
    scopes: Annotated[
        list[str], typer.Argument(metavar="SCOPE...", help="host:NAME or phone:SERIAL of what is gone for good.")
    ],
    as_json: Json = False,
) -> None:
    """Take hosts, with the phones that they announced, and phones that are away out of the farm for good."""
    _require_packages()
    from orchestrator.cli import farm

    show(lambda settings: farm.forget(settings, scopes), as_json=as_json)


@_farm.command("clean")
def _clean(
    older_than: Annotated[
        str, typer.Option("--older-than", help="Forget jobs that ended so long ago; files of the others stay.")
    ] = "30 d",
    is_trial: Annotated[bool, typer.Option("--dry-run", help="Only say what would be taken away.")] = False,
    as_json: Json = False,
) -> None:
    """Forget old jobs, and take away the files that no job needs any more; no result is touched."""
    _require_packages()
    from orchestrator.cli import farm

    show(lambda settings: farm.clean(settings, older_than=older_than, is_trial=is_trial), as_json=as_json)
