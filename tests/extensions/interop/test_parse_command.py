"""``benchfarm parse``: what it writes of one run, of several, of several files, and when it is
stopped."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.cli.output import to_json
from orchestrator.errors import OutputParseError, UsageError
from orchestrator.extensions.interop.cli import parse_files

RUN = (
    "STARTING!\ncount=50 first=3000 curr=3000 min=2900 max=3100 avg=3000 std=10\n"
    "Inference timings in us: Init: 1500, First inference: 4000, Warmup (avg): 3000, Inference (avg): 3000\n"
)


def written(tmp_path: Path, *texts: str) -> tuple[str, ...]:
    paths = [tmp_path / f"{number}.log" for number in range(len(texts))]
    for path, text in zip(paths, texts, strict=True):
        path.write_text(text, encoding="utf-8")
    return tuple(map(str, paths))


def test_one_run_is_an_object_and_several_are_a_list(tmp_path: Path) -> None:
    one, two = written(tmp_path, RUN, RUN * 2)
    single = json.loads(to_json(parse_files((one,)).data))
    assert single["inference_mean_us"] == 3000
    assert json.loads(to_json(parse_files((two,)).data)) == [single, single]
    both = json.loads(to_json(parse_files((one, two)).data))
    assert [entry["file"] for entry in both] == [one, two, two]
    lines = list(parse_files((one, two)).lines)
    assert [line for line in lines if line and not line.startswith(" ")] == [
        one,
        f"{two}, run 1",
        f"{two}, run 2",
    ]


def test_a_file_without_a_run_is_told_before_anything_is_written(tmp_path: Path) -> None:
    one, two = written(tmp_path, RUN, "hello\n")
    with pytest.raises(OutputParseError, match=two):
        parse_files((one, two))
    with pytest.raises(UsageError, match="nosuch"):
        parse_files((one, str(tmp_path / "nosuch")))


#: Runs the command in its arguments after the first two: a signal, and the modules during whose
#: import it arrives.
STOPPED = """
import os, sys
from orchestrator.cli import main
class Stop:
    def find_spec(self, name, *_):
        if name in wanted:
            wanted.remove(name)
            os.kill(os.getpid(), number)
number, wanted = int(sys.argv.pop(1)), sys.argv.pop(1).split()
sys.meta_path.insert(0, Stop())
main()
"""


#: Runs the command after the first argument, a signal that arrives when Python lets go of modules.
STOPPED_AT_THE_END = """
import os, sys
from orchestrator.cli import main
class Last:
    def __del__(self, kill=os.kill, own=os.getpid(), number=int(sys.argv.pop(1))):
        kill(own, number)
last = Last()
main()
"""


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_command_that_has_told_all_ends_with_its_own_exit_code(stop: signal.Signals) -> None:
    words = [sys.executable, "-c", STOPPED_AT_THE_END, str(int(stop)), "--version"]
    assert subprocess.run(words, capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize(
    ("stop", "module"),
    [
        (signal.SIGINT, "typer"),
        (signal.SIGTERM, "orchestrator.extensions.interop.cli"),
        # Also while the first one is told.
        (signal.SIGINT, "typer orchestrator.cli.output"),
        (signal.SIGHUP, "typer"),
    ],
)
def test_a_command_that_is_stopped_says_so_at_any_moment(
    tmp_path: Path, stop: signal.Signals, module: str
) -> None:
    """Nothing of phones, to which it didn't come; what nohup starts outlives its terminal."""
    words = [
        sys.executable,
        "-c",
        STOPPED,
        str(int(stop)),
        module,
        "parse",
        "--json",
        *written(tmp_path, RUN),
    ]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    error = {
        "code": "interrupted-by-user",
        "message": "Stopped by Ctrl-C or a signal.",
        "hint": "",
        "exit_code": 130,
    }
    assert (done.returncode, json.loads(done.stdout)) == (130, {"error": error})
    assert done.stderr == f"benchfarm: error: {error['message']}\n"
    if stop is signal.SIGHUP:
        subprocess.run(["nohup", *words], capture_output=True, check=True)
