"""Sessions of a device lab and lines of LiteRT's leaderboard: taken in with their doubts, given
out, refused."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.reading.profile import decode_message
from tests.samples.beside import OTHER_PROGRAMS
from tests.samples.places import DATA
from tests.samples.wire import field

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.conftest import Lab
    from tests.samples.command import Cli

PUBLISHED = OTHER_PROGRAMS / "litert_leaderboard" / "measurements-lm.jsonl"
#: Two processes as the leaderboard's first rows tell them: decode on a CPU that gets hot, and on a
#: GPU.
HOT = ((185.509, 6.416), (202.869, 6.21), (185.019, 3.307), (93.141, 2.749), (92.109, 3.378))
STEADY = ((583.937, 21.0), (585.428, 21.1), (591.097, 21.2), (597.082, 21.1), (591.071, 21.0))


#: A line of the leaderboard for inferences, and one for tokens.
INFERENCES, TOKENS = (
    json.loads((DATA / "leaderboard" / f"{name}.json").read_text("utf-8"))
    for name in ("inferences", "tokens")
)


def tokens_row(
    accelerator: str, series: tuple[tuple[float, float], ...], **other: object
) -> dict[str, Any]:
    iterations = [
        {"prefill_tok_s": one, "decode_tok_s": two, "init_total_ms": 817.7} for one, two in series
    ]
    own = {
        "row_id": f"lab/qwen:q.litertlm@1/android/caiman-35/{accelerator}",
        "accelerator": accelerator,
        "delegate": {"cpu": None, "gpu": "OpenCL"}[accelerator],
        "iterations": iterations,
    }
    return TOKENS | own | other


def row(model: str, accelerator: str = "cpu", **latency: float) -> dict[str, Any]:
    return INFERENCES | {
        "row_id": f"{model}@2.2.0/android/caiman-35/{accelerator}",
        "model": f"lab/{model}",
        "file": f"{model}.tflite",
        "accelerator": accelerator,
        "delegate": "LITERT_CL" if accelerator == "gpu" else "TfLiteXNNPackDelegate",
        "latency_ms": INFERENCES["latency_ms"] | latency,
    }


def write(path: Path, *rows: object) -> Path:
    path.write_text(
        "".join(f"{one if isinstance(one, str) else json.dumps(one)}\n" for one in rows)
    )
    return path


def imported(cli: Cli, path: Path) -> dict[str, dict[str, Any]]:
    """Import and return the runs by model, delegate and figure."""
    runs = cli.json("import", path)["runs"]
    named = {}
    for run in runs:
        case = run["case"]
        words = (
            case["model_name"],
            case["serial"].split("-")[0],
            case["delegate"],
            dict(case["flags"]).get("figure"),
        )
        named[" ".join(filter(None, words))] = run
    assert len(named) == len(runs)
    return named


def codes(run: dict[str, Any]) -> set[str]:
    return {
        finding["code"] for finding in run["verdict"]["findings"] if finding["severity"] != "info"
    }


@pytest.mark.parametrize("ending", ["", ".tflite"])
def test_a_model_keeps_what_looks_like_an_ending(cli: Cli, tmp_path: Path, ending: str) -> None:
    path = write(tmp_path / "rows.jsonl", row("net_0.25") | {"file": f"net_0.25{ending}"})
    assert set(imported(cli, path)) == {"net_0.25 caiman xnnpack"}


def test_a_throttled_row_of_the_leaderboard_comes_out_suspect_and_a_steady_one_clean(
    cli: Cli, tmp_path: Path
) -> None:
    path = write(tmp_path / "lm.jsonl", tokens_row("cpu", HOT), tokens_row("gpu", STEADY))
    runs = imported(cli, path)
    assert {name: codes(run) for name, run in runs.items()} == {
        "q caiman xnnpack prefill": {"unsteady-trend"},
        "q caiman xnnpack decode": {"unsteady-trend"},
        "q caiman gpu prefill": set(),
        "q caiman gpu decode": set(),
    }
    # All tokens over their time together: the harmonic mean of the four speeds after the warm-up.
    hot = runs["q caiman xnnpack decode"]["report"]
    assert 1e6 / hot["inference_mean_us"] == pytest.approx(
        4 / sum(1 / two for _, two in HOT[1:]), rel=1e-6
    )
    assert hot["init_us"] == pytest.approx(817_700)
    assert {run["verdict"]["grade"] for run in runs.values()} == {"E"}
    shown = cli("report --format json").json
    assert [device["serial"] for device in shown["devices"]] == ["caiman-35@device-lab"]
    assert {result["origin"].split(" (")[0] for result in shown["results"]} == {
        "imported from lm.jsonl"
    }
    assert "Pixel 9 Pro (imported)" in cli("report --format text").stdout
    # Again adds nothing, and no series of this computer or of a phone here has any of it.
    assert cli("import", path, "--json").json["imported"] == 0
    assert cli("results reparse newest").exit_code == 0


@pytest.mark.skipif(
    not PUBLISHED.exists(), reason="the published rows, ../shared/logs/programs, aren't here"
)
def test_the_published_rows_are_read_with_their_doubts(cli: Cli) -> None:
    runs = imported(cli, PUBLISHED)
    assert {
        name.removeprefix("qwen3_0_6b_mixed_int4 caiman "): codes(run) for name, run in runs.items()
    } == {
        "xnnpack prefill": {"unsteady-trend"},
        "xnnpack decode": {"unsteady-trend"},
        "gpu prefill": set(),
        "gpu decode": {"unsteady"},
    }


def test_signs_of_heat_in_summaries_are_told(cli: Cli, tmp_path: Path) -> None:
    rows = [
        row("steady"),
        row("skewed", avg=117.0, stddev=31.0, p95=181.0),
        row("heating", first_inference=88.0),
        row("ramping", accelerator="gpu", avg=100.0, warm_up_avg=130.0),
        row("partly", accelerator="gpu")
        | {"nodes_delegated": 28, "nodes_total": 400, "partitions": 9},
        row("fallen", accelerator="gpu") | {"delegate": "TfLiteXNNPackDelegate"},
        row("log", accelerator="gpu")
        | {"delegate": "Metal", "nodes_delegated": None, "nodes_total": None},
        row("none") | {"delegate": None, "nodes_delegated": None, "nodes_total": None},
        row("gone") | {"status": "failed"},
        row("untimed") | {"status": "failed", "latency_ms": None},
    ]
    done = cli("import", write(tmp_path / "board.jsonl", *rows), "--json")
    assert done.exit_code == 1, "one of them has no result"
    assert re.search(r"\d of 10 figures are suspect by their own numbers", str(done.json["notes"]))
    runs = {run["case"]["model_name"]: run for run in done.json["runs"]}
    found = {name: codes(run) for name, run in runs.items()}
    assert found["steady"] == found["log"] == set()
    assert (found["skewed"], found["heating"]) == ({"unsteady"}, {"unsteady-trend"})
    assert (found["ramping"], found["none"]) == ({"unsteady-trend"}, {"delegate-unknown"})
    assert {name: run["report"]["delegate"]["truth"] for name, run in runs.items()} == {
        "steady": "full", "skewed": "full", "heating": "full", "ramping": "full", "partly": "partial",
        "fallen": "fell-back", "log": "unknown", "none": "unknown", "gone": "full",
        "untimed": "full",
    }  # fmt: skip
    assert {name for name, run in runs.items() if run["outcome"] == "failed"} == {
        "fallen", "gone", "untimed"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"row_id": "a", ' + '"x": [' * 5000, "Invalid JSON"),
        (
            json.dumps(row("a") | {"runs": 10**400}),
            "runs: Input should be less than or equal to 10000000",
        ),
        (
            json.dumps(row("a") | {"file": "a\x1b[2J\nb"}),
            "must be a text in one line, not 'a\\x1b[2J\\nb'",
        ),
        (
            json.dumps(row("a") | {"date": "yesterday", "platform": "beos", "runs": -1}),
            "beos'; date: must be YYYY-MM-DD, not 'yesterday'; runs: Input should be greater",
        ),
        (json.dumps(row("a") | {"latency_ms": None}), "it has neither latency_ms nor metrics"),
        (json.dumps(tokens_row("cpu", HOT[:1])), "iterations: 1, of which 1 warm up: none is left"),
        (
            json.dumps(tokens_row("cpu", HOT, conditions={})),
            "conditions.prefill_tokens: the speed is of an unknown context",
        ),
    ],
)
def test_a_hostile_line_gives_one_clear_error_and_nothing_is_stored(
    cli: Cli, tmp_path: Path, text: str, said: str
) -> None:
    done = cli("import", write(tmp_path / "board.jsonl", row("good"), text)).ended_with(2)
    assert "board.jsonl:2: " in done.stderr
    assert said in done.stderr
    assert len(done.stderr) < 1000
    assert cli("results list --json").json == []


def result(init_ms: float) -> bytes:
    """A BenchmarkResult of 50 inferences."""
    message = decode_message("BenchmarkResult", b"")
    message.latency_metrics.init_ms = init_ms
    for name, value_ms in (("avg", 10.08), ("min", 9.0), ("max", 12.0), ("median", 10.0)):
        setattr(message.latency_metrics, f"{name}_ms", value_ms)
    message.misc_metrics.num_runs = 50
    return bytes(message.SerializeToString())


def turn(duration_us: int, tokens: int) -> bytes:
    return field(1, duration_us) + field(2, tokens) + field(3, float(tokens / duration_us * 1e6))


def metrics(*repetitions: tuple[int, int]) -> bytes:
    """A LitertLmMetricsList of prompts of 32 tokens and answers of 16, by their microseconds."""
    return b"".join(
        field(
            1,
            field(1, field(1, 32) + field(2, 16))
            + field(2, field(1, b"Init Total") + field(2, 580_100))
            + field(2, field(1, b"Init Executor") + field(2, 577_300))
            + field(4, turn(prefill_us, 32))
            + field(5, turn(decode_us, 16))
            + field(7, 0.92),
        )
        for prefill_us, decode_us in repetitions
    )


ARGS = (
    "--backend=gpu --model_path=/data/local/tmp/litert-cli/q.litertlm --benchmark=true --benchmark_prefill_tokens=32 "
    "--benchmark_decode_tokens=16 --max_num_tokens=128 --num_iterations=3"
)
PROVENANCE = (
    f"date: x\nproduct: Pixel 9 Pro (caiman)\nbuild: google/caiman/caiman:15/AP4A/1:user/release-keys\nargs: {ARGS}\n"
    f"sha256:\n{'a' * 64}  ./litert_lm_advanced_main\n"
)
LOG = """\
09-19 10:00:00.000  4000  4000 I tflite  : Created TensorFlow Lite XNNPACK delegate for CPU.
09-19 10:00:00.001  5000  5001 I litert  : Created default OpenCL device.
09-19 10:00:00.002  5000  5001 I tflite  : Replacing 87 out of 87 node(s) with delegate (LITERT_CL) node, yielding 1 partitions for subgraph 0 (decode).
09-19 10:00:00.002  5000  5001 W native  : GPU sampler unavailable. Falling back to CPU sampling.
09-19 10:00:03.000  5000  5001 I native  : I0919 10:00:03.000000    5001 litert_lm_lib.cc:424] BenchmarkInfo:
09-19 10:00:03.000  5000  5001 I native  : Decode Turns (Total 1 turns):
09-19 10:00:04.000  4100  4100 I native  : Failed to run litert_lm: another program
"""  # noqa: E501
THREE = ((3000, 2000), (1600, 1000), (1600, 1040))


def test_a_session_folder_gives_its_jobs_and_tells_which_are_left_out(
    cli: Cli, tmp_path: Path
) -> None:
    session = tmp_path / "session-6fa889ae"
    jobs = {
        "gpu-caiman-35": {
            "metrics.pb": metrics(*THREE),
            "provenance.txt": PROVENANCE.encode(),
            "logcat.txt": LOG.encode(),
        },
        # Nothing names a GPU, a proto is damaged, the files weren't downloaded, one repetition is
        # the warm-up.
        "gpu-m1q-36": {"metrics.pb": metrics(*THREE), "provenance.txt": PROVENANCE.encode()},
        "cpu-m1q-36": {"metrics.pb": b"\x0a\xff\xff", "provenance.txt": PROVENANCE.encode()},
        "cpu-pa3q-35": {"logcat.txt": b""},
        "cpu-m2q-36": {"metrics.pb": metrics(THREE[0]), "provenance.txt": PROVENANCE.encode()},
        "notajob": {"metrics.pb": metrics(*THREE)},
    }
    for name, files in jobs.items():
        (session / name).mkdir(parents=True)
        for file, content in files.items():
            (session / name / file).write_bytes(content)
    (session / "cpu-linked-35").mkdir()
    (session / "cpu-linked-35" / "metrics.pb").symlink_to("/etc/hostname")
    done = cli("import", session, "--json")
    runs = {dict(run["case"]["flags"])["figure"]: run for run in done.json["runs"]}
    assert runs.keys() == {"prefill", "decode"}
    assert dict(runs["decode"]["case"]["flags"]) == {
        "decode_tokens": "16", "figure": "decode", "max_num_tokens": "128", "prefill_tokens": "32"
    }  # fmt: skip
    assert runs["decode"]["case"]["serial"] == "caiman-35@device-lab"
    assert runs["decode"]["report"]["inference_mean_us"] == pytest.approx(2040 / 32)
    # Not the sum of all phases, of which one is their sum.
    assert runs["decode"]["report"]["init_us"] == 580_100
    assert (codes(runs["decode"]), codes(runs["prefill"])) == ({"sampled-on-cpu"}, set())
    assert runs["decode"]["report"]["delegate"]["truth"] == "full"
    assert done.exit_code == 1
    left_out = [
        note.partition(": ")[2].rpartition("/")[2]
        for note in done.json["notes"]
        if "left out" in note
    ]
    assert [note.partition(": Error parsing")[0] for note in left_out] == [
        "cpu-linked-35: metrics.pb is a link, and isn't followed",
        "cpu-m1q-36: 3 bytes are no LitertLmMetricsList",
        "cpu-m2q-36: no repetition is left after the warm-up",
        "cpu-pa3q-35: has neither results.pb nor metrics.pb: the job failed, or its files weren't downloaded",
        "gpu-m1q-36: its logcat.txt names no GPU API: nothing shows that the GPU ran it",
    ]
    device = cli("report --format json").json["devices"][0]
    assert (device["model"], device["codename"], device["sdk"]) == ("Pixel 9 Pro", "caiman", 35)
    assert device["fingerprint"].startswith("google/caiman")
    nothing = tmp_path / "nothing"
    nothing.mkdir()
    told = cli("import", nothing).ended_with(2).stderr
    assert f"{nothing}: nothing to import" in told
    assert "a session's folder has jobs" in told


@pytest.mark.parametrize(
    ("log", "provenance", "why"),
    [
        (LOG.replace("5000  5001 I litert", "6000  6001 I litert"), PROVENANCE, "names no GPU API"),
        (
            f"09-19 09:59:59.000  6000  6001 I litert  : Loading model from: /other.tflite\n{LOG}",
            PROVENANCE.replace("--model_path=/data/local/tmp/litert-cli/q.litertlm ", ""),
            "its model is unknown",
        ),
    ],
)
def test_what_another_app_logged_is_not_the_job_s(
    cli: Cli, tmp_path: Path, log: str, provenance: str, why: str
) -> None:
    job = tmp_path / "session-1" / "gpu-caiman-35"
    job.mkdir(parents=True)
    (job / "metrics.pb").write_bytes(metrics(*THREE))
    (job / "provenance.txt").write_text(provenance)
    (job / "logcat.txt").write_text(log)
    assert why in cli("import", job.parent).ended_with(2).stderr


def test_what_a_session_was_asked_for_is_read_from_its_own_file(cli: Cli, tmp_path: Path) -> None:
    """``ddp_session.json``: the job's arguments and labels, which no pulled file of a model has."""
    session = tmp_path / "session-1" / "gpu-caiman-35"
    session.mkdir(parents=True)
    (session / "metrics.pb").write_bytes(metrics(*THREE))
    (session / "logcat.txt").write_text(LOG)
    arguments = [
        "--benchmark_prefill_tokens=32",
        "--benchmark_decode_tokens=16",
        "--num_cpu_threads=6",
    ]
    config = {
        "jobConfigs": [
            # What is odd in another job's is no fault of this one.
            "odd", {"displayName": "cpu-caiman-35", "labels": {"model": 5}},
            {"displayName": "gpu-caiman-35", "labels": {"model": "q.litertlm", "tool": "litert-cli"},
             "action": {"androidNativeBinary": {"args": arguments, "executionTimeout": "1800s"}}},
        ]
    }  # fmt: skip
    (session.parent / "ddp_session.json").write_text(json.dumps({"sessionConfig": config}))
    done = cli("import", session.parent, "--json")
    run = done.json["runs"][0]
    assert (run["case"]["model_name"], run["case"]["threads"], run["case"]["delegate"]) == (
        "q",
        6,
        "gpu",
    )
    assert {name: value for name, value in run["case"]["flags"] if name != "figure"} == {
        "prefill_tokens": "32", "decode_tokens": "16"
    }  # fmt: skip
    config["jobConfigs"][2]["labels"] = {"model": 5}
    (session.parent / "ddp_session.json").write_text(json.dumps({"sessionConfig": config}))
    assert (
        "jobConfigs of gpu-caiman-35 is wrong: labels.model"
        in cli("import", session.parent).ended_with(2).said
    )
    (session.parent / "ddp_session.json").write_text("[]")
    assert (
        "ddp_session.json is wrong: Input should be an object"
        in cli("import", session.parent).ended_with(2).said
    )


