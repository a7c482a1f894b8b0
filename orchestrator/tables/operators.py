"""Profiles: the time of a run by operator, and the differences between two runs."""

from __future__ import annotations

import enum
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice, pairwise
from typing import TYPE_CHECKING, Any, Final

from orchestrator.records import frozen
from orchestrator.records.case import grouped
from orchestrator.records.run import FigureKind, OperatorTime, Outcome, RunRecord
from orchestrator.tables.table import EVERYWHERE, MS, PAGE, Column, Kind, Table
from orchestrator.units import counted, format_latency, format_percent

if TYPE_CHECKING:
    from orchestrator.tables.rows import ResultRow

#: A change below both of these is noise: a profiled run is a single one.
_LEAST_SHARE: Final = 0.05
_LEAST_US: Final = 10.0
#: The number behind an operator's name in some programs: it depends on the delegated nodes.
_NODE_NUMBER: Final = re.compile(r":\d+$")
#: The prefix of the names of a delegate's kernels, and the numbers in the types of a GPU's kernels.
KERNEL: Final = "Delegate/"
_KERNEL_NUMBER: Final = re.compile(r" \d+(?= -> |$)")
_OUTSIDE_TYPE: Final = "outside of operators"
_LEFT: Final = "left the delegate"
_TAKEN: Final = "taken by a delegate"
#: The greatest number of compared pairs: each has a table.
_MOST_PAIRS: Final = 300


class Place(enum.StrEnum):
    """Where a part of an inference runs."""

    CPU = "CPU"
    DELEGATE = "delegate"
    #: Between operators: the interpreter, and waiting for an accelerator.
    OUTSIDE = "outside"


@frozen
class OperatorRow:
    """One node of the model's graph as it ran, one kernel of a delegate, or one whole partition of
    a delegate.
    """

    node_type: str
    name: str
    place: Place
    #: Whether it stands for all operators of a delegate's partition.
    is_partition: bool
    mean_us: float
    #: Of the time of one inference; 0 to 1.
    share: float
    #: Its subgraph, where an operator such as WHILE runs that.
    subgraph: str = ""

    #: The model's name of its layer; empty where unknown.
    of_layer: str = ""

    @property
    def is_delegate(self) -> bool:
        """Whether a delegate ran it."""
        return self.place is Place.DELEGATE

    @property
    def layer(self) -> str:
        """The model's name of its layer, or the program's name."""
        if self.of_layer or self.is_partition:
            return self.of_layer or self.node_type
        return _NODE_NUMBER.sub("", self.name).strip("[]").partition(";")[0]


@frozen
class TypeRow:
    """All nodes of one type, or the time outside of them."""

    node_type: str
    place: Place
    nodes: int
    mean_us: float
    share: float


@frozen
class Profile:
    """One profiled run's operators in the order of running, without those inside of a partition."""

    campaign_id: str
    rows: tuple[OperatorRow, ...]
    #: Operators of subgraphs; their time is also in the row of the operator that runs them.
    nested: tuple[OperatorRow, ...]
    #: The mean of the run's inferences; None where the program printed none.
    inference_us: float | None

    @property
    def total_us(self) -> float:
        """The time of one inference in operators."""
        return sum(row.mean_us for row in self.rows)

    @property
    def outside_us(self) -> float:
        """The time of one inference outside of operators."""
        return max(0.0, (self.inference_us or 0.0) - self.total_us)

    def by_type(self) -> tuple[TypeRow, ...]:
        """Return the times by node type, most first; they add up to one inference."""
        groups = grouped(self.rows, lambda row: (row.node_type, row.place))
        types = [
            TypeRow(
                node_type=node_type,
                place=place,
                nodes=len(rows),
                mean_us=sum(row.mean_us for row in rows),
                share=sum(row.share for row in rows),
            )
            for (node_type, place), rows in groups.items()
        ]
        if self.outside_us:
            share = self.outside_us / (self.outside_us + self.total_us)
            types.append(
                TypeRow(
                    node_type=_OUTSIDE_TYPE,
                    place=Place.OUTSIDE,
                    nodes=0,
                    mean_us=self.outside_us,
                    share=share,
                )
            )
        return tuple(sorted(types, key=lambda row: (-row.mean_us, row.node_type)))


