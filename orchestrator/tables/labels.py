"""Names in a report: unique labels, and words for codes."""

from __future__ import annotations

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

from orchestrator.analysis.case_result import CaseResult, CaseStatus
from orchestrator.analysis.findings import CODES
from orchestrator.delegates import place_of
from orchestrator.records.case import Build, Case, CaseKey, DelegateName, content_key, grouped
from orchestrator.records.failures import next_step_of
from orchestrator.records.run import DelegateEvidence, DelegateTruth
from orchestrator.records.verdict import Outputs, ParityVerdict
from orchestrator.tables.table import NOTHING
from orchestrator.units import US_PER_MS, counted, three_digits, tokens_per_s

#: Identities that are file names as they are; others get a hash, so that no name is a path.
_PLAIN_NAME: Final = re.compile(r"[0-9a-f][0-9a-z-]{0,79}")
_RESERVED: Final = re.compile(r"(?:con|prn|aux|nul|com\d|lpt\d)")
#: The shown length of a hash: enough for the builds and models of one lab.
SHORT_HASH: Final = 8
#: The length of a hash in a model's label: one lab may have many contents of one name.
MODEL_HASH: Final = 16

_DELEGATE_PLACES: Final = {name: place for place, name in enumerate(DelegateName)}
#: ``fell back``, ``timed out``.
STATUS_WORDS: Final[Mapping[CaseStatus, str]] = {
    status: status.value.replace("-", " ") for status in CaseStatus
} | {
    CaseStatus.UNCONFIRMED: "not confirmed",
    CaseStatus.UNTIMED: "no timing pass",
}

#: The next step for a case, by its delegate truth or its status.
_BY_TRUTH: Final[Mapping[DelegateTruth, str]] = {
    DelegateTruth.FELL_BACK: "Check that the build holds this delegate and that the phone has its driver; the log "
    "names the reason. Add --require_full_delegation=true to make such a run fail instead.",
    DelegateTruth.NONE: "The delegate takes none of this model's operators: check the operators left to the CPU, "
    "and convert the model with types and operators that the delegate supports.",
    DelegateTruth.FLAG_IGNORED: "This build doesn't know the delegate's flag: use a build that holds the delegate.",
    DelegateTruth.WRONG_BACKEND: "Set the accelerator or backend in the plan's flags, or request the one that ran.",
    DelegateTruth.FAILED: "The delegate can't run this model on this device: the log names operator or driver.",
    DelegateTruth.UNKNOWN: "The output doesn't show where the operators ran: use a build of the program that prints it.",
}
_BY_STATUS: Final[Mapping[CaseStatus, str]] = {
    CaseStatus.REJECTED: "Fix what the findings name, then measure this case again.",
    CaseStatus.FAILED: "Read the end of its log, then run this case alone.",
    CaseStatus.ABORTED: "It was interrupted: resume the campaign.",
    CaseStatus.UNFIT: "Bring the device to the state that the plan asks for (cool, charged, unlocked), then resume.",
    CaseStatus.NOT_RUN: "It is planned and not done: resume the campaign.",
    CaseStatus.UNTIMED: "Add the pass timing if you want to know its latency.",
}

#: The words for a verdict on outputs.
PARITY_WORDS: Final[Mapping[ParityVerdict, str]] = {
    ParityVerdict.SAME: "outputs agree",
    ParityVerdict.DRIFT: "outputs drift",
    ParityVerdict.WRONG: "outputs wrong",
    ParityVerdict.DEGENERATE: "outputs inconclusive",
    ParityVerdict.UNREADABLE: "outputs not compared",
}
#: The class with the colour of a check of outputs.
OUTPUT_CLASSES: Final[Mapping[Outputs, str]] = {
    Outputs.REFERENCE: "",
    Outputs.CHECKED: "p-same",
    Outputs.NOT_CHECKED: "p-unknown",
    Outputs.DIFFER: "p-wrong",
}
_TRUTH_WORDS: Final = {
    DelegateTruth.FULL: "full",
    DelegateTruth.NONE: "took no operator",
    DelegateTruth.FELL_BACK: "fell back to CPU",
    DelegateTruth.FLAG_IGNORED: "flag ignored",
    DelegateTruth.FAILED: "delegate failed",
    DelegateTruth.UNKNOWN: "not confirmed",
}
#: The aspects of cases that differ although delegate, threads, tool and flags are the same.
_FINE_ASPECTS: Final[tuple[tuple[str, Callable[[Case], object]], ...]] = (
    ("affinity", lambda case: case.affinity),
    ("runs", lambda case: case.num_runs),
    ("min s", lambda case: case.min_secs),
    ("max s", lambda case: case.max_secs),
    ("warm-up runs", lambda case: case.warmup_runs),
    ("warm-up min s", lambda case: case.warmup_min_secs),
    ("files", lambda case: content_key(case.files)[:SHORT_HASH] if case.files else "none"),
    ("file name", lambda case: case.model_name),
)


