"""Language models: on virtual phones by the fake binary, on this computer by the real runtime where
it is installed."""

from __future__ import annotations

import os
import re
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from benchfarm_virtual.samples import LANGUAGE_MODEL_LIBRARIES, benchmark_elf, library_elf
from tests.conftest import missing
from tests.samples.places import REPO

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.conftest import Lab
    from tests.samples.command import Cli

TINY = REPO / "tests" / "data" / "language_model" / "tiny.litertlm"
RUNTIME = REPO / ".venv" / "litert-lm" / "bin" / "litert-lm"
SMALL = (
    "--flag",
    "prefill_tokens=32",
    "--flag",
    "decode_tokens=16",
    "--flag",
    "max_num_tokens=128",
)


def figures(result: object) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for run in result.json["runs"]:  # type: ignore[attr-defined]
        assert run["outcome"] == "completed", run["reason"]
        found.setdefault(dict(run["case"]["flags"])["figure"], []).append(
            run["report"]["inference_mean_us"]
        )
    return found


def test_a_phones_process_gives_prefill_and_decode(lab: Lab) -> None:
    done = lab.cli(f"bench -s {lab.serial} -d xnnpack -t 2 -n 3 --json", TINY, *SMALL)
    found = figures(done)
    assert {phase: len(times) for phase, times in found.items()} == {"prefill": 3, "decode": 3}
    # Two cases, and one process for both.
    runs = done.json["runs"]
    assert len({run["command"] for run in runs if "command" in run}) <= 3
    assert {run["case"]["tool"] for run in runs} == {"litert-lm"}
    assert {run["report"]["extra"]["unit"] for run in runs} == {"token"}
    assert all(run["report"]["warmup_mean_us"] for run in runs)
    shown = {
        dict(row["flags"])["figure"]: row for row in lab.cli("report --format json").json["results"]
    }
    assert shown.keys() == {"prefill", "decode"}
    listed = lab.cli("report --format text").ok().stdout
    for phase, row in shown.items():
        assert row["is_virtual"]
        # A speed is a second over the time of a token, and its interval is the other way round.
        assert row["tokens_per_s"] == pytest.approx(1e6 / row["median_us"], rel=1e-4)
        assert row["tokens_per_s_low"] == pytest.approx(1e6 / row["interval_high_us"], rel=1e-3)
        assert row["tokens_per_s_low"] < row["tokens_per_s"] < row["tokens_per_s_high"]
        assert f"tiny, {phase}, " in listed
        assert f" {row['tokens_per_s']:.0f} " in listed
    assert listed.count("speed tokens/s ") == 2
    assert "median ms" not in listed
    # Prefill and decode are two lines of the table, each beside what others published of its kind.
    table = lab.cli("table --source store,language-models").ok().stdout
    lines = [line for line in table.splitlines() if line.startswith("tiny")]
    assert {line.partition("  ")[0] for line in lines} == {
        "tiny, prefill 32, context 128", "tiny, decode 16 after 32, context 128"
    }  # fmt: skip
    # Speeds alone: their unit is in the heads.
    assert re.match(r"model +phone .*xnnpack.* tokens/s  cpu tokens/s  gpu tokens/s", table)
    assert not any(re.search(r" ms\b|tokens/s", line) for line in lines)


def test_two_sides_are_paired_process_by_process_with_a_verdict_of_prefill_and_of_decode(
    lab: Lab,
) -> None:
    words = (
        "-m",
        TINY,
        "-s",
        lab.serial,
        "-d",
        "xnnpack",
        "--detect",
        "10%",
        "--runs",
        "8",
        *SMALL,
    )
    done = lab.cli("ab threads:1 threads:4", *words)
    assert done.exit_code in {0, 1}, done.said
    campaign = done.said.rpartition("campaign: ")[2].split()[0]
    runs = lab.cli.json("results runs", campaign)
    pairs: dict[int, dict[int, set[str]]] = {}
    for run in runs:
        assert run["outcome"] == "completed", run["reason"]
        pairs.setdefault(run["invocation"], {}).setdefault(run["case"]["threads"], set()).add(
            run["started_at"]
        )
    # Both figures of a side come from one process, which has one begin.
    assert {
        tuple(sorted((threads, len(times)) for threads, times in sides.items()))
        for sides in pairs.values()
    } == {((1, 1), (4, 1))}
    for phase in ("decode 16 after 32", "prefill 32"):
        assert re.search(rf"\[B, threads 4\] tiny, .*{phase}", done.stderr)
    # More threads take less time: more tokens a second, and that is faster.
    said = re.sub(r"\s+", " ", done.stdout)
    rows = re.findall(r"(FASTER|INCONCLUSIVE|SAME) tiny on.*?figure=(\w+).*?([\d.]+) tokens/s -> ([\d.]+) tokens/s, "
                      r"speed ([+-][\d.]+) % \(([+-][\d.]+) % to ([+-][\d.]+) %", said)  # fmt: skip
    assert {row[1] for row in rows} == {"prefill", "decode"}, done.stdout
    for verdict, phase, before, after, change, low, high in rows:
        # Eight pairs of a few tokens may leave the answer's small gain open.
        assert verdict == "FASTER" or phase == "decode", said
        assert verdict != "FASTER" or (float(after) > float(before) and float(change) > 0)
        assert float(low) <= float(change) <= float(high)


