"""What terms and codes mean."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli.frame import Deed, app, command


@command(app, "explain")
def _explain(
    word: Annotated[str, typer.Argument(help="Term or code, such as partial or throttled (default: list all).")] = "",
) -> Deed:
    """Explain a term or a code that benchfarm prints.

    Example: benchfarm explain throttled
    """
    from orchestrator.cli import explaining

    return lambda _: explaining.explain(word)
