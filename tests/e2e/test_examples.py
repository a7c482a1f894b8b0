"""The examples, and plans that are begun with and shown before anything is there to run them."""

from __future__ import annotations

import hashlib
import os
import platform
import pty
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from orchestrator.config.declarations import load_builds
from orchestrator.installation import data_folder
from orchestrator.tables.escapes import display_width
from tests.e2e.conftest import Lab
from tests.e2e.test_host_native import build
from tests.samples.command import Cli
from tests.samples.sample_lab import small_lab, stored
from tests.unit.artifacts.file_server import FileServer, file_server

EXAMPLES = data_folder("reports").parent / "examples"


def test_the_minimal_example_measures_every_delegate_that_is_there(
    lab: Lab, tmp_path: Path
) -> None:
    plan = tmp_path / "minimal.yaml"
    samples = f"{EXAMPLES.parent}/orchestrator"
    plan.write_text(
        (EXAMPLES / "minimal.yaml").read_text("utf-8").replace("../orchestrator", samples) + QUICK
    )
    done = lab.cli.json("run", plan)
    assert {item["serial"] for item in done["winners"]} == set(lab.serials)
    assert {run["case"]["delegate"] for run in done["runs"]} >= {"cpu", "xnnpack", "gpu"}


QUICK = "settings: {min_secs: 0.1, warmup_min_secs: 0.1}\ninvocations: 2\n"


@pytest.mark.parametrize(
    ("name", "cases"),
    [("minimal.yaml", 10), ("nightly.yaml", 16), ("published-table/plan.yaml", 48)],
)
def test_each_example_plan_can_be_shown(lab: Lab, model: Path, name: str, cases: int) -> None:
    # As 'model fetch' writes it; what is in the files doesn't matter here.
    names = yaml.safe_load((EXAMPLES / "published-table/plan.yaml").read_text("utf-8"))["models"]
    rows = []
    for number, entry in enumerate(names):
        path = lab.cli.home / f"{entry}.tflite"
        path.write_bytes(model.read_bytes() + b"\0" * 16 * (number + 1))
        rows.append(
            {
                "name": entry,
                "file": path.name,
                "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
            }
        )
    (lab.cli.home / "models.yaml").write_text(yaml.dump({"models": rows}))
    shown = lab.cli.json("plan show", EXAMPLES / name)
    assert len(shown["cases"]) >= cases
    assert shown["devices"]["chosen"] == list(lab.serials)
    assert shown["missing"] == []
    assert 0 < shown["estimate_s"] <= shown["estimate_most_s"]


def test_the_ab_example_compares_two_programs_in_turns(
    lab: Lab, model: Path, tmp_path: Path
) -> None:
    command = tmp_path / "bin" / "benchfarm"
    command.parent.mkdir()
    # What it would start.
    command.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    command.chmod(0o755)
    path = f"{command.parent}:{os.environ['PATH']}"
    words = [EXAMPLES / "ab.sh", lab.serial, "old", "new", model, "b c.tflite"]
    said = subprocess.run(
        words, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=True
    ).stdout
    told = said.splitlines()
    assert told[-4:] == ["-m", str(model), "-m", "b c.tflite"]
    # The command knows all of these words: it comes as far as the programs, which aren't there.
    done = lab.cli(*told[:-2])
    assert done.exit_code == 4, done.said
    assert "no build 'old'" in done.stderr


def test_a_plan_is_begun_with_for_the_attached_phones_and_can_be_run(
    lab: Lab, model: Path, tmp_path: Path
) -> None:
    own = tmp_path / "my model.tflite"
    shutil.copy(model, own)
    plan = tmp_path / "plan.yaml"
    lab.cli("plan init", own, "--out", plan).ok()
    text = plan.read_text("utf-8")
    assert '- "my model.tflite"' in text
    assert re.search(
        rf'- "{lab.serial}" # Google Pixel 3 \(virtual\), Android \S+, .*profile pixel-3', text
    )
    shown = lab.cli.json("plan show", plan)
    assert shown["devices"]["chosen"] == list(lab.serials)
    again = lab.cli("plan init", own, "--out", plan)
    assert again.exit_code == 2
    assert "exists already" in again.stderr
    assert plan.read_text("utf-8") == text


def test_a_plan_is_shown_without_its_programs_which_are_listed(
    cli: Cli, model: Path, tmp_path: Path
) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text(
        f"models: {model}\nmatrix: {{delegates: [cpu, xnnpack], tools: native}}\ndevices: {{host: true}}\n"
    )
    shown = cli("plan show", plan).ok().stdout
    assert shown.count("native") >= 2
    assert re.search(
        r"missing:\n  no build of native for linux-\S+ is on this computer .*benchfarm build fetch",
        shown,
    )
    (missing,) = cli.json("plan show", plan)["missing"]
    assert missing["serials"] == ["host"]


