"""Declared programs: on virtual phones by fake binaries, llama-bench for real on this computer
where Debian has it."""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.samples.places import REPO

if TYPE_CHECKING:
    from tests.e2e.conftest import Lab
    from tests.samples.command import Cli, Done

DATA = REPO / "tests" / "data" / "declared"
GGUF = DATA / "tiny.gguf"
SMALL = ("--flag", "prompt_tokens=32", "--flag", "answer_tokens=8", "--flag", "repetitions=3")
#: A flatbuffer's beginning: where its root table is, a mark, an empty list of fields, and the
#: table.
TABLE = b"\x0c\0\0\0%s\x04\0\x04\0\x04\0\0\0"
#: What each runtime's models begin with; ONNX's graph is all the rest.
HEADS = {
    ".gguf": b"GGUF\x03", ".pte": TABLE % b"ET12", ".param": b"7767517\n1 1\n", ".mnn": TABLE % bytes(4),
    ".onnx": b"\x08\x07\x3a\xe0\xd4\x03",
}  # fmt: skip


def a_model(folder: Path, ending: str) -> Path:
    path = folder / f"little{ending}"
    path.write_bytes(HEADS[ending] + bytes(60_000))
    return path


#: Of models of the others only their programs can tell.
@pytest.mark.parametrize("ending", sorted({*HEADS, ".ort"} - {".mnn", ".onnx"}))
def test_random_bytes_are_no_model_whatever_their_name_says(
    lab: Lab, tmp_path: Path, ending: str
) -> None:
    model = tmp_path / f"real{ending}"
    model.write_bytes(random.Random(7).randbytes(5_000))
    refused = lab.cli(f"bench -s {lab.serial}", model).ended_with(2)
    assert f"is no {ending} file" in refused.stderr


def runs_of(done: Done) -> list[dict[str, Any]]:
    runs: list[dict[str, Any]] = done.json["runs"]
    assert runs
    return runs


@pytest.mark.parametrize(
    ("ending", "tool", "words", "count"),
    [
        (".gguf", "llama-bench", SMALL, 96),
        (".pte", "executor_runner", (), 9),
        (".param", "benchncnn", ("--flag", "shape=[8,8,3]"), 10),
        (".mnn", "mnn-benchmark", (), 10),
        (".onnx", "onnxruntime_perf_test", (), 10),
    ],
)
def test_a_file_chooses_its_program_and_its_figures_are_the_printed_ones(
    lab: Lab, tmp_path: Path, ending: str, tool: str, words: tuple[str, ...], count: int
) -> None:
    model = a_model(tmp_path, ending)
    # What a run logged isn't the next one's, which begins in the same second.
    done = lab.cli(f"bench -s {lab.serial} -t 2 -n 3 --inferences 10 --json", model, *words)
    for run in runs_of(done):
        assert run["outcome"] == "completed", run["reason"]
        assert (run["case"]["tool"], run["case"]["delegate"]) == (f"declared:{tool}", "cpu")
        figure = dict(run["case"]["flags"]).get("figure")
        assert run["report"]["inference"]["count"] == {"decode": 24}.get(figure, count)
        kept = tmp_path / "log.txt"
        shown = lab.cli.json("results log", run["run_id"])
        # All but what this lab read of the phone beside it.
        printed = [text for name, text in shown["attachments"].items() if name != "samples"]
        kept.write_text("".join(printed))
        again = lab.cli.json("parse", kept)
        reports = [again] if isinstance(again, dict) else again
        means = [report["inference_mean_us"] for report in reports]
        assert pytest.approx(run["report"]["inference_mean_us"]) in means
    assert all(row["is_virtual"] for row in lab.cli("report --format json").json["results"])


def test_a_gpu_that_is_replaced_by_the_cpu_is_told(lab: Lab, tmp_path: Path) -> None:
    words = ("-s", lab.serial, "-d", "gpu", "-t", "1", "-n", "1", "--inferences", "5", "--json")
    gguf = runs_of(lab.cli("bench", a_model(tmp_path, ".gguf"), *words, *SMALL))
    assert {run["report"]["delegate"]["truth"] for run in gguf} == {"full"}
    mnn = runs_of(lab.cli("bench", a_model(tmp_path, ".mnn"), *words))
    # Nothing that it prints shows that a GPU took every operator.
    assert [run["verdict"]["quality"] for run in mnn] == ["suspect"]
    onnx = lab.cli("bench -d nnapi", a_model(tmp_path, ".onnx"), *words[:2], *words[4:])
    run = runs_of(onnx)[0]
    assert (run["outcome"], run["reason_code"]) == ("failed", "delegate-failed")


