"""The passes ``energy`` and ``contention`` over a real adb server, against what virtual phones take
by construction."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from benchfarm_virtual.profiles import load_profile
from benchfarm_virtual.programs.language_model import DECODING_SHARE
from benchfarm_virtual.samples import benchmark_elf
from tests.conftest import poll_until
from tests.e2e.conftest import Lab
from tests.extensions.runtimes.e2e.test_language_models import TINY

RAILS, BATTERY, OLD = 0, 1, 2


@pytest.fixture(scope="module")
def metered_lab(lab_of: Callable[..., Lab]) -> Lab:
    return lab_of("pixel-7", "redmi-note-9", "moto-e5-play")


@pytest.fixture
def lab(metered_lab: Lab) -> Iterator[Lab]:
    yield metered_lab
    metered_lab.tidy()


@pytest.fixture(scope="module")
def unhurried_lab(lab_of: Callable[..., Lab]) -> Lab:
    """A phone on which what this computer needs for a shell's step takes little of the phone's
    time."""
    return lab_of("pixel-7", "--speed", "4")


def watts(profile: str, cluster: str) -> float:
    """What one busy core takes at its highest clock."""
    return next(item.watts for item in load_profile(profile).clusters if item.name == cluster)


def bench(lab: Lab, phone: int, model: Path, *words: object) -> Any:
    return lab.cli.json("bench", model, "-s", lab.serials[phone], *words)


def energies(lab: Lab, phone: int, model: Path, *words: object) -> list[Mapping[str, Any]]:
    return [run["report"] for run in bench(lab, phone, model, "--pass", "energy", *words)["runs"]]


def loads(
    lab: Lab, folder: Path, model: Path, named: str, rest: str, *, delegate: str = "xnnpack"
) -> Path:
    """Return a plan that measures beside loads on the first phone."""
    plan = folder / "plan.yaml"
    plan.write_text(
        f"name: loads\nmodels: [{json.dumps(str(model))}]\nmatrix: {{delegates: [{delegate}], threads: [1]}}\n"
        f"devices: {{serials: [{lab.serials[RAILS]}]}}\npasses: [contention]\ncontention: [{named}]\n{rest}\n"
    )
    return plan


def leftovers(lab: Lab, phone: int) -> str:
    return lab.shell(
        lab.serials[phone], "pidof perfetto; ls /data/misc/perfetto-traces; pidof dd"
    ).strip()


def test_rails_show_what_a_core_takes(lab: Lab, model: Path) -> None:
    reports = energies(lab, RAILS, model, "-d", "xnnpack", "-t", "1", "-n", "3")
    truth_w = watts("pixel-7", "big")
    ratios = [
        item["extra"]["energy_net_uj"] / (truth_w * item["inference"]["mean_us"])
        for item in reports
    ]
    # The middle one: a machine that is busy for 25 ms lets a second of this phone pass.
    assert sorted(ratios)[1] == pytest.approx(1.0, rel=0.01)
    for extra in (report["extra"] for report in reports):
        assert extra["energy_rest_before_w"] == pytest.approx(0.12, rel=0.05)
        assert extra["energy_grade"] == "rails"
        assert "VSYS_PWR_DISPLAY" not in extra["energy_rails"]
    assert leftovers(lab, RAILS) == ""


def test_the_battery_shows_the_same_once_nothing_charges_it(lab: Lab, model: Path) -> None:
    words = ("-d", "xnnpack", "-t", "1", "-n", "1")
    (charged,) = energies(lab, BATTERY, model, *words)
    assert "is charged (usb)" in charged["extra"]["energy_missing"]
    # Its latency is whole, and no time was lost on rests.
    assert charged["inference"]["median_us"] > 0
    lab.fault(lab.serials[BATTERY], "cable-out")
    (report,) = energies(lab, BATTERY, model, *words)
    truth_uj = watts("redmi-note-9", "big") * report["inference"]["mean_us"]
    assert report["extra"]["energy_net_uj"] == pytest.approx(truth_uj, rel=0.01)
    assert report["extra"]["energy_grade"] == "battery"
    (kept,) = lab.cli.home.rglob(f"meters/{lab.serials[BATTERY]}.json")
    gauge = json.loads(kept.read_text())["gauge"]
    assert (gauge["unit_ua"], gauge["discharging"], gauge["is_verified"]) == (1000.0, 1, True)


def test_a_phone_without_perfetto_has_its_battery_sampled(lab: Lab, model: Path) -> None:
    lab.fault(lab.serials[OLD], "cable-out")
    (report,) = energies(lab, OLD, model, "-d", "xnnpack", "-t", "1", "-n", "1")
    (cluster,) = load_profile("moto-e5-play").clusters
    truth_uj = cluster.watts * report["inference"]["mean_us"]
    assert report["extra"]["energy_net_uj"] == pytest.approx(truth_uj, rel=0.02)
    assert report["extra"]["energy_grade"] == "battery"
    assert leftovers(lab, OLD) == ""


def test_a_part_without_a_rail_has_no_figure(lab: Lab, model: Path) -> None:
    (npu,) = energies(lab, RAILS, model, "-d", "nnapi", "-n", "1")
    assert npu["extra"]["energy_missing"] == "none of the phone's 6 rails feeds its NPU"
    told = " ".join(lab.cli("report -f text").ok().stdout.split())
    assert "0 --- 1 block without a figure: none of the phone's 6 rails feeds its NPU (1)" in told
    (row,) = json.loads(lab.cli("report -f json").ok().stdout)["results"]
    assert row["energy"]["quality"] is None


def test_prefill_and_decode_have_an_energy_per_token_each(lab: Lab) -> None:
    tokens = {"prefill_tokens": 100_000, "decode_tokens": 20_000, "max_num_tokens": 200_000}
    flags = [word for name, value in tokens.items() for word in ("--flag", f"{name}={value}")]
    made = bench(
        lab, RAILS, TINY, "-d", "xnnpack", "-t", "1", "-n", "3", "--pass", "energy", *flags
    )
    reports = [run["report"] for run in made["runs"]]
    truth_w = watts("pixel-7", "big")
    ratios: dict[str, list[float]] = {}
    for report in reports:
        power_w = truth_w * (1 if report["label"] == "prefill" else DECODING_SHARE)
        ratio = report["extra"]["energy_net_uj"] / (power_w * report["inference"]["mean_us"])
        ratios.setdefault(report["label"], []).append(ratio)
    assert {label: len(found) for label, found in ratios.items()} == {"prefill": 3, "decode": 3}
    # The middle ones, and not closer: what this machine needs between turns passes forty times as
    # fast there.
    assert [sorted(ratios[phase])[1] for phase in ("prefill", "decode")] == pytest.approx(
        [1.0, 1.0], rel=0.05
    )
    rows = lab.cli("report --format json", made["campaign_id"]).ok().json["results"]
    assert [(row["energy"]["per"], row["energy"]["net_uj"]["count"]) for row in rows] == [
        ("token", 3)
    ] * 2
    assert "Energy per token" in lab.cli("report --format text", made["campaign_id"]).ok().stdout


def test_a_recording_that_cant_begin_costs_the_energy_and_nothing_else(
    lab: Lab, model: Path
) -> None:
    words = ("-d", "xnnpack", "-t", "1", "-n", "1")
    energies(lab, RAILS, model, *words)  # which meters it has is known from here on
    lab.shell(lab.serials[RAILS], "setprop persist.traced.enable 0")
    try:
        (report,) = energies(lab, RAILS, model, *words)
    finally:
        lab.shell(lab.serials[RAILS], "setprop persist.traced.enable 1")
    assert "starting perfetto failed" in report["extra"]["energy_missing"]
    assert report["inference"]["median_us"] > 0


def test_no_space_for_a_recording_costs_the_energy_and_nothing_else(lab: Lab, model: Path) -> None:
    for kept in lab.cli.home.rglob(f"meters/{lab.serials[RAILS]}.json"):
        kept.unlink()
    lab.fault(lab.serials[RAILS], "no-space", "subject=*.pid", "times=0")
    (report,) = energies(lab, RAILS, model, "-d", "xnnpack", "-t", "1", "-n", "1")
    assert "no space left on the phone" in report["extra"]["energy_missing"]
    assert report["inference"]["median_us"] > 0


def test_cases_are_measured_a_b_b_a_and_told_in_table_and_export(lab: Lab, model: Path) -> None:
    made = bench(
        lab, RAILS, model, "-d", "xnnpack", "-t", "1,2", "-n", "2", "--pass", "timing,energy,memory"
    )
    order = [run["case"]["threads"] for run in made["runs"] if run["run_pass"] == "energy"]
    assert sorted(order) == [1, 1, 2, 2]
    started = sorted(
        (run["started_at"], run["case"]["threads"])
        for run in made["runs"]
        if run["run_pass"] == "energy"
    )
    order = [threads for _, threads in started]
    assert order in ([1, 2, 2, 1], [2, 1, 1, 2])
    text = lab.cli("report --format text", made["campaign_id"]).ok().stdout
    assert "Energy per inference" in text
    assert "S2M_VDD_CPUCL2" in text
    rows = lab.cli("report --format json", made["campaign_id"]).ok().json["results"]
    assert [row["energy"]["net_uj"]["count"] for row in rows] == [2, 2]
    assert all(
        row["energy_net_uj"] == pytest.approx(row["energy"]["net_uj"]["value"]) for row in rows
    )
    page = lab.cli.home / "page.html"
    lab.cli("report", made["campaign_id"], "--out", page).ok()
    assert 'id="energy-title"' in page.read_text()


def test_a_load_makes_a_case_as_slow_as_the_same_load_from_elsewhere(
    unhurried_lab: Lab, model: Path, tmp_path: Path
) -> None:
    lab = unhurried_lab
    # Each process of a load gets its turn in a second of this computer, also of a busy one.
    rest = "invocations: 3\nsettings: {min_secs: 4}"
    plan = loads(lab, tmp_path, model, "cpu=2, memory=1, cpu=1+gpu=1", rest)
    made = lab.cli.json("run", plan)
    assert {run["outcome"] for run in made["runs"]} == {"completed"}
    (row,) = lab.cli("report --format json", made["campaign_id"]).ok().json["results"]
    found = {item["load"]: item for item in row["contention"]}
    assert list(found) == ["none", "cpu=1+gpu=1", "cpu=2", "memory=1"]
    # Of two busy cores the model has half of one.
    assert 1.0 < found["cpu=2"]["cores"] < 2.0
    lab.fault(lab.serials[RAILS], "foreign-load", "cores=2")
    # Suspect, which ends with another exit code.
    timed = lab.cli("bench -d xnnpack -t 1 -n 4 --json", model, "-s", lab.serials[RAILS]).json
    lab.clear()
    latencies = sorted(
        run["report"]["inference"]["median_us"]
        for run in timed["runs"]
        if run["run_pass"] == "timing"
    )
    truth = latencies[len(latencies) // 2] / found["none"]["median_us"]
    assert truth > 1.5
    assert found["cpu=2"]["factor"]["value"] == pytest.approx(truth, rel=0.1)
    assert "beside a load" in lab.cli("report --format text", made["campaign_id"]).ok().stdout


def test_a_load_that_fails_ends_none_of_the_others(
    unhurried_lab: Lab, model: Path, tmp_path: Path
) -> None:
    lab = unhurried_lab
    lab.fault(lab.serials[RAILS], "delegate-missing", "subject=gpu", "times=0")
    # As above: a load without a turn twice in a row would get no third run.
    rest = "invocations: 3\nsettings: {min_secs: 4}"
    plan = loads(lab, tmp_path, model, "cpu=1, gpu=1", rest)
    made = lab.cli("run", plan, "--json").ended_with(1).json
    lab.clear()
    (row,) = lab.cli("report --format json", made["campaign_id"]).ok().json["results"]
    made_runs = {item["load"]: item["runs"] + item["died"] for item in row["contention"]}
    assert made_runs == {"none": 3, "cpu=1": 3, "gpu=1": 2}


@pytest.mark.parametrize(
    ("delegate", "load", "same"),
    [("xnnpack", "memory=2", "memory=0.6"), ("gpu", "gpu=1", "gpu=1")],
)
def test_memory_and_gpu_that_are_shared_slow_a_case_by_their_share(
    unhurried_lab: Lab, model: Path, tmp_path: Path, delegate: str, load: str, same: str
) -> None:
    lab = unhurried_lab
    rest = "invocations: 5\nsettings: {min_secs: 4, warmup_min_secs: 0.1}"
    plan = loads(lab, tmp_path, model, load, rest, delegate=delegate)
    made = lab.cli.json("run", plan)
    (row,) = lab.cli("report --format json", made["campaign_id"]).ok().json["results"]
    alone, beside = (item["median_us"] for item in row["contention"])
    lab.fault(lab.serial, "foreign-load", "cores=0", same)
    timed = lab.cli(f"bench -s {lab.serial} -d {delegate} -t 1 -n 5 --json", model).json
    lab.clear()
    latencies = sorted(
        run["report"]["inference"]["median_us"]
        for run in timed["runs"]
        if run["run_pass"] == "timing"
    )
    assert latencies[2] > 1.1 * alone
    # The middle ones: a load may begin on the case's own core, and be moved from there.
    assert beside == pytest.approx(latencies[2], rel=0.05)


def test_a_load_that_is_not_on_the_gpu_fails_its_run(lab: Lab, model: Path, tmp_path: Path) -> None:
    program = tmp_path / "benchmark_model"
    program.write_bytes(benchmark_elf("benchmark_model_cpu_only"))
    rest = f"invocations: 1\nbuilds: {{native: {json.dumps(str(program))}}}"
    made = lab.cli("run", loads(lab, tmp_path, model, "gpu=1", rest), "--json").ended_with(1).json
    ends = {run["reason_code"]: run["reason"] for run in made["runs"]}
    assert ends == {"": "", "load-died": "the load gpu=1: nothing shows that it ran on the GPU"}


def test_a_killed_host_leaves_no_load_and_no_recording(
    lab: Lab, model: Path, tmp_path: Path
) -> None:
    rest = "invocations: 1\nsettings: {min_secs: 200, max_secs: 400}"
    plan = loads(lab, tmp_path, model, "cpu=2+memory=1", rest)
    serial = lab.serials[RAILS]
    process = lab.cli.start("run", plan)
    poll_until(
        lambda: "cpu" in lab.shell(serial, "cat /data/local/tmp/benchfarm/runs/*/load"),
        what="a load",
    )
    process.send_signal(signal.SIGKILL)
    process.communicate()
    lab.cli("device restore", serial).ok()
    assert lab.shell(serial, "pidof dd; ls /data/local/tmp/benchfarm/runs").strip() == ""
