"""Where the time of a profiled run goes, operator by operator, and what explains the change between two runs."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final

from orchestrator.records.run import OperatorTime, Outcome, RunRecord
from orchestrator.records.workload import Pass
from orchestrator.units import format_latency

#: A change below both of these is noise of a profiled run, which is a single one.
_LEAST_SHARE: Final = 0.05
_LEAST_US: Final = 10.0
#: The number that some programs put behind an operator's name: it shifts when a delegate takes other nodes.
_NODE_NUMBER: Final = re.compile(r":\d+$")
_MOST_NAMED: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorRow:
    """One node of the model's graph as it ran, or one partition that a delegate ran whole."""

    node_type: str
    name: str
    is_delegate: bool
    mean_us: float
    #: Of the time of all rows; 0 to 1.
    share: float
    times_called: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeRow:
    """All nodes of one type."""

    node_type: str
    is_delegate: bool
    nodes: int
    mean_us: float
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One profiled run's operators in the order in which they ran; what runs inside of a delegate isn't among them."""

    run_id: str
    campaign_id: str
    rows: tuple[OperatorRow, ...]

    @property
    def total_us(self) -> float:
        """The time of one inference, as the sum of its operators."""
        return sum(row.mean_us for row in self.rows)

    @property
    def islands(self) -> int:
        """How many stretches of CPU operators stand before, between and after a delegate's partitions."""
        if not any(row.is_delegate for row in self.rows):
            return 0
        return sum(not is_delegate for is_delegate, _ in groupby(self.rows, key=lambda row: row.is_delegate))

    def by_type(self) -> tuple[TypeRow, ...]:
        """Return the times by node type, most first."""
        groups: dict[tuple[str, bool], list[OperatorRow]] = defaultdict(list)
        for row in self.rows:
            groups[row.node_type, row.is_delegate].append(row)
        types = [
            TypeRow(
                node_type=node_type,
                is_delegate=is_delegate,
                nodes=len(rows),
                mean_us=sum(row.mean_us for row in rows),
                share=sum(row.share for row in rows),
            )
            for (node_type, is_delegate), rows in groups.items()
        ]
        return tuple(sorted(types, key=lambda row: (-row.mean_us, row.node_type)))


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffRow:
    """One operator in two runs; None where a run doesn't have it as a row of its own."""

    node_type: str
    name: str
    before_us: float | None
    after_us: float | None
    #: ``left the delegate``, ``taken by a delegate``, ``new``, ``gone``, ``slower``, ``faster`` or ``same``.
    change: str

    @property
    def difference_us(self) -> float:
        """What it adds to one inference."""
        return (self.after_us or 0.0) - (self.before_us or 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileDiff:
    """What is different between two profiled runs, largest difference first."""

    rows: tuple[DiffRow, ...]
    #: The explanation in sentences, what weighs most first.
    sentences: tuple[str, ...]


def profiles_of(runs: Iterable[RunRecord]) -> tuple[Profile, ...]:
    """Return one case's newest usable profile of each campaign, in the order of the campaigns."""
    newest: dict[str, RunRecord] = {}
    for run in runs:
        is_usable = run.run_pass is Pass.PROFILE and run.outcome is Outcome.COMPLETED and run.report is not None
        if is_usable and run.report is not None and _counted_rows(run.report.operators):
            newest[str(run.campaign_id)] = run
    return tuple(_profile(run) for run in newest.values())


def compare_profiles(before: Profile, after: Profile) -> ProfileDiff:
    """Return what explains the difference between two runs of one model: operators that moved, then those that changed.

    Operators are matched by type, name and how often that name came before; all partitions of one delegate are one row.
    """
    old, new = _keyed(before), _keyed(after)
    rows = [_diff_row(old.get(key), new.get(key), before, after) for key in dict.fromkeys([*old, *new])]
    rows.sort(key=lambda row: (-abs(row.difference_us), row.node_type, row.name))
    return ProfileDiff(rows=tuple(rows), sentences=tuple(_sentences(rows, before, after)))


def _profile(run: RunRecord) -> Profile:
    assert run.report is not None
    operators = _counted_rows(run.report.operators)
    total_us = sum(row.mean_us for row in operators)
    return Profile(
        run_id=str(run.run_id),
        campaign_id=str(run.campaign_id),
        rows=tuple(
            OperatorRow(
                node_type=row.node_type,
                name=row.name,
                is_delegate=_is_delegate(row.node_type),
                mean_us=row.mean_us,
                share=row.mean_us / total_us if total_us > 0 else 0.0,
                times_called=row.times_called,
            )
            for row in operators
        ),
    )


def _counted_rows(operators: Sequence[OperatorTime]) -> list[OperatorTime]:
    """Return the rows whose times add up to one inference.

    Blocks of a delegate's own profile repeat the time of its partition, and a DSP's rows are cycles and no times.
    """
    running = [row for row in operators if row.phase == "run" and row.unit == "us"]
    blocks = list(dict.fromkeys(row.block for row in running))
    inner = {block for block in blocks if _is_delegate(block)}
    outer = [row for row in running if row.block not in inner]
    return sorted(outer, key=lambda row: (blocks.index(row.block), row.run_order if row.run_order is not None else 0))


def _is_delegate(word: str) -> bool:
    return "delegate" in word.lower()


def _keyed(profile: Profile) -> dict[tuple[str, str, int], OperatorRow]:
    """Return the rows by what they are matched by; all partitions of one delegate are one row."""
    seen: Counter[tuple[str, str]] = Counter()
    keyed: dict[tuple[str, str, int], OperatorRow] = {}
    for row in profile.rows:
        name = "" if row.is_delegate else _NODE_NUMBER.sub("", row.name)
        count = seen[row.node_type, name]
        seen[row.node_type, name] += 1
        if not row.is_delegate:
            keyed[row.node_type, name, count] = row
            continue
        whole = keyed.get((row.node_type, "", 0))
        keyed[row.node_type, "", 0] = replace(
            row,
            name="1 partition" if whole is None else f"{count + 1} partitions",
            mean_us=row.mean_us + (whole.mean_us if whole is not None else 0.0),
            share=row.share + (whole.share if whole is not None else 0.0),
        )
    return keyed


def _diff_row(old: OperatorRow | None, new: OperatorRow | None, before: Profile, after: Profile) -> DiffRow:
    row = new or old
    assert row is not None
    if old is not None and new is not None:
        difference_us = new.mean_us - old.mean_us
        is_noise = abs(difference_us) < max(_LEAST_US, _LEAST_SHARE * old.mean_us)
        change = "same" if is_noise else "slower" if difference_us > 0 else "faster"
    elif new is not None:
        had_delegate = not new.is_delegate and any(other.is_delegate for other in before.rows)
        change = "left the delegate" if had_delegate else "new"
    else:
        has_delegate = not row.is_delegate and any(other.is_delegate for other in after.rows)
        change = "taken by a delegate" if has_delegate else "gone"
    return DiffRow(
        node_type=row.node_type,
        name=row.name,
        before_us=None if old is None else old.mean_us,
        after_us=None if new is None else new.mean_us,
        change=change,
    )


def _sentences(rows: Sequence[DiffRow], before: Profile, after: Profile) -> Iterable[str]:
    total_us = after.total_us - before.total_us
    yield (
        f"One inference took {format_latency(before.total_us)} before and {format_latency(after.total_us)} after: "
        f"{_signed(total_us)}, summed over operators."
    )
    for change, verb in (("left the delegate", "now on the CPU"), ("taken by a delegate", "no longer on the CPU")):
        moved = [row for row in rows if row.change == change]
        if moved:
            yield f"{_operators(len(moved))} {change} ({verb}): {_named(moved)}."
    if after.islands != before.islands:
        yield f"CPU islands beside a delegate's partitions: {before.islands} before, {after.islands} after."
    changed = [row for row in rows if row.change in ("slower", "faster")]
    if changed:
        worst = changed[0]
        yield (
            f"Of the operators that both runs have, {worst.node_type} {worst.name} changed most: "
            f"{_signed(worst.difference_us)}."
        )


def _named(rows: Sequence[DiffRow]) -> str:
    types: Counter[str] = Counter()
    for row in rows:
        types[row.node_type] += 1
    parts = [f"{count} x {name}" if count > 1 else name for name, count in types.most_common(_MOST_NAMED)]
    more = f" and {len(types) - _MOST_NAMED} more types" if len(types) > _MOST_NAMED else ""
    time_us = sum(row.difference_us for row in rows)
    return f"{', '.join(parts)}{more} ({_signed(time_us)})"


def _operators(count: int) -> str:
    return "1 operator" if count == 1 else f"{count} operators"


def _signed(time_us: float) -> str:
    return f"{'+' if time_us >= 0 else '-'}{format_latency(abs(time_us))}"
