"""What phones said of which operators a delegate takes, and how often predictions were right.

"Operation is not supported" of an operator is true of every model that has it. Any other refusal is about that
operator's types, rank or options, and so tells of operators of the same kind (``prediction.kinds``): what is true of a
float SOFTMAX says nothing about an int8 one. And what a delegate took tells of the same kind wherever it stands: all of
a model that it took whole, and of one that it took in part all but what it is known to have left, where the numbers
that it printed agree with that.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from orchestrator.models.graph import Graph
from orchestrator.models.prediction import LARGEST_ONLY, NEWEST_SDK, PREDICTED, kinds, predict
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
        if delegate not in PREDICTED or (evidence.truth not in _EXTENTS and not evidence.cpu_operators):
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
    serial: str = "",
    without: Collection[str] = (),
    virtual: bool = False,
) -> Mapping[str, LearnedOperator]:
    """Return what devices said: by the operator's name where it is true of all models, else by its kind.

    Args:
        seen: What devices did.
        graphs: Models whose file is at hand, by sha256.
        delegate: Whose words are wanted.
        model_sha256: The model that is predicted: its own runs tell of single operators by their name.
        serial: The device that is predicted: its own words go before another's; and what of a model it left wholly to
            the CPU it takes of no other either, where another device may only lack the driver.
        without: Models whose runs don't count, to see what would have been predicted before them.
        virtual: Whether virtual phones are listened to instead of real devices; never both.
    """
    counted = [
        item
        for item in seen
        if item.delegate == delegate and item.is_virtual is virtual and item.model_sha256 not in without
    ]
    words = _words(counted, graphs, model_sha256, serial)
    own = [item for item in counted if serial and item.serial == serial]
    return {**words, **_words(own, graphs, model_sha256, serial)} if own else words


def _words(
    seen: Sequence[Sighting], graphs: Mapping[str, Graph], model_sha256: str, serial: str
) -> dict[str, LearnedOperator]:
    refused: dict[str, Counter[str]] = defaultdict(Counter)
    taken: Counter[str] = Counter()
    for sighting in seen:
        for operator, reason in sighting.evidence.cpu_operators:
            if is_categorical(reason) or (model_sha256 and sighting.model_sha256 == model_sha256):
                refused[operator][reason] += sighting.runs
        known = graphs.get(sighting.model_sha256)
        if known is not None:
            left, went = _told_by_kind(sighting, known, is_own=sighting.serial == serial)
            for kind, reason in left.items():
                refused[kind][reason] += sighting.runs
            for kind in went:
                taken[kind] += sighting.runs
    words = {
        kind: LearnedOperator(
            delegate=seen[0].delegate, operator=kind.split(" ")[0], is_taken=True, reason="", runs=count
        )
        for kind, count in taken.items()
    }
    for key, reasons in refused.items():
        # An operator that some device refuses and another takes: the refusal is what a user should know.
        reason = reasons.most_common(1)[0][0] or "devices left it to the CPU without a word"
        words[key] = LearnedOperator(
            delegate=seen[0].delegate,
            operator=key.split(" ")[0],
            is_taken=False,
            reason=reason,
            runs=reasons.total(),
            is_virtual=seen[0].is_virtual,
        )
    return words


def _told_by_kind(sighting: Sighting, graph: Graph, *, is_own: bool) -> tuple[Mapping[str, str], frozenset[str]]:
    """Return which kinds of operators a run shows to be left to the CPU, with the reason, and which to be taken."""
    every = kinds(graph)
    said = {name: reason for name, reason in sighting.evidence.cpu_operators if not is_categorical(reason)}
    if sighting.evidence.truth is DelegateTruth.FULL:
        return {}, frozenset(every)
    if sighting.evidence.truth is DelegateTruth.NONE:
        return (dict.fromkeys(every, "") if is_own else {}), frozenset()
    by_name: dict[str, Counter[str]] = defaultdict(Counter)
    for kind in every:
        by_name[kind.split(" ")[0]][kind] += 1
    evidence = sighting.evidence
    names = {name for name, _ in evidence.cpu_operators}
    left = sum(by_name[name].total() for name in names)
    is_counted = evidence.delegated_nodes is not None and evidence.total_nodes is not None and bool(names)
    is_whole = is_counted and (evidence.total_nodes or 0) - (evidence.delegated_nodes or 0) == left
    if sighting.delegate in LARGEST_ONLY:
        # It also leaves what it could take but what stands in a smaller partition: only a reason is a refusal.
        said = {name: reason for name, reason in said.items() if reason}
    # Of several kinds of one name nobody knows which was left, unless the numbers say that all were.
    refused = {
        kind: reason for name, reason in said.items() if is_whole or len(by_name[name]) == 1 for kind in by_name[name]
    }
    went = (kind for kind in every if is_whole and kind.split(" ")[0] not in names)
    return refused, frozenset(went)


def is_categorical(reason: str) -> bool:
    """Whether a reason is about an operator as such, whatever its types and options."""
    return reason.strip().rstrip(".").lower().startswith(_CATEGORICAL)


def trials(
    seen: Iterable[Sighting], graphs: Mapping[str, Graph], *, sdk_of: Mapping[str, int] | None = None
) -> list[PredictionTrial]:
    """Return predictions beside what devices did; each was made without any run of its own model or of its twins.

    Twins are models with the same operators in the same order, whatever their weights: one would give the other away.
    """
    everything = list(seen)
    shapes: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for sha256, known in graphs.items():
        shapes[tuple(kinds(known))].add(sha256)
    alike = {sha256: twins for twins in shapes.values() for sha256 in twins}
    found = []
    for sighting in everything:
        graph = graphs.get(sighting.model_sha256)
        extent = _EXTENTS.get(sighting.evidence.truth)
        if graph is None or extent is None:
            continue
        others = alike.get(sighting.model_sha256, {sighting.model_sha256})
        learned = learn(
            everything,
            graphs,
            sighting.delegate,
            serial=sighting.serial,
            without=others,
            virtual=sighting.is_virtual,
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
