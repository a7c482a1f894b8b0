"""Accuracy by delegate: LiteRT's evaluation programs on virtual phones by a fake one, on this computer by a script."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchfarm_lab.samples import benchmark_elf
from tests.e2e.conftest import Lab
from tests.samples.command import Cli


@pytest.fixture
def run_eval(tmp_path: Path) -> Path:
    path = tmp_path / "run_eval"
    path.write_bytes(benchmark_elf("run_eval"))
    return path


@pytest.fixture
def data(tmp_path: Path) -> tuple[str, ...]:
    images = tmp_path / "images"
    images.mkdir()
    for number in range(4):
        (images / f"{number}.jpg").write_bytes(b"picture %d" % number)
    (tmp_path / "truth.txt").write_text("cat\ndog\ncat\ncow\n")
    (tmp_path / "labels.txt").write_text("cat\ndog\ncow\n")
    given = {"ground_truth_images_path": images, "ground_truth_labels": tmp_path / "truth.txt"}
    given |= {"model_output_labels": tmp_path / "labels.txt"}
    return tuple(word for name, path in given.items() for word in ("--flag", f"{name}=@{path}"))


def test_a_faster_delegate_that_is_less_often_right_is_told(
    lab: Lab, model: Path, run_eval: Path, data: tuple[str, ...], tmp_path: Path
) -> None:
    serial = lab.serials[1]
    evaluate = ("model", "evaluate", model, "--program", run_eval, "-s", serial)
    found = lab.cli(*evaluate, "-d", "cpu,gpu", *data, "--json").ok().json
    figures = [(each["delegate"], each["found"]["percent"], each["found"]["count"]) for each in found]
    assert figures == [("cpu", 100, 4), ("gpu", 75, 4)]
    assert all(each["is_virtual"] for each in found)
    assert "--use_gpu=true" in found[1]["command"]
    assert "--delegate=gpu" in found[1]["command"]
    lab.cli(*evaluate, "-d", "gpu").ok()
    page = tmp_path / "page.html"
    words = ("-d", "cpu,gpu", "-t", "1", "-n", "3", "--min-secs", "0.2", "--out", page)
    lab.cli("bench", model, "-s", serial, *words).ok()
    text = lab.cli("report", "--format", "text").ok().stdout
    assert "accuracy as evaluated" in text
    assert "75 % top-1 of 4 images" in text
    assert "mean difference from the CPU: output 0 1.96e-05" in text
    rows = lab.cli("report", "--format", "json", "--out", tmp_path / "report.json").ok()
    rows = json.loads((tmp_path / "report.json").read_text("utf-8"))["results"]
    assert {row["delegate"]: row["accuracy_percent"] for row in rows} == {"cpu": 100, "gpu": 75}
    assert 'id="accuracy"' in page.read_text("utf-8")
    lines = {line["rule"]: line["text"] for line in lab.cli("advise", "--json").ok().json["advice"]["lines"]}
    assert "loses 25 points of accuracy on 4 images: 75 against 100 %" in lines["loses-accuracy"]
    assert "so few images can't tell less than 42 apart" in lines["loses-accuracy"]
    # What failed takes no figure's place.
    (tmp_path / "truth.txt").write_text("cat")
    failed = lab.cli(*evaluate, "-d", "gpu", *data)
    assert (failed.exit_code, "Number of images and ground truth labels" in failed.stdout) == (1, True)
    assert "75 % top-1" in lab.cli("report", "--format", "text").ok().stdout


def test_what_cannot_be_evaluated_is_refused_before_anything_runs(
    lab: Lab, model: Path, run_eval: Path, tmp_path: Path
) -> None:
    words = ("model", "evaluate", model, "-s", lab.serials[0])
    (tmp_path / "other").write_bytes(benchmark_elf("run_eval", "x86_64"))
    (tmp_path / "real").write_text(
        "#!/bin/sh model_file num_interpreter_threads ground_truth_proto model_output_labels"
    )
    (tmp_path / "empty").mkdir()
    for more, text in (
        (("--program", tmp_path / "none"), "can't be read"),
        (("--program", model), "isn't one of LiteRT's evaluation programs"),
        (("--program", tmp_path / "other"), "is built for x86_64"),
        (("--program", tmp_path / "real"), "computes no accuracy without ground_truth_proto, model_output_labels"),
        (("--program", run_eval, "-d", "npu"), "an evaluation has no delegate 'npu'"),
        (("--program", run_eval, "--flag", "num_images"), "lacks a value"),
        (("--program", run_eval, "--flag", "delegate=gpu"), "follows from the command's own options"),
        (("--program", run_eval, "--flag", f"ground_truth_images_path=@{tmp_path}/empty"), "holds no file"),
        (("--program", run_eval, "--flag", f"ground_truth_labels=@{tmp_path}/none"), "is no file or folder"),
    ):
        done = lab.cli(*words, *more)
        assert done.exit_code in {2, 4}, (done.said, more)
        assert text in done.said, (done.said, more)


def a_program(folder: Path, body: str) -> Path:
    path = folder / "run_eval"
    path.write_text(f"#!/bin/sh\n# model_file num_interpreter_threads\n{body}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("body", "delegate", "why"),
    [
        ("echo 'INFO: Num evaluation runs: 50'; kill -9 $$", "cpu", "exit code 137"),
        ("echo 'INFO: Num evaluation runs: 50'", "cpu", "cut off"),
        ("echo 'Could not evaluate model' >&2", "cpu", "Could not evaluate model"),
        ("sleep 60", "cpu", "no end after 1 s"),
        ("echo 'Num evaluation runs: 5'; echo 'Top-1 Accuracy: 0.5'", "xnnpack", "shows that XNNPACK took an operator"),
    ],
)
def test_an_evaluation_that_went_wrong_is_no_figure(
    cli: Cli, model: Path, tmp_path: Path, body: str, delegate: str, why: str
) -> None:
    program = a_program(tmp_path, body)
    done = cli("model", "evaluate", model, "--program", program, "-s", "host", "-d", delegate, "--timeout", "1")
    assert done.exit_code == 1, done.said
    assert why in done.stdout


def test_an_older_program_writes_its_metrics_to_a_file(cli: Cli, model: Path, tmp_path: Path) -> None:
    find = "for word; do case $word in --output_file_path=*) out=${word#*=};; esac; done"
    metrics = "num_runs: 300\\nprocess_metrics {\\n  topk_accuracies: 0.703\\n  topk_accuracies: 0.78\\n}\\n"
    program = a_program(tmp_path, f"{find}; printf '{metrics}' > $out")
    found = cli("model", "evaluate", model, "--program", program, "-s", "host", "--json").ok().json
    assert (found[0]["found"]["percent"], found[0]["found"]["count"]) == (pytest.approx(70.3), 300)
