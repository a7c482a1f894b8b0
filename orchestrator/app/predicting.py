"""What delegates are likely to take of a model, by what is documented and by what devices did."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.bootstrap import Farm, Settings
from orchestrator.errors import ModelError, UsageError
from orchestrator.records.model import DelegatePrediction, PredictionTrial

if TYPE_CHECKING:
    from orchestrator.models.graph import Graph
    from orchestrator.models.learning import Sighting


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What one delegate is likely to take of a model."""

    prediction: DelegatePrediction
    #: What devices did with this very model and delegate.
    here: Sequence[Sighting]
    #: How often predictions for the delegate held.
    tried: Sequence[PredictionTrial]
    #: Whether it is for a virtual phone.
    is_virtual: bool


def by_documents(path: Path) -> list[DelegatePrediction]:
    """Return what each delegate is likely to take, by the documented tables alone; raises ModelError."""
    from orchestrator.models.inspect import open_graph
    from orchestrator.models.prediction import PREDICTED, predict

    graph = open_graph(path)
    return [predict(graph, delegate) for delegate in PREDICTED]


def outlook(settings: Settings, path: Path, *, delegate: str, serial: str) -> Outlook:
    """Return what one delegate is likely to take, by what devices did as well; raises UsageError, ModelError."""
    from orchestrator.models.inspect import identify_model, open_graph
    from orchestrator.models.learning import learn
    from orchestrator.models.prediction import NEWEST_SDK, PREDICTED, predict

    if delegate not in PREDICTED:
        raise UsageError(
            f"nothing is known of which operators {delegate!r} takes", hint=f"choose of {', '.join(PREDICTED)}"
        )
    graph, model = open_graph(path), identify_model(path)
    with Farm(settings, makes_store=False, needs_store=False) as farm:
        known = what_is_known(farm, serial)
    virtual = known.is_virtual
    words = learn(known.seen, known.graphs, delegate, model_sha256=model.sha256, serial=serial, virtual=virtual)
    return Outlook(
        prediction=predict(graph, delegate, sdk=known.sdk or NEWEST_SDK, learned=words),
        here=[item for item in known.seen if item.model_sha256 == model.sha256 and item.delegate == delegate],
        tried=[trial for trial in known.trials() if trial.delegate == delegate],
        is_virtual=virtual,
    )


def trials(settings: Settings, *, delegate: str, serial: str) -> tuple[list[PredictionTrial], int]:
    """Return all predictions beside what devices did, and how many stored models have no file any more."""
    with Farm(settings, makes_store=False) as farm:
        known = what_is_known(farm, serial)
    return [trial for trial in known.trials() if not delegate or trial.delegate == delegate], known.without_file


def hits_of(tried: Sequence[PredictionTrial]) -> dict[str, dict[str, int]]:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What the store holds about delegates."""

    seen: Sequence[Sighting]
    graphs: dict[str, Graph]
    #: Of the device that was named.
    sdk: int | None
    is_virtual: bool
    sdk_of: dict[str, int]
    without_file: int

    def trials(self) -> list[PredictionTrial]:
        """Return what would have been predicted beside what devices did, trial by trial."""
        from orchestrator.models.learning import trials

        return trials(self.seen, self.graphs, sdk_of=self.sdk_of)


def what_is_known(farm: Farm, serial: str) -> Known:
    """Return what the store holds, of one device where it is named; raises UsageError for a device without runs."""
    from orchestrator.models.learning import sightings

    devices = farm.store.devices()
    named = next((facts for known, facts in devices.items() if known == serial), None)
    if serial and named is None:
        raise UsageError(f"no stored run is of a device {serial!r}", hint="see 'benchfarm devices'")
    seen = [item for item in sightings(farm.store.runs()) if not serial or item.serial == serial]
    wanted = {item.model_sha256 for item in seen}
    graphs = dict(_graphs(farm, wanted))
    return Known(
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