@frozen
class DiffRow:
    """One operator in two runs; None where a run has no row of it."""

    node_type: str
    name: str
    before_us: float | None
    after_us: float | None
    #: ``left the delegate``, ``taken by a delegate``, ``new``, ``gone``, ``slower``, ``faster`` or
    #: ``same``.
    change: str

    @property
    def difference_us(self) -> float:
        """The time that it adds to one inference."""
        return (self.after_us or 0.0) - (self.before_us or 0.0)


@frozen
class DiffPair:
    """Two profiled runs of one model on one device, and the differences between them."""

    row: ResultRow
    #: Their names, such as the configuration or the campaign.
    before: str
    after: str
    #: The differences, largest first.
    rows: Sequence[DiffRow]
    #: The summary of the differences.
    sentences: Sequence[str]


def newest_profiles(runs: Iterable[RunRecord]) -> tuple[Profile, ...]:
    """Return one case's newest usable profile of each campaign, in their order, from its runs of
    that pass.
    """
    newest: dict[str, RunRecord] = {}
    for run in runs:
        if (
            run.outcome is Outcome.COMPLETED
            and run.report is not None
            and _counted_rows(run.report.operators)
        ):
            newest[str(run.campaign_id)] = run
    return tuple(_profile(run) for run in newest.values())


def compare_profiles(before: Profile, after: Profile) -> list[DiffRow]:
    """Return the differences between two runs of one model, largest first.

    Operators are matched by type, name and the occurrence of that name; all partitions of one
    delegate are one row.
    """
    has_layers = any(row.of_layer for row in (*before.rows, *after.rows))
    old, new = (
        _rows_by_key(before, has_layers=has_layers),
        _rows_by_key(after, has_layers=has_layers),
    )
    had_delegate, has_delegate = (
        any(row.is_delegate for row in profile.rows) for profile in (before, after)
    )
    rows = []
    for key in dict.fromkeys([*old, *new]):
        old_row, new_row = old.get(key), new.get(key)
        row = new_row or old_row
        assert row is not None
        if old_row is not None and new_row is not None:
            difference_us = new_row.mean_us - old_row.mean_us
            is_noise = abs(difference_us) < max(_LEAST_US, _LEAST_SHARE * old_row.mean_us)
            change = "same" if is_noise else "slower" if difference_us > 0 else "faster"
        elif new_row is not None:
            change = _LEFT if had_delegate and not new_row.is_delegate else "new"
        else:
            change = _TAKEN if has_delegate and not row.is_delegate else "gone"
        rows.append(
            DiffRow(
                node_type=(old_row or row).node_type,
                name=row.layer if row.of_layer else row.name,
                before_us=None if old_row is None else old_row.mean_us,
                after_us=None if new_row is None else new_row.mean_us,
                change=change,
            )
        )
    return sorted(rows, key=lambda row: (-abs(row.difference_us), row.node_type, row.name))


def _profile(run: RunRecord) -> Profile:
    report = run.report
    assert report is not None
    operators, nested = outer_and_nested(report.operators)
    inference_us = report.latency_us(FigureKind.MEAN)
    whole_us = max(inference_us or 0.0, sum(row.mean_us for row in operators))
    return Profile(
        campaign_id=str(run.campaign_id),
        rows=tuple(_row(row, whole_us) for row in operators),
        nested=tuple(_row(row, whole_us, subgraph=row.block) for row in nested),
        inference_us=inference_us,
    )


def _row(row: OperatorTime, whole_us: float, *, subgraph: str = "") -> OperatorRow:
    is_kernel, is_partition = row.name.startswith(KERNEL), _is_delegate(row.node_type)
    return OperatorRow(
        node_type=_KERNEL_NUMBER.sub("", row.node_type) if is_kernel else row.node_type,
        name=row.name,
        place=Place.DELEGATE if is_kernel or is_partition else Place.CPU,
        is_partition=is_partition,
        mean_us=row.mean_us,
        share=row.mean_us / whole_us if whole_us > 0 else 0.0,
        subgraph=subgraph,
        of_layer=row.layer,
    )


