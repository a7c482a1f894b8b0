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
    delegate: Annotated[
        str,
        typer.Option("--delegate", help="Tell each operator: gpu, nnapi, hexagon or xnnpack; and what devices did."),
    ] = "",
    device: Annotated[str, typer.Option("--device", "-s", help="Listen only to this device's stored runs.")] = "",
    as_json: Json = False,
) -> None:
    """Show what a model holds: tensors, operators, multiply-adds, size; what delegates are likely to take of it."""
    from orchestrator.cli import models

    show(lambda settings: models.inspect(settings, model, delegate=delegate, serial=device), as_json=as_json)


@models_app.command("diff")
def _models_diff(
    first: Annotated[Path, typer.Argument(metavar="A", help="Model file (.tflite).")],
    second: Annotated[Path, typer.Argument(metavar="B", help="Model file (.tflite).")],
    as_json: Json = False,
) -> None:
    """Tell two models apart: sizes, tensors, operators; exit code 1 unless they are one file."""
    from orchestrator.cli import models

    show(lambda _: models.diff(first, second), as_json=as_json)


@models_app.command("predictions")
def _models_predictions(
    delegate: Annotated[str, typer.Option("--delegate", help="Only this one.")] = "",
    device: Annotated[str, typer.Option("--device", "-s", help="Only this device's stored runs.")] = "",
    as_json: Json = False,
) -> None:
    """Show what delegates were predicted to take beside what devices did, and how often that was right."""
    from orchestrator.cli import predicting

    show(lambda settings: predicting.predictions(settings, delegate=delegate, serial=device), as_json=as_json)


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
