"""What the pages ask people to paste: every ``sh`` block runs, line by line, on virtual phones
behind a real adb.

One lab, one home and one PostgreSQL database serve all pages, in the order of the index. Added
options only make a command shorter. What can't run here is listed with its reason, so that nothing
is left out unnoticed.
"""

from __future__ import annotations

import re
import shlex
import shutil
import signal
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import poll_until
from tests.e2e.conftest import SPEED, Lab
from tests.samples.command import Done, Process
from tests.samples.farm_hosts import private_database
from tests.samples.places import MODELS, REPO

FOLDERS = ("start", "guides", "reference")
PAGES = [
    REPO / "README.md",
    *(
        page
        for folder in FOLDERS
        for page in sorted((REPO / "docs" / folder).glob("*.md"))
        if page.name != "commands.md"  # made from the help texts
    ),
]
#: What a line may begin with without being run, and why.
NOT_RUN = {
    "pip ": "tests/unit/test_wheel.py installs the wheels",
    "uvx ": "tests/unit/test_wheel.py installs the wheels",
    "make ": "the Makefile's own",
    "python3 -m venv": "tests/unit/test_wheel.py installs the wheels",
    "/opt/benchfarm/": "tests/unit/test_wheel.py installs the wheels",
    "export ": "the test sets the environment",
    "benchfarm quickstart": "tests/unit/test_wheel.py",
    "benchfarm virtual up": "the test's own lab",
    "benchfarm virtual down": "the test's own lab",
    "benchfarm build fetch": "a download: tests/e2e/test_builds.py",
    "benchfarm model fetch": "a download",
    "benchfarm model build": "minutes of TensorFlow: tests/unit/models/test_building.py",
    "benchfarm build add libhexagon": "needs Hexagon's libraries: tests/e2e/test_builds.py",
    "benchfarm import ~/.cache": "needs another lab's results: tests/extensions/interop/test_sessions.py",
    "benchfarm import measurements.jsonl": "needs another lab's results: tests/extensions/interop/test_sessions.py",
    "benchfarm bench model.tflite -s 00008150": "needs an iPhone: tests/extensions/iphone/test_iphone_on_a_cable.py",
    "benchfarm device check -s 00008150": "needs an iPhone: tests/extensions/iphone/test_iphone_on_a_cable.py",
    "benchfarm import console.txt": "needs an app's results: tests/extensions/interop/test_ios_console.py",
    "benchfarm compare --by device": "needs an iPhone's results: tests/extensions/interop/test_ios_console.py",
    "benchfarm build add litert_lm": "a program of LiteRT-LM's own build",
    "benchfarm bench qwen3": "a bundle of a gigabyte",
    "benchfarm bench little.gguf": "another runtime's program: tests/extensions/runtimes/test_declared_programs.py",
    "benchfarm bench model.onnx": "another runtime's program: tests/extensions/runtimes/test_declared_programs.py",
    "benchfarm build programs ./": "a file of one's own: tests/extensions/runtimes/test_declared_programs.py",
    "benchfarm parse llama-bench": "another runtime's output: tests/extensions/runtimes/test_declared.py",
    "benchfarm plan init": "the plan is there: tests/e2e/test_examples.py",
    "benchfarm bisect": "needs builds that are archived: tests/e2e/test_comparing.py",
    "benchfarm farm forget": "needs a host that is gone: tests/extensions/farm/e2e/test_farm_operations.py",
    "benchfarm farm status --watch": "tests/extensions/farm/e2e/test_farm_hosts.py",
    "benchfarm history changes --notify": "needs a webhook: tests/extensions/history/e2e/test_site.py",
    "benchfarm serve --host": "listens on every address",
    "benchfarm device pair": "needs a phone by Wi-Fi: tests/integration/test_network_phones.py",
    "benchfarm device connect": "needs a phone by Wi-Fi: tests/integration/test_network_phones.py",
    "benchfarm device disconnect": "needs a phone by Wi-Fi: tests/integration/test_network_phones.py",
    "BENCHFARM_ADB_SERVER=": "needs another computer",
    "ssh ": "needs another computer",
    "install ": "tests/test_services.py reads the units",
    "useradd ": "tests/test_services.py reads the units",
    "journalctl ": "systemd's own",
    "systemctl ": "tests/test_services.py reads the units",
    "sudo ": "needs root",
    "createdb ": "tests/contract/test_store_retention.py",
    "pg_": "tests/contract/test_store_retention.py",
    "podman ": "needs podman",
    "curl ": "needs a farm behind a server: tests/browser/test_farm_page.py",
    "benchfarm flags --build": "a program of one's own: tests/e2e/test_flags.py",
    "adb ": "the phone's own shell",
}
#: Options that make a command shorter, unless it has them.
SHORTER = {
    ("bench",): {"-n": "1", "--min-secs": "0.1", "-t": "1"},
    ("ab",): {"--runs": "2", "--min-secs": "0.1"},
}
LONG = {"-n": "--runs", "-t": "--threads"}
#: What other passes than the usual one are tried with.
ONE_CASE = {"cpu,xnnpack,gpu": "xnnpack", "xnnpack,gpu": "xnnpack", "1,4": "1"}
#: Commands whose exit code is an answer: 1 says no.
ANSWERS = {
    "ab",
    "advise",
    "bisect",
    "compare",
    "doctor",
    "farm",
    "history",
    "model",
    "plan",
    "report",
    "results",
}