def _counted_rows(operators: Sequence[OperatorTime]) -> list[OperatorTime]:
    """Return the times of the run phase in their order.

    A delegate's own blocks are left out, which repeat the time of its partition, and so are a DSP's
    rows, which are cycles.
    """
    running = [row for row in operators if row.phase == "run" and row.unit == "us"]
    blocks = list(dict.fromkeys(row.block for row in running))
    inner = {block for block in blocks if _is_delegate(block)}
    outer = [row for row in running if row.block not in inner]
    return sorted(
        outer,
        key=lambda row: (
            blocks.index(row.block),
            row.run_order if row.run_order is not None else 0,
        ),
    )


def outer_and_nested(
    operators: Sequence[OperatorTime],
) -> tuple[list[OperatorTime], list[OperatorTime]]:
    """Return the times of the run phase in their order: of the outer subgraph, and of nested ones.

    An operator's time contains that of its subgraph, so the subgraph with the most time is the
    outer one.
    """
    rows = _counted_rows(operators)
    times: dict[str, float] = defaultdict(float)
    for row in rows:
        times[row.block] += row.mean_us
    outer = max(times, key=lambda block: times[block], default="")
    return [row for row in rows if row.block == outer], [row for row in rows if row.block != outer]


def _is_delegate(word: str) -> bool:
    return "delegate" in word.lower()


def _rows_by_key(profile: Profile, *, has_layers: bool) -> dict[tuple[str, str, int], OperatorRow]:
    """Return the rows by type, name and occurrence; all partitions of one delegate are one row."""
    counts: Counter[tuple[str, str]] = Counter()
    keyed: dict[tuple[str, str, int], OperatorRow] = {}
    for row in profile.rows:
        if row.of_layer or (has_layers and not row.is_delegate):
            keyed["", row.layer, 0] = row
            continue
        # The name of a kernel has the numbers of its operators, which aren't stable either.
        name = "" if row.is_delegate else _NODE_NUMBER.sub("", row.name)
        count = counts[row.node_type, name]
        counts[row.node_type, name] += 1
        if not row.is_partition:
            keyed[row.node_type, name, count] = row
            continue
        partitions = keyed.get((row.node_type, "", 0))
        keyed[row.node_type, "", 0] = replace(
            row,
            name=counted(count + 1, "partition"),
            mean_us=row.mean_us + (partitions.mean_us if partitions is not None else 0.0),
            share=row.share + (partitions.share if partitions is not None else 0.0),
        )
    return keyed


def _sentences(rows: Sequence[DiffRow], before: Profile, after: Profile) -> Iterable[str]:
    if before.inference_us is not None and after.inference_us is not None:
        times = f"{format_latency(before.inference_us)} before and {format_latency(after.inference_us)} after"
        yield f"One inference took {times}: {_signed(after.inference_us - before.inference_us)}."
    for change in (_LEFT, _TAKEN):
        if moved := [row.difference_us for row in rows if row.change == change]:
            yield f"{counted(len(moved), 'operator')} {change}: {_signed(sum(moved))}."


def _signed(time_us: float) -> str:
    return f"{'+' if time_us >= 0 else '-'}{format_latency(abs(time_us))}"


def diff_pairs(
    rows: Sequence[ResultRow], campaign_titles: Mapping[str, str]
) -> tuple[DiffPair, ...]:
    """Return the pairs of profiles to compare, at most 300.

    First each series over campaigns, also where model or program changed in between; then each
    delegate's newest profile against that of the CPU with as many threads, or else of the first CPU
    configuration.
    """
    profiled = [row for row in rows if row.profiles]
    pairs = chain(_pairs_over_campaigns(profiled, campaign_titles), _pairs_over_delegates(profiled))
    return tuple(islice(pairs, _MOST_PAIRS))


def _pair(row: ResultRow, names: tuple[str, str], before: Profile, after: Profile) -> DiffPair:
    rows = compare_profiles(before, after)
    sentences = tuple(_sentences(rows, before, after))
    return DiffPair(row=row, before=names[0], after=names[1], rows=rows, sentences=sentences)


