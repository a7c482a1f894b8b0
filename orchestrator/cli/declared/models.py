"""Model files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.frame import Deed, command, group, later, split

if TYPE_CHECKING:
    from orchestrator.app import model_files
    from orchestrator.cli import models, predicting
else:
    (model_files,) = later("model_files", of="app")
    models, predicting = later("models predicting")

model_app = group("model", "Inspect, compare, build and download models.")


@command(model_app, "inspect")
def _models_inspect(
    model: Annotated[Path, typer.Argument(help="Model file (.tflite).")],
    delegate: Annotated[
        str,
        typer.Option(
            "--delegate", help="Show for each operator what this delegate takes: gpu, nnapi, hexagon or xnnpack."
        ),
    ] = "",
    device: Annotated[str, typer.Option("--device", "-s", help="Use only this device's stored runs.")] = "",
) -> Deed:
    """Show a model's operators and what delegates may take.

    Example: benchfarm model inspect model.tflite --delegate gpu
    """
    return lambda settings: models.inspect(settings, model, delegate=delegate, serial=device)


@command(model_app, "diff")
def _models_diff(
    first: Annotated[Path, typer.Argument(metavar="A", help="Model file (.tflite).")],
    second: Annotated[Path, typer.Argument(metavar="B", help="Model file (.tflite).")],
) -> Deed:
    """Compare two models: sizes, tensors, operators.

    Example: benchfarm model diff a.tflite b.tflite

    Exit code 1 unless the files are identical.
    """
    return lambda _: models.diff(first, second)


@command(model_app, "predictions")
def _models_predictions(
    delegate: Annotated[str, typer.Option("--delegate", help="Only this delegate.")] = "",
    device: Annotated[str, typer.Option("--device", "-s", help="Only this device's stored runs.")] = "",
) -> Deed:
    """Compare predicted with observed delegation.

    Example: benchfarm model predictions --delegate gpu
    """
    return lambda settings: predicting.predictions(settings, delegate=delegate, serial=device)


@command(model_app, "samples")
def _models_samples(
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Copy them into this folder.")] = None,
) -> Deed:
    """Show the sample models, or copy them.

    Example: benchfarm model samples --out .
    """
    return lambda _: models.samples(out)


@dataclass(frozen=True, kw_only=True)
class BuildOptions:
    """What 'model build' reads."""

    sources: Annotated[
        list[str], typer.Argument(metavar="SOURCE...", help="Name, SavedModel folder, or .keras or .h5 file.")
    ]
    variants: Annotated[
        list[str] | None, typer.Option("--variant", help="float32, float16, dynamic-range, int8, int16x8 (a,b).")
    ] = None
    batches: Annotated[list[str] | None, typer.Option("--batch", help="Batch sizes (1,4), or as-is (default: 1).")] = (
        None
    )
    sizes: Annotated[
        list[str] | None, typer.Option("--size", help="Side length in pixels (128,224) (default: the network's usual).")
    ] = None
    weights: Annotated[str, typer.Option(help="random, imagenet (downloaded by Keras), or a weights file.")] = "random"
    representative: Annotated[
        str, typer.Option(help="Samples for int8 and int16x8 (.npy, .npz by input) (default: random).")
    ] = ""
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1, help="Seed of random weights and samples.")] = 0
    flex: Annotated[bool, typer.Option("--flex", help="Keep TensorFlow's own operators.")] = False
    signature: Annotated[str, typer.Option(help="Signature of a SavedModel.")] = "serving_default"
    accuracy: Annotated[str | None, typer.Option(help="Known accuracy, 71.8%. Requires --accuracy-source.")] = None
    accuracy_source: Annotated[str, typer.Option(help="Who measured the accuracy and how, or a URL.")] = ""
    metric: Annotated[str, typer.Option(help="Metric of the accuracy.")] = "top-1"
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder for files and models.yaml (default: the data folder).")
    ] = None


@command(model_app, "build")
def _models_build(options: BuildOptions) -> Deed:
    """Build .tflite files with TensorFlow.

    Example: benchfarm model build mobilenet_v2 --variant float32,int8

    models.yaml records how to build them again.
    """
    from orchestrator.models.building import BuildOrder

    orders = model_files.orders(
        sources=options.sources,
        variants=split(options.variants),
        batches=split(options.batches),
        sizes=split(options.sizes),
        like=BuildOrder(
            source="",
            weights=options.weights,
            representative=options.representative,
            seed=options.seed,
            flex=options.flex,
            signature=options.signature,
        ),
    )
    known = models.known_accuracy(options.accuracy, options.metric, options.accuracy_source)
    return lambda settings: models.build(settings, orders, out=options.out, accuracy=known)


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions:
    """What 'model evaluate' reads."""

    model: Annotated[Path, typer.Argument(help="Model file (.tflite).")]
    program: Annotated[
        Path,
        typer.Option(
            "--program", help="LiteRT's run_eval: of image classification, object detection or inference_diff."
        ),
    ]
    delegates: Annotated[list[str] | None, typer.Option("--delegate", "-d", help="cpu, gpu ... (a,b).")] = None
    device: Annotated[list[str] | None, typer.Option("--device", "-s", help="Serial number, or host.")] = None
    threads: Annotated[int, typer.Option("--threads", "-t", min=1, max=64, help="Threads of the interpreter.")] = 1
    flag: Annotated[
        list[str] | None,
        typer.Option("--flag", help="Flag of the program, name=value; @PATH places a file or folder. Repeat."),
    ] = None
    timeout: Annotated[float, typer.Option("--timeout", min=1, help="Seconds for each evaluation.")] = 3600.0


@command(model_app, "evaluate")
def _models_evaluate(options: EvaluateOptions) -> Deed:
    """Measure accuracy by delegate with LiteRT's run_eval.

    Example: benchfarm model evaluate model.tflite --program run_eval -d cpu,gpu

    Reports and 'advise' show the newest result of each delegate beside its latency.
    """
    from orchestrator.app.evaluating import EvaluateRequest
    from orchestrator.config.plan_keys import flags_of

    request = EvaluateRequest(
        model=options.model,
        program=options.program,
        serials=tuple(options.device or ()),
        delegates=split(options.delegates) or ("cpu",),
        threads=options.threads,
        flags=flags_of(options.flag or ()),
        timeout_s=options.timeout,
    )
    return lambda settings: models.evaluate(settings, request)


@command(model_app, "fetch")
def _models_fetch(
    names: Annotated[list[str], typer.Argument(help="Models of the published tables, see 'benchfarm model list'.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder for files and models.yaml (default: the data folder).")
    ] = None,
    mirror: Annotated[
        str, typer.Option("--mirror", help="Download from PREFIX, or ORIGIN=PREFIX ($BENCHFARM_MIRROR).")
    ] = "",
    accept_changed: Annotated[
        bool, typer.Option("--accept-changed", help="Accept content that differs from the first download.")
    ] = False,
) -> Deed:
    """Download models of the published tables.

    Example: benchfarm model fetch mobilenet_v1

    A model must have the content of its first download.
    """
    return lambda settings: models.fetch(settings, names, out=out, mirror=mirror, accept_changed=accept_changed)


@command(model_app, "list")
def _models_list(
    folder: Annotated[Path | None, typer.Argument(help="Folder of a models.yaml (default: the data folder).")] = None,
) -> Deed:
    """List known models, and names to build or download.

    Example: benchfarm model list
    """
    return lambda settings: models.list_models(settings, folder)