def pasted(page: Path) -> Iterator[str]:
    """The lines of a page's ``sh`` blocks, and commands that are indented; no comments, continued
    lines joined.
    """
    text = page.read_text("utf-8")
    for block in [
        *re.findall(r"(?ms)^```sh\n(.*?)^```", text),
        *re.findall(r"(?m)^(?:    |\$ )(benchfarm .*)", text),
    ]:
        for line in block.replace("\\\n", " ").splitlines():
            words = re.sub(r"(?:^|\s)#.*", "", line).strip()
            if words:
                yield words


@dataclass(kw_only=True)
class Reader:
    """Somebody who pastes what a page says."""

    lab: Lab
    database: str
    done: set[str] = field(default_factory=set)
    #: A page's worker ends with its page: the next one starts its own.
    workers: list[Process] = field(default_factory=list)

    def paste(self, line: str) -> None:
        if line in self.done or any(line.startswith(start) for start in NOT_RUN):
            return
        words = shlex.split(line)
        assert words.pop(0) == "benchfarm", f"{line}: neither run nor listed in NOT_RUN"
        farm_findings = words[0] == "farm" or "--farm" in words or "release-7" in words
        environ: dict[str, Any] = {"BENCHFARM_STORE": self.database} if farm_findings else {}
        words = [self.named(word, environ) for word in words]
        is_beside_loads = "contention" in line
        if "--pass" in words:
            words = [ONE_CASE.get(word, word) for word in words]
        name = next(
            (start for start in [tuple(words[:2]), tuple(words[:1])] if start in SHORTER), ()
        )
        for option, value in SHORTER.get(name, {}).items():
            # A load's processes need their turns, which a busy computer gives them in a second.
            value = SPEED if option == "--min-secs" and is_beside_loads else value
            is_given = not {option, LONG.get(option), "--campaign"}.isdisjoint(words)
            words += [] if is_given else [option, value]
        if words[0] == "serve" or words[:2] == ["farm", "worker"]:
            self.serve(words, environ)
            return
        done: Done = self.lab.cli(*words, workers=self.workers, **environ)
        allowed = {0, 1} if words[0] in ANSWERS else {0}
        assert done.exit_code in allowed, f"$ {line}\n{done.exit_code}: {done.said}"
        self.done.add(line)

    def serve(self, words: list[str], environ: dict[str, Any]) -> None:
        """Start what serves. Pages are there once it says so; a worker's phones have to be, for
        what follows.
        """
        process = self.lab.cli.start(
            *words, *(["--port", "0"] if words[0] == "serve" else []), **environ
        )
        if words[0] == "farm":
            self.workers.append(process)

            def phones() -> list[object]:
                assert process.poll() is None, f"{words} has ended with {process.returncode}"
                answer = self.lab.cli("farm status --json", **environ)
                return answer.json["devices"] if answer.exit_code in {0, 1} else []

            poll_until(
                lambda: len(phones()) == len(self.lab.serials), "the worker's phones are announced"
            )
            return
        assert process.stderr is not None
        address = re.search(r"http://127\.0\.0\.1:\d+/", process.stderr.readline())
        assert address is not None
        with urllib.request.urlopen(address[0], timeout=60) as answer:
            assert "<html" in answer.read().decode()
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0

    def named(self, word: str, environ: dict[str, Any]) -> str:
        """What a word in capitals, or the name of a folder, stands for."""
        if word in {"SERIAL", "phone:SERIAL"}:
            return word.replace("SERIAL", self.lab.serial)
        if word == "CAMPAIGN":
            return str(self.lab.cli.json("results list")[0]["campaign_id"])
        if word == "RUN":
            return str(self.lab.cli.json("results runs")[0]["run_id"])
        if word == "SUBMISSION":
            # The page's own, which is done.
            return "release-7"
        return {"30m": "10s"}.get(word, word.replace("/backup/", "backup/"))


@pytest.fixture(scope="module")
def reader(
    lab_of: Callable[..., Lab], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Reader]:
    """A reader in a folder with the files that the pages name, who has measured twice."""
    folder, lab = tmp_path_factory.mktemp("pages"), lab_of("pixel-3")
    first, second = sorted(MODELS.glob("*.tflite"))
    for name, source in {"model": first, "old": first, "new": second}.items():
        shutil.copy(source, folder / f"{name}.tflite")
    plan = (
        "models: model.tflite\nmatrix: {delegates: [xnnpack, gpu], threads: 1}\ndevices: {any: 1}\n"
        "settings: {min_secs: 0.1}\ninvocations: 2\n"
    )
    for name in ("plan", "nightly", "check"):
        (folder / f"{name}.yaml").write_text(f"name: {name}\n{plan}")
    shutil.copy(
        REPO / "tests" / "data" / "native" / "default_float_10_224.txt", folder / "colleague.txt"
    )
    (folder / "inputs").mkdir()
    (folder / "backup").mkdir()
    (folder / "inputs" / "model.0.bin").write_bytes(np.zeros(256 * 256 * 3, np.float32).tobytes())
    with pytest.MonkeyPatch.context() as patch, private_database() as database:
        patch.chdir(folder)
        for number, more in enumerate([(), ("--time", "+3")], 1):
            lab.cli(
                "virtual program",
                f"{['old', 'new'][number - 1]}-program",
                "--release",
                number,
                *more,
            ).ok()
        for _ in range(2):
            lab.cli("bench model.tflite -d xnnpack,gpu -t 1,4 -n 2 --min-secs 0.1").ok()
        yield Reader(lab=lab, database=database.url)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPO)))
def test_what_a_page_asks_to_paste_runs(reader: Reader, page: Path) -> None:
    reader.workers.clear()
    for line in pasted(page):
        reader.paste(line)
