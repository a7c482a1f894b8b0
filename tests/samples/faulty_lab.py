"""Four virtual phones that get faults while a campaign runs on them, and the count of what that
cost."""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchfarm_virtual.control import ask_phones
from orchestrator.devices.adb_server import PrivateAdbServer, find_adb
from tests.conftest import poll_until

if TYPE_CHECKING:
    from tests.e2e.conftest import Lab

WHOLE = os.environ.get("FAULT_MATRIX") == "all"
SEED = int(os.environ.get("FAULT_MATRIX_SEED", "1"))
#: A campaign that takes longer hangs.
HANGS_S = 1800.0 if WHOLE else 400.0
#: Of different speed, so that a figure tells whose it is.
PROFILES = ("pixel-3", "pixel-4", "redmi-note-9", "pixel-8")


@dataclass(slots=True, kw_only=True)
class Counts:
    """What must be nought."""

    lost: int = 0
    doubled: int = 0
    taken_for_anothers: int = 0
    not_restored: int = 0


def ask(lab: Lab, serial: str, **request: object) -> dict[str, Any]:
    """Ask the process that has a phone."""
    (folder,) = (
        folder
        for folder in _folders(lab)
        if any(phone["serial"] == serial for phone in _phones_in(folder))
    )
    return ask_phones(folder, {"serial": serial, **request})


def phones_of(lab: Lab) -> list[dict[str, Any]]:
    """The phones with the faults that wait."""
    return [phone for folder in _folders(lab) for phone in _phones_in(folder)]


def _folders(lab: Lab) -> list[Path]:
    """Those of the processes that many phones are parted among."""
    first = lab.cli.home / "state" / "virtual"
    return [first, *sorted(first.glob("more-*"))]


def _phones_in(folder: Path) -> list[dict[str, Any]]:
    phones: list[dict[str, Any]] = ask_phones(folder, {"request": "list"})["phones"]
    return phones


def faults_of(lab: Lab, serial: str) -> list[dict[str, Any]]:
    """The faults that wait for one phone, or last."""
    faults: list[dict[str, Any]] = next(
        phone["faults"] for phone in phones_of(lab) if phone["serial"] == serial
    )
    return faults


def give(lab: Lab, serial: str, *words: str) -> int:
    """Give a phone a fault, in the words of ``benchfarm virtual fault``; return its number.

    No process is started for it.
    """
    fault = ask(lab, serial, request="fault", kind=words[0], options=words[1:])["fault"]
    return int(fault["fault_id"])


def clear(lab: Lab) -> None:
    """Take all faults back."""
    for serial in lab.serials:
        ask(lab, serial, request="clear")


def quarantined(lab: Lab) -> list[str]:
    """The phones that are kept out."""
    folder = lab.cli.home / "state" / "quarantine"
    return [str(json.loads(path.read_text("utf-8"))["serial"]) for path in folder.glob("*.json")]


def answer_of(lab: Lab, serial: str, command: str) -> str:
    """Ask a phone itself, by the plain adb command; one that is just coming back is waited for."""
    address = next(phone["address"] for phone in phones_of(lab) if phone["serial"] == serial)
    answers: list[str] = []

    def answered() -> bool:
        spec = server_of(lab).address.spec
        asked = subprocess.run(
            [find_adb(), "-L", spec, "-s", address, "shell", command], capture_output=True,
            text=True, timeout=60, check=False, env={**os.environ, "HOME": str(lab.cli.home)},
        )  # fmt: skip
        # Its own words come first where it is adb that failed, not the command.
        if asked.returncode and asked.stderr.startswith(("adb: ", "error: ")):
            # A server that was restarted gets its phones back by any command.
            lab.cli("devices")
            return False
        answers.append(asked.stdout.strip() or asked.stderr.strip())
        return True

    poll_until(answered, f"{serial} answers")
    return answers[0]


def reached(lab: Lab, serial: str, moment: str, process: subprocess.Popen[str]) -> bool:
    """Wait until a phone passes a moment, by a fault that does nothing and is gone then.

    False when the process ended before.
    """
    give(lab, serial, "clock-jump", "seconds=0", f"moment={moment}")
    while process.poll() is None:
        if not faults_of(lab, serial):
            return True
        threading.Event().wait(0.01)
    return False


