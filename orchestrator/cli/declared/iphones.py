"""iPhones."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.frame import Deed, HtmlOut, command, group

ios_app = group("ios", "Measure on iPhones with TensorFlow Lite's iOS app.")


@command(ios_app, "export")
def _ios_export(
    plan: Annotated[Path, typer.Argument(help="Plan file (YAML).")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder to create.")],
    profile: Annotated[str, typer.Option("--profile", help="iPhone profile (default: the plan's).")] = "",
    phone_name: Annotated[str, typer.Option("--name", help="Name of the iPhone (default: the profile's name).")] = "",
    os_version: Annotated[str, typer.Option("--ios", help="Version of iOS, to store with the results.")] = "",
    program: Annotated[str, typer.Option("--app", help="File of the app (with a slash), or its version.")] = "",
) -> Deed:
    """Write the app's files for a plan's cases.

    Example: benchfarm ios export plan.yaml --out iphone
    """
    from orchestrator.app.iphones import IPhone
    from orchestrator.cli import ios

    phone = IPhone(profile=profile, name=phone_name, os_version=os_version, app=program)
    return lambda settings: ios.export(settings, plan, out, phone)


@command(ios_app, "import")
def _ios_import(
    folder: Annotated[Path, typer.Argument(help="Folder that 'benchfarm ios export' wrote.")],
    files: Annotated[
        list[Path] | None, typer.Argument(help="Output of the app (default: from the results folders).")
    ] = None,
    case: Annotated[str, typer.Option("--case", help="Case of the files: folder, or key or its beginning.")] = "",
    out: HtmlOut = None,
) -> Deed:
    """Store the results of the iOS benchmark app.

    Example: benchfarm ios import iphone

    Text that can't belong to its case is refused.
    """
    from orchestrator.cli import ios

    return lambda settings: ios.import_results(settings, folder, tuple(files or ()), case, out)


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What 'ios run' reads."""

    folder: Annotated[Path, typer.Argument(help="Folder that 'benchfarm ios export' wrote.")]
    bundle_id: Annotated[str, typer.Option("--bundle", help="Bundle identifier of the app.")]
    udid: Annotated[
        str, typer.Option("--udid", help="Identifier of the iPhone (default: the one that is attached).")
    ] = ""
    package: Annotated[Path | None, typer.Option("--install", help="App (.ipa or .app) to install first.")] = None
    case: Annotated[str, typer.Option("--case", help="Case to run: folder, or key or its beginning.")] = ""
    command: Annotated[str, typer.Option("--command", help="Path of pymobiledevice3, when it isn't in PATH.")] = ""
    timeout: Annotated[float, typer.Option(min=1, help="Seconds per run, at most.")] = 600.0
    quiet: Annotated[float, typer.Option(min=0, help="Seconds without output after which a finished run ends.")] = 2.0
    out: HtmlOut = None


@command(ios_app, "run")
def _ios_run(options: RunOptions) -> Deed:
    """Run exported cases on an attached iPhone.

    Example: benchfarm ios run iphone --bundle org.example.app
    """
    from orchestrator.app.iphones import IPhoneRun
    from orchestrator.cli import ios

    request = IPhoneRun(
        folder=options.folder,
        bundle_id=options.bundle_id,
        udid=options.udid,
        package=options.package,
        wanted=options.case,
        command=options.command,
        timeout_s=options.timeout,
        quiet_s=options.quiet,
    )
    return lambda settings: ios.run(settings, request, options.out)
