"""Shell completion."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli.frame import Deed, app, command
from orchestrator.errors import UsageError

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
