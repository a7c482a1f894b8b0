"""The library against virtual phones through a real adb server: docs/python.md block by block, and
what it promises."""

from __future__ import annotations

import asyncio
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import orchestrator
from orchestrator import (
    Comparison,
    InterruptedByUserError,
    Lab,
    PlanError,
    Progress,
    Results,
    UsageError,
)
from orchestrator.engine.events import RunStored
from tests.e2e.conftest import Lab as VirtualPhones
from tests.samples.places import MODELS, REPO

QUICK: dict[str, Any] = {"delegates": "xnnpack", "threads": 1, "min_secs": 0.1}


@pytest.fixture(scope="module")
def python(
    running_lab: VirtualPhones, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Any]]:
    """What the page's examples leave behind, run in a folder with its files and in the environment
    of the lab."""
    folder = tmp_path_factory.mktemp("python")
    shutil.copy(min(MODELS.glob("*float*.tflite")), folder / "model.tflite")
    (folder / "plan.yaml").write_text(
        "models: model.tflite\nmatrix: {delegates: cpu, threads: 1}\ndevices: {profiles: pixel-3}\n"
        "settings: {min_secs: 0.1}\ninvocations: 2\n"
    )
    blocks = re.findall(
        r"```python\n(.*?)```", (REPO / "docs" / "python.md").read_text("utf-8"), re.S
    )
    names: dict[str, Any] = {"blocks": blocks}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in running_lab.cli.environ().items():
            patch.setenv(name, value)
        patch.chdir(folder)
        for number, block in enumerate(blocks):
            exec(compile(block, f"docs/python.md, block {number + 1}", "exec"), names)
        yield names


def test_the_pages_examples_run_and_give_what_the_page_says(
    python: dict[str, Any], running_lab: VirtualPhones, capfd: pytest.CaptureFixture[str]
) -> None:
    assert len(python["blocks"]) >= 9
    results: Results = python["results"]
    assert {row.device.serial for row in results} == set(running_lab.serials)
    assert {row.device.serial for row in python["here"]} == {"host"}
    assert [row.case.delegate for row in python["nightly"]] == ["cpu"]
    assert (len(python["again"]), python["again"].campaign_id) == (
        len(results),
        results.campaign_id,
    )
    assert Path("report.html").read_text("utf-8").startswith("<!doctype html>")
    assert len(python["comparison"]) == len(running_lab.serials)
    assert (results.left, results.lost, results.missing) == (0, {}, {})
    # The library itself says nothing.
    capfd.readouterr()
    Lab().load()
    assert capfd.readouterr() == ("", "")


@pytest.mark.usefixtures("python")
def test_a_terminal_and_a_notebook_get_one_line_of_progress_and_others_none(
    running_lab: VirtualPhones, capfd: pytest.CaptureFixture[str]
) -> None:
    words = {"devices": running_lab.serial, "delegates": "cpu", "invocations": 1, **QUICK}
    Lab(progress=False).bench("model.tflite", **words)
    Lab().bench("model.tflite", **words)
    assert capfd.readouterr() == ("", "")
    Lab(progress=True).bench("model.tflite", **words)
    out, told = capfd.readouterr()
    assert (out, told.count("\n")) == ("", 1)
    assert told.count("\r") > 2
    assert "finished" in told


@pytest.mark.usefixtures("python")
def test_a_lab_and_its_devices_show_themselves_as_tables(running_lab: VirtualPhones) -> None:
    lab = Lab()
    devices = lab.devices()
    assert isinstance(devices, list)
    for shown in (devices._repr_html_(), lab._repr_html_(), str(devices)):
        assert all(serial in shown for serial in running_lab.serials)
    assert "store.sqlite" in lab._repr_html_()
    assert re.fullmatch(r"Lab\(store='.*/store\.sqlite'\)", repr(lab))
    kept = "postgresql://me:secret@server/runs"
    assert repr(Lab(store=kept)) == "Lab(store='postgresql://me:***@server/runs')"


def test_frames_have_a_row_a_case_and_a_row_a_run_with_types(python: dict[str, Any]) -> None:
    results: Results = python["results"]
    frame, runs = results.frame("all"), results.frame("runs")
    usual = results.frame()
    assert list(usual) == [
        "model", "device", "serial", "delegate", "threads", "ms", "ci_low", "ci_high", "runs",
        "quality", "outputs", "campaign",
    ]  # fmt: skip
    assert (1000 * usual["ms"]).tolist() == pytest.approx(frame["median_us"].tolist())
    assert (len(frame), len(runs)) == (len(results), 3 * len(results))
    assert set(frame["is_virtual"]) == {True}
    assert set(frame["origin"]) == {""}
    assert pd.api.types.is_float_dtype(frame["median_us"])
    assert pd.api.types.is_integer_dtype(frame["threads"])
    assert str(frame["campaign_created_at"].dt.tz) == "UTC"
    by_hand = {row.key: row.own_summary.median_us for row in results if row.own_summary is not None}
    given = frame.dropna(subset=["median_us"]).set_index("case_key")["median_us"].to_dict()
    assert given == pytest.approx(by_hand, abs=0.001)
    own = runs[runs["is_used"]].groupby("case_key")["latency_us"].median()
    assert own.to_dict() == pytest.approx(by_hand, rel=0.5)
    # Without delegates those that this computer has are tried, as by the command.
    here = python["here"].frame("all")
    assert (set(here["is_virtual"]), set(here["delegate"]), len(here)) == ({False}, {"xnnpack"}, 2)


