"""The fastest configuration of each model on each device: its lead, its interval and the next step.

Report, terminal and advice take the winners from here. Figures of one model on one device are
compared, medians with medians; those of virtual phones are never compared with real devices'.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Final

from orchestrator.analysis.case_result import NOT_MEASURED, CaseResult, CaseStatus, comparable
from orchestrator.analysis.effect import BestOfSet, Ratio, best_of, fastest_of, speed_up
from orchestrator.analysis.summary import Summary
from orchestrator.delegates import DELEGATES
from orchestrator.passes.parity import can_be_checked
from orchestrator.programs import is_usual, program
from orchestrator.records import frozen
from orchestrator.records.campaign import Terms
from orchestrator.records.case import Case, ToolName, all_but, grouped
from orchestrator.records.device import HOST_SERIAL
from orchestrator.records.run import DelegateTruth
from orchestrator.records.verdict import CHANGE_LEVEL, Outputs
from orchestrator.tables.escapes import shell_word
from orchestrator.tables.labels import ShortNames
from orchestrator.tables.results import BY_NAME, ratio_columns, row_style
from orchestrator.tables.rows import BestMark, DeviceRow, ResultRow, SkipRow
from orchestrator.tables.table import DATA, FLAT, IS_VIRTUAL, NESTED, Column, Kind, Table
from orchestrator.units import counted, format_figure, format_percent

#: Winners that have a sentence each; of more, wins are counted by delegate.
_MOST_WINNERS: Final = 4
_TIE: Final = "a tie"
#: The greatest number of named tied configurations.
_MOST_TIED: Final = 2
_ALL_BUT_SIDES: Final = all_but("delegate", "threads", "affinity")
_ALL_BUT_BASELINE: Final = all_but(
    "model_name", "delegate", "threads", "affinity", "flags", "files", "mode"
)


@frozen
class Contest:
    """The cases of one model on one device, and the fastest of them."""

    rows: tuple[ResultRow, ...]
    #: Of the report's configurations.
    names: ShortNames
    #: The fastest clean figure (None where none is clean), and those tied with it, the faster
    #: first.
    best: ResultRow | None
    tied: tuple[ResultRow, ...] = ()
    #: False where a figure has one process, so that the order rests on a margin.
    is_tested: bool = False
    #: The fastest that is clearly slower than the winner, and the winner's lead over it.
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
    def possible_winners(self) -> list[ResultRow]:
        """The cases that would be faster than the winner, and have no clean figure."""
        limit_us = self.best.median_us if self.best is not None else None
        return [
            row
            for row in self.rows
            if limit_us and row.compared is None and row.median_us and row.median_us < limit_us
        ]

    def name(self, row: ResultRow) -> str:
        """Return a case's configuration in its short form."""
        return self.names.of(row.configuration)

    @property
    def fastest(self) -> str:
        """The winner's configuration, whose figure stands beside it, or the first tied ones after
        it.
        """
        if self.best is None:
            return "no clean figure"
        labels = list(map(self.name, (self.best, *self.tied)))
        more = f" or {len(labels) - _MOST_TIED} more" if len(labels) > _MOST_TIED else ""
        return " or ".join(labels[:_MOST_TIED]) + more

    @property
    def verdict(self) -> str:
        """``clear``, ``tied``, ``only one``, which case may be faster, or why no figure is clean."""
        if self.best is None:
            return "; ".join(dict.fromkeys(row.why_not_clean for row in self.rows))
        if self.possible_winners:
            first = self.possible_winners[0]
            return f"{self.name(first)} may be faster: {first.why_not_clean}"
        return self.best.best.value