def test_a_session_with_a_process_that_fills_the_caches_is_of_the_measured_one(
    cli: Cli, tmp_path: Path
) -> None:
    """Since 0.3 the command runs a process before the measured one, and both are in one log."""
    session = tmp_path / "session-2"
    language, vision = session / "gpu-caiman-35", session / "cpu-caiman-35"
    for folder in (language, vision):
        folder.mkdir(parents=True)
    block = "I native  : I0919 10:00:03.000000    5001 litert_lm_lib.cc:424] BenchmarkInfo:"
    measured = "".join(f"09-19 10:00:0{at}.000  5000  5001 {block}\n" for at in (5, 6))
    filling = (
        LOG.replace(" 5000 ", " 4900 ")
        .partition("09-19 10:00:04")[0]
        .replace("87 out of 87", "80 out of 87")
    )
    (language / "metrics.pb").write_bytes(metrics(*THREE))
    (language / "provenance.txt").write_text(f"{PROVENANCE}warm-up process: exit 0\n")
    (language / "logcat.txt").write_text(filling + LOG + measured)
    banner = (
        "09-19 10:00:0{at}.000  {pid}  {pid} I litert  : [benchmark_litert_model.h:94] "
        "Model initialization: {init} ms\n"
        "09-19 10:00:0{at}.100  {pid}  {pid} I litert  : [benchmark_litert_model.h:98] "
        "Inference (avg): {mean} ms ({n} runs)\n"
    )
    (vision / "results.pb").write_bytes(result(36.0))
    (vision / "warmup_results.pb").write_bytes(result(745.0))
    (vision / "logcat.txt").write_text(
        banner.format(at=1, pid=4000, init="745.00", mean="0.00", n=0)
        + banner.format(at=3, pid=5000, init="36.00", mean="10.08", n=50)
    )
    (without := session / "cpu-m1q-36").mkdir()
    (without / "results.pb").write_bytes(result(700.0))
    (without / "warmup_results.pb").write_bytes(result(745.0))
    (without / "logcat.txt").write_text(
        banner.format(at=1, pid=5000, init="36.00", mean="9.00", n=50)
        + banner.format(at=3, pid=6000, init="700.00", mean="10.08", n=50)
    )
    (without / "benchmark_run.txt").write_text(
        f"{'a' * 64}  ./benchmark_model\n{'b' * 64}  ./c.tflite\n"
        "measured process: command ./benchmark_model --graph=/tmp/c.tflite --num_runs=50\n"
        "measured process: pid 5000\nmeasured process: exit 1\n"
        "running once without the cache flags: the measured process exited with 1\n"
        "fallback process: command ./benchmark_model --graph=/tmp/c.tflite --num_runs=50\n"
        "fallback process: pid 6000\nfallback process: exit 0\n"
    )
    config = {
        "jobConfigs": [
            {"displayName": "cpu-caiman-35", "labels": {"model": "m.tflite", "model_caches": "on"}},
            {"displayName": "cpu-m1q-36", "labels": {"model_caches": "on"}},
        ]
    }
    (session / "ddp_session.json").write_text(json.dumps({"sessionConfig": config}))
    runs = cli("import", session, "--json").json["runs"]
    # A process that ran without caches after one with them had failed is no start with caches.
    last = next(run for run in runs if run["case"]["model_name"] == "c")
    assert dict(last["case"]["flags"]) == {"model_caches": "off"}
    assert (last["report"]["init_us"], last["report"]["disagreements"]) == (700_000, [])
    named = {
        dict(run["case"]["flags"]).get("figure", run["case"]["model_name"]): run for run in runs
    }
    assert named["decode"]["report"]["delegate"]["truth"] == "full"
    assert dict(named["decode"]["case"]["flags"])["model_caches"] == "on"
    assert named["m"]["report"]["init_us"] == 36_000
    assert named["m"]["report"]["disagreements"] == []
    # A start that finds its caches is another case than one that doesn't.
    assert dict(named["m"]["case"]["flags"]) == {"model_caches": "on"}