def test_the_example_plan_measures_a_bundle_on_every_phone(lab: Lab, tmp_path: Path) -> None:
    plan = (REPO / "examples" / "llm" / "plan.yaml").read_text("utf-8")
    few = plan.replace("{ first: 5, most: 20 }", "2").replace("precision: 3%\n", "")
    assert len(few) < len(plan) - 14
    (tmp_path / "plan.yaml").write_text(few)
    shutil.copy(TINY, tmp_path / "model.litertlm")
    done = lab.cli("run", tmp_path / "plan.yaml", "--json")
    assert done.exit_code in {0, 1}, done.said
    measured = {(run["case"]["serial"], run["case"]["delegate"]) for run in done.json["runs"]}
    assert measured == {
        (serial, delegate) for serial in lab.serials for delegate in ("xnnpack", "gpu")
    }
    assert {phase: len(times) for phase, times in figures(done).items()} == dict.fromkeys(
        ("prefill", "decode"), 2 * len(measured)
    )


def test_an_added_program_comes_with_its_libraries_and_is_refused_for_other_models(
    lab: Lab, tmp_path: Path, model: Path
) -> None:
    program = tmp_path / "litert_lm_advanced_main"
    program.write_bytes(benchmark_elf("litert_lm_advanced_main"))
    # Without its sampler beside it the GPU decodes slower, and no error says so.
    (tmp_path / LANGUAGE_MODEL_LIBRARIES[0]).write_bytes(library_elf(LANGUAGE_MODEL_LIBRARIES[0]))
    words = (
        "-s",
        lab.serial,
        "--build",
        f"litert-lm={program}",
        "-d",
        "gpu",
        "-t",
        "1",
        "-n",
        "1",
    )
    done = lab.cli("bench", TINY, *words, *SMALL, "--json")
    codes = {dict(run["case"]["flags"])["figure"]: _codes(run) for run in done.json["runs"]}
    assert ("sampled-on-cpu" in codes["decode"], "sampled-on-cpu" in codes["prefill"]) == (
        True,
        False,
    )
    other = lab.cli("bench --tool litert-lm --json", model, TINY, *words, *SMALL).json
    assert {run["case"]["model_name"] for run in other["runs"]} == {"tiny"}


def _codes(run: dict[str, Any]) -> set[str]:
    return {finding["code"] for finding in run["verdict"]["findings"]}


@pytest.mark.skipif(
    not os.environ.get("CI") and not RUNTIME.exists(), reason="make test installs litert-lm"
)
def test_the_real_runtime_measures_a_tiny_bundle_on_this_computer(cli: Cli) -> None:
    if not RUNTIME.exists():
        missing(f"{RUNTIME} isn't there: make test installs it")
    words = (
        "-s",
        "host",
        "--build",
        f"litert-lm={RUNTIME}",
        "-d",
        "xnnpack",
        "-t",
        "1",
        "-n",
        "2",
        *SMALL,
    )
    done = cli("bench", TINY, *words, "--json")
    found = figures(done)
    assert {phase: len(times) for phase, times in found.items()} == {"prefill": 2, "decode": 2}
    for run in done.json["runs"]:
        assert (run["report"]["delegate"]["actual"], run["report"]["delegate"]["truth"]) == (
            "xnnpack",
            "partial",
        )
        log = cli("results log", run["run_id"]).ok().stdout
        phase = dict(run["case"]["flags"])["figure"]
        printed = next(
            line for line in log.splitlines() if line.startswith(f"{phase.capitalize()} speed:")
        )
        assert float(printed.split()[2]) == pytest.approx(
            1e6 / run["report"]["inference_mean_us"], rel=1e-6
        )


def test_a_phones_program_writes_its_metrics_and_older_builds_go_without(
    lab: Lab, tmp_path: Path
) -> None:
    for year, newer in (("2026", True), ("2025", False)):
        program = tmp_path / year / "litert_lm_advanced_main"
        program.parent.mkdir()
        program.write_bytes(benchmark_elf("litert_lm_advanced_main", version=year))
        words = (
            "-s",
            lab.serial,
            "--build",
            f"litert-lm={program}",
            "-d",
            "xnnpack",
            "-t",
            "1",
            "-n",
            "2",
        )
        runs = lab.cli.json("bench", TINY, *words, *SMALL)["runs"]
        assert {run["outcome"] for run in runs} == {"completed"}
        for run in runs:
            assert "sources-disagree" not in _codes(run)
            # No app gets what the program gives itself by default.
            assert ("--boost_performance=disabled" in run["command"]) is newer
            assert ("--metric_proto_file_path=" in run["command"]) is newer
            kept = lab.cli(
                "results log -a metrics.pb",
                run["run_id"],
                "-o",
                tmp_path / f"{run['run_id']}.pb",
            )
            assert (kept.exit_code == 0) is newer