def test_what_a_program_is_not_declared_with_is_refused_before_anything_runs(
    lab: Lab, tmp_path: Path, model: Path
) -> None:
    gguf = a_model(tmp_path, ".gguf")
    phone = ("-s", lab.serial)
    said = lab.cli("bench --flag repetitions=0", gguf, *phone).ended_with(2).said
    assert "--repetitions=0: 1..1000 is expected" in said
    said = lab.cli("bench --flag prompt=1", gguf, *phone).ended_with(2).said
    assert "the program has no flag --prompt; did you mean --prompt_tokens?" in said
    said = lab.cli("bench", a_model(tmp_path, ".param"), *phone).ended_with(2).said
    assert "--shape is needed" in said
    said = lab.cli("bench --tool llama-bench", model, *phone).said
    assert "can't run a file that ends with .tflite" in said
    said = lab.cli("bench --tool lama-bench", gguf, *phone).ended_with(2).said
    assert "llama-bench" in said


def test_passes_that_need_more_than_its_time_are_refused_before_anything_runs(
    lab: Lab, tmp_path: Path
) -> None:
    words = f"bench -s {lab.serial} --flag shape=[8,8,3] -t 1 -n 2 --json"
    passes = "--pass timing,energy,cold,contention"
    done = lab.cli(f"{words} {passes}", a_model(tmp_path, ".param"))
    assert {run["run_pass"] for run in done.json["runs"]} == {"timing"}
    assert {run["outcome"] for run in done.json["runs"]} == {"completed"}
    report = lab.cli("report --format json", done.json["campaign_id"]).json
    (told,) = {skip["reason"] for skip in report["skipped"]}
    assert told == (
        "pass energy, cold, contention: 'benchncnn' is declared: only its time is known"
    )


OWN = """\
name: counting
title: A program of one's own
version: 1
program: counting.sh
models: [.txt]
argv: ["{model}", "{word}"]
parameters: {word: {type: word, default: fine}}
delegates: {cpu: {}}
marks: [counted]
lines:
  - {does: row, regex: '^counted (?P<n>\\d+) in (?P<ms>[\\d.]+) ms$'}
  - {does: fail, regex: '^oh no'}
results:
  - {latency: {mean: {field: ms, per: n, unit: ms}}, count: n}
"""


@pytest.fixture
def counting(tmp_path: Path) -> tuple[Path, Path, Path]:
    """A file of one's own, its program and its model."""
    (tmp_path / "counting.yaml").write_text(OWN)
    program = tmp_path / "counting.sh"
    program.write_text(
        '#!/bin/sh\n[ "$2" = fine ] || echo "oh no: $2"\necho "counted 4 in 50.0 ms"\n'
    )
    program.chmod(0o755)
    (tmp_path / "model.txt").write_text("words")
    return tmp_path / "counting.yaml", program, tmp_path / "model.txt"


def test_a_file_of_ones_own_measures_on_this_computer(
    cli: Cli, counting: tuple[Path, Path, Path]
) -> None:
    file, program, model = counting
    words = ("-s", "host", "-t", "1", "-n", "1", "--build", f"counting={program}", "--json")
    run = runs_of(cli("bench", model, "--tool", file, *words))[0]
    assert (run["outcome"], run["report"]["inference_mean_us"]) == ("completed", 12_500)
    # In a plan its file is looked for beside the plan, as all others are.
    plan = file.with_name("plan.yaml")
    plan.write_text(
        "{models: model.txt, matrix: {tools: counting.yaml}, devices: {serials: host},"
        " builds: {counting: ./counting.sh}}"
    )
    assert "counting" in cli("plan show", plan).ok().said
    # In the settings' folder it is known by its name, and stored runs are read again with it.
    (cli.home / "programs").mkdir()
    shutil.copy(file, cli.home / "programs")
    # A figure after an error is no result, whatever the exit code; and nothing is given to a shell.
    failed = runs_of(cli("bench --tool counting", model, *words, "--flag", "word=x y"))
    assert (failed[0]["outcome"], failed[0]["reason"], failed[0]["exit_code"]) == (
        "failed",
        "oh no: x y",
        0,
    )
    cli("results reparse").ok()


ECHO = OWN.replace("counting.sh", "echo").replace('["{model}", "{word}"]', '["counted {n} in 50.0 ms"]').replace(
    "{word: {type: word, default: fine}}", "{n: {type: int, min: 1, default: 4, meaning: what is counted}}"
)  # fmt: skip


def test_each_file_of_one_program_has_its_own_parameters(cli: Cli, tmp_path: Path) -> None:
    for name, least in (("any", 1), ("many", 10)):
        text = ECHO.replace("name: counting", f"name: {name}").replace("min: 1", f"min: {least}")
        (tmp_path / f"{name}.yaml").write_text(text.replace("default: 4", "default: 40"))
    (tmp_path / "model.txt").write_text("words")
    (tmp_path / "plan.yaml").write_text(
        "{models: model.txt, devices: {serials: host}, builds: {any: /bin/echo, many: /bin/echo},"
        " matrix: {tools: [any.yaml, many.yaml], flags: {n: 5}}}"
    )
    said = cli("plan show", tmp_path / "plan.yaml").ended_with(2).said
    assert said.count("--n=5: 10 or more is expected") == 1


