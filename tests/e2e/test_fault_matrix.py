"""Every fault of a virtual phone at every phase of a run: nothing lost, doubled, taken for
another's or left changed.

A campaign's phones get one fault after the other, each right after a run was stored, so that it
hits the next one. ``make fault-matrix`` runs all of it and prints a table; without FAULT_MATRIX=all
a few cells are drawn from a seed.
"""

from __future__ import annotations

import os
import random
import re
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from benchfarm_virtual.faults import FaultKind
from tests.e2e.conftest import Lab
from tests.samples.faulty_lab import (
    SEED,
    WHOLE,
    Counts,
    ask,
    changed,
    counts_of,
    faults_of,
    finished,
    give,
    plan_of,
    release,
    status_of,
    watched,
)

#: Of the whole, in the usual suite.
SAMPLES = {"native": 4, "apk": 2}

IN_A_RUN = ("start", "init", "delegate", "warmup", "run", "results")
PHASES = ("connect", "open:shell", "open:sync", "push", "push:done", *IN_A_RUN)
OURS = "subject=/data/local/tmp/benchfarm/*"
#: Kind and settings -> the phases at which it makes sense; "" is at once.
ON_THE_WAY = {
    "cut": PHASES,
    "cut bytes=200 subject=down": ("",),
    "cut bytes=4000 subject=down": ("",),
    "cut bytes=900 subject=up": ("",),
    "reboot": PHASES,
    "hang seconds=1 times=1": PHASES,
    "unauthorized": PHASES,
    "slow bytes_per_s=300000": PHASES,
    "output-cut bytes=0": ("shell",),
    "output-cut bytes=60": ("shell",),
    "bit-flip": ("push",),
    "bit-flip bytes=500000": ("push",),
}
OF_THE_PHONE = {
    "clock-jump seconds=-86400": PHASES,
    "clock-jump seconds=86400": PHASES,
    "screen-lock": PHASES,
    "overheat heat_c=60": PHASES,
    "throttle": PHASES,
    "foreign-load": PHASES,
    "battery-low percent=19": PHASES,
    "battery-health": PHASES,
    "closed": ("open:shell", "open:sync"),
    "answer-cut bytes=30": ("shell",),
    "banner text=Welcome": ("",),
    "tool-warning": ("",),
    "properties-denied": ("",),
    "noisy-log lines_per_s=20": ("",),
}
OF_THE_PROGRAM = {
    "segv": IN_A_RUN,
    "low-memory": IN_A_RUN,
    "program-hang": IN_A_RUN,
    "log-garbage": IN_A_RUN,
    "selinux-denial subject=*.tflite": ("",),
    "delegate-missing subject=xnnpack": ("",),
    "delegate-failing subject=xnnpack": ("",),
    "delegate-partial subject=xnnpack": ("",),
}
MATRIX = {
    "native": {
        **ON_THE_WAY,
        **OF_THE_PHONE,
        **OF_THE_PROGRAM,
        "output-cut bytes=0": ("shell", "program"),
        "output-cut bytes=60": ("shell", "program"),
        "output-cut bytes=2000": ("program",),
        f"no-space {OURS}": ("",),
        f"no-space bytes=300 {OURS}": ("",),
        f"permission-denied {OURS}": ("",),
    },
    "apk": {
        **ON_THE_WAY,
        **OF_THE_PROGRAM,
        "not-responding": IN_A_RUN,
        "clock-jump seconds=-86400": PHASES,
    },
}
FOR_EVER = datetime.max.replace(tzinfo=UTC)
#: A fault that comes too late for its run, because this test was too slow, is given again in
#: another campaign.
CAMPAIGNS = 3
#: Only a pass for parity looks at outputs: test_parity; only one for energy at the cable:
#: test_energy. A phone that refuses settings refuses them all the time: test_faulty_phones.
#: An APK is installed before a run: test_faulty_phones.
ELSEWHERE = {
    FaultKind.DELEGATE_WRONG,
    FaultKind.CABLE_OUT,
    FaultKind.INSTALL_REFUSED,
    FaultKind.RUN_AS_REFUSED,
    FaultKind.SHELL_RESTRICTED,
}
#: What may be stored of a run that such a fault hit, beside its completion.
ENDINGS = {
    "segv": {"failed"},
    "low-memory": {"failed"},
    "program-hang": {"timed-out"},
    "not-responding": {"failed"},
    "output-cut": {"failed"},
    "no-space": {"failed"},
    "permission-denied": {"failed"},
    # After a boot they are read again.
    "properties-denied": {"failed"},
    "selinux-denial": {"failed"},
    "delegate-missing": {"failed"},
    "delegate-failing": {"failed"},
    "delegate-partial": {"failed"},
}
#: A program that this has happened to can't have completed.
FATAL = {
    "segv",
    "low-memory",
    "program-hang",
    "not-responding",
    "delegate-missing",
    "delegate-failing",
}
#: Figures that these change are still the phone's.
SLOWING = {"overheat", "throttle", "foreign-load", "battery-low", "screen-lock", "delegate-partial"}


