"""What phones said of which operators a delegate takes, and how often predictions were right.

Two kinds of words count. "Operation is not supported" of an operator is true of every model that has it. Any other
reason is about that operator's types or options, and so tells only of the same model. And when a delegate took a whole
model, it takes operators of the same types, rank and options wherever they stand: what is true of a float SOFTMAX says
nothing about an int8 one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from orchestrator.models.graph import Graph
from orchestrator.models.prediction import DELEGATES, NEWEST_SDK, kinds, predict
from orchestrator.records.model import LearnedOperator, PredictionTrial
from orchestrator.records.run import DelegateEvidence, DelegateTruth, Outcome, RunRecord

#: The truths that say how much of a model a delegate took.
_EXTENTS: Final = {
    DelegateTruth.FULL: "full",
    DelegateTruth.PARTIAL: "partial",
    DelegateTruth.NONE: "none",
}
#: The reason that is about the operator itself; gpu/common/model_builder.cc and gpu_compatibility.cc.
_CATEGORICAL: Final = ("operation is not supported", "not supported op", "not supported custom op")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """What one device did with one model and delegate, in its newest run that says so."""

    model_sha256: str
    model_name: str
    delegate: str
    serial: str
    is_virtual: bool
    runs: int
    evidence: DelegateEvidence


def sightings(runs: Iterable[RunRecord]) -> list[Sighting]:
    """Return what runs say of delegates, one for each model, delegate and device, without those that say nothing."""
    newest: dict[tuple[str, str, str], RunRecord] = {}
    counts: Counter[tuple[str, str, str]] = Counter()
    for run in runs:
        if run.report is None or run.outcome in {Outcome.UNFIT, Outcome.SKIPPED}:
            continue
        delegate = str(run.case.delegate)
        evidence = run.report.delegate
        if delegate not in DELEGATES or (evidence.truth not in _EXTENTS and not evidence.cpu_operators):
            continue
        key = (str(run.case.model_sha256), delegate, str(run.case.serial))
        counts[key] += 1
        if key not in newest or newest[key].started_at <= run.started_at:
            newest[key] = run
    return [
        Sighting(
            model_sha256=key[0],
            model_name=run.case.model_name,
            delegate=key[1],
            serial=key[2],
            is_virtual=run.is_virtual,
            runs=counts[key],
            evidence=run.report.delegate,
        )
        for key, run in sorted(newest.items())
        if run.report is not None
    ]


def learn(
    seen: Iterable[Sighting],
    graphs: Mapping[str, Graph],
    delegate: str,
    *,
    model_sha256: str = "",
    without: str = "",
    virtual: bool = False,
) -> Mapping[str, LearnedOperator]:
    """Return what devices said: refusals by the operator's name, what was taken by its kind (``prediction.kinds``).

    Args:
        seen: What devices did.
        graphs: Models whose file is at hand, by sha256.
        delegate: Whose words are wanted.
        model_sha256: The model that is predicted: its own runs tell also of single operators.
        without: A model whose runs don't count, to see what would have been predicted before them.
        virtual: Whether virtual phones are listened to instead of real devices; never both.
    """
    refused: dict[str, Counter[str]] = defaultdict(Counter)
    taken: Counter[str] = Counter()
    for sighting in seen:
        if sighting.delegate != delegate or sighting.is_virtual is not virtual or sighting.model_sha256 == without:
            continue
        for operator, reason in sighting.evidence.cpu_operators:
            if is_categorical(reason) or (model_sha256 and sighting.model_sha256 == model_sha256):
                refused[operator][reason] += sighting.runs
        graph = graphs.get(sighting.model_sha256)
        if graph is not None and sighting.evidence.truth is DelegateTruth.FULL:
            for kind in set(kinds(graph)):
                taken[kind] += sighting.runs
    words = {
        kind: LearnedOperator(delegate=delegate, operator=kind.split(" ")[0], is_taken=True, reason="", runs=count)
        for kind, count in taken.items()
    }
    for name, reasons in refused.items():
        # An operator that some device refuses and another takes: the refusal is what somebody should hear of.
        reason = reasons.most_common(1)[0][0] or "devices left it to the CPU without a word"
        words[name] = LearnedOperator(
            delegate=delegate, operator=name, is_taken=False, reason=reason, runs=reasons.total()
        )
    return words


def is_categorical(reason: str) -> bool:
    """Whether a reason is about an operator as such, whatever its types and options."""
    return reason.strip().rstrip(".").lower().startswith(_CATEGORICAL)


def trials(
    seen: Iterable[Sighting], graphs: Mapping[str, Graph], *, sdk_of: Mapping[str, int] | None = None
) -> list[PredictionTrial]:
    """Return predictions beside what devices did; each was made without any run of its own model."""
    everything = list(seen)
    found = []
    for sighting in everything:
        graph = graphs.get(sighting.model_sha256)
        extent = _EXTENTS.get(sighting.evidence.truth)
        if graph is None or extent is None:
            continue
        learned = learn(
            everything, graphs, sighting.delegate, without=sighting.model_sha256, virtual=sighting.is_virtual
        )
        sdk = (sdk_of or {}).get(sighting.serial, NEWEST_SDK)
        found.append(
            PredictionTrial(
                model_name=sighting.model_name,
                model_sha256=sighting.model_sha256,
                delegate=sighting.delegate,
                serial=sighting.serial,
                is_virtual=sighting.is_virtual,
                runs=sighting.runs,
                predicted=predict(graph, sighting.delegate, sdk=sdk, learned=learned),
                documented=predict(graph, sighting.delegate, sdk=sdk),
                extent=extent,
                delegated_nodes=sighting.evidence.delegated_nodes,
                total_nodes=sighting.evidence.total_nodes,
                partitions=sighting.evidence.partitions,
            )
        )
    return found
