"""A real benchmark_model on a phone of real parts, from the command line: every stored figure is
the printed one."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from orchestrator.records.run import RunRecord
from orchestrator.store.opening import open_store
from tests.conftest import AdbServer
from tests.samples.command import Cli, Done, Process
from tests.samples.places import MODELS, REPO
from tests.samples.real_phone import RealPhone

SETTING = "BENCHFARM_TEST_BENCHMARK_MODEL"
MODEL = min(MODELS.glob("*float*.tflite"))
PASSES = {"timing", "memory", "profile", "parity", "cold"}
#: What the program prints, read in another way than benchfarm's own.
_SUMMARY = re.compile(r"^INFO: (count=.*)", re.M)
_FIELDS = {
    "count": "count", "first": "first_us", "curr": "current_us", "min": "min_us", "max": "max_us", "avg": "mean_us",
    "std": "std_us", "p5": "p5_us", "median": "median_us", "p95": "p95_us",
}  # fmt: skip
_TIMINGS = re.compile(
    r"Init: ([\d.e+]+), First inference: ([\d.e+]+), Warmup \(avg\): ([\d.e+]+), Inference \(avg\): ([\d.e+]+)"
)
_FOOTPRINT = re.compile(r"\(MB\): init=([\d.]+) overall=([\d.]+)")
_PEAK = re.compile(r"Overall peak memory footprint \(MB\) via periodic monitoring: ([\d.]+)")


def program() -> Path:
    """Return the real program; the test is skipped where there is none."""
    named = os.environ.get(SETTING)
    path = Path(named) if named else REPO.parent / "shared/realphone/bin/benchmark_model"
    if not path.is_file():
        pytest.skip(
            f"no real benchmark_model at {path}: name one for Android on x86-64 in ${SETTING}"
        )
    return path


def measured(done: Done) -> dict[str, Any]:
    """Return what a campaign told; its exit code is 1 where a busy computer leaves no clean figure."""
    told: dict[str, Any] = done.ended_with(int(bool(done.json["nothing_clean"]))).json
    return told


@dataclass(frozen=True, slots=True)
class Home:
    """The command in a home of its own, where it sees one phone."""

    cli: Cli
    phone: RealPhone
    server: AdbServer

    @property
    def environ(self) -> dict[str, str]:
        return {"BENCHFARM_ADB_SERVER": f"127.0.0.1:{self.server.port}"}

    def __call__(self, *words: object) -> Done:
        return self.cli(*words, timeout_s=600.0, **self.environ)

    json = Cli.json

    def start(self, *words: object) -> Process:
        return self.cli.start(*words, **self.environ)

    def runs(self, campaign: str) -> list[RunRecord]:
        """Return a campaign's runs with what they printed."""
        store = open_store(self.cli.home / "store.sqlite", makes_new=False)
        try:
            return list(store.runs(campaign_ids=[campaign], with_attachments=True))
        finally:
            store.close()


@pytest.fixture(scope="module")
def home(
    real_phone: RealPhone, adb_server: AdbServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Home]:
    program()
    adb_server.connect(real_phone.address)
    folder = tmp_path_factory.mktemp("real") / "home"
    yield Home(Cli(home=folder), real_phone, adb_server)
    shutil.rmtree(folder, ignore_errors=True)


def plan(folder: Path, *, passes: str, invocations: int, min_secs: float = 0.1) -> Path:
    path = folder / "plan.yaml"
    path.write_text(
        f"name: real\nmodels: [{json.dumps(str(MODEL))}]\nmatrix: {{delegates: [cpu, xnnpack], threads: [1]}}\n"
        f"builds: {{native: {json.dumps(str(program()))}}}\npasses: [{passes}]\ninvocations: {invocations}\n"
        f"settings: {{num_runs: 5, min_secs: {min_secs}, warmup_min_secs: 0.1}}\n"
    )
    return path


def printed(run: RunRecord) -> str:
    return "\n".join(
        item.data.decode() for item in run.attachments if item.name in {"stdout", "stderr"}
    )