@dataclass(frozen=True, slots=True)
class Cell:
    words: str
    phase: str

    @property
    def kind(self) -> str:
        return self.words.split()[0]

    def given_to(self, lab: Lab, serial: str) -> None:
        give(lab, serial, *self.words.split(), *([f"moment={self.phase}"] if self.phase else []))
        if self.phase == "connect":
            give(lab, serial, "cut")


def cells_of(tool: str) -> list[Cell]:
    return [Cell(words, phase) for words, phases in MATRIX[tool].items() for phase in phases]


def test_every_kind_of_fault_is_in_the_matrix() -> None:
    assert {FaultKind(cell.kind) for tool in MATRIX for cell in cells_of(tool)} | ELSEWHERE == set(
        FaultKind
    )


@dataclass(slots=True)
class Given:
    """A fault that a phone had for some time."""

    cell: Cell
    since: datetime
    until: datetime = FOR_EVER
    has_happened: bool = False


@dataclass(slots=True)
class Phone:
    """The faults of one phone: those that wait for their turn, and what was given."""

    lab: Lab
    serial: str
    waiting: list[Cell] = field(default_factory=list)
    given: list[Given] = field(default_factory=list)

    @property
    def fired(self) -> list[Cell]:
        return [given.cell for given in self.given if given.has_happened]

    @property
    def unused(self) -> list[Cell]:
        """Those that came too late for the run that they were meant for."""
        return [given.cell for given in self.given if given.cell not in self.fired]

    def next(self) -> None:
        """Take back what still lasts, and give the next fault."""
        self.take_back()
        if self.waiting:
            cell = self.waiting.pop(0)
            self.given.append(Given(cell, since=datetime.now(UTC)))
            cell.given_to(self.lab, self.serial)

    def take_back(self) -> None:
        """What has fired isn't in the table any more, or waits for nothing any more."""
        left = faults_of(self.lab, self.serial)
        if self.given:
            last = self.given[-1]
            if not left or (not left[0]["moment"] and (last.cell.phase or left[0]["times"] == 0)):
                last.has_happened = True
        if left:
            ask(self.lab, request="clear", serial=self.serial)
        if self.given:
            last.until = min(last.until, datetime.now(UTC))

    def strangers(self, runs: Sequence[dict[str, Any]]) -> list[str]:
        """Tell of runs that can't be what the phone and its faults made of them, and of faults that
        show nowhere."""
        completed = [run for run in runs if run["outcome"] == "completed"]
        middle_us = statistics.median(latency_us(run) for run in completed)
        # What heats or slows a phone does so for longer than one run.
        most = 4.0 if SLOWING & {given.cell.kind for given in self.given} else 1.4
        odd = [
            f"{run['case']['model_name']} took {latency_us(run):.0f} µs, not about {middle_us:.0f}"
            for run in completed
            if not middle_us / 1.5 < latency_us(run) < middle_us * most
        ]
        runs = sorted(runs, key=began)
        ends: dict[int, set[str]] = {}
        # Between a run's begin and the next one's.
        for run, following in zip(runs, [*map(began, runs[1:]), FOR_EVER], strict=True):
            met = [
                n
                for n, given in enumerate(self.given)
                if given.since <= following and given.until >= began(run)
            ]
            allowed = {ending for n in met for ending in ENDINGS.get(self.given[n].cell.kind, ())}
            if run["outcome"] not in {"completed", *allowed}:
                cells = [self.given[n].cell for n in met]
                odd.append(
                    f"{run['case']['model_name']} {run['outcome']} ({run['reason']}) after {cells}"
                )
            for n in met:
                ends.setdefault(n, set()).add(run["outcome"])
        odd += [
            f"{given.cell} happened, and its run ended {ends.get(n)}"
            for n, given in enumerate(self.given)
            if given.has_happened
            and given.cell.kind in FATAL
            and not ends.get(n, set()) & ENDINGS[given.cell.kind]
        ]
        return [f"{self.serial}: {text}" for text in odd]


