"""A night in little: many phones, many cases, faults on the way from a seed; what is stored is as
without faults.

The same plan is run without faults afterwards. Only ``make soak`` runs it, with 50 phones and 2,000
cases (SOAK_PHONES, SOAK_CASES), SOAK_SEED chooses other faults: the cells of test_fault_matrix
prove the same rule in every run of the tests.
"""

from __future__ import annotations

import json
import os
import random
import re
import resource
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.conftest import Lab
from tests.samples.faulty_lab import (
    ask,
    changed,
    clear,
    give,
    not_as_before,
    restore_as_told,
    watched,
)

PHONES = int(os.environ.get("SOAK_PHONES", "4"))
CASES = int(os.environ.get("SOAK_CASES", "32"))
SEED = int(os.environ.get("SOAK_SEED", "1"))
#: Steps of a run at which the way to the phone may fail: its state, start, init, warmup, run,
#: results.
STEPS = 6
#: Of these steps, how many have a fault.
SHARE = float(os.environ.get("SOAK_SHARE", "0.05"))
#: A night that takes longer hangs.
HANGS_S = 600.0 + 2.0 * CASES
# The plan runs twice: with faults and without.
pytestmark = pytest.mark.timeout(3 * HANGS_S)
#: What happens on the way to a phone or to the phone itself; none of it is the fault of what is
#: measured.
FAULTS = (
    ("cut",),
    ("cut", "bytes=3000", "subject=down"),
    ("cut", "bytes=500", "subject=up"),
    ("hang", "seconds=2", "times=1"),
    ("output-cut", "moment=shell", "bytes=40"),
    ("output-cut", "moment=shell", "bytes=0"),
    ("clock-jump", "seconds=-7200"),
    ("clock-jump", "seconds=86400"),
    ("reboot",),
    ("reboot", "moment=run"),
    ("cut", "moment=run"),
    ("screen-lock",),
    ("slow", "bytes_per_s=200000", "times=3"),
    ("unauthorized",),
    ("hang", "moment=results", "seconds=1", "times=1"),
    ("cut", "moment=start"),
)


@pytest.fixture(scope="module")
def many(lab_of: Callable[..., Lab]) -> Lab:
    return lab_of(*(("pixel-3", "pixel-4")[number % 2] for number in range(PHONES)))


def plan_text(model: Path) -> str:
    """A plan of so many cases on each phone that all phones together have CASES: flags that change
    nothing."""
    each = CASES // PHONES
    flags = ", ".join(f"{{max_delegated_partitions: {number}}}" for number in range(1, each + 1))
    return (
        f"models: [{json.dumps(str(model))}]\nmatrix: {{delegates: [xnnpack], threads: 2, flags: [{flags}]}}\n"
        "devices: {where: virtual}\nsettings: {min_secs: 0.2, warmup_min_secs: 0.1}\ninvocations: 1\n"
        "reference_check: false\n"
    )


def ran(lab: Lab, plan: Path, *, share: float) -> tuple[str, Counter[str]]:
    """Run the plan, with faults at a share of its steps; return what was told and the faults given.

    It may take the machine what it takes, but not for ever.
    """
    chance = random.Random(SEED)
    given: Counter[str] = Counter()

    def on_line(line: str) -> None:
        stored = re.match(r"\S+ (\S+): \d+/\d+ ", line)
        if stored and chance.random() < share * STEPS:
            words = chance.choice(FAULTS)
            given[" ".join(words)] += 1
            give(lab, stored[1], *words)
        elif (trouble := re.match(r"\S+ (\S+): problem: ", line)) and trouble[1] in lab.serials:
            # What would last for ever is taken back: somebody has looked at the phone.
            ask(lab, trouble[1], request="clear")

    log = watched(lab.cli.start("run", plan), on_line, hangs_s=HANGS_S)
    assert "Traceback" not in log
    clear(lab)
    return log, given


def stored_of(lab: Lab) -> tuple[str, Counter[tuple[str, str, int, str]]]:
    """Return the status of the newest campaign, and how often each of its results is stored, with
    how it ended."""
    campaign = lab.cli.json("results list")[0]
    runs = lab.cli.json("results runs", campaign["campaign_id"], timeout_s=600.0)
    return campaign["status"], Counter(
        (
            json.dumps(run["case"], sort_keys=True),
            run["run_pass"],
            run["invocation"],
            run["outcome"],
        )
        for run in runs
    )


def test_faults_on_the_way_lose_nothing_double_nothing_and_leave_nothing_changed(
    many: Lab, model: Path, tmp_path: Path
) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text(plan_text(model))
    before = changed(many)
    begun_s = time.monotonic()
    log, given = ran(many, plan, share=SHARE)
    # Before others read all of it at once.
    memory_mb = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    status, found = stored_of(many)
    resumed = status != "finished"
    if resumed:
        # A phone that was away when all others were done is named, and nothing of it is lost.
        assert "abandoned with" in log
        many.cli("run --resume --json", timeout_s=HANGS_S)
        status, found = stored_of(many)
    faulty_s = time.monotonic() - begun_s
    restore_as_told(many, log)
    unlike = not_as_before(many, before)
    begun_s = time.monotonic()
    ran(many, plan, share=0.0)
    _, wanted = stored_of(many)
    share = given.total() / (STEPS * found.total())
    print(
        f"\n{given.total()} faults in {found.total()} runs of {PHONES} phones, {share:.1%} of their steps: "
        f"{dict(sorted(given.items()))}\n"
        f"wanted {wanted.total()}, lost {len(wanted.keys() - found.keys())}, of no case of the plan "
        f"{len(found.keys() - wanted.keys())}, doubled {found.total() - len(found)}; "
        f"phones not restored {len(unlike)}; {'finished by a resume' if resumed else 'finished at once'}\n"
        f"{faulty_s:.0f} s with faults, {time.monotonic() - begun_s:.0f} s without; the former took {memory_mb:.0f} MB"
    )
    print(*sorted(str(key) for key in (found - wanted)), sep="\n")
    assert share >= SHARE / 2, given
    assert status == "finished", log
    assert wanted.total() == CASES // PHONES * PHONES
    assert {outcome for *_, outcome in wanted} == {"completed"}
    # A run that meets a fault at each of its three attempts is stored as aborted, and told.
    unlike_run = found - wanted
    assert {outcome for *_, outcome in unlike_run} <= {"aborted"}, log
    assert unlike_run.total() <= log.count("(attempt 3 of 3)"), log
    assert Counter(key[:-1] for key in found.elements()) == Counter(
        key[:-1] for key in wanted.elements()
    ), log
    assert unlike == [], log
