"""Model files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.frame import Json, group, show, split

models_app = group("models", "Look inside models, build and fetch them; the sample models.")


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


@models_app.command("build")
def _models_build(
    sources: Annotated[
        list[str], typer.Argument(metavar="SOURCE...", help="Name, SavedModel folder, or .keras or .h5 file.")
    ],
    variants: Annotated[
        list[str] | None, typer.Option("--variant", help="float32, float16, dynamic-range, int8, int16x8 (a,b).")
    ] = None,
    batches: Annotated[
        list[str] | None, typer.Option("--batch", help="Batch sizes (1,4), or as-is; 1 when left out.")
    ] = None,
    sizes: Annotated[
        list[str] | None, typer.Option("--size", help="Pixels of a side (128,224); the usual when left out.")
    ] = None,
    weights: Annotated[str, typer.Option(help="random, imagenet (downloaded by Keras), or a weights file.")] = "random",
    representative: Annotated[
        str, typer.Option(help="Samples for int8 and int16x8 (.npy, .npz by input); random when left out.")
    ] = "",
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1, help="Of random weights and samples.")] = 0,
    flex: Annotated[bool, typer.Option("--flex", help="Leave TensorFlow's own operators in.")] = False,
    signature: Annotated[str, typer.Option(help="Entry of a SavedModel.")] = "serving_default",
    accuracy: Annotated[str | None, typer.Option(help="When you know it: 71.8%. Needs --accuracy-source.")] = None,
    accuracy_source: Annotated[str, typer.Option(help="Who measured the accuracy how, or an address.")] = "",
    metric: Annotated[str, typer.Option(help="What the accuracy is of.")] = "top-1",
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder for files and models.yaml; the data folder otherwise.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Build .tflite files with TensorFlow: variants, batches and sizes; models.yaml says how to build them again."""
    from orchestrator.cli import zoo, zoo_options

    orders = zoo_options.orders(
        sources=sources,
        variants=split(variants),
        batches=split(batches),
        sizes=split(sizes),
        weights=weights,
        representative=representative,
        seed=seed,
        flex=flex,
        signature=signature,
    )
    known = zoo_options.known_accuracy(accuracy, metric, accuracy_source)
    show(lambda settings: zoo.build(settings, orders, out=out, accuracy=known), as_json=as_json)


@models_app.command("fetch")
def _models_fetch(
    names: Annotated[list[str], typer.Argument(help="Models of the published tables, see 'benchfarm models list'.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder for files and models.yaml; the data folder otherwise.")
    ] = None,
    mirror: Annotated[
        str, typer.Option("--mirror", help="Download from PREFIX, or ORIGIN=PREFIX ($BENCHFARM_MIRROR).")
    ] = "",
    accept_changed: Annotated[
        bool, typer.Option("--accept-changed", help="Take what isn't the content of the first time.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Download models of the published tables; each is held to the content that it had at first sight."""
    from orchestrator.cli import zoo

    show(
        lambda settings: zoo.fetch(settings, names, out=out, mirror=mirror, accept_changed=accept_changed),
        as_json=as_json,
    )


@models_app.command("list")
def _models_list(
    folder: Annotated[Path | None, typer.Argument(help="Folder of a models.yaml; the data folder otherwise.")] = None,
    as_json: Json = False,
) -> None:
    """List the models that models.yaml knows, and the names that can be built or fetched."""
    from orchestrator.cli import zoo

    show(lambda settings: zoo.list_models(settings, folder), as_json=as_json)