def began(run: dict[str, Any]) -> datetime:
    return datetime.fromisoformat(run["started_at"])


def latency_us(run: dict[str, Any]) -> float:
    return float(run["report"]["inference"]["mean_us"])


def drawn(tool: str) -> list[Cell]:
    """Return cells in an order from the seed: of each kind one as long as there is room, or all."""
    chance = random.Random(SEED)
    cells = cells_of(tool)
    chance.shuffle(cells)
    if WHOLE:
        return cells
    seen: Counter[str] = Counter()
    # A hung program takes all its time.
    ranked = sorted(
        (seen.update([cell.kind]) or seen[cell.kind], number) for number, cell in enumerate(cells)
    )
    return [cells[number] for _, number in ranked if cells[number].kind != "program-hang"][
        : SAMPLES[tool]
    ]


@pytest.mark.parametrize("tool", MATRIX)
def test_no_fault_at_any_phase_costs_a_result(
    matrix_lab: Lab, model: Path, tmp_path: Path, tool: str
) -> None:
    lab = matrix_lab
    before = changed(lab)
    cells = drawn(tool)
    phones = {
        serial: Phone(lab, serial, cells[number::4]) for number, serial in enumerate(lab.serials)
    }

    def on_line(line: str) -> None:
        if stored := re.match(r"\S+ (\S+): \d+/\d+ ", line):
            phones[stored[1]].next()
        elif (trouble := re.match(r"\S+ (\S+): problem: ", line)) and trouble[1] in phones:
            phones[trouble[1]].take_back()

    counts, logs, runs = Counts(), [], []
    for number in range(CAMPAIGNS):
        cases = max(len(phone.waiting) for phone in phones.values()) + 1
        for phone in phones.values():
            phone.next()
        plan = plan_of(model, tmp_path / str(number), cases=cases, tool=tool, timeout_s=20.0)
        log = watched(lab.cli.start("run", plan), on_line)
        # A phone that met too much in a row was abandoned for the campaign; a resume meets the
        # rest.
        for _ in range(10):
            if (
                not any(phone.waiting for phone in phones.values())
                or status_of(lab, log)[1] == "finished"
            ):
                break
            release(lab)
            log += watched(lab.cli.start("run --resume"), on_line)
        for phone in phones.values():
            phone.take_back()
        found = finished(lab, log)
        of_it = counts_of(lab, found, cases, before)
        counts.lost, counts.doubled = counts.lost + of_it.lost, counts.doubled + of_it.doubled
        counts.not_restored += of_it.not_restored
        logs.append(log)
        runs += found
        for phone in phones.values():
            phone.waiting = [*phone.waiting, *phone.unused]
        if not any(phone.waiting for phone in phones.values()):
            break
    of_each = {
        serial: [run for run in runs if run["case"]["serial"] == serial] for serial in lab.serials
    }
    strangers = [
        text for serial, phone in phones.items() for text in phone.strangers(of_each[serial])
    ]
    counts.taken_for_anothers = len(strangers)
    log = "".join(logs)
    tell(tool, phones, runs, counts)
    if counts != Counts():
        print(log, *strangers, sep="\n")
    assert "Traceback" not in log
    assert counts == Counts(), counts
    fired = sum(len(phone.fired) for phone in phones.values())
    assert fired >= len(cells) * 0.9, {phone.serial: phone.unused for phone in phones.values()}


