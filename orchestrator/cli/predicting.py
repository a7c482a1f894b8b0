"""What delegates are likely to take of a model, beside what devices did."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from orchestrator.app import predicting
from orchestrator.app.options import opt
from orchestrator.app.predicting import hits_of
from orchestrator.bootstrap import Settings
from orchestrator.cli.frame import command
from orchestrator.cli.result import CommandResult, table
from orchestrator.records.model import DelegatePrediction, PredictionTrial, Refusal
from orchestrator.report.escapes import one_line
from orchestrator.units import counted

if TYPE_CHECKING:
    from orchestrator.models.learning import Sighting

_REFUSALS_SHOWN = 12
_PARTS_SHOWN = 8


def by_documents(path: Path) -> CommandResult:
    """Say what each delegate is likely to take, by the documented tables alone."""
    found = predicting.by_documents(path)
    rows = [(item.delegate, _taken(item), str(item.partitions), _kinds(item.refusals)) for item in found]
    lines = [
        table(("delegate", "likely takes", "partitions", "leaves to the CPU"), rows),
        "by the documents alone; --delegate NAME tells each operator, and adds what devices said",
    ]
    return CommandResult(text="\n".join(lines), data=found)


def with_devices(settings: Settings, path: Path, *, delegate: str, serial: str) -> CommandResult:
    """Say what one delegate is likely to take, what devices did with this model, and how often predictions hold."""
    found = predicting.outlook(settings, path, delegate=delegate, serial=serial)
    lines = [
        _headline(found.prediction, "virtual phones" if found.is_virtual else "devices"),
        *_parts(found.prediction),
        *_refusals(found.prediction.refusals),
    ]
    lines += [_did(item) for item in found.here] or ["no stored run of this model with this delegate"]
    lines.append(_rate(found.tried))
    devices = [_plain(item) for item in found.here]
    data = {"prediction": found.prediction, "devices": devices, "hits": hits_of(found.tried)}
    return CommandResult(text="\n".join(one_line(line) for line in lines), data=data)


@command("model predictions")
def predictions(
    settings: Settings,
    delegate: Annotated[str, opt("--delegate", "Only this delegate.")] = "",
    device: Annotated[str, opt("--device -s", "Only this device's stored runs.")] = "",
) -> CommandResult:
    """Compare predicted with observed delegation.

    Example: benchfarm model predictions --delegate gpu
    """
    tried, without_file = predicting.trials(settings, delegate=delegate, serial=device)
    rows = [
        (
            trial.model_name,
            trial.delegate,
            f"{trial.serial} (virtual)" if trial.is_virtual else trial.serial,
            f"{trial.predicted.extent}, {_taken(trial.predicted)}",
            f"{trial.extent}, {_count(trial.delegated_nodes)} of {_count(trial.total_nodes)}",
            "hit" if trial.is_hit else "miss",
        )
        for trial in tried
    ]
    text = table(("model", "delegate", "device", "predicted", "the device took", ""), rows) + "\n" if rows else ""
    lines = [text + _rate(tried)]
    if without_file:
        lines.append(f"{without_file} stored models have no file here any more and can't be predicted")
    return CommandResult(
        text="\n".join(lines),
        data={"trials": tried, "hits": hits_of(tried), "models_without_file": without_file},
    )


def _headline(prediction: DelegatePrediction, who: str) -> str:
    parts = counted(prediction.partitions, "partition")
    left = f", {prediction.partitions_left_out} smaller ones left out" if prediction.partitions_left_out else ""
    learned = f"; {prediction.learned} operators by what {who} said" if prediction.learned else ""
    return f"{prediction.delegate} likely takes {_taken(prediction)} operators in {parts}{left}{learned}"


def _parts(prediction: DelegatePrediction) -> list[str]:
    """Return which operators each partition has; nothing where the whole model is one."""
    if prediction.extent != "partial":
        return []
    lines = [f"  partition of {len(part)}: {_spans(part)}" for part in prediction.parts[:_PARTS_SHOWN]]
    if len(prediction.parts) > _PARTS_SHOWN:
        lines.append(f"  and {len(prediction.parts) - _PARTS_SHOWN} more partitions, see --json")
    return lines


def _spans(part: Sequence[int]) -> str:
    """Return operators as ``#0-#11, #14``."""
    spans: list[list[int]] = []
    for index in part:
        if spans and index == spans[-1][1] + 1:
            spans[-1][1] = index
        else:
            spans.append([index, index])
    return ", ".join(f"#{first}" if first == last else f"#{first}-#{last}" for first, last in spans)


def _refusals(refusals: Sequence[Refusal]) -> list[str]:
    shown = [f"  #{item.index} {item.operator}: {item.reason} ({item.source})" for item in refusals[:_REFUSALS_SHOWN]]
    if len(refusals) > _REFUSALS_SHOWN:
        shown.append(f"  and {len(refusals) - _REFUSALS_SHOWN} more, see --json")
    return shown


def _did(item: Sighting) -> str:
    evidence = item.evidence
    device = f"{item.serial} (virtual)" if item.is_virtual else item.serial
    nodes = f", {_count(evidence.delegated_nodes)} of {_count(evidence.total_nodes)} nodes"
    parts = f" in {counted(evidence.partitions, 'partition')}" if evidence.partitions is not None else ""
    reasons = (f"{name} ({why})" if why else name for name, why in evidence.cpu_operators)
    left = "; left to the CPU: " + ", ".join(reasons)
    return f"{device} took {evidence.truth.value}{nodes}{parts}{left if evidence.cpu_operators else ''}"


def _taken(prediction: DelegatePrediction) -> str:
    return f"{prediction.taken} of {prediction.operator_count}"


def _count(number: int | None) -> str:
    return "?" if number is None else str(number)


def _kinds(refusals: Sequence[Refusal]) -> str:
    counts: dict[str, int] = {}
    for item in refusals:
        counts[item.operator] = counts.get(item.operator, 0) + 1
    shown = [f"{name} ({count})" for name, count in sorted(counts.items(), key=lambda entry: -entry[1])]
    return ", ".join([*shown[:4], *(["..."] if len(shown) > 4 else [])]) or "nothing"


def _rate(tried: Sequence[PredictionTrial]) -> str:
    told = []
    for name, figures in hits_of(tried).items():
        if figures["trials"]:
            who = "virtual phones" if name == "virtual" else "devices"
            told.append(
                f"{who}: {figures['hits']} of {figures['trials']} right about full, partial or none "
                f"({figures['hits_by_documents']} by the documents alone), "
                f"{figures['exact']} of {figures['counted']} to the operator ({figures['exact_by_documents']} by them)"
            )
    return "hit rate: " + ("; ".join(told) if told else "no stored run tells what a delegate took")


def _plain(item: Sighting) -> dict[str, object]:
    return {
        "serial": item.serial,
        "is_virtual": item.is_virtual,
        "runs": item.runs,
        "extent": item.evidence.truth.value,
        "delegated_nodes": item.evidence.delegated_nodes,
        "total_nodes": item.evidence.total_nodes,
        "partitions": item.evidence.partitions,
        "cpu_operators": item.evidence.cpu_operators,
    }
