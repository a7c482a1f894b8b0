"""``benchfarm model``: facts, and models to measure with the manifest that lists them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from typer import Argument, Option

from orchestrator.errors import UsageError
from orchestrator.plugins import CommandResult, Settings, Texts, command, tables_result, tell
from orchestrator.tables.escapes import one_line
from orchestrator.tables.table import DATA, NESTED, Column, Kind, Table
from orchestrator.units import format_bytes, split, three_digits

if TYPE_CHECKING:
    from orchestrator.extensions.models.building import BuiltModel
    from orchestrator.plugins import ManifestEntry
    from orchestrator.records.case import Model
    from orchestrator.records.model import ModelFacts, TensorFacts


def _millions(count: int) -> str:
    return f"{three_digits(count / 1e6)} million"


def _lines(facts: ModelFacts) -> list[str]:
    macs = facts.multiply_adds
    lines = [
        f"size           {format_bytes(facts.size_bytes)}, {format_bytes(facts.weights_bytes)} of it weights",
        f"precision      {facts.precision}",
        f"parameters     {_millions(facts.parameters) if facts.parameters else 'none'}",
        f"multiply-adds  {'unknown' if macs is None else _millions(macs)}",
        f"tensors        {', '.join(f'{count} {name}' for name, count in facts.tensors.items()) or 'none'}",
        f"schema         version {facts.schema_version}, runtime {facts.min_runtime_version or 'unknown'}",
        f"description    {facts.description or 'none'}",
        *(f"metadata       {name} ({format_bytes(size)})" for name, size in facts.metadata.items()),
        *(f"input          {_tensor(tensor)}" for tensor in facts.inputs),
        *(f"output         {_tensor(tensor)}" for tensor in facts.outputs),
        *(
            f"signature      {item.key}: {', '.join(item.inputs)} -> {', '.join(item.outputs)}"
            for item in facts.signatures
        ),
        f"operators      {facts.operator_count} in {facts.subgraph_count} subgraphs",
        *(f"  {count:5}  {name}" for name, count in facts.operators.items()),
    ]
    if facts.custom_operators:
        lines.append(f"custom         {', '.join(facts.custom_operators)}")
    if facts.flex_operators:
        lines.append(f"needs Flex     {', '.join(facts.flex_operators)}")
    return [one_line(line) for line in lines]


def _tensor(tensor: TensorFacts) -> str:
    scale = (
        ""
        if tensor.scale is None
        else f", scale {tensor.scale:.6g}, zero point {tensor.zero_point}"
    )
    return f"{tensor.name}: {tensor.dtype} {list(tensor.shape_signature)}{scale}"


@command("model inspect")
def inspect(
    model: Annotated[Path, Argument(help="Model file (.tflite).")],
) -> CommandResult:
    """Show a model's facts.

    Example: benchfarm model inspect model.tflite
    """
    from orchestrator.plugins import inspect_model

    facts = inspect_model(model)
    return CommandResult(text="\n".join(_lines(facts)), data=facts)


def _digest(model: Model | BuiltModel | ManifestEntry) -> str:
    return model.sha256[:12]


_FILES: Final[Sequence[Column[Model | BuiltModel]]] = (
    Column("name", "model", lambda row: row.name),
    Column(
        "size_bytes",
        "size",
        lambda row: row.size_bytes,
        kind=Kind.COUNT,
        shown=lambda item: format_bytes(item.size_bytes),
    ),
    Column("sha256", value=lambda row: row.sha256, shown=_digest),
    Column("path", "file", lambda item: str(item.path)),
)


_Folder = Annotated[
    Path | None,
    Option("--out", "-o", help="Folder for files and models.yaml (default: the data folder)."),
]


@command("model build", has_table=True)
def build(
    settings: Settings,
    sources: Annotated[
        list[str],
        Argument(help="Name, SavedModel folder, or .keras or .h5 file.", metavar="SOURCE..."),
    ],
    *,
    variants: Annotated[
        Texts,
        Option("--variant", help="float32, float16, dynamic-range, int8, int16x8 (a,b)."),
    ] = None,
    batches: Annotated[Texts, Option("--batch", help="Batch sizes (1,4) (default: 1).")] = None,
    sizes: Annotated[
        Texts,
        Option("--size", help="Side length in pixels (128,224) (default: the network's usual)."),
    ] = None,
    seed: Annotated[
        int,
        Option("--seed", help="Seed of random weights and samples.", min=0, max=2**31 - 1),
    ] = 0,
    flex: Annotated[bool, Option("--flex", help="Keep TensorFlow's own operators.")] = False,
    out: _Folder = None,
) -> CommandResult:
    """Build .tflite files with TensorFlow.

    Example: benchfarm model build mobilenet_v2 --variant float32,int8

    models.yaml records how to build them again.
    """
    from orchestrator.extensions.models import files as model_files
    from orchestrator.extensions.models.building import BuildOrder

    say = partial(tell, settings.log_format, "model-built")
    order = BuildOrder(
        source="",
        variants=tuple(dict.fromkeys(split(variants))) or ("float32",),
        batches=model_files.sizes_of("--batch", split(batches)) or (1,),
        sizes=model_files.sizes_of("--size", split(sizes)),
        seed=seed,
        flex=flex,
    )
    orders = model_files.build_orders(sources, order)
    done = model_files.build(settings, orders, out, on_done=say)
    lines: list[str] = []
    for item in done.failures:
        lines.append(one_line(f"{item.name} couldn't be built: {item.reason}"))
        lines += [f"  {item.hint}"] if item.hint else []
    notes = Counter(note for entry in done.entries for note in entry.note.split("; ") if note)
    lines += [f"{count} of {len(done.entries)}: {note}" for note, count in notes.items()]
    lines.append(f"how to build them again is in {done.manifest}")
    table = Table(name="models", caption="Models that were built", columns=_FILES, rows=done.models)
    facts = {"entries": done.entries, "failures": done.failures, "manifest": done.manifest}
    return tables_result(table, *lines, facts=facts, exit_code=1 if done.failures else 0)


@command("model fetch", has_table=True)
def fetch(
    settings: Settings,
    names: Annotated[
        list[str],
        Argument(help="Models of the published tables, see 'benchfarm model list'."),
    ],
    *,
    out: _Folder = None,
) -> CommandResult:
    """Download published models, or copy the samples.

    Example: benchfarm model fetch mobilenet_v1

    Example: benchfarm model fetch samples --out .

    A model must have the content of its first download.
    """
    from orchestrator.extensions.models import files as model_files

    if model_files.SAMPLES in names:
        if len(names) > 1:
            raise UsageError(
                "samples can't be fetched together with other models",
                hint="fetch the others in another command",
            )
        models = model_files.samples(model_files.places(settings, out)[0])
        return tables_result(
            Table(name="models", caption="Sample models", columns=_FILES, rows=models)
        )
    entries = model_files.fetch(settings, names, out=out)
    return tables_result(
        Table(name="models", caption="Fetched models", columns=_ENTRY, rows=entries)
    )


_ENTRY: Final[Sequence[Column[ManifestEntry]]] = (
    Column("name", "model", lambda row: row.name),
    Column("sha256", value=lambda row: row.sha256, shown=_digest),
    Column(
        "accuracy",
        value=lambda row: row.accuracy,
        kind=Kind.RECORD,
        shown=lambda entry: (
            f"{entry.accuracy.percent:g} % {entry.accuracy.metric}" if entry.accuracy else ""
        ),
        is_optional=True,
    ),
    Column("command", value=lambda row: row.command, forms=DATA),
    Column("build", value=lambda row: row.build, kind=Kind.RECORD, forms=NESTED),
    Column("url", value=lambda row: row.url, forms=DATA),
    Column("note", value=lambda row: row.note, forms=DATA),
    Column(
        "path",
        "file",
        lambda entry: str(entry.path),
        shown=lambda entry: None if entry.path.exists() else f"{entry.path} (isn't there)",
    ),
)


@command("model list", has_table=True)
def list_models(
    settings: Settings,
    folder: Annotated[
        Path | None, Argument(help="Folder of a models.yaml (default: the data folder).")
    ] = None,
) -> CommandResult:
    """List known models, and names to build or download.

    Example: benchfarm model list
    """
    from orchestrator.extensions.models import files as model_files
    from orchestrator.extensions.models.building import NAMES

    manifest, models = model_files.listed_models(settings, folder)
    samples = model_files.samples(None)
    fetchable = [*model_files.published_models(), model_files.SAMPLES]
    return tables_result(
        Table(
            name="models",
            caption="Known models",
            columns=_ENTRY,
            rows=models,
            nothing=f"no models in {manifest} yet",
        ),
        f"samples: {', '.join(str(model.path) for model in samples)}",
        f"can be built: {', '.join(NAMES)}",
        f"can be fetched: {', '.join(fetchable)}",
        facts={
            "manifest": manifest,
            "buildable": NAMES,
            "fetchable": fetchable,
            "samples": samples,
        },
    )