def check_figures(run: RunRecord) -> int:
    """Hold the stored figures of a run against what the program printed; return how many there
    were.
    """
    text, report = printed(run), run.report
    assert report is not None
    pairs: list[tuple[float | None, str]] = []
    (timings,) = _TIMINGS.findall(text)
    pairs += zip(
        (
            report.init_us,
            report.first_inference_us,
            report.warmup_mean_us,
            report.inference_mean_us,
        ),
        timings,
        strict=True,
    )
    for summary, line in zip(
        (report.warmup, report.inference), _SUMMARY.findall(text), strict=True
    ):
        words = re.findall(r"(\w+)=(\S+)", line)
        pairs += [(getattr(summary, _FIELDS[name]), word) for name, word in words]
    (footprint,) = _FOOTPRINT.findall(text)
    pairs += zip((report.init_memory_mib, report.overall_memory_mib), footprint, strict=True)
    pairs += [(report.peak_memory_mib, word) for word in _PEAK.findall(text)]
    for kept, told in pairs:
        assert kept == float(told), (run.run_pass, told, text)
    return len(pairs)


def test_every_pass_ends_and_every_stored_figure_is_the_printed_one(
    home: Home, tmp_path: Path
) -> None:
    path = plan(tmp_path, passes=", ".join(sorted(PASSES)), invocations=2)
    done = measured(home("run", path, "--json"))
    assert (done["status"], done["left"]) == ("finished", 0)
    runs = home.runs(done["campaign_id"])
    assert Counter(run.run_pass for run in runs) == {
        "timing": 4,
        "memory": 2,
        "profile": 2,
        "parity": 2,
        "cold": 8,
    }
    assert {run.outcome for run in runs} == {"completed"}
    for run in runs:
        # 4 times, 2 sizes, and at least 5 figures of each of two summaries; the pass memory has a
        # peak besides.
        assert check_figures(run) >= 16
        assert run.report is not None
        assert (run.report.peak_memory_mib is not None) == (run.run_pass == "memory")
        assert run.report.delegate.truth == "full"
        if run.run_pass == "parity":
            assert run.report.extra["parity"] == "same"
        if run.run_pass == "profile":
            assert len(run.report.operators) >= 30


def test_a_campaign_killed_in_the_middle_is_finished_by_a_resume(
    home: Home, tmp_path: Path
) -> None:
    process = home.start("run", plan(tmp_path, passes="timing", invocations=3, min_secs=2.0))
    assert process.stderr is not None
    assert any(" 2/6 " in line for line in process.stderr)
    process.kill()
    process.communicate()
    campaign = home.json("results", "list")[0]
    assert (campaign["status"], campaign["stored"] < 6) == ("cut off", True)
    before = {run.run_id for run in home.runs(campaign["campaign_id"])}
    done = measured(home("run", "--resume", "--json"))
    assert (done["campaign_id"], done["status"], done["left"]) == (
        campaign["campaign_id"],
        "finished",
        0,
    )
    runs = home.runs(campaign["campaign_id"])
    assert before <= {run.run_id for run in runs}
    assert Counter((run.case.delegate, run.invocation) for run in runs) == Counter(
        (delegate, number) for delegate in ("cpu", "xnnpack") for number in range(3)
    )
    assert {run.outcome for run in runs} == {"completed"}
    assert all(check_figures(run) for run in runs)
    left = home.server.run(
        "-s", home.phone.address, "shell", "ps -A -o ARGS; ls /data/local/tmp/benchfarm/runs"
    )
    assert b"benchmark_model" not in left.stdout
    assert b"benchfarm-run:" not in left.stdout


def test_two_builds_are_compared_in_turns(home: Home, tmp_path: Path) -> None:
    other = tmp_path / "other_benchmark_model"
    other.write_bytes(program().read_bytes() + b"\0")
    done = home.json(
        "ab", f"build:{program()}", f"build:{other}", "-m", MODEL, "-d", "xnnpack", "-t", "1",
        "--inferences", "5", "--min-secs", "0.1", "--runs", "3", "--detect", "50%", "--fail-on", "never",
    )  # fmt: skip
    (case,) = done["cases"]
    assert case["baseline"]["build_sha256"] != case["candidate"]["build_sha256"]
    assert case["verdict"]["outcome"] in {
        "same",
        "inconclusive",
        "slower",
        "faster",
    }  # this computer does much else
    runs = home.runs(done["campaign_id"])
    used = {*case["baseline"]["run_ids"], *case["candidate"]["run_ids"]}
    assert used
    assert used <= {run.run_id for run in runs}
    assert all(check_figures(run) for run in runs)
