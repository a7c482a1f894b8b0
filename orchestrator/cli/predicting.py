"""What delegates are likely to take of a model, beside what devices did."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.bootstrap import Farm
from orchestrator.cli.result import CommandResult, table
from orchestrator.errors import ModelError, UsageError
from orchestrator.records.model import DelegatePrediction, PredictionTrial, Refusal
from orchestrator.report.escapes import one_line

if TYPE_CHECKING:
    from orchestrator.bootstrap import Settings
    from orchestrator.models.graph import Graph
    from orchestrator.models.learning import Sighting

_REFUSALS_SHOWN = 12
_PARTS_SHOWN = 8


def by_documents(path: Path) -> CommandResult:
    """Say what each delegate is likely to take, by the documented tables alone."""
    from orchestrator.models.inspect import open_graph
    from orchestrator.models.prediction import PREDICTED, predict

    graph = open_graph(path)
    predictions = [predict(graph, delegate) for delegate in PREDICTED]
    rows = [(item.delegate, _taken(item), str(item.partitions), _kinds(item.refusals)) for item in predictions]
    lines = [
        table(("delegate", "likely takes", "partitions", "leaves to the CPU"), rows),
        "by the documents alone; --delegate NAME tells each operator, and adds what devices said",
    ]
    return CommandResult(text="\n".join(lines), data=predictions)


def with_devices(settings: Settings, path: Path, *, delegate: str, serial: str) -> CommandResult:
    """Say what one delegate is likely to take, what devices did with this model, and how often predictions hold."""
    from orchestrator.models.inspect import identify_model, open_graph
    from orchestrator.models.learning import learn
    from orchestrator.models.prediction import NEWEST_SDK, PREDICTED, predict

    if delegate not in PREDICTED:
        raise UsageError(
            f"nothing is known of which operators {delegate!r} takes", hint=f"choose of {', '.join(PREDICTED)}"
        )
    graph, model = open_graph(path), identify_model(path)
    with Farm(settings, makes_store=False, needs_store=False) as farm:
        known = _known(farm, serial)
    virtual = known.is_virtual
    words = learn(known.seen, known.graphs, delegate, model_sha256=model.sha256, serial=serial, virtual=virtual)
    prediction = predict(graph, delegate, sdk=known.sdk or NEWEST_SDK, learned=words)
    here = [item for item in known.seen if item.model_sha256 == model.sha256 and item.delegate == delegate]
    tried = [trial for trial in known.trials() if trial.delegate == delegate]
    lines = [
        _headline(prediction, "virtual phones" if virtual else "devices"),
        *_parts(prediction),
        *_refusals(prediction.refusals),
    ]
    lines += [_did(item) for item in here] or ["no stored run of this model with this delegate"]
    lines.append(_rate(tried))
    data = {"prediction": prediction, "devices": [_plain(item) for item in here], "hits": _hits(tried)}
    return CommandResult(text="\n".join(one_line(line) for line in lines), data=data)


def predictions(settings: Settings, *, delegate: str, serial: str) -> CommandResult:
    """Show all predictions beside what devices did, and the hit rate."""
    with Farm(settings, makes_store=False) as farm:
        known = _known(farm, serial)
    tried = [trial for trial in known.trials() if not delegate or trial.delegate == delegate]
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
    if known.without_file:
        lines.append(f"{known.without_file} stored models have no file here any more and can't be predicted")
    return CommandResult(
        text="\n".join(lines),
        data={"trials": tried, "hits": _hits(tried), "models_without_file": known.without_file},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """What the store holds about delegates."""

    seen: Sequence[Sighting]
    graphs: dict[str, Graph]
    #: Of the device that was named.
    sdk: int | None
    is_virtual: bool
    sdk_of: dict[str, int]
    without_file: int

    def trials(self) -> list[PredictionTrial]:
        from orchestrator.models.learning import trials

        return trials(self.seen, self.graphs, sdk_of=self.sdk_of)


def _known(farm: Farm, serial: str) -> _Known:
    from orchestrator.models.learning import sightings

    devices = farm.store.devices()
    named = next((facts for known, facts in devices.items() if known == serial), None)
    if serial and named is None:
        raise UsageError(f"no stored run is of a device {serial!r}", hint="see 'benchfarm devices'")
    seen = [item for item in sightings(farm.store.runs()) if not serial or item.serial == serial]
    wanted = {item.model_sha256 for item in seen}
    graphs = dict(_graphs(farm, wanted))
    return _Known(
        seen=seen,
        graphs=graphs,
        sdk=named.sdk if named is not None else None,
        is_virtual=named is not None and named.is_virtual,
        sdk_of={str(known): facts.sdk for known, facts in devices.items() if facts.sdk is not None},
        without_file=len(wanted - set(graphs)),
    )


def _graphs(farm: Farm, wanted: set[str]) -> Iterable[tuple[str, Graph]]:
    """Yield the models whose file is still somewhere that benchfarm knows of, with the content that it had."""
    from orchestrator.models.inspect import identify_model, open_graph

    for sha256, paths in _candidates(farm).items():
        if sha256 not in wanted:
            continue
        for path in paths:
            try:
                identify_model(path, sha256=sha256)
                yield sha256, open_graph(path)
                break
            except ModelError:
                continue  # moved, changed or deleted since


def _candidates(farm: Farm) -> dict[str, list[Path]]:
    """Return where each model's file was: in campaigns, newest first, in the manifest, among the samples."""
    from orchestrator.config.model_manifest import MANIFEST_NAME, load_manifest
    from orchestrator.models.inspect import identify_model
    from orchestrator.models.zoo import sample_models

    found: dict[str, list[Path]] = {}
    for campaign in farm.store.campaigns():
        for sha256, name in campaign.terms.files.items():
            if Path(name) not in found.setdefault(sha256, []):
                found[sha256].append(Path(name))
    for entry in load_manifest(farm.settings.data_folder / MANIFEST_NAME).values():
        found.setdefault(entry.sha256, []).append(entry.path)
    for path in sample_models():
        found.setdefault(identify_model(path).sha256, []).append(path)
    return found


def _headline(prediction: DelegatePrediction, who: str) -> str:
    parts = _partitions(prediction.partitions)
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
    parts = f" in {_partitions(evidence.partitions)}" if evidence.partitions is not None else ""
    reasons = (f"{name} ({why})" if why else name for name, why in evidence.cpu_operators)
    left = "; left to the CPU: " + ", ".join(reasons)
    return f"{device} took {evidence.truth.value}{nodes}{parts}{left if evidence.cpu_operators else ''}"


def _partitions(count: int) -> str:
    return "1 partition" if count == 1 else f"{count} partitions"


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


def _hits(tried: Sequence[PredictionTrial]) -> dict[str, dict[str, int]]:
    """Return hits by real devices and by virtual phones, never added up."""
    found = {}
    for name, virtual in (("devices", False), ("virtual", True)):
        some = [trial for trial in tried if trial.is_virtual is virtual]
        found[name] = {
            "trials": len(some),
            "hits": sum(trial.is_hit for trial in some),
            "hits_by_documents": sum(trial.is_documented_hit for trial in some),
            "counted": sum(trial.is_exact is not None for trial in some),
            "exact": sum(trial.is_exact is True for trial in some),
            "exact_by_documents": sum(trial.is_documented_exact is True for trial in some),
        }
    return found


def _rate(tried: Sequence[PredictionTrial]) -> str:
    told = []
    for name, figures in _hits(tried).items():
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