def test_jobs_of_two_signatures_are_two_cases(cli: Cli, tmp_path: Path) -> None:
    """The arguments name the signature, else the program's banner does; the usual one is none."""
    flags = ["--graph=/data/local/tmp/gemma.tflite", "--use_gpu=true"]
    jobs = {
        "prefill": (["--signature_to_run_for=prefill", "--input_layer_value_range=x,0,9"], ""),
        "decode": ([], "I litert  : [benchmark_litert_model.h:85] Signature name:       decode"),
        "usual": (["--signature_to_run_for=serving_default"], ""),
    }
    for name, (chosen, logged) in jobs.items():
        job = tmp_path / name / "gpu-caiman-35"
        job.mkdir(parents=True)
        (job / "results.pb").write_bytes(result(36.0))
        (job / "logcat.txt").write_text(f"09-19 10:00:05.000  5000  5000 {logged}\n")
        action = {"androidNativeBinary": {"args": [*flags, *chosen]}}
        config = {"jobConfigs": [{"displayName": job.name, "action": action}]}
        (job.parent / "ddp_session.json").write_text(json.dumps({"sessionConfig": config}))
    told = {
        name: dict(cli("import", tmp_path / name, "--json").json["runs"][0]["case"]["flags"])
        for name in jobs
    }
    assert told == {
        "prefill": {"signature_to_run_for": "prefill", "input_layer_value_range": "x,0,9"},
        "decode": {"signature_to_run_for": "decode"},
        "usual": {},
    }