def in_terminal(
    cli: Cli, answer: str, *words: object, columns: int = 100, **environ: str
) -> tuple[int, str]:
    """Run the command on a terminal of its own, answer its first question, and return how it ended
    and what it said."""
    terminal, its_own = pty.openpty()
    standard = {"stdin": its_own, "stdout": its_own, "stderr": its_own}
    process = cli.process(words, {"TERM": "xterm", "COLUMNS": f"{columns}", **environ}, **standard)
    os.close(its_own)
    said = b""
    asked = False
    while True:
        try:
            chunk = os.read(terminal, 65536)
        except OSError:
            break
        if not chunk:
            break
        said += chunk
        if not asked and b"[Y/n]" in said:
            asked = True
            os.write(terminal, answer.encode())
    os.close(terminal)
    return process.wait(60), said.decode("utf-8", "replace")


@pytest.mark.parametrize(
    "words",
    ["table", "table --all", "table --source published", "report --format text", "results runs"],
)
def test_a_text_table_fits_a_terminal_and_has_whole_lines_elsewhere(
    tmp_path: Path, words: str
) -> None:
    cli = Cli(home=stored(tmp_path / "home", small_lab()))
    _, fitted = in_terminal(cli, "", words, columns=80, NO_COLOR="1")
    assert max(map(display_width, fitted.splitlines())) <= 80
    narrow, wide = (cli(words, COLUMNS=columns).ok().stdout for columns in ("80", "200"))
    assert narrow == wide
    assert "\N{HORIZONTAL ELLIPSIS}" not in narrow
    assert max(map(display_width, narrow.splitlines())) > 80


@pytest.fixture
def mirror(tmp_path: Path) -> Iterator[FileServer]:
    """A mirror that has benchmark_model for this computer."""
    (spec,) = (
        item
        for item in load_builds([data_folder("apk_builds")])
        if item.name == "benchmark_model" and item.abi == f"linux-{platform.machine()}"
    )
    with file_server() as server:
        content = build(tmp_path, "xnnpack_true_fully_delegated.txt").read_bytes()
        server.put("/" + spec.source.url.partition("://")[2], content)
        yield server


def test_a_missing_program_is_offered_for_download_on_a_terminal_and_nowhere_else(
    cli: Cli, model: Path, mirror: FileServer, tmp_path: Path
) -> None:
    words = ("bench -s host --tool native -d xnnpack -t 1 -n 2", model)
    place = {"BENCHFARM_MIRROR": mirror.url}
    piped = cli(*words, stdin="y\n", **place)
    assert (piped.exit_code, "[Y/n]" in piped.said, mirror.asked) == (2, False, [])
    refused, said = in_terminal(cli, "n\n", *words, **place)
    assert (refused, mirror.asked) == (2, [])
    assert f"benchmark_model for linux-{platform.machine()} is not on this computer" in said
    plan = tmp_path / "plan.yaml"
    plan.write_text(
        f"models: {model}\nmatrix: {{delegates: xnnpack, tools: native}}\ndevices: {{host: true}}\n"
    )
    sides = ("delegate:xnnpack", "delegate:cpu", "-m", model, "-s", "host", "--tool", "native")
    for others in (("run", plan), ("ab", *sides)):
        refused, said = in_terminal(cli, "n\n", *others, **place)
        assert (refused, said.count("[Y/n]"), mirror.asked) == (2, 1, []), said
    quiet, said = in_terminal(cli, "y\n", *words, "--json", **place)
    assert (quiet, "[Y/n]" in said, mirror.asked) == (2, False, [])
    code, said = in_terminal(cli, "\n", *words, **place)
    assert code in {0, 1}, said
    assert "report: " in said
    assert f"linux-{platform.machine()}" in cli("build list").ok().stdout


def test_progress_of_an_ab_comparison_names_its_sides_and_breaks_no_word(
    lab: Lab, model: Path
) -> None:
    words = ("ab delegate:xnnpack delegate:gpu", "-m", model, "-s", lab.serial)
    code, said = in_terminal(lab.cli, "", *words, "--runs", "3", "--min-secs", "0.1", columns=80)
    assert code in {0, 1}, said
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "\n", said)
    progress = plain.partition("delegate gpu (candidate)")[0].splitlines()
    # Only a single word, a path for example, may be wider than the terminal.
    assert [line for line in progress if len(line) > 80 and len(line.split()) > 1] == []


def test_sample_models_are_copied_and_replace_no_other_file(cli: Cli, tmp_path: Path) -> None:
    copied = cli.json("model fetch samples --out", tmp_path / "here")
    assert [Path(item["path"]).parent for item in copied] == [tmp_path / "here"] * 2
    cli("model fetch samples --out", tmp_path / "here").ok()
    Path(copied[0]["path"]).write_bytes(b"somebody's own")
    again = cli("model fetch samples --out", tmp_path / "here")
    assert again.exit_code == 2
    assert "is there already and is another file" in again.stderr
    assert Path(copied[0]["path"]).read_bytes() == b"somebody's own"