def _pairs_over_campaigns(
    rows: Sequence[ResultRow], titles: Mapping[str, str]
) -> Iterable[DiffPair]:
    places = {name: place for place, name in enumerate(titles)}
    for members in grouped(rows, lambda row: row.case.series_key).values():
        profiled = [
            (row, profile)
            for row in members
            for profile in row.profiles
            if profile.campaign_id in places
        ]
        profiled.sort(key=lambda item: places[item[1].campaign_id])
        for (_, before), (row, after) in pairwise(profiled):
            if before.campaign_id != after.campaign_id:
                names = titles[before.campaign_id], titles[after.campaign_id]
                yield _pair(row, names, before, after)


def _pairs_over_delegates(rows: Sequence[ResultRow]) -> Iterable[DiffPair]:
    for members in grouped(rows, lambda row: (row.place, row.case.tool)).values():
        on_cpu = [row for row in members if row.case.delegate.is_cpu]
        for row in members:
            if row.case.delegate.is_cpu or not on_cpu:
                continue
            references = [
                other for other in on_cpu if other.case.threads == row.case.threads
            ] or on_cpu
            names = references[0].configuration, row.configuration
            yield _pair(row, names, references[0].profiles[-1], row.profiles[-1])


_CHANGE_CLASSES: Final = {
    _LEFT: "v-error",
    "slower": "v-warning",
    _TAKEN: "q-trusted",
    "faster": "q-trusted",
}
_MS: Final[dict[str, Any]] = {**MS, "digits": 3}
_TIMED: Final[Sequence[Column[Any]]] = (
    Column("type", value=lambda node: node.node_type, is_choice=True),
    Column(
        "where",
        value=lambda node: node.place,
        is_choice=True,
        tone=lambda node: "t-full" if node.place is Place.DELEGATE else "",
    ),
    Column("mean_us", "time", lambda row: row.mean_us, **_MS),
    Column(
        "share",
        value=lambda row: row.share,
        kind=Kind.NUMBER,
        unit="%",
        scale=100,
        digits=1,
        bar=lambda node: node.share,
    ),
)
TYPES: Final[Sequence[Column[TypeRow]]] = (
    *_TIMED[:2],
    Column("nodes", value=lambda row: row.nodes, kind=Kind.COUNT),
    *_TIMED[2:],
)


def _node(item: tuple[int, OperatorRow]) -> OperatorRow:
    return item[1]


#: The columns of an operator with its number in the order of running.
OPERATORS: Final[Sequence[Column[tuple[int, OperatorRow]]]] = (
    Column("order", value=lambda item: item[0], kind=Kind.COUNT),
    Column(
        "subgraph", "inside of", lambda item: item[1].subgraph, is_choice=True, is_optional=True
    ),
    Column("layer", value=lambda item: item[1].layer),
    _TIMED[0].of(_node),
    Column("node", "as printed", lambda item: item[1].name, forms=EVERYWHERE - PAGE),
    *(column.of(_node) for column in _TIMED[1:]),
)
#: How many of the slowest a terminal shows.
_SLOWEST: Final = 5


def slowest_table(profile: Profile, subject: str) -> Table[OperatorRow]:
    """Return the table of the slowest layers; ``subject`` is the profiled case."""
    figures = [column for column in _TIMED if column.is_figure]
    rows = sorted(profile.rows, key=lambda row: -row.mean_us)[:_SLOWEST]
    share = sum(row.share for row in rows)
    return Table(
        name="slowest",
        caption=f"slowest layers, {format_percent(share, 0)} of the time: {subject}",
        columns=(
            Column("layer", value=lambda row: row.layer),
            _TIMED[0],
            *figures,
            Column("bar", "", lambda row: row.share / rows[0].share, Kind.BAR),
        ),
        rows=rows,
    )


CHANGES: Final[Sequence[Column[DiffRow]]] = (
    Column("type", value=lambda row: row.node_type, is_choice=True),
    Column("node", value=lambda row: row.name),
    Column("before_us", "before", lambda row: row.before_us, **_MS),
    Column("after_us", "after", lambda row: row.after_us, **_MS),
    Column("difference_us", "difference", lambda row: row.difference_us, **_MS),
    Column(
        "change",
        value=lambda row: row.change,
        is_choice=True,
        tone=lambda row: _CHANGE_CLASSES.get(row.change, ""),
    ),
)