def tell(
    tool: str, phones: dict[str, Phone], runs: Sequence[dict[str, Any]], counts: Counts
) -> None:
    """Print the table, and add it to the file that FAULT_MATRIX_TABLE names."""
    given = Counter(
        cell.kind for phone in phones.values() for cell in {given.cell for given in phone.given}
    )
    fired = Counter(cell.kind for phone in phones.values() for cell in phone.fired)
    ended = Counter(run["outcome"] for run in runs)
    lines = [f"| fault ({tool}) | cells | happened |", "|---|---|---|"]
    lines += [f"| {kind} | {given[kind]} | {fired[kind]} |" for kind in sorted(given)]
    lines += [
        f"| together | {given.total()} | {fired.total()} |",
        "",
        (
            f"{len(runs)} results wanted: lost {counts.lost}, doubled {counts.doubled}, taken for another's "
            f"{counts.taken_for_anothers}; phones not restored {counts.not_restored} of {len(phones)}; "
            f"ended {', '.join(f'{name} {count}' for name, count in sorted(ended.items()))}"
        ),
    ]
    text = "\n".join(lines)
    print(f"\n{text}")
    if path := os.environ.get("FAULT_MATRIX_TABLE"):
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(text + "\n\n")


#: What happens to phones while they are restored.
WHILE_RESTORED = (
    "cut moment=open:shell",
    "reboot moment=open:shell",
    "hang seconds=1 times=1 moment=open:shell",
    "unauthorized moment=open:shell",
    "output-cut bytes=0 moment=shell",
    "slow bytes_per_s=20000",
    "clock-jump seconds=-86400",
    f"permission-denied {OURS}",
)


@pytest.mark.parametrize(
    "faults",
    [
        pytest.param(
            WHILE_RESTORED[:4],
            id="way",
            marks=pytest.mark.skipif(not WHOLE, reason="FAULT_MATRIX=all"),
        ),
        pytest.param(WHILE_RESTORED[4:], id="phone"),
    ],
)
def test_no_fault_while_phones_are_restored_leaves_one_changed(
    matrix_lab: Lab, model: Path, tmp_path: Path, faults: Sequence[str]
) -> None:
    lab = matrix_lab
    before = changed(lab)
    words = dict(zip(lab.serials, faults, strict=True))
    given = set()

    def on_line(line: str) -> None:
        stored = re.match(r"\S+ (\S+): (\d+)/(\d+) ", line)
        if stored and stored[2] == stored[3]:
            give(lab, stored[1], *words[stored[1]].split())
            given.add(stored[1])

    log = watched(lab.cli.start("run", plan_of(model, tmp_path, cases=2)), on_line)
    assert "Traceback" not in log
    counts = counts_of(lab, finished(lab, log), 2, before)
    print(f"\nput back in spite of {', '.join(faults)}: {counts}")
    assert given == {*lab.serials}
    assert counts == Counts(), (counts, log)


def test_a_phone_that_is_lost_while_a_campaign_begins_keeps_no_other_from_being_measured(
    matrix_lab: Lab, model: Path, tmp_path: Path
) -> None:
    lab = matrix_lab
    lost = lab.serial
    # Asking who it is takes no dumpsys, asking what it is does.
    give(lab, lost, "unauthorized", "moment=tool", "subject=*/dumpsys")
    log = watched(lab.cli.start("run", plan_of(model, tmp_path, cases=1)))
    assert f"{lost}: problem: not used: " in log, log
    runs = finished(lab, log)
    assert {run["case"]["serial"] for run in runs} >= {*lab.serials} - {lost}, log
