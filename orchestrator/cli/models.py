"""``benchfarm models``."""

from __future__ import annotations

from pathlib import Path

from orchestrator.cli.result import CommandResult, one_line, table
from orchestrator.records.model import ModelFacts, TensorFacts
from orchestrator.units import format_bytes


def _lines(facts: ModelFacts) -> list[str]:
    macs = "unknown" if facts.multiply_adds is None else f"{facts.multiply_adds / 1e6:.1f} million"
    lines = [
        f"size           {format_bytes(facts.size_bytes)}, {format_bytes(facts.weights_bytes)} of it weights",
        f"precision      {facts.precision}",
        f"multiply-adds  {macs}",
        f"schema         version {facts.schema_version}, runtime {facts.min_runtime_version or 'not told'}",
        f"description    {facts.description or 'none'}",
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
    scale = "" if tensor.scale is None else f", scale {tensor.scale:.6g}, zero point {tensor.zero_point}"
    return f"{tensor.name}: {tensor.dtype} {list(tensor.shape_signature)}{scale}"


def inspect(path: Path) -> CommandResult:
    """Look inside a model; raises ModelError."""
    from orchestrator.models.inspect import inspect_model

    facts = inspect_model(path)
    return CommandResult(text="\n".join(_lines(facts)), data=facts)


def samples(build: Path | None) -> CommandResult:
    """Say where the sample models are, or build them again."""
    from orchestrator.models.inspect import identify_model
    from orchestrator.models.zoo import build_samples, sample_models

    paths = build_samples(build) if build is not None else list(sample_models())
    models = [identify_model(path) for path in paths]
    rows = [(str(model.path), format_bytes(model.size_bytes), model.sha256[:12]) for model in models]
    return CommandResult(text=table(("model", "size", "sha256"), rows, right=(1,)), data=models)