def truth_words(evidence: DelegateEvidence | None, truth: DelegateTruth | None = None) -> str:
    """Return where operators ran, for a badge: ``full``, ``partial 28/31``, ``fell back to CPU``."""
    truth = truth or (evidence.truth if evidence is not None else DelegateTruth.UNKNOWN)
    if truth is DelegateTruth.PARTIAL:
        share = evidence.share_text if evidence is not None else ""
        return f"partial {share.replace(' of ', '/')}".rstrip()
    if truth is DelegateTruth.WRONG_BACKEND:
        actual = place_of(evidence) or evidence.backend if evidence is not None else ""
        return f"ran on {actual}" if actual else "ran elsewhere"
    return _TRUTH_WORDS[truth]


def next_step(result: CaseResult) -> str:
    """Return the next step for a case; empty when it has a good figure of its own."""
    if result.status in (CaseStatus.FELL_BACK, CaseStatus.UNCONFIRMED):
        return _BY_TRUTH.get(result.truth or DelegateTruth.UNKNOWN, "")
    if result.status is CaseStatus.REJECTED and result.reason_code in CODES:
        return CODES[result.reason_code].next_step
    if step := next_step_of(result.reason_code, result.reason):
        return step
    if result.truth in (DelegateTruth.FAILED, DelegateTruth.FELL_BACK) and result.summary is None:
        return _BY_TRUTH[result.truth]
    return _BY_STATUS.get(result.status, "")


def fallback_words(evidence: DelegateEvidence | None, truth: DelegateTruth | None) -> str:
    """Return where the operators ran instead of the requested delegate: ``fell back to CPU``.

    A delegate that was created and took no operator hasn't fallen back.
    """
    if truth is DelegateTruth.WRONG_BACKEND:
        return truth_words(evidence, truth)
    return "took no operator: CPU" if truth is DelegateTruth.NONE else "fell back to CPU"


def unique_labels(names: Mapping[str, str], *, length: int | None = None) -> dict[str, str]:
    """Return identity -> label: the name, with the identity where names repeat.

    ``length`` cuts identities that are hashes; serial numbers often differ in their last characters
    only.
    """
    counts = Counter(names.values())
    return {
        identity: name if name and counts[name] == 1 else f"{name} ({identity[:length]})".strip()
        for identity, name in names.items()
    }


def configuration_labels(cases: Iterable[Case], builds: Mapping[str, Build]) -> dict[CaseKey, str]:
    """Return a label for each case that is unique within its model and device.

    It is :attr:`Case.configuration`; where two cases share one, the aspects that differ are added
    to all cases of this configuration, so that they stay one column over devices. Cases that no
    aspect tells apart get their key.
    """

    def build_label(case: Case) -> str:
        name = f"{build.name} " if (build := builds.get(case.build_sha256)) else ""
        return f"{name}{case.build_sha256[:SHORT_HASH]}"

    cases = tuple(cases)
    labels: dict[CaseKey, str] = {}
    for configuration, members in grouped(cases, lambda case: case.configuration).items():
        groups = grouped(members, lambda case: (case.subject, case.serial)).values()
        aspects = [
            (name, value)
            for name, value in (*_FINE_ASPECTS, ("build", build_label))
            if any(len({value(case) for case in group}) > 1 for group in groups)
        ]
        for case in members:
            aspect_texts = [f"{name} {value(case)}" for name, value in aspects]
            labels[case.case_key] = ", ".join([configuration, *aspect_texts])
    places = Counter((case.subject, case.serial, labels[case.case_key]) for case in cases)
    return {
        case.case_key: f"{labels[case.case_key]}, case {case.case_key[:SHORT_HASH]}"
        if places[case.subject, case.serial, labels[case.case_key]] > 1
        else labels[case.case_key]
        for case in cases
    }