def fastest_table(contests: Sequence[Contest]) -> Table[Contest]:
    """Return the fastest configuration of each model on each phone, as pull requests show it."""
    rows = [row for item in contests for row in item.rows]
    names = contests[0].names if contests else ShortNames(short={}, note="")
    columns: Sequence[Column[Contest]] = (
        Column("model", value=lambda item: item.shown.model.label),
        Column("device", "phone", lambda item: item.shown.device.title),
        Column("serial", value=lambda item: item.shown.device.serial, forms=DATA),
        IS_VIRTUAL.of(lambda item: item.shown),
        Column(
            "configuration",
            "fastest",
            lambda item: item.best.configuration if item.best else None,
            shown=lambda item: item.fastest,
        ),
        *(
            BY_NAME[name].of(lambda item: item.best)
            for name in ("median_us", "tokens_per_s", "precision", "speed_up", "outputs")
        ),
        Column("winner", value=lambda item: item.shown.best, shown=lambda item: item.verdict),
        Column("tied", value=_tied, forms=NESTED),
        Column("tied", value=lambda item: "; ".join(_tied(item)), forms=FLAT),
        Column("is_tested", value=lambda row: row.is_tested, kind=Kind.FLAG, forms=DATA),
        Column(
            "second", value=lambda item: item.second and item.second[0].configuration, forms=DATA
        ),
        *(column.of(lambda item: item.second and item.second[1]) for column in LEAD),
    )
    return Table(
        name="fastest",
        caption="The fastest configuration of each model on each phone",
        columns=columns,
        rows=contests,
        notes=fastest_notes(rows, names),
        is_virtual=lambda item: item.shown.is_virtual,
        nothing="no latency was measured",
        look=lambda item: row_style(item.shown) if item.best is not None else "bad",
    )


def _tied(contest: Contest) -> list[str]:
    """Return the configurations that are tied with the fastest."""
    return [row.configuration for row in contest.tied]


def fastest_notes(rows: Sequence[ResultRow], names: ShortNames) -> list[str]:
    """Return the notes for a table with short names, at most five sentences."""
    unclean = sum(not (row.is_judged or row.is_unused_thread_count) for row in rows)
    notes = [names.note]
    if unclean:
        notes.append(f"{counted(unclean, 'configuration')} without a clean figure: see the report.")
    if lost_codes := [code for row in rows for run in row.runs if (code := run.lost_code)]:
        code_list = ", ".join(dict.fromkeys(lost_codes))
        count = counted(len(lost_codes), "invocation")
        notes.append(f"{count} gave no result ({code_list}): see the report.")
    if any(row.speed_up is not None and row.speed_up.is_between_sessions for row in rows):
        notes.append("vs CPU is between sessions: the two were measured in different campaigns.")
    if any(row.is_virtual for row in rows):
        notes.append("Virtual: from benchfarm's own virtual phone, no measurement.")
    return [note for note in notes if note]


#: How many times as fast as the second the winner is.
LEAD: Final[Sequence[Column[Ratio]]] = (
    *ratio_columns("lead"),
    Column(
        "lead_is_between_sessions",
        value=lambda lead: lead.is_between_sessions,
        kind=Kind.FLAG,
        forms=DATA,
    ),
)


def figure_of(row: ResultRow) -> Summary:
    """Return the figure that is compared with others of a model on a device; only for rows that
    have one.
    """
    assert row.compared is not None, "a clean figure has one"
    return row.compared


def fastest_row(rows: Iterable[ResultRow]) -> ResultRow:
    """Return the fastest of at least one compared row."""
    by_key = {row.key: row for row in rows}
    return by_key[fastest_of({key: figure_of(row) for key, row in by_key.items()})]


def ranked(
    rows: Sequence[ResultRow], names: ShortNames
) -> tuple[tuple[ResultRow, ...], tuple[Contest, ...]]:
    """Return the rows with best marks and speed-ups within their model and device, and a contest
    for each of these groups; cases without a timing pass are in none.
    """
    speed_ups = {
        key: ratio
        for group in grouped(rows, _baseline_group).values()
        for key, ratio in _speed_ups(group)
    }
    marked: dict[str, ResultRow] = {}
    contests = []
    for group in grouped(rows, _contest_group).values():
        summaries = figures_of_one_kind({row.key: row for row in group if row.is_judged})
        best = best_of(summaries)
        for row in group:
            ratio, baseline = speed_ups.get(row.key, (None, ""))
            marked[row.key] = replace(
                row,
                best=_mark(row.key, best, is_alone=len(summaries) == 1),
                compared=summaries.get(row.key),
                level=best.level if best is not None else row.level,
                speed_up=ratio,
                baseline=baseline,
            )
        timed = [
            marked[row.key]
            for row in group
            if row.status is not CaseStatus.UNTIMED and not row.is_unused_thread_count
        ]
        if timed:
            contests.append(_contest(timed, names, best))
    return tuple(marked[row.key] for row in rows), tuple(contests)