def test_a_program_is_kept_by_content_and_used_without_being_named_again(
    cli: Cli, tmp_path: Path
) -> None:
    (cli.home / "programs").mkdir(parents=True)
    declaration = cli.home / "programs" / "counting.yaml"
    declaration.write_text(ECHO)
    script, program, model = tmp_path / "counting.sh", tmp_path / "echo", tmp_path / "model.txt"
    script.write_text("#!/bin/sh\n")
    model.write_text("words")
    shutil.copy("/bin/echo", program)
    words = ("bench", model, "-s", "host", "-t", "1", "-n", "1", "--tool", "counting", "--json")
    said = cli("build add --tool counting", script).ended_with(4).said
    assert "is neither an ELF program nor an APK" in said
    assert (
        "isn't started from a file"
        in cli("build add --tool llama_main", program).ended_with(4).said
    )
    kept = cli.json("build add --tool counting", program)
    assert (kept["name"], kept["tool"], kept["abi"].partition("-")[0]) == (
        "counting",
        "declared:counting",
        "linux",
    )
    program.unlink()
    run = runs_of(cli(*words))[0]
    assert (run["outcome"], run["report"]["inference_mean_us"]) == ("completed", 12_500)
    assert run["case"]["build_sha256"] == kept["sha256"]
    # Its parameters are listed with their meaning and bounds.
    (flag,) = cli.json("flags counting")["flags"]
    assert (flag["name"], flag["type"], flag["default"]) == ("n", "int", "4")
    assert flag["meaning"] == "what is counted: 1 or more"
    # What was measured stays readable when nobody declares the program any more.
    declaration.unlink()
    (row,) = cli("report --format json").ok().json["results"]
    assert row["tool"] == "declared:counting"
    for form in ("text", "markdown", "html"):
        cli("report --format", form, "--out", tmp_path / form).ok()


def llama_bench() -> Path | None:
    """Return the real llama-bench, from Debian's packages in a folder of their own."""
    if (found := shutil.which("llama-bench")) is not None:
        return Path(found)
    folder = REPO / ".venv" / "llama-bench"
    done = subprocess.run(
        ["sh", REPO / "tests" / "llama_bench.sh", folder],
        capture_output=True,
        text=True,
        check=False,
    )
    program = folder / "llama-bench"
    if done.returncode or not program.exists():
        # A release that changes daily may be without it for a while.
        pytest.skip(f"Debian's llama-bench can't be had here: {done.stderr.strip()[-300:]}")
    return program


def test_the_real_llama_bench_measures_a_tiny_model_on_this_computer(cli: Cli) -> None:
    words = ("-s", "host", "--build", f"llama-bench={llama_bench()}", "-t", "1", "-n", "2", *SMALL)
    done = cli("bench", GGUF, *words, "--json")
    found: dict[str, list[dict[str, Any]]] = {}
    for run in runs_of(done):
        assert run["outcome"] == "completed", run["reason"]
        assert (run["report"]["delegate"]["actual"], run["report"]["delegate"]["truth"]) == (
            "cpu",
            "full",
        )
        found.setdefault(dict(run["case"]["flags"])["figure"], []).append(run)
    assert {figure: len(runs) for figure, runs in found.items()} == {"prefill": 2, "decode": 2}
    for figure, tokens in (("prefill", 32), ("decode", 8)):
        for run in found[figure]:
            log = cli("results log", run["run_id"]).ok().stdout
            mean_ns = float(log.partition('"avg_ns": ')[2].partition(",")[0])
            assert run["report"]["inference_mean_us"] == pytest.approx(
                mean_ns / tokens / 1000, rel=1e-5
            )
            assert run["report"]["inference"]["count"] == 3 * tokens


def test_a_run_becomes_an_issue_without_anything_private(lab: Lab, tmp_path: Path) -> None:
    model = a_model(tmp_path, ".onnx")
    done = lab.cli(f"bench -s {lab.serial} -d nnapi -t 1 -n 1 --json", model)
    run = runs_of(done)[0]
    out = tmp_path / "issue.md"
    lab.cli("results log", run["run_id"], "--issue", "--out", out).ok()
    told = out.read_text()
    for wanted in (
        "# little with nnapi (onnxruntime_perf_test): delegate-failed", "Android", "disable_cpu_ep_fallback",
        run["case"]["build_sha256"], run["case"]["model_sha256"], "./little.onnx",
    ):  # fmt: skip
        assert wanted in told, told
    for private in (*lab.serials, str(tmp_path), str(lab.cli.home), "/data/local/tmp/benchfarm"):
        assert private not in told, told