@dataclass(frozen=True, slots=True)
class ShortNames:
    """The names of configurations without the parts that all of a report share."""

    #: Label -> its short form, which is unique.
    short: Mapping[str, str]
    #: What all of them share, or all of a delegate: "All configurations use native; gpu uses 1
    #: thread."; empty for nothing.
    note: str

    def of(self, label: str) -> str:
        """Return a configuration in its short form."""
        return self.short.get(label, label)


def short_names(configurations: Iterable[tuple[str, Case]]) -> ShortNames:
    """Return short forms of (label, case), without the parts that all share; the delegate stays.

    A delegate other than the CPU loses its number of threads where that is the same everywhere.
    """
    cases = dict(configurations)
    parts = {label: label.split(", ") for label in cases}
    shared = set.intersection(*(set(words[1:]) for words in parts.values())) if parts else set()
    threads: dict[str, set[str]] = defaultdict(set)
    for label, words in parts.items():
        if not cases[label].delegate.is_cpu and len(words) > 1:
            threads[words[0]].add(words[1])
    single = {name: next(iter(counts)) for name, counts in threads.items() if len(counts) == 1}
    short = {
        label: ", ".join(
            [
                words[0],
                *(
                    word
                    for place, word in enumerate(words[1:])
                    if word not in shared and (place > 0 or single.get(words[0]) != word)
                ),
            ]
        )
        for label, words in parts.items()
    }
    if len(set(short.values())) < len(short):
        return ShortNames(short={}, note="")
    by_threads = grouped(
        (name for name, word in single.items() if word not in shared), lambda name: single[name]
    )
    everywhere = [word for word in next(iter(parts.values()), [])[1:] if word in shared]
    shares = [f"All configurations use {', '.join(everywhere)}"] if everywhere else []
    shares += [
        f"{' and '.join(names)} {'use' if len(names) > 1 else 'uses'} {word}"
        for word, names in by_threads.items()
    ]
    return ShortNames(short=short, note=f"{'; '.join(shares)}." if shares else "")


def configuration_order(case: Case, label: str) -> tuple[int, int, str, str]:
    """Return the sort key of a configuration: by delegate, threads, tool."""
    return (delegate_place(case), case.threads, case.tool.value, label)


def delegate_place(case: Case) -> int:
    """Return the place of a case's delegate among all of them, those of plugins behind."""
    return _DELEGATE_PLACES.get(case.delegate, len(_DELEGATE_PLACES))


@lru_cache(maxsize=4_096)
def moment_text(moment: datetime | None) -> str:
    """Return a moment with its zone: ``2026-03-14 22:05 UTC``; ``---`` when unknown."""
    return NOTHING if moment is None else f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def figure_unit(case: Case) -> str:
    """Return the unit in which people read a case's figure."""
    return "tokens/s" if case.is_per_token else "ms"


def figure_value(case: Case, latency_us: float) -> float:
    """Return a case's figure in its unit."""
    speed = tokens_per_s(latency_us) if case.is_per_token else None
    return latency_us / US_PER_MS if speed is None else speed


def figure_text(case: Case, latency_us: float | None, decimals: int) -> str:
    """Return a case's figure without its unit; milliseconds have a column's decimals."""
    if latency_us is None:
        return NOTHING
    value = figure_value(case, latency_us)
    return three_digits(value) if case.is_per_token else f"{value:.{decimals}f}"


def no_time_text(cases: int, invocations: int) -> str:
    """Return one line about cases and invocations that ran out of time; empty for none."""
    parts = [f"{counted(cases, 'case')} left out"] if cases else []
    parts += [f"{counted(invocations, 'invocation')} not started"] if invocations else []
    return f"out of time: {', '.join(parts)}" if parts else ""


#: The status of a change -> the class with its colour; others are warnings.
STATE_CLASSES: Final[Mapping[str, str]] = {
    "confirmed": "v-error",
    "refuted": "t-full",
    "expected": "v-tied",
}


def page_name(identity: str) -> str:
    """Return the file name, without its ending, of the page of a series or campaign."""
    if _PLAIN_NAME.fullmatch(identity) and not _RESERVED.fullmatch(identity):
        return identity
    return f"x-{hashlib.sha256(identity.encode(errors='surrogatepass')).hexdigest()[:32]}"
