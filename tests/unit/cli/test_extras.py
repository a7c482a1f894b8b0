"""What benchfarm says where no extra is installed: all help is there, each command names what to
install; what tests alone need isn't missed."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

from tests.samples.extensions import needs_extension
from tests.samples.places import REPO

PROJECT = tomllib.loads((REPO / "pyproject.toml").read_text("utf-8"))["project"]
#: Packages that only extras bring, as they are imported.
OF_EXTRAS = (
    "benchfarm_virtual", "fastapi", "keras", "procrastinate", "prometheus_client",
    "psycopg", "psycopg_pool", "pyarrow", "pymobiledevice3", "tensorflow", "uvicorn",
)  # fmt: skip
#: Packages that tests alone need.
OF_TESTS = ("perfetto",)
WITHOUT = f"import sys; sys.modules.update(dict.fromkeys({OF_EXTRAS + OF_TESTS!r}))\n"
#: Asks the help of each command and group; prints the words of one that has none.
ALL_HELP = """
import contextlib, io
from orchestrator.cli.commands import ROOT

def walk(command, words):
    yield words
    for name in command.list_commands(None) if hasattr(command, "list_commands") else ():
        yield from walk(command.get_command(None, name), [*words, name])

asked = 0
for words in walk(ROOT, []):
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        ROOT.main([*words, "--help"], prog_name="benchfarm", standalone_mode=False)
    assert text.getvalue().startswith("Usage: benchfarm"), words
    asked += 1
print(asked)
"""


def run(code: str, *words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WITHOUT + code, *map(str, words)],
        capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip


def test_every_help_is_there_without_any_extra() -> None:
    done = run(ALL_HELP)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 50


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        pytest.param(("farm", "status"), "farm", marks=needs_extension("farm")),
        pytest.param(("serve",), "serve", marks=needs_extension("history")),
        (("--store", "postgresql://nobody@127.0.0.1:1/x", "results", "list"), "postgresql"),
        (("virtual", "list"), "virtual"),
        (("quickstart",), "virtual"),
        pytest.param(("model", "build", "tiny_cnn"), "models", marks=needs_extension("models")),
    ],
)
def test_a_command_without_its_extra_says_which_to_install(
    words: tuple[str, ...], extra: str, tmp_path: Path
) -> None:
    done = run("from orchestrator.cli import main; main()", "--home", tmp_path, *words)
    assert (done.returncode, done.stdout) == (2, "")
    brings = {
        name for name in PROJECT["optional-dependencies"] if f"'benchfarm[{name}]'" in done.stderr
    }
    assert brings == {extra}, done.stderr
    assert "Traceback" not in done.stderr


#: Reads a trace, given in hexadecimal.
READ_TRACE = """
from orchestrator.extensions.trace.run_pass import read_recording, summarise

for item in summarise(read_recording(bytes.fromhex(sys.argv[1]))).operators:
    print(item.name, item.total_us)
"""


@needs_extension("trace")
def test_a_trace_is_read_without_perfettos_package() -> None:
    trace = Trace()
    events = trace.packet.add().ftrace_events.event
    for at_ns, text in ((1000, "B|10|ADD@0/0\n"), (3000, "E|10\n")):
        events.add(timestamp=at_ns, pid=10).print.buf = text
    done = run(READ_TRACE, trace.SerializeToString().hex())
    assert (done.stdout, done.stderr) == ("ADD 2.0\n", "")
