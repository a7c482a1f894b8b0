"""Every fault of a virtual phone at every phase of a run: nothing lost, doubled, taken for another's or left changed.

A campaign's phones get one fault after the other, each right after a run was stored, so that it hits the next one.
``make fault-matrix`` runs all of it and prints a table; without FAULT_MATRIX=all a few cells are drawn from a seed.
"""

from __future__ import annotations

import json
import os
import random
import re
import resource
import shutil
import signal
import statistics
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from orchestrator.virtual.fault_kinds import FaultKind
from orchestrator.virtual.faults import parse_fault
from orchestrator.virtual.lab import lab_request
from tests.e2e.conftest import BENCHFARM, SPEED, Cli, Lab

pytestmark = pytest.mark.xdist_group("e2e")

WHOLE = os.environ.get("FAULT_MATRIX") == "all"
SEED = int(os.environ.get("FAULT_MATRIX_SEED", "1"))
#: Of the whole, in the usual suite.
SAMPLE = 16
#: A campaign that takes longer hangs.
HANGS_S = 1800.0 if WHOLE else 400.0
#: Of different speed, so that a figure tells whose it is.
PROFILES = ("pixel-3", "pixel-4", "redmi-note-9", "pixel-8")

ON_THE_WAY = ("open:shell", "push", "init", "warmup", "run", "results")
IN_A_RUN = ("init", "warmup", "run", "results")
OURS = "subject=/data/local/tmp/benchfarm/*"
#: Kind and settings -> the phases at which it makes sense; "" is at once.
MATRIX = {
    "cut": (*ON_THE_WAY, "connect", "open:sync", "push:done", "program", "start"),
    "cut bytes=200 subject=down": ("",),
    "cut bytes=4000 subject=down": ("",),
    "cut bytes=900 subject=up": ("",),
    "reboot": (*ON_THE_WAY, "start"),
    "hang seconds=1 times=1": ON_THE_WAY,
    "unauthorized": ON_THE_WAY,
    "slow bytes_per_s=100000": ("", "push"),
    "output-cut bytes=0": ("shell", "program"),
    "output-cut bytes=60": ("shell", "program"),
    "output-cut bytes=2000": ("program",),
    "bit-flip": ("push",),
    "bit-flip bytes=500000": ("push",),
    "clock-jump seconds=-86400": ("init", "run", "results"),
    "clock-jump seconds=86400": ("init", "run", "results"),
    "screen-lock": ("open:shell", "run"),
    "log-garbage": ("run",),
    "log-utf8": ("run",),
    f"no-space {OURS}": ("",),
    f"no-space bytes=300 {OURS}": ("",),
    f"permission-denied {OURS}": ("",),
    "selinux-denial subject=*.tflite": ("",),
    "segv": IN_A_RUN,
    "low-memory": IN_A_RUN,
    "program-hang": IN_A_RUN,
    "delegate-missing subject=xnnpack": ("",),
    "delegate-failing subject=xnnpack": ("",),
    "delegate-partial subject=xnnpack": ("",),
    "overheat heat_c=60": ("open:shell", "run"),
    "throttle": ("open:shell", "run"),
    "foreign-load": ("open:shell", "run"),
    "battery-low percent=19": ("open:shell", "run"),
    "battery-health": ("open:shell", "run"),
}
#: Only an app stops responding, and only a pass for parity looks at outputs: test_failures_on_phones, test_parity.
ELSEWHERE = {FaultKind.NOT_RESPONDING, FaultKind.DELEGATE_WRONG}
#: What may be stored of a run that such a fault hit, beside its completion.
ENDINGS = {
    "segv": {"failed"},
    "low-memory": {"failed"},
    "program-hang": {"timed-out"},
    "output-cut": {"failed"},
    "no-space": {"failed"},
    "permission-denied": {"failed"},
    "selinux-denial": {"failed"},
    "delegate-missing": {"failed"},
    "delegate-failing": {"failed"},
    "delegate-partial": {"failed"},
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

    @property
    def fault(self) -> dict[str, object]:
        kind, *settings = self.words.split()
        return parse_fault(kind, [*settings, *([f"moment={self.phase}"] if self.phase else [])]).to_json()


CELLS = [Cell(words, phase) for words, phases in MATRIX.items() for phase in phases]


def test_every_kind_of_fault_is_in_the_matrix() -> None:
    assert {FaultKind(cell.kind) for cell in CELLS} | ELSEWHERE == set(FaultKind)


@dataclass(slots=True)
class Phone:
    """The faults of one phone: those that wait for their turn, and what was given before which of its runs."""

    lab: Lab
    serial: str
    waiting: list[Cell] = field(default_factory=list)
    given: list[Cell] = field(default_factory=list)
    #: Which of those given have happened.
    happened: set[int] = field(default_factory=set)

    @property
    def fired(self) -> list[Cell]:
        return [self.given[number] for number in sorted(self.happened)]

    def next(self) -> None:
        """Take back what still lasts, and give the next fault."""
        self.take_back()
        if self.waiting:
            cell = self.waiting.pop(0)
            self.given.append(cell)
            self._ask(request="fault", fault=cell.fault)

    def take_back(self) -> None:
        """What has fired isn't in the table any more, or waits for nothing any more."""
        left = next(phone["faults"] for phone in phones_of(self.lab) if phone["serial"] == self.serial)
        if self.given and (not left or (not left[0]["moment"] and (self.given[-1].phase or left[0]["times"] == 0))):
            self.happened.add(len(self.given) - 1)
        if left:
            self._ask(request="clear")

    def _ask(self, **request: object) -> None:
        lab_request(self.lab.cli.home / "state" / "lab", {**request, "serial": self.serial})


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    command = Cli(home=tmp_path_factory.mktemp("matrix") / "home")
    try:
        up = command("lab", "up", *PROFILES, "--speed", SPEED, "--json").ok().json
        yield Lab(cli=command, serials=tuple(phone["serial"] for phone in up["phones"]))
    finally:
        command("lab", "down")
        shutil.rmtree(command.home, ignore_errors=True)


@pytest.fixture
def matrix_lab(four: Lab) -> Iterator[Lab]:
    """Four phones without faults, before and after."""
    yield four
    clear(four)


def plan_of(model: Path, path: Path, *, cases: int, min_secs: float = 0.2) -> Path:
    """A plan of so many cases on each phone, one invocation each, each of a model that has to be pushed first."""
    copies = [path / f"model-{number}.tflite" for number in range(1, cases + 1)]
    for copied in copies:
        copied.write_bytes(model.read_bytes() + f"{path.name} {copied.name}".encode())
    plan = path / "plan.yaml"
    plan.write_text(
        f"models: {json.dumps([str(copied) for copied in copies])}\nmatrix: {{delegates: [xnnpack], threads: 2}}\n"
        f"devices: {{where: virtual}}\nsettings: {{min_secs: {min_secs}, warmup_min_secs: 0.1, max_secs: 4}}\n"
        "timeout: 4 s\nlimits: {wait: 20 s}\ninvocations: 1\nsentinel: false\n"
    )
    return plan


def drawn(count: int) -> list[Cell]:
    """Return cells in an order from the seed: of each kind one as long as there is room, or all."""
    chance = random.Random(SEED)
    cells = CELLS.copy()
    chance.shuffle(cells)
    if WHOLE:
        return cells
    seen: Counter[str] = Counter()
    # A hung program takes all its time.
    ranked = sorted((seen.update([cell.kind]) or seen[cell.kind], number) for number, cell in enumerate(cells))
    return [cells[number] for _, number in ranked if cells[number].kind != "program-hang"][:count]


def watched(process: subprocess.Popen[str], on_line: Callable[[str], None]) -> str:
    """Return what a process tells; one that takes too long is killed, and the test fails."""
    assert process.stderr is not None
    timer = threading.Timer(HANGS_S, process.kill)
    timer.start()
    told = []
    try:
        for line in process.stderr:
            told.append(line)
            on_line(line)
        process.wait()
    finally:
        hung = not timer.is_alive()
        timer.cancel()
    assert not hung, f"it hangs: {''.join(told)[-3000:]}"
    return "".join(told)


@dataclass(slots=True, kw_only=True)
class Counts:
    """What must be nought."""

    lost: int = 0
    doubled: int = 0
    taken_for_anothers: int = 0
    not_restored: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(**{name: getattr(self, name) + getattr(other, name) for name in self.__slots__})


def changed(lab: Lab) -> dict[str, str]:
    """What preparing and running changes on the phones."""
    # A server that was started anew gets its phones back by any command.
    lab.cli("devices").ok()
    status = lab.cli("adb", "status", "--json").ok().json
    port = next(item["address"] for item in status["servers"] if item["for"] == "virtual lab").rpartition(":")[2]
    command = (
        "settings get global stay_on_while_plugged_in; settings get global window_animation_scale; "
        "cd /data/local/tmp/benchfarm 2>/dev/null && ls -d undo owner runs/* 2>/dev/null; pidof benchmark_model"
    )
    told = {}
    for phone in phones_of(lab):
        asked = subprocess.run(
            [status["binary"], "-P", port, "-s", phone["address"], "shell", command], capture_output=True, text=True,
            timeout=60, check=False, env={**os.environ, "HOME": str(lab.cli.home)},
        )  # fmt: skip
        told[phone["serial"]] = asked.stdout.strip() or asked.stderr
    return told


def phones_of(lab: Lab) -> list[dict[str, Any]]:
    """The phones with the faults that wait."""
    phones: list[dict[str, Any]] = lab_request(lab.cli.home / "state" / "lab", {"request": "list"})["phones"]
    return phones


def clear(lab: Lab) -> None:
    for serial in lab.serials:
        lab_request(lab.cli.home / "state" / "lab", {"request": "clear", "serial": serial})


def finished(lab: Lab, log: str) -> list[dict[str, Any]]:
    """Have what the faults left open finished without faults; return the campaign's runs."""
    clear(lab)
    # By its name: the newest isn't the last when the clock went back.
    named = re.search(r"campaign (\S+) '", log)

    def campaign_now() -> dict[str, Any]:
        listed: list[dict[str, Any]] = lab.cli("campaigns", "--json").ok().json
        return next(item for item in listed if named is None or item["campaign_id"] == named[1])

    campaign = campaign_now()
    if campaign["status"] != "finished":
        for serial in lab.cli("status", "--json").ok().json["quarantine"]:
            lab.cli("device", "release", serial).ok()
        lab.cli("run", "--resume", "--campaign", campaign["campaign_id"], timeout_s=HANGS_S)
        campaign = campaign_now()
    assert campaign["status"] == "finished", log[-6000:]
    runs: list[dict[str, Any]] = lab.cli("runs", campaign["campaign_id"], "--json").ok().json
    return [run for run in runs if run["outcome"] != "unfit"]


def counts_of(lab: Lab, runs: Sequence[dict[str, Any]], cases: int, before: dict[str, str]) -> Counts:
    keys = Counter((run["case"]["serial"], run["case"]["model_name"]) for run in runs)
    return Counts(
        lost=cases * len(lab.serials) - len(keys),
        doubled=sum(keys.values()) - len(keys),
        not_restored=sum(before[serial] != now for serial, now in changed(lab).items()),
    )


def latency_us(run: dict[str, Any]) -> float:
    return float(run["report"]["inference"]["mean_us"])


def strangers(lab: Lab, runs: Sequence[dict[str, Any]], phones: dict[str, Phone]) -> int:
    """Return how many runs can't be what their phone and its faults made of them."""
    found = 0
    for serial in lab.serials:
        own = [run for run in runs if run["case"]["serial"] == serial]
        phone = phones.get(serial)
        kinds = [cell.kind for cell in phone.given] if phone else []
        completed = [run for run in own if run["outcome"] == "completed"]
        middle_us = statistics.median(latency_us(run) for run in completed)
        most = 4.0 if SLOWING & set(kinds) else 1.4
        found += sum(not middle_us / 1.5 < latency_us(run) < middle_us * most for run in completed)
        may_end = Counter(ending for kind in kinds for ending in ENDINGS.get(kind, ()))
        ended = Counter(run["outcome"] for run in own if run["outcome"] != "completed")
        found += (ended - may_end).total()
    return found


def test_no_fault_at_any_phase_costs_a_result(matrix_lab: Lab, model: Path, tmp_path: Path) -> None:
    lab = matrix_lab
    before = changed(lab)
    cells = drawn(SAMPLE)
    phones = {serial: Phone(lab, serial, cells[number::4]) for number, serial in enumerate(lab.serials)}
    cases = -(-len(cells) // 4) + 1
    killed = 0

    def on_line(line: str) -> None:
        nonlocal killed
        stored = re.match(r"\S+ (\S+): (\d+)/\d+ ", line)
        if stored:
            phones[stored[1]].next()
            if int(stored[2]) in {2, 11, 19} and killed < 3 and stored[1] == lab.serials[0]:
                killed += 1
                os.kill(server_pid(lab), signal.SIGKILL)
        elif (trouble := re.match(r"\S+ (\S+): problem: ", line)) and trouble[1] in phones:
            phones[trouble[1]].take_back()

    for phone in phones.values():
        phone.next()
    log = watched(lab.cli.start("run", plan_of(model, tmp_path, cases=cases)), on_line)
    runs = finished(lab, log)
    counts = counts_of(lab, runs, cases, before)
    counts.taken_for_anothers = strangers(lab, runs, phones)
    tell(phones, runs, counts, killed)
    if counts != Counts():
        print(log, changed(lab), before, _odd(runs), sep="\n")
    assert "Traceback" not in log
    assert killed >= 1
    assert counts == Counts(), counts
    fired = sum(len(phone.fired) for phone in phones.values())
    assert fired >= len(cells) * 0.8, {phone.serial: (phone.given, phone.fired) for phone in phones.values()}


def _odd(runs: Sequence[dict[str, Any]]) -> list[tuple[str, ...]]:
    return [
        tuple(str(item) for item in (run["case"]["serial"], run["outcome"], run["reason_code"], run["reason"]))
        for run in runs
        if run["outcome"] != "completed"
    ]


def tell(phones: dict[str, Phone], runs: Sequence[dict[str, Any]], counts: Counts, killed: int) -> None:
    """Print the table, and write it where FAULT_MATRIX_TABLE says."""
    given = Counter(cell.kind for phone in phones.values() for cell in phone.given)
    fired = Counter(cell.kind for phone in phones.values() for cell in phone.fired)
    ended = Counter(run["outcome"] for run in runs)
    lines = ["| fault | cells | happened |", "|---|---|---|"]
    lines += [f"| {kind} | {given[kind]} | {fired[kind]} |" for kind in sorted(given)]
    lines += [
        f"| adb server killed | {killed} | {killed} |",
        f"| together | {given.total() + killed} | {fired.total() + killed} |",
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
        Path(path).write_text(text + "\n", "utf-8")


def server_pid(lab: Lab) -> int:
    """The lab's own adb server, as benchfarm remembers it."""
    (record,) = (path for path in (lab.cli.home / "state" / "lab").glob("adb*.json"))
    return int(json.loads(record.read_text("utf-8"))["pid"])


#: At which moment of a phone, or line of its own, the process is killed.
DEATHS = ("open:shell", "push", "start", "init", "warmup", "run", "results", "line: 1/", "line: 2/")


def test_a_run_killed_at_any_phase_is_finished_by_a_resume(matrix_lab: Lab, model: Path, tmp_path: Path) -> None:
    lab = matrix_lab
    before = changed(lab)
    deaths = list(DEATHS) if WHOLE else random.Random(SEED).sample(DEATHS, 2)
    cases = 2 + len(deaths)
    process = lab.cli.start("run", plan_of(model, tmp_path, cases=cases, min_secs=1.0))
    killed: list[str] = []
    told: list[str] = []
    for death in deaths:
        assert process.stderr is not None
        # Before that nothing is to be resumed.
        mark = death.removeprefix("line") if death.startswith("line") else " invocations on "
        alive = False
        for line in process.stderr:
            told.append(line)
            if alive := mark in line:
                break
        if alive and not death.startswith("line"):
            alive = reached(lab, lab.serials[len(killed) % 4], death, process)
        process.kill()
        process.communicate()
        clear(lab)
        if not alive:
            break
        killed.append(death)
        process = lab.cli.start("run", "--resume")
    log = watched(process, lambda line: None) if killed == deaths else ""
    runs = finished(lab, log)
    counts = counts_of(lab, runs, cases, before)
    counts.taken_for_anothers = strangers(lab, runs, {})
    print(f"\nkilled at {', '.join(killed)}: {counts}")
    assert killed == deaths, "".join(told)
    assert counts == Counts(), (counts, log)


def reached(lab: Lab, serial: str, moment: str, process: subprocess.Popen[str]) -> bool:
    """Wait until a phone passes a moment: a cut that waits for it is gone. False when the process ended before."""
    fault = {"request": "fault", "serial": serial, "fault": Cell("cut", moment).fault}
    lab_request(lab.cli.home / "state" / "lab", fault)
    while process.poll() is None:
        if not next(phone["faults"] for phone in phones_of(lab) if phone["serial"] == serial):
            return True
        threading.Event().wait(0.01)
    return False


def test_a_full_disk_stops_a_campaign_with_what_was_stored_and_a_resume_finishes_it(
    matrix_lab: Lab, model: Path, tmp_path: Path
) -> None:
    lab = matrix_lab
    before = changed(lab)
    plan = plan_of(model, tmp_path, cases=3)
    lab.cli("campaigns").ok()
    stores = [path.stat().st_size for path in lab.cli.home.glob("store.sqlite*")] or [0]
    limit = max(stores) + 400_000

    def limited() -> None:
        # No file may grow beyond it: what the system answers is an error of the disk's, at whatever comes first.
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    process = subprocess.Popen(
        [BENCHFARM, "run", str(plan)], env=lab.cli.environ(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=limited,
    )  # fmt: skip
    log = watched(process, lambda line: None)
    assert process.returncode == 5, log
    assert "Traceback" not in log
    runs = finished(lab, log)
    counts = counts_of(lab, runs, 3, before)
    counts.taken_for_anothers = strangers(lab, runs, {})
    assert counts == Counts(), (counts, log)


#: The wall clock alone moves: by an hour, for each second since the start, back and forth.
_JUMPING = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>
int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    static time_t begun;
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int answer = real(clock, now);
    if (clock == CLOCK_REALTIME) {
        if (!begun) begun = now->tv_sec;
        now->tv_sec += ((now->tv_sec - begun) % 3 - 1) * 3600;
    }
    return answer;
}
"""


def test_a_clock_of_this_computer_that_jumps_costs_nothing(matrix_lab: Lab, model: Path, tmp_path: Path) -> None:
    lab = matrix_lab
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler to make the clock jump with")
    (tmp_path / "jumping.c").write_text(_JUMPING)
    library = tmp_path / "jumping.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, tmp_path / "jumping.c", "-ldl"], check=True)
    before = changed(lab)
    process = subprocess.Popen(
        [BENCHFARM, "run", str(plan_of(model, tmp_path, cases=2, min_secs=2.0))],
        env=lab.cli.environ(LD_PRELOAD=str(library)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    log = watched(process, lambda line: None)
    # It really jumped: the lines' times go back.
    times = re.findall(r"^(\d\d:\d\d:\d\d) ", log, re.M)
    assert len({time[:2] for time in times}) > 1
    runs = finished(lab, log)
    counts = counts_of(lab, runs, 2, before)
    counts.taken_for_anothers = strangers(lab, runs, {})
    assert counts == Counts(), (counts, log)


def test_a_phone_that_is_lost_while_a_campaign_begins_keeps_no_other_from_being_measured(
    matrix_lab: Lab, model: Path, tmp_path: Path
) -> None:
    lab = matrix_lab
    lost = lab.serials[0]
    # More than asking who it is takes, less than asking what it is.
    lab.fault(lost, "unauthorized", "bytes=2000")
    log = watched(lab.cli.start("run", plan_of(model, tmp_path, cases=1)), lambda line: None)
    assert f"{lost}: problem: not used: " in log, log
    runs = finished(lab, log)
    assert {run["case"]["serial"] for run in runs} >= {*lab.serials} - {lost}, log
