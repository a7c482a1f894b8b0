"""What terms mean, iPhones by hand, completion."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.frame import Deed, HtmlOut, app, command, group, later
from orchestrator.errors import UsageError

if TYPE_CHECKING:
    from orchestrator.cli import explaining, ios
else:
    explaining, ios = later("explaining ios")

ios_app = group("ios", "Measure with TensorFlow's own iOS app, by hand.")


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
    return lambda settings: ios.import_results(settings, folder, tuple(files or ()), case, out)


@command(app, "explain")
def _explain(
    word: Annotated[str, typer.Argument(help="Term or code, such as partial or throttled (default: list all).")] = "",
) -> Deed:
    """Explain a term or a code that benchfarm prints.

    Example: benchfarm explain throttled
    """
    return lambda _: explaining.explain(word)


SHELLS = ("bash", "zsh", "fish")


@command(app, "completion")
def _completion(shell: Annotated[str, typer.Argument(help="bash, zsh or fish.")]) -> Deed:
    """Print a completion script for your shell.

    Example: benchfarm completion bash >> ~/.bashrc
    """
    if shell not in SHELLS:
        raise UsageError(f"there is no completion for {shell!r}", hint=f"one of {', '.join(SHELLS)}")
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    from orchestrator.cli.result import CommandResult

    script = get_completion_script(prog_name="benchfarm", complete_var="_BENCHFARM_COMPLETE", shell=shell)
    return lambda _: CommandResult(text=script, data={"shell": shell, "script": script})