def test_a_comparison_has_the_figures_of_both_sides(python: dict[str, Any]) -> None:
    comparison: Comparison = python["comparison"]
    frame = comparison.frame()
    assert sum(comparison.counts.values()) == len(frame) == len(comparison)
    told = frame.dropna(subset=["ratio"])
    assert not told.empty
    # A verdict's ratio is of trimmed means.
    medians = told["candidate_median_us"] / told["baseline_median_us"]
    assert medians.tolist() == pytest.approx(told["ratio"].tolist(), rel=0.2)


def test_a_notebook_is_given_html_in_which_names_are_text(
    python: dict[str, Any], running_lab: VirtualPhones
) -> None:
    shutil.copy("model.tflite", "<b>x.tflite")
    results = Lab().bench("<b>x.tflite", devices=running_lab.serial, invocations=1, **QUICK)
    html = results._repr_html_()
    assert "&lt;b&gt;x" in html
    assert "<b>" not in html
    assert "virtual" in html
    shown = python["results"]._repr_html_()
    assert len(re.findall('<tr class="(winner|unproven)', shown)) >= len(running_lab.serials)
    assert "is the fastest" in shown
    # The slowest of each phone has the longest bar.
    assert shown.count("width: 100%") == len(running_lab.serials)
    assert "<a href" not in html
    path = python["results"].report("results.html")
    assert f'<a href="{path}" target="_blank">' in python["results"]._repr_html_()
    assert python["comparison"]._repr_html_().count("<tr") == 1 + len(python["comparison"])
    assert repr(results).startswith("<Results '<b>x' (")


def test_it_works_in_another_thread_beside_a_running_event_loop(
    python: dict[str, Any], running_lab: VirtualPhones
) -> None:
    found: list[Results] = []

    async def cell() -> None:
        found.append(
            orchestrator.bench("model.tflite", devices=running_lab.serial, invocations=1, **QUICK)
        )

    thread = threading.Thread(target=lambda: asyncio.run(cell()))
    thread.start()
    thread.join(120)
    assert [row.case.threads for row in found[0]] == [1]


def test_ctrl_c_restores_the_phone_and_resume_measures_the_rest(
    python: dict[str, Any], running_lab: VirtualPhones
) -> None:
    stored: list[RunStored] = []

    def stop(progress: Progress) -> None:
        if isinstance(progress.event, RunStored):
            stored.append(progress.event)
            if len(stored) == 1:
                # As a terminal's: the main thread, which waits, wakes up.
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    serial = running_lab.serial
    with Lab(progress=stop) as lab, pytest.raises(InterruptedByUserError) as raised:
        lab.bench("model.tflite", devices=serial, invocations=4, **QUICK)
    assert raised.value.code == "interrupted-by-user"
    running_lab.cli("device restore --dry-run", serial).ok()
    with Lab() as lab:
        results = lab.resume()
        assert isinstance(results, Results)
        assert (len(results.frame("runs")), results.left) == (4, 0)
        assert lab.resume() is None


def test_a_store_in_memory_lasts_as_long_as_its_lab(
    python: dict[str, Any], running_lab: VirtualPhones
) -> None:
    with Lab(store=":memory:") as lab:
        measured = lab.bench("model.tflite", devices=running_lab.serial, invocations=1, **QUICK)
        assert lab.load().campaign_id == measured.campaign_id


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"delegates": "gpuu", "threads": "x"},
            ("delegates: 'gpuu'", "threads: 'x' should be a valid integer"),
        ),
        ({"flags": {"use_gpu": "true"}}, ("flags: the flag use_gpu can't be set here",)),
        ({"flags": "allow_fp16"}, ("flags: 'allow_fp16' lacks a value",)),
        ({"devices": [], "tags": ()}, ("devices: must not be empty", "tags: must not be empty")),
    ],
)
def test_faults_name_the_keyword(
    python: dict[str, Any], options: dict[str, Any], said: tuple[str, ...]
) -> None:
    with pytest.raises(PlanError) as raised:
        Lab().bench("model.tflite", **options)
    assert [part for part in said if part not in str(raised.value)] == []


def test_a_keyword_side_or_fact_that_is_not_known_is_told(python: dict[str, Any]) -> None:
    lab = Lab()
    with pytest.raises(UsageError, match=r"no option delegate$"):
        lab.bench("model.tflite", delegate="gpu")  # type: ignore[call-arg]
    with pytest.raises(UsageError, match=r"no option in_python$"):
        lab.bench("model.tflite", in_python=True)
    with pytest.raises(UsageError, match="nosuch"):
        lab.load("nosuch")
    with pytest.raises(UsageError, match="shoe"):
        lab.compare("a", "b", by="shoe")


def test_importing_it_loads_no_library_and_every_name_is_there() -> None:
    code = (
        "import sys, orchestrator\n"
        "print(sorted(name for name in ('pandas', 'pydantic', 'numpy', 'sqlalchemy', 'adbutils', 'typer')"
        " if name in sys.modules))\n"
        "print(all(getattr(orchestrator, name) for name in orchestrator.__all__), hasattr(orchestrator, 'nosuch'))\n"
        "print('typer' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:3] == ["[]", "True False", "False"]