def _mark(key: str, best: BestOfSet[str] | None, *, is_alone: bool) -> BestMark:
    if best is None or (key != best.fastest and key not in best.tied):
        return BestMark.NONE
    if is_alone:
        return BestMark.ALONE
    if best.tied:
        return BestMark.TIED
    return BestMark.BEST if best.is_tested else BestMark.UNTESTED


def _contest(rows: Sequence[ResultRow], names: ShortNames, best: BestOfSet[str] | None) -> Contest:
    if best is None:
        return Contest(rows=tuple(rows), names=names, best=None)
    clean = [row for row in rows if row.compared is not None]
    first = next(row for row in clean if row.key == best.fastest)
    clean.sort(key=lambda row: 1.0 if row is first else best.ratios[row.key].value)
    slower = [row for row in clean if row.best is BestMark.NONE]
    return Contest(
        rows=tuple(rows),
        names=names,
        best=first,
        tied=tuple(row for row in clean if row.key in best.tied),
        is_tested=best.is_tested,
        second=(slower[0], speed_up(figure_of(slower[0]), figure_of(first))) if slower else None,
    )


def winners(contests: Iterable[Contest]) -> list[Contest]:
    """Return the contests with at least two measured cases, one of them clean."""
    tried = [(item, sum(row.status not in NOT_MEASURED for row in item.rows)) for item in contests]
    return [item for item, count in tried if item.best is not None and count > 1]


def figures_of_one_kind(results: Mapping[str, CaseResult]) -> dict[str, Summary]:
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


_ALL_BUT_THREADS: Final = all_but("threads")


def by_threads(rows: Iterable[ResultRow]) -> Iterator[list[ResultRow]]:
    """Yield cases that differ only in their number of threads, the fewest first."""
    for members in grouped(rows, lambda row: _ALL_BUT_THREADS(row.case)).values():
        if len(members) > 1:
            yield sorted(members, key=lambda row: row.case.threads)


def _contest_group(row: ResultRow) -> Hashable:
    """Return the group key of a contest; a fake binary's figures are apart from a real device's."""
    return row.place, row.is_virtual


def _baseline_group(row: ResultRow) -> Hashable:
    """Return the group key of a figure and its CPU baseline: all but delegate, threads and flags.

    The affinity follows from the number of threads, unless a plan names the cores.
    """
    case = row.case
    return _contest_group(row), case.process_mode, fixed_cores(case), _ALL_BUT_BASELINE(case)


def _speed_ups(group: Sequence[ResultRow]) -> Iterator[tuple[str, tuple[Ratio, str]]]:
    """Yield the keys of the judged rows with their speed-up and the baseline's configuration."""
    rows = {row.key: row for row in group if row.own_summary is not None}
    summaries = figures_of_one_kind(rows)
    # The fastest of all on the CPU. Where it isn't judged, a slower baseline would flatter.
    on_cpu = [key for key in summaries if rows[key].case.delegate.is_cpu]
    fastest = fastest_of({key: summaries[key] for key in on_cpu}) if on_cpu else None
    if fastest is None or not rows[fastest].is_judged:
        return
    for key, summary in summaries.items():
        if rows[key].is_judged:
            # The baseline over itself has no interval: it is no second sample.
            ratio = Ratio(value=1.0, interval=None)
            if key != fastest:
                ratio = speed_up(summaries[fastest], summary)
            yield key, (ratio, rows[fastest].configuration)


def kind_title(row: ResultRow) -> str:
    """Return the name that all phones of one kind share."""
    facts = row.device.facts
    return row.device.label if facts is None else facts.kind_title


def winner_sentences(contests: Iterable[Contest]) -> tuple[str, ...]:
    """Return a sentence about the winner of each contest; of many, one per model with counts."""
    contest_list = list(contests)
    with_winner = [item for item in contest_list if item.best is not None]
    models = list(grouped(contest_list, lambda item: item.shown.model.subject).values())
    if len(with_winner) <= _MOST_WINNERS:
        return tuple(answer_text(item, names_model=len(models) > 1) for item in with_winner)
    answers = [
        (f"{members[0].shown.model.label}: " if len(models) > 1 else "") + model_answer(members)
        for members in models
    ]
    hidden = len(answers) - _MOST_WINNERS
    more = [f"for {counted(hidden, 'more model')}, see the comparison"] if hidden > 0 else []
    return (*answers[:_MOST_WINNERS], *more)