def test_own_results_leave_as_the_leaderboards_lines(
    lab: Lab, cli: Cli, tmp_path: Path, model: Path
) -> None:
    lab.cli(f"bench -s {lab.serial} -d xnnpack -t 2 -n 2 --json", model).ok()
    out = tmp_path / "own.jsonl"
    assert "own.jsonl: 2 lines" in lab.cli("export -f leaderboard -o", out).ok().stdout
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [line["repeat"] for line in rows] == [1, 2]
    assert len({line["row_id"] for line in rows}) == 2
    for line in rows:
        # No measurement, and nobody takes it for one.
        assert (line["status"], line["benchfarm"]["is_virtual"]) == ("virtual", True)
        assert line["latency_ms"]["median"] > 0
        assert lab.serial not in json.dumps(line)
    taken = cli("import", out, "--json")
    assert {run["outcome"] for run in taken.json["runs"]} == {"failed"}
    # The same lines of a real phone are read as what they were.
    write(out, *(line | {"status": "measured"} for line in rows))
    again = [run["report"] for run in cli.json("import", out)["runs"]]
    assert [report["inference"]["median_us"] for report in again] == pytest.approx(
        [line["latency_ms"]["median"] * 1e3 for line in rows]
    )
    assert {(r["delegate"]["truth"], r["delegate"]["delegated_nodes"]) for r in again} == {
        (
            "full" if rows[0]["nodes_delegated"] == rows[0]["nodes_total"] else "partial",
            rows[0]["nodes_delegated"],
        )
    }