def test_an_engines_flag_is_part_of_the_case_and_of_its_label_and_is_passed_on(
    lab: Lab, tmp_path: Path
) -> None:
    words = ("-s", lab.serial, "-d", "xnnpack", "-t", "1", "-n", "2", *SMALL)
    usual = lab.cli.json("bench", TINY, *words)["runs"]
    done = lab.cli(
        "bench --flag conv_type=float --flag prefill_batch_sizes=64,128", TINY, *words
    ).ok()
    assert "conv_type=float" in done.stdout
    runs = lab.cli.json("results runs newest")
    for run in runs:
        assert {"--conv_type=float", "--prefill_batch_sizes=64,128"} <= {*run["command"].split()}
    assert not {str(run["case"]) for run in usual} & {str(run["case"]) for run in runs}
    # A build of 2025 hasn't the flag, and says so.
    program = tmp_path / "litert_lm_advanced_main"
    program.write_bytes(benchmark_elf("litert_lm_advanced_main", version="2025"))
    older = ("--build", f"litert-lm={program}", "--json")
    refused = lab.cli("bench --flag conv_type=float", TINY, *words, *older).json["runs"]
    failed = {run["reason"] for run in refused if run["reason_code"] == "bad-flag"}
    assert failed == {"Unknown command line flag 'conv_type'"}
    assert {run["outcome"] for run in refused} <= {"failed", "skipped"}


def cache_plan(path: Path, device: str) -> Path:
    """A plan of the tiny bundle with cold and with warm caches."""
    tokens = "prefill_tokens: 32, decode_tokens: 16, max_num_tokens: 128"
    path.write_text(
        f"name: caches\nmodels: {TINY}\nmatrix:\n  threads: 1\n"
        f"  flags: [{{{tokens}, cache: cold}}, {{{tokens}, cache: disk}}]\n"
        f"devices: {device}\ninvocations: 2\n"
    )
    return path


def test_cold_and_warm_caches_are_two_cases_whichever_came_first(lab: Lab, tmp_path: Path) -> None:
    plan = cache_plan(tmp_path / "plan.yaml", f"{{serials: [{lab.serials[1]}]}}")
    runs = lab.cli("run", plan, "--json").json["runs"]
    init: dict[str, list[float]] = {}
    for run in runs:
        init.setdefault(dict(run["case"]["flags"])["cache"], []).append(run["report"]["init_us"])
    assert init.keys() == {"cold", "disk"}
    # Each process that is to be cold is, and each that is to be warm was filled before it.
    assert max(init["disk"]) < 0.8 * min(init["cold"])
    assert {len(times) for times in init.values()} == {4}


@pytest.mark.skipif(
    not os.environ.get("CI") and not RUNTIME.exists(), reason="make test installs litert-lm"
)
def test_caches_and_memory_on_this_computer_stay_apart_from_the_users_files(
    cli: Cli, tmp_path: Path
) -> None:
    if not RUNTIME.exists():
        missing(f"{RUNTIME} isn't there: make test installs it")
    before = set(TINY.parent.iterdir())
    plan = cache_plan(tmp_path / "plan.yaml", "{host: true}")
    build = f"builds: {{litert-lm: {RUNTIME}}}\n"
    plan.write_text(plan.read_text() + build)
    # This computer may be busy with other tests: its figures may be suspect.
    runs = cli("run", plan, "--json").json["runs"]
    assert {(run["outcome"], run["report"]["extra"]["cache"]) for run in runs} == {
        ("completed", "disk")
    }
    processes = {
        (dict(run["case"]["flags"])["cache"], run["command"].count(" --skip-warmup "))
        for run in runs
    }
    assert processes == {("cold", 1), ("disk", 2)}
    assert {run["report"]["extra"]["engine"] for run in runs} == {"fresh"}
    assert set(TINY.parent.iterdir()) == before, "a cache was left beside the user's model"
    # The command tells nothing of memory; the process that it was had so much.
    words = (
        "-s",
        "host",
        "--build",
        f"litert-lm={RUNTIME}",
        "-d",
        "xnnpack",
        "-t",
        "1",
        "-n",
        "1",
        *SMALL,
    )
    peaks = cli("bench --pass memory --json", TINY, *words).json["runs"]
    assert all(20 < run["report"]["peak_memory_mib"] < 20_000 for run in peaks)