def counted_devices(devices: Collection[DeviceRow]) -> str:
    """Return ``3 phones``, or ``3 devices`` where one is this computer."""
    is_phones = all(device.serial != HOST_SERIAL for device in devices)
    return counted(len(devices), "phone" if is_phones else "device")


def model_answer(members: Sequence[Contest]) -> str:
    """Return a sentence about one model's winner, without its full stop: of one phone the lead, of
    several how often each delegate wins.
    """
    best_rows = [item.best for item in members if item.best is not None]
    devices = [item.shown.device for item in members]
    if not best_rows:
        where = devices[0].title if len(devices) == 1 else counted_devices(devices)
        return f"no clean figure on {where}"
    if len(members) == 1:
        return answer_text(members[0], names_model=False)
    # The winners of virtual phones say nothing of real devices, and are counted apart.
    wins = Counter(
        f"{_winning_delegate(item)}{' (virtual)' if item.shown.is_virtual else ''}"
        for item in members
        if item.best is not None
    )
    (first, count), *runners_up = wins.most_common()
    phones = f"{count} of {counted_devices(devices)}"
    phrases = [
        f"{first} on {phones}" if first.startswith(_TIE) else f"{first} is fastest on {phones}"
    ]
    phrases += [f"{delegate} on {count}" for delegate, count in runners_up]
    checked = sum(row.outputs is Outputs.CHECKED for row in best_rows)
    checkable = sum(row.may_be_wrong for row in best_rows)
    parts = [", ".join(phrases)]
    if len(best_rows) < len(members):
        parts.append(f"no clean figure on {len(members) - len(best_rows)}")
    if checkable:
        counts = f"outputs checked on {checked} of {checkable}"
        parts.append(counts if checked else "outputs not checked")
    return "; ".join(parts)


def _winning_delegate(contest: Contest) -> str:
    """Return the delegate that wins, or the word for a tie."""
    won = [row for row in (contest.best, *contest.tied) if row is not None]
    delegates = {row.case.delegate.value for row in won}
    return _TIE if len(delegates) > 1 else delegates.pop()


def answer_text(contest: Contest, *, names_model: bool = True) -> str:
    """Return the winner, its lead and the interval as one sentence without its full stop."""
    row, second = contest.shown, contest.second
    subject = f"{row.where if names_model else row.device.title}: "
    if contest.is_alone:
        return f"{subject}one clean figure, {contest.name(row)} with {_figure(row)}"
    if contest.tied:
        tied_names = [f"{contest.name(item)} ({_figure(item)})" for item in (row, *contest.tied)]
        if (more := len(tied_names) - _MOST_TIED) > 1:
            tied_names[_MOST_TIED:] = [f"{more} more"]
        # With few processes and many configurations, even large differences are ties.
        processes = "these processes" if contest.is_tested else "one process each"
        doubt = f"{processes} can't tell them apart"
        if contest.is_tested and row.level > CHANGE_LEVEL:
            doubt += (
                f" (at the {100 * row.level:.4g} % that {len(contest.clean)} configurations need;"
                f" 'benchfarm compare' takes {100 * CHANGE_LEVEL:.4g} % for two)"
            )
        slower = f"; {contest.name(second[0])} is slower" if second else ""
        return (
            f"{subject}{', '.join(tied_names[:-1])} and {tied_names[-1]} are tied; {doubt}{slower}"
        )
    assert second is not None, "a winner that is neither alone nor tied has a second"
    interval = second[1].interval
    claim = (
        "not tested: one process"
        if interval is None
        else f"95 %: {interval.low:.2f} to {interval.high:.2f}"
    )
    lead = f"{second[1].value:.2f} times ({claim}) as fast as {contest.name(second[0])}"
    fastest = f"{contest.name(row)} is the fastest with {_figure(row)}"
    # The reference's kernels need no check.
    outputs = f"; outputs {row.outputs}" if row.may_be_wrong else ""
    return f"{subject}{fastest}, {lead}{outputs}"


def _figure(row: ResultRow) -> str:
    assert row.own_summary is not None, "a clean figure has one"
    interval = (
        ""
        if row.own_summary.spread is None
        else f" \N{PLUS-MINUS SIGN}{format_percent(row.own_summary.spread)}"
    )
    caveat = row.lacking
    figure = format_figure(row.own_summary.median_us, is_per_token=row.case.is_per_token)
    return f"{figure}{interval}{f' ({caveat})' if caveat else ''}"


#: The thread counts that the next step proposes.
_THREADS: Final = (1, 2, 4)


