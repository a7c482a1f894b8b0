"""A Linux benchmark_model that the user names, on this computer: here a program that repeats a real
recording."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pandas
import pytest

from tests.conftest import c_compiler
from tests.samples.command import Cli, Done
from tests.samples.places import NATIVE, REPO

#: Two operators, of which this computer runs thousands in the time that LiteRT's program rounds to.
TINY = REPO / "tests" / "data" / "tiny" / "two_operators.tflite"
#: Prints a recording, stdout and stderr apart as the real program does, and the arguments that it
#: was given.
SOURCE = r"""
#include <stdio.h>
#include <string.h>
#include <unistd.h>
int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) if (!strncmp(argv[i], "--graph=", 8)) {
        fprintf(stderr, "given %s\n", argv[i]);
        sleep(LASTS);
    }
    for (long i = 0; i < NOISE; i++) puts("INFO: a line of 64 bytes that a delegate repeats for each of its nodes.");
    fputs(TEXT, stdout);
    return EXIT;
}
"""


def build(folder: Path, recording: str, *, lasts_s: int = 0, noise: int = 0) -> Path:
    """Compile a fake binary for the program that prints a recording's lines and ends with its exit
    code.

    In front of them come so many lines of noise, of 72 bytes each.
    """
    lines = (NATIVE / recording).read_text("utf-8").splitlines()
    body = [line for line in lines if not line.startswith(("# cmd:", "# exit:"))]
    exit_code = next(line.split()[-1] for line in lines if line.startswith("# exit:"))
    quoted = "".join(
        '"' + line.replace("\\", "\\\\").replace('"', '\\"') + '\\n"\n' for line in body
    )
    source, program = folder / "program.c", folder / "linux_x86-64_benchmark_model"
    values = {"TEXT": quoted, "EXIT": exit_code, "LASTS": str(lasts_s), "NOISE": str(noise)}
    text = SOURCE
    for word, value in values.items():
        text = text.replace(word, value)
    source.write_text(text)
    subprocess.run([c_compiler(), "-o", program, source], check=True, capture_output=True)
    return program


def bench(cli: Cli, model: Path, program: Path) -> Done:
    words = "bench --json -d xnnpack --with-host --tool native -t 1 -n 1"
    return cli(words, model, "--build", f"native={program}")


def test_a_program_that_the_user_names_is_run_and_read(
    cli: Cli, model: Path, tmp_path: Path
) -> None:
    program = build(tmp_path, "xnnpack_true_fully_delegated.txt")
    done = bench(cli, model, program)
    assert done.exit_code in {0, 1}, done.stderr
    (run,) = done.json["runs"]
    assert run["case"]["tool"] == "native"
    assert run["is_virtual"] is False
    assert f"--graph={model}" in run["command"]
    assert run["outcome"] == "completed", run["reason"]
    assert run["report"]["delegate"]["truth"] == "full"
    assert "given --graph=" in cli("results log -a stderr", run["run_id"]).ok().stdout


def test_both_ends_of_a_very_long_output_are_stored_and_the_report_says_so(
    cli: Cli, model: Path, tmp_path: Path
) -> None:
    program = build(tmp_path, "xnnpack_true_fully_delegated.txt", noise=240_000)
    (run,) = bench(cli, model, program).json["runs"]
    assert run["outcome"] == "completed", run["reason"]
    (finding,) = (item for item in run["verdict"]["findings"] if item["code"] == "output-cut")
    assert re.fullmatch(r"the middle of 17\d{6} bytes of output is left out", finding["evidence"])
    log = cli("results log -a stdout", run["run_id"]).ok().stdout
    assert len(log) < 17 << 20
    assert f"benchfarm: {finding['evidence']} here" in log
    page = tmp_path / "report.html"
    cli("report --out", page).ok()
    assert (
        "its output isn&#39;t kept" in page.read_text()
        or "its output isn't kept" in page.read_text()
    )


def test_a_program_that_fails_is_a_failure_with_its_own_reason(
    cli: Cli, model: Path, tmp_path: Path
) -> None:
    program = build(tmp_path, "err_corrupt_truncated.txt")
    done = bench(cli, model, program)
    assert done.exit_code == 1
    (run,) = done.json["runs"]
    assert (run["outcome"], run["exit_code"]) == ("failed", 1)
    assert run["reason"]


def test_a_file_that_is_no_program_is_refused_before_anything_runs(
    cli: Cli, model: Path, tmp_path: Path
) -> None:
    text = tmp_path / "benchmark_model"
    text.write_text("hello")
    done = bench(cli, model, text)
    assert done.exit_code == 4, done.stderr
    assert str(text) in done.stderr


def test_what_is_exported_of_this_computer_names_no_folder_of_it(
    cli: Cli, model: Path, tmp_path: Path
) -> None:
    here = tmp_path / "own work"
    here.mkdir()
    own = here / "my model.tflite"
    own.write_bytes(model.read_bytes())
    program = build(here, "xnnpack_true_fully_delegated.txt")
    plan = here / "plan.yaml"
    plan.write_text(
        f"models: ['{own}']\nmatrix: {{delegates: [xnnpack], threads: [1], tools: [native]}}\n"
        f"builds: {{native: '{program}'}}\ndevices: {{serials: [host]}}\ninvocations: 1\nreference_check: false\n"
    )
    assert cli("run", plan).exit_code in {0, 1}
    texts = {}
    for name in ("night.zip", "night.csv", "night.parquet", "night.json"):
        rows = "--rows invocations" if name.endswith((".csv", ".parquet")) else ""
        cli(f"export {rows}", "--out", tmp_path / name).ok()
    with zipfile.ZipFile(tmp_path / "night.zip") as archive:
        texts |= {name: archive.read(name) for name in archive.namelist()}
    texts |= {name: (tmp_path / name).read_bytes() for name in ("night.csv", "night.json")}
    texts["night.parquet"] = pandas.read_parquet(tmp_path / "night.parquet").to_csv().encode()
    for name, text in texts.items():
        assert str(tmp_path).encode() not in text, name
        assert sys.prefix.encode() not in text, name
    assert any(b"given --graph=my model.tflite" in text for text in texts.values())
    # It is still the same campaign, here and in another lab.
    assert "already stored" in cli("import", tmp_path / "night.zip").ok().stdout
    other = Cli(home=tmp_path / "other")
    other("import", tmp_path / "night.zip").ok()
    (run,) = other.json("results runs")
    assert (run["outcome"], run["report"]["delegate"]["truth"]) == ("completed", "full")


def test_a_model_that_is_too_fast_for_the_usual_program_is_measured_with_a_finer_one(
    cli: Cli, tmp_path: Path
) -> None:
    program = build(tmp_path, "xnnpack_true_fully_delegated.txt")
    words = ("bench --with-host -d xnnpack -t 1 -n 1 --min-secs 0.1", TINY)

    def measured(*words: object) -> Done:
        done = cli(*words, "--json")
        if "coarse-resolution" in done.stderr:
            pytest.skip("the smallest model takes this computer one step of LiteRT's digits")
        return done

    done = measured(*words, "--build", f"native={program}")
    # What is clean depends on what else this computer does.
    assert (done.exit_code in {0, 1}, done.json["without_result"]) == (True, 0), done.stderr
    assert (
        "two_operators: too fast for the digits of litert, so measured with native" in done.stderr
    )
    assert [
        (run["case"]["tool"], run["outcome"], run["reason_code"]) for run in done.json["runs"]
    ] == [("litert", "failed", "too-fast"), ("native", "completed", "")]
    plan = tmp_path / "plan.yaml"
    plan.write_text(
        f"models: {TINY}\nmatrix: {{delegates: xnnpack, threads: 1}}\ndevices: {{host: true}}\n"
        f"settings: {{min_secs: 0.1}}\ninvocations: 1\nbuilds: {{native: {program}}}\n"
    )
    planned = measured("run", plan)
    assert [(run["case"]["tool"], run["reason_code"]) for run in planned.json["runs"]] == [
        ("litert", "too-fast"),
        ("native", ""),
    ], planned.stderr
    alone = measured(*words).ended_with(1)
    assert "two_operators: it can't be measured with native: " in alone.stderr
    assert [run["case"]["tool"] for run in alone.json["runs"]] == ["litert"]
