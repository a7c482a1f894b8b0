"""``benchfarm model``: facts, differences, and models to measure with the manifest that lists them."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from orchestrator.cli.progress import tell
from orchestrator.extensions.models import files as model_files
from orchestrator.extensions.models.files import BuildRequest, Folder
from orchestrator.plugins import CommandResult, Settings, Texts, arg, command, opt, text_table
from orchestrator.records.model import ModelFacts, TensorFacts
from orchestrator.tables.escapes import one_line
from orchestrator.units import format_bytes

if TYPE_CHECKING:
    from orchestrator.models.language_model import LanguageModelFacts

_ModelFile = Annotated[Path, arg("Model file (.tflite).")]


def _lines(facts: ModelFacts) -> list[str]:
    arena = "unknown: a shape is known only at run time"
    if facts.arena_bytes is not None:
        arena = f"at least {format_bytes(facts.arena_bytes)}"
    macs = "unknown" if facts.multiply_adds is None else f"{facts.multiply_adds / 1e6:.1f} million"
    quantised = (
        f"{facts.tensors_quantised} tensors as a whole, {facts.tensors_quantised_by_channel} by channel, "
        f"{facts.tensors_quantised_by_block} by block"
    )
    lines = [
        f"size           {format_bytes(facts.size_bytes)}, {format_bytes(facts.weights_bytes)} of it weights",
        f"precision      {facts.precision}",
        f"parameters     {facts.parameters / 1e6:.3g} million"
        if facts.parameters
        else "parameters     none",
        f"multiply-adds  {macs}",
        f"arena          {arena}",
        f"tensors        {', '.join(f'{count} {name}' for name, count in facts.tensors.items()) or 'none'}",
        f"quantised      {quantised}",
        f"schema         version {facts.schema_version}, runtime {_runtime(facts)}",
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


def _bundle_lines(facts: LanguageModelFacts) -> list[str]:
    context = (
        "unknown"
        if facts.context_tokens is None
        else f"{facts.context_tokens} tokens, prompt and answer"
    )
    lines = [
        f"form           {facts.form} {facts.version}".rstrip(),
        f"size           {format_bytes(facts.size_bytes)}",
        f"family         {facts.family or 'unknown'}",
        f"context        {context}",
        f"tokenizer      {facts.tokenizer or 'none'}",
        *(
            f"section        {item.kind}{f' {item.role}' if item.role else ''}, {format_bytes(item.size_bytes)}"
            + "".join(f", {name}: {value}" for name, value in item.notes)
            for item in facts.sections
        ),
    ]
    return [one_line(line) for line in lines]


def _runtime(facts: ModelFacts) -> str:
    if not facts.min_runtime_version:
        return "unknown: an operator or its version is newer than the table of releases"
    return facts.min_runtime_version + (
        " or newer" if facts.is_runtime_told else " or newer, by its operators' versions"
    )


def _tensor(tensor: TensorFacts) -> str:
    scale = (
        ""
        if tensor.scale is None
        else f", scale {tensor.scale:.6g}, zero point {tensor.zero_point}"
    )
    return f"{tensor.name}: {tensor.dtype} {list(tensor.shape_signature)}{scale}"


@command("model inspect")
def inspect(model: _ModelFile) -> CommandResult:
    """Show a model's facts and operators.

    Example: benchfarm model inspect model.tflite
    """
    facts = model_files.inspect(model)
    lines = _lines(facts) if isinstance(facts, ModelFacts) else _bundle_lines(facts)
    return CommandResult(text="\n".join(lines), data=facts)


@command("model diff")
def diff(
    first: Annotated[Path, arg("Model file (.tflite).", metavar="A")],
    second: Annotated[Path, arg("Model file (.tflite).", metavar="B")],
) -> CommandResult:
    """Compare two models: sizes, tensors, operators.

    Example: benchfarm model diff a.tflite b.tflite

    Exit code 1 unless the files are identical.
    """
    from orchestrator.extensions.models.diff import compare_models

    found = compare_models(first, second)
    rows = [(change.what, _short(change.first), _short(change.second)) for change in found.changes]
    same = (
        "the same file"
        if found.is_same_file
        else "the same structure; constants, names or layout differ"
    )
    text = text_table(("what", str(first), str(second)), rows) if rows else same
    return CommandResult(text=text, data=found, exit_code=0 if found.is_same_file else 1)


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}..."


@command("model samples")
def samples(
    out: Annotated[Path | None, opt("--out -o", "Copy them into this folder.")] = None,
) -> CommandResult:
    """Show the sample models, or copy them.

    Example: benchfarm model samples --out .
    """
    models = model_files.samples(out)
    rows = [
        (str(model.path), format_bytes(model.size_bytes), model.sha256[:12]) for model in models
    ]
    return CommandResult(
        text=text_table(("model", "size", "sha256"), rows, right=(1,)), data=models
    )


@command("model build")
def build(settings: Settings, request: BuildRequest) -> CommandResult:
    """Build .tflite files with TensorFlow.

    Example: benchfarm model build mobilenet_v2 --variant float32,int8

    models.yaml records how to build them again.
    """
    say = partial(tell, settings.log_format, "model-built")
    done = model_files.build(settings, request, on_done=say)
    rows = [
        (item.name, format_bytes(item.size_bytes), item.sha256[:12], str(item.path))
        for item in done.models
    ]
    lines = [text_table(("model", "size", "sha256", "file"), rows, right=(1,))]
    for item in done.failures:
        lines.append(one_line(f"{item.name} couldn't be built: {item.reason}"))
        lines += [f"  {item.hint}"] if item.hint else []
    notes = Counter(note for entry in done.entries for note in entry.note.split("; ") if note)
    lines += [f"{count} of {len(done.entries)}: {note}" for note, count in notes.items()]
    lines.append(f"how to build them again is in {done.manifest}")
    data = {"models": done.entries, "failures": done.failures, "manifest": done.manifest}
    return CommandResult(text="\n".join(lines), data=data, exit_code=1 if done.failures else 0)


@command("model fetch")
def fetch(
    settings: Settings,
    names: Annotated[Texts, arg("Models of the published tables, see 'benchfarm model list'.")],
    *,
    out: Folder = None,
    mirror: Annotated[
        str, opt("--mirror", "Download from PREFIX, or ORIGIN=PREFIX ($BENCHFARM_MIRROR).")
    ] = "",
    accept_changed: Annotated[
        bool, opt("--accept-changed", "Accept content that differs from the first download.")
    ] = False,
) -> CommandResult:
    """Download models of the published tables.

    Example: benchfarm model fetch mobilenet_v1

    A model must have the content of its first download.
    """
    entries = model_files.fetch(
        settings, names, out=out, mirror=mirror, accept_changed=accept_changed
    )
    rows = [(entry.name, entry.sha256[:12], str(entry.path), status) for entry, status in entries]
    text = text_table(("model", "sha256", "file", ""), rows)
    return CommandResult(
        text=text, data=[{"status": status, "model": entry} for entry, status in entries]
    )


@command("model list")
def list_models(
    settings: Settings,
    folder: Annotated[
        Path | None, arg("Folder of a models.yaml (default: the data folder).")
    ] = None,
) -> CommandResult:
    """List known models, and names to build or download.

    Example: benchfarm model list
    """
    known = model_files.known_models(settings, folder)
    rows = [
        (
            entry.name,
            entry.sha256[:12],
            f"{entry.accuracy.percent:g} % {entry.accuracy.metric}" if entry.accuracy else "",
            str(entry.path) if entry.path.exists() else f"{entry.path} (isn't there)",
        )
        for entry in known.models
    ]
    lines = (
        [text_table(("model", "sha256", "accuracy", "file"), rows)]
        if rows
        else [f"no models in {known.manifest} yet"]
    )
    lines += [
        f"can be built: {', '.join(known.buildable)}",
        f"can be fetched: {', '.join(known.fetchable)}",
    ]
    return CommandResult(text="\n".join(lines), data=known)