def plan_of(
    model: Path,
    path: Path,
    *,
    cases: int,
    min_secs: float = 0.2,
    tool: str = "native",
    timeout_s: float = 60.0,
) -> Path:
    """A plan of so many cases on each phone, one invocation each, each of a model that has to be
    pushed first.

    ``timeout_s`` is this computer's time, also where it stands still for some seconds.
    """
    path.mkdir(exist_ok=True)
    copies = [path / f"model-{number}.tflite" for number in range(1, cases + 1)]
    for copied in copies:
        copied.write_bytes(model.read_bytes() + f"{path} {copied.name}".encode())
    plan = path / "plan.yaml"
    plan.write_text(
        f"models: {json.dumps([str(copied) for copied in copies])}\n"
        f"matrix: {{delegates: [xnnpack], threads: 2, tools: [{tool}]}}\n"
        f"devices: {{where: virtual}}\nsettings: {{min_secs: {min_secs}, warmup_min_secs: 0.1, max_secs: 4}}\n"
        f"timeout: {timeout_s} s\nlimits: {{wait: 20 s}}\ninvocations: 1\nreference_check: false\n"
    )
    return plan


def watched(
    process: subprocess.Popen[str],
    on_line: Callable[[str], None] = lambda line: None,
    *,
    hangs_s: float = HANGS_S,
) -> str:
    """Return what a process tells; one that takes too long is killed, and the test fails."""
    assert process.stdout is not None
    assert process.stderr is not None
    # A large table fills its pipe, and the process would wait for a reader.
    threading.Thread(target=process.stdout.read, daemon=True).start()
    timer = threading.Timer(hangs_s, process.kill)
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


def changed(lab: Lab) -> dict[str, str]:
    """What preparing and running changes on the phones."""
    command = (
        "settings get global stay_on_while_plugged_in; settings get global window_animation_scale; "
        "cd /data/local/tmp/benchfarm 2>/dev/null && ls -d undo owner runs/* 2>/dev/null; "
        "ps -A -o ARGS | grep -e benchmark_model -e org.tensorflow.lite.benchmark | grep -v grep"
    )
    return {phone["serial"]: answer_of(lab, phone["serial"], command) for phone in phones_of(lab)}


def status_of(lab: Lab, log: str, **environ: str) -> tuple[str, str]:
    """Return the name and the status of the first campaign that a log tells of."""
    # By its name: the newest isn't the last when the clock went back.
    named = re.search(r"campaign (\S+) '", log)
    assert named is not None, f"no campaign was begun: {log}"
    listed: list[dict[str, Any]] = lab.cli.json("results list", **environ)
    return named[1], next(item["status"] for item in listed if item["campaign_id"] == named[1])


def release(lab: Lab, **environ: str) -> None:
    """Do what people do with phones in trouble: mend what ails them, and let them in again."""
    clear(lab)
    for serial in lab.cli.json("status", **environ)["quarantine"]:
        lab.cli("device release", serial, **environ).ok()


def restore_as_told(lab: Lab, log: str, **environ: str) -> None:
    """Put the phones back of which a log says that they aren't yet, and how to."""
    for serial in dict.fromkeys(re.findall(r"'benchfarm device restore (\S+)' tries again", log)):
        lab.cli("device restore", serial, **environ).ok()


def finished(lab: Lab, log: str, **environ: str) -> list[dict[str, Any]]:
    """Have what the faults left open finished without faults, as the log advises; return the
    campaign's runs.
    """
    clear(lab)
    campaign, status = status_of(lab, log, **environ)
    if status != "finished":
        release(lab, **environ)
        lab.cli("run --resume", campaign, timeout_s=HANGS_S, **environ)
        campaign, status = status_of(lab, log, **environ)
    restore_as_told(lab, log, **environ)
    assert status == "finished", log[-6000:]
    runs: list[dict[str, Any]] = lab.cli.json("results runs", campaign, **environ)
    return [run for run in runs if run["outcome"] != "unfit"]


def not_as_before(lab: Lab, before: dict[str, str]) -> list[str]:
    """Return the phones that aren't as they were, and print how they are."""
    now = changed(lab)
    for serial in (unlike := [serial for serial in lab.serials if before[serial] != now[serial]]):
        print(f"{serial} isn't as before: {now[serial]!r} instead of {before[serial]!r}")
    return unlike


def counts_of(
    lab: Lab, runs: Sequence[dict[str, Any]], cases: int, before: dict[str, str]
) -> Counts:
    """Count everything but what is taken for another's."""
    keys = Counter((run["case"]["serial"], run["case"]["model_name"]) for run in runs)
    return Counts(
        lost=cases * len(lab.serials) - len(keys),
        doubled=sum(keys.values()) - len(keys),
        not_restored=len(not_as_before(lab, before)),
    )


def server_of(lab: Lab) -> PrivateAdbServer:
    """The lab's own adb server."""
    return PrivateAdbServer(lab.cli.home / "state" / "virtual", setting="", environ={}, usb=False)
