"""What terms mean, completion."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.frame import Deed, app, command, later
from orchestrator.errors import UsageError

if TYPE_CHECKING:
    from orchestrator.cli import explaining
else:
    (explaining,) = later("explaining")


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
