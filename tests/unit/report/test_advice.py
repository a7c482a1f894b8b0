"""Each rule of 'advise' speaks where its figure is more than noise, and is silent otherwise."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.records.case import DelegateName, Model, ModelSha, content_key
from orchestrator.records.run import RunRecord
from orchestrator.records.verdict import Quality
from tests.samples.command import Cli
from tests.samples.sample_lab import MOBILENET, PIXEL_3, case, lab_of, profile, run, series, stored

GPU = DelegateName.GPU


def model(name: str) -> Model:
    return Model(name=name, sha256=ModelSha(content_key(name)), size_bytes=1)


def measured(
    latency_us: float, of: Model = MOBILENET, threads: int = 4, *, gpu: bool = False
) -> list[RunRecord]:
    owner = case(PIXEL_3, of, GPU if gpu else DelegateName.XNNPACK, threads)
    return [
        replace(record, run_id=f"{owner.case_key[:8]}-{record.run_id}")
        for record in series(owner, latency_us, is_reversed=threads > 2)
    ]


def advice(
    home: Path, *runs: list[RunRecord], models: tuple[Model, ...] = (MOBILENET,)
) -> dict[str, str]:
    lab = lab_of([record for some in runs for record in some], models=models)
    lines = Cli(home=stored(home / "home", lab)).json("advise")["advice"]["lines"]
    assert all(line["runs"] for line in lines)
    return {line["rule"]: line["text"] for line in lines}


def test_the_fewest_threads_that_are_not_slower_are_enough(tmp_path: Path) -> None:
    found = advice(
        tmp_path,
        measured(5_000.0, threads=2),
        measured(4_998.0, threads=4),
        measured(9_000.0, threads=8),
    )
    assert found["threads-enough"].startswith(
        "xnnpack, 2 threads, native: no number of threads above it is known to be faster: 4 "
    )
    assert "8 take 1.80 times [" in found["threads-enough"]


def test_threads_that_pay_are_not_advised_against(tmp_path: Path) -> None:
    assert advice(tmp_path, measured(9_000.0, threads=2), measured(5_000.0, threads=4)) == {}


def test_only_clean_figures_count(tmp_path: Path) -> None:
    doubted = series(case(threads=8), 5_000.0, quality=Quality.SUSPECT)
    assert advice(tmp_path, measured(5_000.0), doubted) == {}


def test_one_run_shows_only_a_difference_far_beyond_noise(tmp_path: Path) -> None:
    one = run(case(delegate=GPU), 0, 5_900.0)
    near = advice(tmp_path / "near", measured(5_000.0), [one])["delegate-not-faster"]
    assert "isn't shown to be faster than" in near
    far = advice(tmp_path / "far", measured(5_000.0), [run(case(delegate=GPU), 0, 9_000.0)])[
        "delegate-not-faster"
    ]
    assert (
        "is slower than xnnpack, 4 threads, native: it takes 1.80 times (one run, not tested) as long"
        in far
    )


def test_a_delegate_that_is_faster_is_not_advised_against(tmp_path: Path) -> None:
    assert advice(tmp_path, measured(5_000.0), measured(2_000.0, gpu=True)) == {}


@pytest.mark.parametrize("variant", ["int8", "int16x8", "dynamic-range"])
def test_a_quantised_twin_that_is_faster_is_named(tmp_path: Path, variant: str) -> None:
    twins = model("net_float32"), model(f"net_{variant}")
    both = [measured(5_000.0, twins[0]), measured(2_500.0, twins[1])]
    text = advice(tmp_path, *both, models=twins)["quantised-is-faster"]
    assert "its twin net_float32 takes 2.00 times [" in text


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ([("CONV_2D", "a", 600.0), ("ADD", "b", 350.0), ("CAST", "c", 50.0)],
         {"dominating-operator": "60 % of the time is in CONV_2D"}),
        ([("CONV_2D", "a", 450.0), ("ADD", "b", 400.0), ("TRANSPOSE", "c", 90.0), ("CAST", "d", 60.0)],
         {"moves-data": "15 % of the time only copies, reorders or converts data: TRANSPOSE 9 %, CAST 6 %"}),
        ([("CONV_2D", "a", 480.0), ("ADD", "b", 440.0), ("CAST", "c", 80.0)], {}),
    ],
)  # fmt: skip
def test_a_profile_says_where_the_time_goes(
    tmp_path: Path, rows: list[tuple[str, str, float]], told: dict[str, str]
) -> None:
    found = advice(tmp_path, measured(1_000.0), [profile(case(), rows)])
    assert found.keys() == told.keys()
    assert all(told[rule] in text for rule, text in found.items())
