"""Phones' outputs against the reference: right ones pass, wrong ones are never the best, constant
ones show nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.e2e.conftest import Lab
from tests.samples.places import MODELS

INT8 = min(MODELS.glob("*int8*.tflite"))


def parity_runs(lab: Lab, campaign: str) -> dict[str, dict[str, Any]]:
    """The parity runs of a campaign, by delegate."""
    runs = lab.cli.json("results runs", campaign)
    return {run["case"]["delegate"]: run for run in runs if run["run_pass"] == "parity"}


def test_fast_and_wrong_is_rejected_and_never_the_best(
    lab: Lab, model: Path, tmp_path: Path
) -> None:
    serial = lab.serials[1]
    lab.fault(serial, "delegate-wrong", "subject=gpu", "times=0")
    page = tmp_path / "report.html"
    words = ("bench -d cpu,xnnpack,gpu -t 1 -n 1 --min-secs 0.1", model, "-s", serial)
    done = lab.cli(*words, "--pass", "timing,parity", "--out", page, "--json")
    assert done.exit_code == 1
    runs = parity_runs(lab, done.json["campaign_id"])
    extra = {name: run["report"]["extra"] for name, run in runs.items()}
    assert {name: item["parity"] for name, item in extra.items()} == {
        "cpu": "same",
        "xnnpack": "same",
        "gpu": "wrong",
    }
    assert extra["xnnpack"]["parity_error"] < extra["xnnpack"]["parity_threshold"] == 1e-4
    assert "wrong-outputs" in {finding["code"] for finding in runs["gpu"]["verdict"]["findings"]}
    shown = lab.cli("report --format text", done.json["campaign_id"]).ok().stdout
    assert "---  rejected (outputs wrong)" in shown
    assert "wrong-outputs" in page.read_text("utf-8")
    words = ("compare cpu gpu --by delegate", "--campaign", done.json["campaign_id"])
    assert "wrong-outputs" in lab.cli(*words, "--fail-on", "never").ok().stdout


def test_stored_outputs_are_compared_again_by_reparse(lab: Lab) -> None:
    done = lab.cli(f"bench -d xnnpack -t 1 --pass parity --json -s {lab.serial}", INT8).ok()
    run = parity_runs(lab, done.json["campaign_id"])["xnnpack"]
    extra = run["report"]["extra"]
    # What the runtime's own kernels differ by here is more than the threshold of the type.
    assert (extra["parity"], extra["parity_threshold"]) == (
        "same",
        max(2.0, extra["parity_kernel_distance"]),
    )
    again = lab.cli.json("results reparse", done.json["campaign_id"])
    assert (again["reviewed"], again["changed"]) == (1, [])


def test_the_app_is_compared_too_and_other_programs_say_why_they_are_not(
    lab: Lab, model: Path
) -> None:
    words = ("bench -d xnnpack -t 1 --pass parity --json", model, "-s", lab.serial)
    done = lab.cli(*words, "--tool", "apk").ok()
    assert (
        parity_runs(lab, done.json["campaign_id"])["xnnpack"]["report"]["extra"]["parity"] == "same"
    )
    assert "outputs same: " in done.stderr
    why = "pass parity: 'litert-native' writes no outputs that could be compared"
    assert why in lab.cli(*words, "--tool", "litert-native").ended_with(2).said
    words = ("bench -d xnnpack -t 1,2 -n 2 --min-secs 0.1 --tool litert-native", model)
    done = lab.cli(*words, "-s", lab.serial, "--pass", "timing,parity").ok()
    # Once, and not of cases that were run in the other pass.
    assert f"not run on {lab.serial}: {why}" in " ".join(done.said.split())


def test_given_inputs_are_used_and_must_have_the_right_size(
    lab: Lab, model: Path, tmp_path: Path
) -> None:
    given = tmp_path / "inputs"
    given.mkdir()
    file = given / f"{model.stem}.0.bin"
    words = ("bench -d xnnpack -t 1 --pass parity --json", model, "-s", lab.serial)
    file.write_bytes(bytes(256 * 256 * 3 * 4))
    done = lab.cli(*words, "--parity-inputs", given).ok()
    assert (
        parity_runs(lab, done.json["campaign_id"])["xnnpack"]["report"]["extra"]["parity_inputs"]
        == "given"
    )
    file.write_bytes(b"short")
    run = parity_runs(lab, lab.cli(*words, "--parity-inputs", given).json["campaign_id"])["xnnpack"]
    assert run["reason_code"] == "parity-no-reference"
    assert "has 5 bytes" in run["reason"]


def test_outputs_of_what_is_new_are_compared_once_and_found_again(lab: Lab) -> None:
    words = ("bench -d cpu,xnnpack,gpu -t 1,2", INT8, "-s", lab.serials[1])
    words = (*words, "-n", "1", "--min-secs", "0.1", "--json")
    first, again = (lab.cli(*words, BENCHFARM_CHECK_OUTPUTS="on").ok().json for _ in range(2))
    # One process each, whatever the number of threads; the builtin kernels are the reference's.
    assert parity_runs(lab, first["campaign_id"]).keys() == {"xnnpack", "gpu"}
    assert parity_runs(lab, again["campaign_id"]) == {}
    for campaign in (first, again):
        assert outputs_of(lab, campaign["campaign_id"]) == {
            "cpu": "reference",
            "xnnpack": "checked",
            "gpu": "checked",
        }
    words = (*words, "--inferences", "60", "--no-check-outputs", "--tool", "apk")
    turned_off = lab.cli(*words, BENCHFARM_CHECK_OUTPUTS="on").ok().json["campaign_id"]
    assert parity_runs(lab, turned_off) == {}
    assert outputs_of(lab, turned_off)["gpu"] == "not checked"


def test_a_comparison_in_turns_compares_new_outputs_once_too_and_a_plan_shows_that_it_will(
    lab: Lab, model: Path, tmp_path: Path
) -> None:
    environ = {"BENCHFARM_CHECK_OUTPUTS": "on"}
    plan = tmp_path / "plan.yaml"
    plan.write_text(
        f"models: [{model}]\ndevices: {{serials: [{lab.serials[1]}]}}\ninvocations: 2\n"
        "matrix: {delegates: [cpu, gpu], threads: 3, tools: apk}\n"
    )
    before = lab.cli.json("plan show", plan, **environ)
    assert before["invocations"] == 2 * 2 + 1
    words = ("ab delegate:cpu delegate:gpu -t 3", "-m", model, "-s", lab.serials[1])
    words = (*words, "--tool", "apk", "--min-secs", "0.1", "-n", "4", "--json")
    first, again = (lab.cli(*words, **environ).json for _ in range(2))
    assert parity_runs(lab, first["campaign_id"]).keys() == {"gpu"}
    assert parity_runs(lab, again["campaign_id"]) == {}
    for compared in (first, again):
        (case,) = compared["cases"]
        assert (case["baseline"]["outputs"], case["candidate"]["outputs"]) == (
            "reference",
            "checked",
        )
    after = lab.cli.json("plan show", plan, **environ)
    assert after["invocations"] == 2 * 2


def test_outputs_that_differ_take_a_figure_out_of_the_ranking_in_later_campaigns_too(
    lab: Lab, model: Path
) -> None:
    serial = lab.serial
    lab.fault(serial, "delegate-wrong", "subject=gpu", "times=0")
    words = ("bench -d xnnpack,gpu -t 1", model, "-s", serial)
    words = (*words, "-n", "1", "--min-secs", "0.1", "--json")
    for _ in range(2):
        done = lab.cli(*words, BENCHFARM_CHECK_OUTPUTS="on").ended_with(1)
        campaign = done.json["campaign_id"]
        assert outputs_of(lab, campaign) == {"xnnpack": "checked", "gpu": "differ"}
        assert [item["configuration"] for item in done.json["winners"]] == [
            "xnnpack, 1 thread, native"
        ]
        shown = lab.cli("report --format text", campaign).ok().stdout
        assert "rejected (outputs wrong)" in shown


def outputs_of(lab: Lab, campaign: str) -> dict[str, str]:
    """What is known of the outputs of a campaign's cases, by delegate."""
    cases = lab.cli("report --format json", campaign).ok().json["results"]
    return {item["delegate"]: item["outputs"] for item in cases if item["outputs"]}
