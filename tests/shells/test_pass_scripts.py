"""The scripts around a run in the passes ``energy`` and ``contention``, in real shells."""

from __future__ import annotations

import signal
from itertools import pairwise
from pathlib import Path

from orchestrator.scripts import script_command
from tests.conftest import poll_until
from tests.shells.conftest import Shell


def lines(shell: Shell, name: str) -> list[list[str]]:
    return [line.split() for line in (shell.folder / name).read_text().splitlines()]


def test_a_command_runs_between_two_rests_and_keeps_its_exit_code(shell: Shell) -> None:
    shell.tool("dumpsys", "echo '  USB powered: true'")
    done = shell.call("energy", 0.3, "", 'echo "it\'s out"; sleep 0.2; exit 7')
    assert (done.returncode, done.stdout) == (7, b"it's out\n")
    marks = {words[0]: float(words[1]) for words in lines(shell, "energy") if len(words) == 2}
    assert list(marks) == ["rest", "work", "end", "over"]
    assert marks["work"] - marks["rest"] > 0.2
    assert marks["end"] - marks["work"] > 0.1
    assert marks["over"] - marks["end"] > 0.2
    assert sum(words == ["USB", "powered:", "true"] for words in lines(shell, "energy")) == 2


def test_nothing_that_cant_be_written_keeps_a_command_from_running(shell: Shell) -> None:
    (shell.folder / "energy").mkdir()
    done = shell.call("energy", 0, "", "echo out")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"out\n", b"")


def supply(shell: Shell, **files: str) -> Path:
    """A power_supply folder with a charger and a battery."""
    for name, content in {
        "usb/type": "USB",
        "usb/current_now": "500000",
        "bms/type": "Battery",
        **files,
    }.items():
        path = shell.folder / "supply" / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content + "\n")
    return shell.folder / "supply"


BATTERY = {
    "bms__current_now": "-412",
    "bms__voltage_now": "4012000",
    "bms__charge_counter": "2345000",
}
SERVICE = "echo '  voltage: 3987'; echo '  Charge counter: 2340000'"


def battery(shell: Shell, count: int, folder: Path) -> list[list[str]]:
    done = shell.call("battery", count, 0.3, folder)
    assert (done.returncode, done.stderr) == (0, b"")
    found = [line.split() for line in done.stdout.decode().splitlines()]
    assert len(found) == count
    assert all(float(late[0]) - float(early[0]) > 0.2 for early, late in pairwise(found))
    return [line[1:] for line in found]


def test_a_battery_is_sampled_from_the_kernels_files(shell: Shell) -> None:
    shell.tool("dumpsys", "exit 1")
    assert battery(shell, 2, supply(shell, **BATTERY)) == [["-412", "4012000", "2345000"]] * 2


def test_what_the_kernel_hides_is_asked_of_the_battery_service(shell: Shell) -> None:
    shell.tool("dumpsys", SERVICE)
    half = supply(shell, **{**BATTERY, "bms__voltage_now": "", "bms__charge_counter": "n/a"})
    assert battery(shell, 1, half) == [["-412", "3987000", "2340000"]]
    nothing = supply(shell, bms__current_now="")
    assert battery(shell, 1, nothing) == [["-", "3987000", "2340000"]]
    shell.tool("dumpsys", SERVICE + "; echo '  current now: 398000'")
    assert battery(shell, 1, nothing) == [["398000", "3987000", "2340000"]]
    shell.tool("dumpsys", 'echo "Can\'t find service: battery"; exit 1')
    assert battery(shell, 1, shell.folder / "absent") == [["-", "-", "-"]]


def test_a_sampler_runs_from_the_first_rest_to_the_end(shell: Shell) -> None:
    shell.tool("dumpsys", SERVICE)
    sampler = script_command("battery", 600, 1, supply(shell, **BATTERY))
    # A rest is longer than the sampler's pause, so that one sample lies in each.
    done = shell.call("energy", 2, sampler, "sleep 1; exit 4")
    assert done.returncode == 4
    samples = [float(words[0]) for words in lines(shell, "battery")]
    marks = {words[0]: float(words[1]) for words in lines(shell, "energy") if len(words) == 2}
    assert samples[0] < marks["work"]
    assert samples[-1] >= marks["end"]  # both to 10 ms
    count = len(samples)
    shell.run("sleep 1.2")
    assert len(lines(shell, "battery")) == count


def processes(shell: Shell) -> list[int]:
    return [
        int(words[1]) for words in lines(shell, "load") if words[0] in {"cpu", "memory", "other"}
    ]


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


#: Lasts until both loads have had more processor time than they were told to have had at its begin.
UNTIL_LOADS_WORKED = """
worked() {
    read -r l </proc/$2/stat && set -- $3 ${l##*) } && [ $((${13} + ${14} + ${15} + ${16})) -gt $1 ]
}
until { read -r _ && read -r cpu && read -r memory; } <load && worked $cpu && worked $memory; do
    sleep 0.05
done
"""


def test_a_load_runs_from_begin_to_end_and_ends_with_the_command(shell: Shell) -> None:
    command = f"echo out; {UNTIL_LOADS_WORKED} exit 3"
    done = shell.call("contention", 1, 1, "export A=b; exec sleep 60", 60, command)
    assert (done.returncode, done.stdout) == (3, b"out\n")
    told = lines(shell, "load")
    assert [words[0] for words in told] == [
        "begin",
        "cpu",
        "memory",
        "other",
        "end",
        "cpu",
        "memory",
        "other",
    ]
    ticks = {
        (place, words[0]): int(words[2]) for place, words in enumerate(told) if len(words) == 3
    }
    assert ticks[5, "cpu"] > ticks[1, "cpu"]
    assert ticks[6, "memory"] > ticks[2, "memory"]
    poll_until(lambda: not any(map(is_alive, processes(shell))), what="the load's end")


def test_a_load_that_ended_is_told(shell: Shell) -> None:
    shell.tool("dd", "echo 'dd: not found' >&2; exit 127")
    shell.call("contention", 0, 1, "", 60, "true").check_returncode()
    assert [words[0:1] + words[2:] for words in lines(shell, "load") if len(words) == 3] == [
        ["memory", "gone"]
    ] * 2
    assert "not found" in (shell.folder / "load.err").read_text()


def test_a_load_ends_at_its_deadline_and_with_its_shell(shell: Shell) -> None:
    shell.call("contention", 1, 0, "", 1, "sleep 2.5").check_returncode()
    assert [words[2] for words in lines(shell, "load") if words[0] == "cpu"][-1] == "gone"
    (shell.folder / "load").unlink()
    begun = shell.start(script_command("contention", 1, 1, "", 60, "sleep 5"))
    poll_until(
        lambda: (shell.folder / "load").exists() and len(lines(shell, "load")) == 3,
        what="the load's begin",
    )
    own = processes(shell)
    assert all(map(is_alive, own))
    begun.send_signal(signal.SIGKILL)
    begun.wait()
    poll_until(lambda: not any(map(is_alive, own)), what="the load's end")


def test_without_a_load_it_is_the_command(shell: Shell) -> None:
    done = shell.call("contention", 0, 0, "", 60, "exit 5")
    assert done.returncode == 5
    assert [words[0] for words in lines(shell, "load")] == ["begin", "end"]
