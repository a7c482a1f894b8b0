"""``benchfarm model``."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.cli.result import CommandResult, table
from orchestrator.errors import UsageError
from orchestrator.files import write_file
from orchestrator.records.model import ModelFacts, TensorFacts
from orchestrator.report.escapes import one_line
from orchestrator.units import format_bytes

if TYPE_CHECKING:
    from orchestrator.app.evaluating import EvaluateRequest
    from orchestrator.bootstrap import Settings
    from orchestrator.models.language_model import LanguageModelFacts


def _lines(facts: ModelFacts) -> list[str]:
    arena = "unknown: a shape is known only at run time"
    if facts.arena_bytes is not None:
        arena = f"at least {format_bytes(facts.arena_bytes)}"
    macs = "unknown" if facts.multiply_adds is None else f"{facts.multiply_adds / 1e6:.1f} million"
    lines = [
        f"size           {format_bytes(facts.size_bytes)}, {format_bytes(facts.weights_bytes)} of it weights",
        f"precision      {facts.precision}",
        f"parameters     {facts.parameters / 1e6:.3g} million" if facts.parameters else "parameters     none",
        f"multiply-adds  {macs}",
        f"arena          {arena}",
        f"tensors        {', '.join(f'{count} {name}' for name, count in facts.tensors.items()) or 'none'}",
        f"quantised      {facts.tensors_quantised} tensors as a whole, {facts.tensors_quantised_by_channel} by channel",
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
    context = "unknown" if facts.context_tokens is None else f"{facts.context_tokens} tokens, prompt and answer"
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
    scale = "" if tensor.scale is None else f", scale {tensor.scale:.6g}, zero point {tensor.zero_point}"
    return f"{tensor.name}: {tensor.dtype} {list(tensor.shape_signature)}{scale}"


def inspect(settings: Settings, path: Path, *, delegate: str, serial: str) -> CommandResult:
    """Look inside a model, and say what delegates would do with it; raises ModelError."""
    from orchestrator.models.inspect import inspect_model
    from orchestrator.models.language_model import inspect_bundle
    from orchestrator.records.tokens import is_language_model

    if is_language_model(path) and not delegate:
        bundle = inspect_bundle(path)
        return CommandResult(text="\n".join(_bundle_lines(bundle)), data=bundle)
    facts = inspect_model(path)
    shown = {field.name: getattr(facts, field.name) for field in fields(facts)}
    if delegate:
        from orchestrator.cli.predicting import with_devices

        told = with_devices(settings, path, delegate=delegate, serial=serial)
        return CommandResult(text="\n".join([*_lines(facts), "", told.text]), data={**shown, "delegate": told.data})
    if serial:
        raise UsageError("--device is for --delegate, whose prediction it is about", hint="give --delegate gpu, too")
    from orchestrator.cli.predicting import by_documents

    told = by_documents(path)
    return CommandResult(text="\n".join([*_lines(facts), "", told.text]), data={**shown, "delegates": told.data})


def diff(first: Path, second: Path) -> CommandResult:
    """Tell two models apart; exit code 1 when they differ."""
    from orchestrator.models.inspect import differences, identify_model, inspect_model, open_graph, operator_changes

    changes = [
        *differences(inspect_model(first), inspect_model(second)),
        *operator_changes(open_graph(first), open_graph(second)),
    ]
    same_bytes = identify_model(first).sha256 == identify_model(second).sha256
    rows = [(change.what, _short(change.first), _short(change.second)) for change in changes]
    if rows:
        text = table(("what", str(first), str(second)), rows)
    else:
        text = "the same file" if same_bytes else "the same structure; constants, names or layout differ"
    return CommandResult(
        text=text, data={"is_same_file": same_bytes, "changes": changes}, exit_code=0 if same_bytes else 1
    )


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}..."


def samples(build: Path | None, out: Path | None = None) -> CommandResult:
    """Say where the sample models are, copy them, or build them again; raises UsageError, HostStorageError."""
    from orchestrator.models.inspect import identify_model
    from orchestrator.models.zoo import build_samples, sample_models

    paths = build_samples(build) if build is not None else list(sample_models())
    if out is not None:
        copies = [out / path.name for path in paths]
        for path, copy in zip(paths, copies, strict=True):
            if copy.exists() and copy.read_bytes() != path.read_bytes():
                raise UsageError(f"{copy} is there already and is another file", hint="name another folder")
            write_file(copy, path.read_bytes())
        paths = copies
    models = [identify_model(path) for path in paths]
    rows = [(str(model.path), format_bytes(model.size_bytes), model.sha256[:12]) for model in models]
    return CommandResult(text=table(("model", "size", "sha256"), rows, right=(1,)), data=models)


def evaluate(settings: Settings, request: EvaluateRequest) -> CommandResult:
    """Evaluate a model with each delegate; exit code 1 unless each has a figure of its own."""
    from orchestrator.app import evaluating
    from orchestrator.cli.download_progress import farm_telling

    with farm_telling(settings) as farm:
        found = evaluating.evaluate(farm, request)
    rows = [
        (f"{each.serial}{' (virtual)' if each.is_virtual else ''}", each.delegate, each.text or "-") for each in found
    ]
    lines = [table(("device", "delegate", "found"), rows)]
    lines += [one_line(f"{each.serial}, {each.delegate}: {each.reason}") for each in found if each.reason]
    return CommandResult(text="\n".join(lines), data=found, exit_code=1 if any(each.reason for each in found) else 0)