def next_step(
    contest: Contest,
    path: str,
    builds: Mapping[ToolName, str],
    beside: Sequence[Contest] = (),
    skipped: Sequence[SkipRow] = (),
) -> str:
    """Return the next step with a command for this model's file, empty where nothing is left to try;
    ``builds`` are the plan's.

    What every phone can try names the phones of the contests ``beside`` it, too.
    """
    row, rival = contest.shown, next(iter(contest.tied), None)
    model, options = shell_word(path), _program_options(contest, builds)
    where = f"-s {shell_word(row.device.serial)}{options}"
    if rival is not None and (sides := _sides(row, rival)):
        return f"to tell them apart: benchfarm ab {sides} -m {model} {where}"
    if row.outputs is Outputs.NOT_CHECKED and can_be_checked(row.case, program(row.case.tool)):
        delegate = row.case.delegate
        return f"check the outputs of {delegate}: benchfarm bench {model} {where} -d {delegate} --pass parity"
    left = [item for item in (contest, *beside) if not _has_tried_all(item, skipped)]
    if not left:
        return ""
    serials = dict.fromkeys(item.shown.device.serial for item in left)
    phones = " ".join(f"-s {shell_word(serial)}" for serial in serials)
    threads = ",".join(map(str, _THREADS))
    return f"to try every delegate with other thread counts: benchfarm bench {model} {phones}{options} -d all -t {threads}"


def _has_tried_all(contest: Contest, skipped: Sequence[SkipRow]) -> bool:
    """Whether each delegate of the program was tried with each proposed thread count, or skipped."""
    device, tool = contest.shown.device, contest.shown.case.tool
    tried = {(row.case.delegate, row.case.threads) for row in contest.rows}
    tried |= {
        (item.skipped.delegate, item.skipped.threads)
        for item in skipped
        if (item.device.serial, item.skipped.tool) == (device.serial, tool)
    }
    offered = program(tool).delegates(device.facts.kind) if device.facts else ()
    proposed = product((name for name in offered if not DELEGATES[name].is_named_by_flag), _THREADS)
    return bool(offered) and tried.issuperset(proposed)


def _program_options(contest: Contest, builds: Mapping[ToolName, str]) -> str:
    """Return the options of a contest's program, each after a space."""
    tool = contest.shown.case.tool
    options = "" if is_usual(tool) else f" --tool {tool}"
    build = builds.get(tool)
    return f"{options} --build {shell_word(f'{tool}={build}')}" if build else options


def _sides(first: ResultRow, second: ResultRow) -> str:
    """Return the sides of ``benchfarm ab`` for two cases; empty unless they have usual settings and
    differ in delegate or threads only.
    """
    case_a, case_b = first.case, second.case
    is_usual_case = not (case_a.flags or case_a.files or case_a.mode)
    has_own_cores = fixed_cores(case_a) or fixed_cores(case_b)
    if not is_usual_case or has_own_cores or _ALL_BUT_SIDES(case_a) != _ALL_BUT_SIDES(case_b):
        return ""
    if case_a.delegate is case_b.delegate:
        return f"threads:{case_a.threads} threads:{case_b.threads} -d {case_a.delegate}"
    # Both sides get one number of threads: it must be what each was measured with, or unused.
    counts = {row.case.threads for row in (first, second) if not _leaves_threads_unused(row)}
    if len(counts) > 1:
        return ""
    threads = counts.pop() if counts else case_a.threads
    return f"delegate:{case_a.delegate} delegate:{case_b.delegate} -t {threads}"


def _leaves_threads_unused(row: ResultRow) -> bool:
    """Whether a figure would be the same with another number of threads."""
    is_whole = row.truth is DelegateTruth.FULL
    return is_whole and not DELEGATES[row.case.delegate].uses_threads


def next_steps(
    contests: Sequence[Contest], terms: Terms, skipped: Sequence[SkipRow] = ()
) -> list[str]:
    """Return the next step of the first winner whose model's file is known and that has one."""
    for contest in winners(contests):
        model = contest.shown.model
        if path := terms.files.get(model.sha256):
            options = _program_options(contest, terms.builds)
            beside = [
                item
                for item in contests
                if item.shown.model.sha256 == model.sha256
                and _program_options(item, terms.builds) == options
            ]
            if step := next_step(contest, path, terms.builds, beside, skipped):
                return [step]
    return []
