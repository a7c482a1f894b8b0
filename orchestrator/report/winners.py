"""The fastest configuration of each model on each device: by how much, how sure, and what to try
next.

Who wins, for report, terminal and advice, comes from here. Figures of one model on one device are
set against each other, medians with medians; what runs on a virtual phone never stands against a
real device.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from orchestrator.analysis.case_result import CaseResult, CaseStatus, comparable
from orchestrator.analysis.comparison import SETTINGS
from orchestrator.analysis.effect import BestOfSet, Ratio, best_of, fastest_of, speed_up
from orchestrator.analysis.summary import Summary
from orchestrator.delegates import DELEGATES
from orchestrator.frozen import frozen
from orchestrator.passes.parity import can_be_checked
from orchestrator.programs import is_usual
from orchestrator.records.campaign import Terms
from orchestrator.records.case import Case, ToolName, all_but, grouped
from orchestrator.records.device import HOST_SERIAL
from orchestrator.records.run import DelegateTruth
from orchestrator.records.verdict import Outputs
from orchestrator.tables.escapes import shell_word
from orchestrator.tables.labels import ShortNames, short_names
from orchestrator.tables.results import RESULTS, look_of, ratio_columns
from orchestrator.tables.rows import BestMark, DeviceRow, ResultRow
from orchestrator.tables.table import DATA, NESTED, Column, Kind, Table
from orchestrator.units import counted, format_figure, format_percent

#: Cases that say nothing about which configuration is fastest.
_NO_ENTRY: Final = frozenset({CaseStatus.UNTIMED, CaseStatus.NOT_RUN, CaseStatus.SKIPPED})
#: Winners that are told one by one; of more, it is counted how often what wins.
_MOST_WINNERS: Final = 4
_TIE: Final = "a tie"
#: Of configurations that are tied so many are named.
_MOST_TIED: Final = 2
_BESIDE_SIDES: Final = all_but("delegate", "threads", "affinity")


@frozen
class Contest:
    """The cases of one model on one device, and which of them is the fastest."""

    rows: tuple[ResultRow, ...]
    #: The fastest clean figure, and those that can't be told from it, the faster first; None where
    #: none is clean.
    best: ResultRow | None
    tied: tuple[ResultRow, ...] = ()
    #: False where a figure has one process, so that the order rests on a margin.
    is_tested: bool = False
    #: The next fastest that can be told from the winner, and how many times as fast as it the
    #: winner is.
    second: tuple[ResultRow, Ratio] | None = None

    @property
    def shown(self) -> ResultRow:
        """The winner, or any case where there is none."""
        return self.best or self.rows[0]

    @property
    def clean(self) -> list[ResultRow]:
        """The cases with a clean figure."""
        return [row for row in self.rows if row.compared is not None]

    @property
    def is_alone(self) -> bool:
        """Whether nothing else has a clean figure."""
        return len(self.clean) == 1

    @property
    def doubted(self) -> list[ResultRow]:
        """What would be faster than the winner, and has no clean figure."""
        limit_us = self.best.median_us if self.best is not None else None
        return [
            row
            for row in self.rows
            if limit_us and row.compared is None and row.median_us and row.median_us < limit_us
        ]

    def fastest(self, names: ShortNames) -> str:
        """Return the winner's configuration, or the first that are tied, in alphabetical order:
        which of them leads is noise.
        """
        if self.best is None:
            return "no clean figure"
        takes = [names.of(row.configuration) for row in (self.best, *self.tied)]
        more = f" or {len(takes) - _MOST_TIED} more" if len(takes) > _MOST_TIED else ""
        return " or ".join(sorted(takes[:_MOST_TIED])) + more

    def verdict(self, names: ShortNames) -> str:
        """Return how sure it is who wins: ``clear``, ``tied``, ``only one``, what may be faster, or
        why nothing is clean.
        """
        if self.best is None:
            return "; ".join(dict.fromkeys(row.why_not_clean for row in self.rows))
        if self.doubted:
            first = self.doubted[0]
            return f"{names.of(first.configuration)} may be faster: {first.why_not_clean}"
        return self.best.best.value


def _best(contest: Contest) -> ResultRow | None:
    return contest.best


def fastest_table(contests: Sequence[Contest]) -> Table[Contest]:
    """Return the fastest configuration of each model on each phone: what a pull request shows."""
    every = [row for item in contests for row in item.rows]
    names = short_names((row.configuration, row.case) for row in every)
    known = {column.name: column.of(_best) for column in RESULTS}
    columns: Sequence[Column[Contest]] = (
        Column("model", "model", lambda item: item.shown.model.label),
        Column("device", "phone", lambda item: item.shown.device.title),
        Column("serial", "serial", lambda item: item.shown.device.serial, forms=DATA),
        Column("is_virtual", "", lambda item: item.shown.is_virtual, Kind.FLAG, forms=DATA),
        Column(
            "configuration",
            "fastest",
            lambda item: item.best.configuration if item.best else None,
            shown=lambda item: item.fastest(names),
        ),
        *(
            known[name]
            for name in ("median_us", "tokens_per_s", "precision", "speed_up", "outputs")
        ),
        Column(
            "winner",
            "winner",
            lambda item: item.shown.best,
            shown=lambda item: item.verdict(names),
        ),
        Column("tied", "", lambda item: [row.configuration for row in item.tied], forms=NESTED),
        Column("is_tested", "", lambda item: item.is_tested, Kind.FLAG, forms=DATA),
        Column("second", "", lambda item: item.second and item.second[0].configuration, forms=DATA),
        *(column.of(_lead) for column in LEAD),
    )
    return Table(
        name="fastest",
        caption="The fastest configuration of each model on each phone",
        columns=columns,
        rows=contests,
        notes=notes_of(every, names),
        is_virtual=lambda item: item.shown.is_virtual,
        nothing="no latency was measured",
        look=lambda item: look_of(item.shown) if item.best is not None else "bad",
    )


def notes_of(rows: Sequence[ResultRow], names: ShortNames) -> list[str]:
    """Return the notes that a table with short names needs, five sentences at most."""
    unclean = sum(not (row.result.is_judged or row.is_unused_thread_count) for row in rows)
    notes = [f"All {names.common}." if names.common else ""]
    if unclean:
        notes.append(f"{counted(unclean, 'configuration')} without a clean figure: see the report.")
    if lost := [code for row in rows for item in row.invocations if (code := item.why_lost)]:
        codes = ", ".join(dict.fromkeys(lost))
        count = counted(len(lost), "invocation")
        notes.append(f"{count} gave no result ({codes}): see the report.")
    if any(row.speed_up is not None and row.speed_up.is_between_sessions for row in rows):
        notes.append("vs CPU is between sessions: the two were measured in different campaigns.")
    if any(row.is_virtual for row in rows):
        notes.append("Virtual: from benchfarm's own virtual phone, no measurement.")
    return [note for note in notes if note]


def _lead(contest: Contest) -> Ratio | None:
    return contest.second[1] if contest.second is not None else None


#: How many times as fast as the second the winner is.
LEAD: Final[Sequence[Column[Ratio]]] = (
    *ratio_columns("lead"),
    Column(
        "lead_is_between_sessions", "", lambda lead: lead.is_between_sessions, Kind.FLAG, forms=DATA
    ),
)


def figure_of(row: ResultRow) -> Summary:
    """Return what stands against the other figures of a model on a device; only for rows that are
    compared.
    """
    assert row.compared is not None, "a clean figure has one"
    return row.compared


def fastest_row(rows: Iterable[ResultRow]) -> ResultRow:
    """Return the fastest of at least one that are compared."""
    known = {row.key: row for row in rows}
    return known[fastest_of({key: figure_of(row) for key, row in known.items()})]


def ranked(rows: Sequence[ResultRow]) -> tuple[tuple[ResultRow, ...], tuple[Contest, ...]]:
    """Return the rows with best marks and speed-ups, each among its model on its device, and what
    each of these groups comes to, without cases that have no timing pass.
    """
    gains = {
        key: gain for group in grouped(rows, _like).values() for key, gain in _speed_ups(group)
    }
    marked: dict[str, ResultRow] = {}
    contests = []
    for group in grouped(rows, _place).values():
        summaries = alike({row.key: row.result for row in group if row.result.is_judged})
        best = best_of(summaries)
        for row in group:
            gain, baseline = gains.get(row.key, (None, ""))
            marked[row.key] = replace(
                row,
                best=_mark(row.key, best, is_alone=len(summaries) == 1),
                compared=summaries.get(row.key),
                level=best.level if best is not None else row.level,
                speed_up=gain,
                baseline=baseline,
            )
        timed = [
            marked[row.key]
            for row in group
            if row.result.status is not CaseStatus.UNTIMED and not row.is_unused_thread_count
        ]
        if timed:
            contests.append(_contest(timed, best))
    return tuple(marked[row.key] for row in rows), tuple(contests)


def _mark(key: str, best: BestOfSet[str] | None, *, is_alone: bool) -> BestMark:
    if best is None or (key != best.fastest and key not in best.tied):
        return BestMark.NONE
    if is_alone:
        return BestMark.ALONE
    if best.tied:
        return BestMark.TIED
    return BestMark.BEST if best.is_tested else BestMark.UNTESTED


def _contest(rows: Sequence[ResultRow], best: BestOfSet[str] | None) -> Contest:
    if best is None:
        return Contest(rows=tuple(rows), best=None)
    clean = [row for row in rows if row.compared is not None]
    first = next(row for row in clean if row.key == best.fastest)
    clean.sort(key=lambda row: 1.0 if row is first else best.ratios[row.key].value)
    slower = [row for row in clean if row.best is BestMark.NONE]
    return Contest(
        rows=tuple(rows),
        best=first,
        tied=tuple(row for row in clean if row.key in best.tied),
        is_tested=best.is_tested,
        second=(slower[0], speed_up(figure_of(slower[0]), figure_of(first))) if slower else None,
    )


def winners(contests: Iterable[Contest]) -> list[Contest]:
    """Return those in which a clean figure won against something: two cases measured, one of them
    clean.
    """
    tried = [
        (item, sum(row.result.status not in _NO_ENTRY for row in item.rows)) for item in contests
    ]
    return [item for item, count in tried if item.best is not None and count > 1]


def alike(results: Mapping[str, CaseResult]) -> dict[str, Summary]:
    """Return the figures of results by case key, all of one kind."""
    return {
        key: result.summary
        for key, result in comparable(results).items()
        if result.summary is not None
    }


def fixed_cores(case: Case) -> str:
    """Return the cores that a plan keeps a case to; empty where they follow from the number of
    threads.
    """
    return "" if case.affinity in ("big", "all") else case.affinity


_BESIDE_THREADS: Final = all_but("threads")


def by_threads(rows: Iterable[ResultRow]) -> Iterator[list[ResultRow]]:
    """Yield cases that differ in nothing but their number of threads, the fewest first."""
    for members in grouped(rows, lambda row: _BESIDE_THREADS(row.case)).values():
        if len(members) > 1:
            yield sorted(members, key=lambda row: row.case.threads)


def _place(row: ResultRow) -> Hashable:
    """Return what the configurations of one contest share; a fake binary's figure is none of a real
    device's.
    """
    return row.place, row.is_virtual


def _like(row: ResultRow) -> Hashable:
    """Return what a figure and the CPU's that it is compared with share: all but delegate, threads
    and flags.

    The cores that a number of threads is kept to follow from it, unless a plan names them.
    """
    case = row.case
    settings = tuple(getattr(case, name) for name in SETTINGS if name != "affinity")
    return _place(row), case.tool, case.build_sha256, case.process_mode, fixed_cores(case), settings


def _speed_ups(group: Sequence[ResultRow]) -> Iterator[tuple[str, tuple[Ratio, str]]]:
    """Yield the keys of the judged rows with their speed-up and what it is over."""
    rows = {row.key: row for row in group if row.own is not None}
    summaries = alike({key: row.result for key, row in rows.items()})
    # The fastest of all on the CPU: where that one isn't judged, another one's figure would
    # flatter.
    on_cpu = [key for key in summaries if rows[key].case.delegate.is_cpu]
    fastest = fastest_of({key: summaries[key] for key in on_cpu}) if on_cpu else None
    if fastest is None or not rows[fastest].result.is_judged:
        return
    for key, summary in summaries.items():
        if rows[key].result.is_judged:
            # Itself is no second sample: what it is over itself has no interval.
            gain = Ratio(value=1.0, interval=None)
            if key != fastest:
                gain = speed_up(summaries[fastest], summary)
            yield key, (gain, rows[fastest].configuration)


def kind_title(row: ResultRow) -> str:
    """Return what equal phones are called."""
    facts = row.device.facts
    return row.device.label if facts is None else facts.kind_title


def answers_of(contests: Iterable[Contest]) -> tuple[str, ...]:
    """Return what won as a sentence for each contest; of many, for each model how often what wins."""
    every = list(contests)
    won = [item for item in every if item.best is not None]
    models = list(grouped(every, lambda item: item.shown.model.subject).values())
    if len(won) <= _MOST_WINNERS:
        return tuple(answer_text(item, names_model=len(models) > 1) for item in won)
    names = short_names((row.configuration, row.case) for item in every for row in item.rows)
    answers = [
        (f"{members[0].shown.model.label}: " if len(models) > 1 else "")
        + model_answer(members, names)
        for members in models
    ]
    hidden = len(answers) - _MOST_WINNERS
    more = [f"for {counted(hidden, 'more model')}, see the comparison"] if hidden > 0 else []
    return (*answers[:_MOST_WINNERS], *more)


def counted_devices(devices: Collection[DeviceRow]) -> str:
    """Return ``3 phones``, or ``3 devices`` where one is this computer."""
    is_phones = all(device.serial != HOST_SERIAL for device in devices)
    return counted(len(devices), "phone" if is_phones else "device")


def model_answer(members: Sequence[Contest], names: ShortNames) -> str:
    """Return what won for one model, without its full stop: of one phone by how much, of several how
    often what wins.
    """
    known = [item.best for item in members if item.best is not None]
    devices = [item.shown.device for item in members]
    if not known:
        where = devices[0].title if len(devices) == 1 else counted_devices(devices)
        return f"no clean figure on {where}"
    if len(members) == 1:
        return answer_text(members[0], names_model=False)
    # What virtual phones are fastest with says nothing of devices, and isn't counted with them.
    wins = Counter(
        f"{_tallied(item, names)}{' (virtual)' if item.shown.is_virtual else ''}"
        for item in members
        if item.best is not None
    )
    (first, count), *others = wins.most_common()
    phones = f"{count} of {counted_devices(devices)}"
    told = [f"{first} on {phones}" if first.startswith(_TIE) else f"{first} is fastest on {phones}"]
    told += [f"{take} on {count}" for take, count in others]
    checked = sum(row.outputs is Outputs.CHECKED for row in known)
    open_to_doubt = sum(row.may_be_wrong for row in known)
    parts = [", ".join(told)]
    if len(known) < len(members):
        parts.append(f"no clean figure on {len(members) - len(known)}")
    if open_to_doubt:
        counts = f"outputs checked on {checked} of {open_to_doubt}"
        parts.append(counts if checked else "outputs not checked")
    return "; ".join(parts)


def _tallied(contest: Contest, names: ShortNames) -> str:
    """Return what wins, or that it is a tie."""
    won = [row for row in (contest.best, *contest.tied) if row is not None]
    takes = {names.of(row.configuration).partition(",")[0] for row in won}
    return _TIE if len(takes) > 1 else takes.pop()


def answer_text(contest: Contest, *, names_model: bool = True) -> str:
    """Return what won, by how much and how sure, as one sentence without its full stop."""
    row, second = contest.shown, contest.second
    shown = short_names((item.configuration, item.case) for item in contest.rows)
    who = f"{row.where if names_model else row.device.title}: "
    if contest.is_alone:
        return f"{who}one clean figure, {row.configuration} with {_figure(row)}"
    if contest.tied:
        names = [
            f"{shown.of(item.configuration)} ({_figure(item)})" for item in (row, *contest.tied)
        ]
        if (more := len(names) - _MOST_TIED) > 1:
            names[_MOST_TIED:] = [f"{more} more"]
        # Of few processes and many configurations much more than the noise is tied.
        doubt = (
            "these processes can't tell them apart"
            if contest.is_tested
            else "one process each can't tell"
        )
        slower = f"; {shown.of(second[0].configuration)} is slower" if second else ""
        return f"{who}{', '.join(names[:-1])} and {names[-1]} are tied; {doubt}{slower}"
    assert second is not None, "what is neither alone nor tied has a second"
    known = second[1].interval
    sure = (
        "not tested: one process" if known is None else f"95 %: {known.low:.2f} to {known.high:.2f}"
    )
    lead = f"{second[1].value:.2f} times ({sure}) as fast as {shown.of(second[0].configuration)}"
    return f"{who}{shown.of(row.configuration)} is the fastest with {_figure(row)}, {lead}{_outputs(row)}"


def _outputs(row: ResultRow) -> str:
    """Return what is known of a winner's outputs; empty for the reference's kernels."""
    return f"; outputs {row.outputs}" if row.may_be_wrong else ""


def _figure(row: ResultRow) -> str:
    assert row.own is not None, "a clean figure has one"
    interval = (
        "" if row.own.spread is None else f" \N{PLUS-MINUS SIGN}{format_percent(row.own.spread)}"
    )
    lacking = row.result.lacking
    figure = format_figure(row.own.median_us, is_per_token=row.case.is_per_token)
    return f"{figure}{interval}{f' ({lacking})' if lacking else ''}"


def next_step(contest: Contest, path: str, builds: Mapping[ToolName, str]) -> str:
    """Return what to try next, as a command for this model's file; ``builds`` are those that the
    plan names.
    """
    row, rival = contest.shown, next(iter(contest.tied), None)
    model, where = shell_word(path), f"-s {shell_word(row.device.serial)}"
    if not is_usual(row.case.tool):
        where += f" --tool {row.case.tool}"
    if build := builds.get(row.case.tool):
        where += f" --build {shell_word(f'{row.case.tool}={build}')}"
    if rival is not None and (sides := _sides(row, rival)):
        return f"to tell them apart: benchfarm ab {sides} -m {model} {where}"
    if row.outputs is Outputs.NOT_CHECKED and can_be_checked(row.case):
        delegate = row.case.delegate
        return f"check the outputs of {delegate}: benchfarm bench {model} {where} -d {delegate} --pass parity"
    return f"to try every delegate with other thread counts: benchfarm bench {model} {where} -d all -t 1,2,4"


def _sides(one: ResultRow, other: ResultRow) -> str:
    """Return what two cases differ in as ``benchfarm ab`` names it; empty unless that is the delegate
    or the number of threads, of cases with usual settings.
    """
    ours, theirs = one.case, other.case
    is_usual_case = not (ours.flags or ours.files or ours.mode)
    has_own_cores = fixed_cores(ours) or fixed_cores(theirs)
    if not is_usual_case or has_own_cores or _BESIDE_SIDES(ours) != _BESIDE_SIDES(theirs):
        return ""
    if ours.delegate is theirs.delegate:
        return f"threads:{ours.threads} threads:{theirs.threads} -d {ours.delegate}"
    # Both sides get one number of threads: it must be what each was measured with, or unused.
    counts = {row.case.threads for row in (one, other) if not _leaves_threads_unused(row)}
    if len(counts) > 1:
        return ""
    threads = counts.pop() if counts else ours.threads
    return f"delegate:{ours.delegate} delegate:{theirs.delegate} -t {threads}"


def _leaves_threads_unused(row: ResultRow) -> bool:
    """Whether a figure would be the same with another number of threads."""
    is_whole = row.result.truth is DelegateTruth.FULL
    return is_whole and not DELEGATES[row.case.delegate].uses_threads


def next_steps(found: Sequence[Contest], terms: Terms) -> list[str]:
    """Return the next step of the first winner whose model's file is known."""
    return [
        next_step(item, terms.files[item.shown.model.sha256], terms.builds)
        for item in found
        if item.shown.model.sha256 in terms.files
    ][:1]
