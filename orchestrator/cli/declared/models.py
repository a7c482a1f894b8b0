"""Model files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.frame import Json, group, show

models_app = group("models", "Look inside models; the sample models.")


@models_app.command("inspect")
def _models_inspect(
    model: Annotated[Path, typer.Argument(help="Model file (.tflite).")],
    as_json: Json = False,
) -> None:
    """Show what a model holds: inputs, outputs, operators, multiply-adds, size."""
    from orchestrator.cli import models

    show(lambda _: models.inspect(model), as_json=as_json)


@models_app.command("samples")
def _models_samples(
    build: Annotated[
        Path | None, typer.Option("--build", help="Build them again with TensorFlow into this folder.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Say where the sample models are, or build them again."""
    from orchestrator.cli import models

    show(lambda _: models.samples(build), as_json=as_json)
