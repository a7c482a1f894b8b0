"""iPhones."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.frame import Json, group, show

ios_app = group("ios", "iPhones: export a plan's cases for the iOS benchmark app, run them, import what it showed.")


@ios_app.command("export")
def _ios_export(
    plan: Annotated[Path, typer.Argument(help="Plan file (YAML).")],
    out: Annotated[Path, typer.Option("--out", "-o", help="New folder to write.")],
    profile: Annotated[str, typer.Option("--profile", help="iPhone profile; the plan's own else.")] = "",
    phone_name: Annotated[
        str, typer.Option("--name", help="What the iPhone is known by; the profile's name else.")
    ] = "",
    os_version: Annotated[str, typer.Option("--ios", help="Version of iOS on it, for the records.")] = "",
    program: Annotated[str, typer.Option("--app", help="The app's file (with a slash), or what version it is.")] = "",
    as_json: Json = False,
) -> None:
    """Write, for a plan's cases on an iPhone, the files of each app bundle and what to do with them."""
    from orchestrator.cli import ios

    phone = ios.IPhone(profile=profile, name=phone_name, os_version=os_version, app=program)
    show(lambda settings: ios.export(settings, plan, out, phone), as_json=as_json)


@ios_app.command("import")
def _ios_import(
    folder: Annotated[Path, typer.Argument(help="Folder that 'benchfarm ios export' wrote.")],
    files: Annotated[list[Path] | None, typer.Argument(help="The app's output; the results folders' else.")] = None,
    case: Annotated[str, typer.Option("--case", help="Case of the files: folder or key, or its beginning.")] = "",
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Where to write the HTML report.")] = None,
    as_json: Json = False,
) -> None:
    """Store what the iOS benchmark app showed; text that can't be of its case is refused."""
    from orchestrator.cli import ios

    show(lambda settings: ios.import_results(settings, folder, tuple(files or ()), case, out), as_json=as_json)


@ios_app.command("run")
def _ios_run(
    folder: Annotated[Path, typer.Argument(help="Folder that 'benchfarm ios export' wrote.")],
    bundle_id: Annotated[str, typer.Option("--bundle", help="Bundle identifier of the app.")],
    udid: Annotated[str, typer.Option("--udid", help="Which iPhone; the one that is plugged in else.")] = "",
    package: Annotated[Path | None, typer.Option("--install", help="App (.ipa or .app) to install first.")] = None,
    case: Annotated[str, typer.Option("--case", help="Case to run: folder or key, or its beginning.")] = "",
    command: Annotated[str, typer.Option("--command", help="pymobiledevice3's program, where it isn't found.")] = "",
    timeout: Annotated[float, typer.Option(min=1, help="Seconds that one run may take.")] = 600.0,
    quiet: Annotated[float, typer.Option(min=0, help="Silent seconds after which a finished run is over.")] = 2.0,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Where to write the HTML report.")] = None,
    as_json: Json = False,
) -> None:
    """Run an export's cases on an iPhone that is plugged in, with pymobiledevice3, and import them."""
    from orchestrator.cli import ios_running

    request = ios_running.IPhoneRun(
        folder=folder,
        bundle_id=bundle_id,
        udid=udid,
        package=package,
        wanted=case,
        command=command,
        timeout_s=timeout,
        quiet_s=quiet,
    )
    show(lambda settings: ios_running.run(settings, request, out), as_json=as_json)
