"""Texts of several models, signatures and language models: no run counts for another's case."""

import gzip
import io
import json
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.programs.running import ImportedTool, source_attachments
from orchestrator.records.case import ToolName
from orchestrator.records.run import RawOutput, ToolReport
from tests.samples.command import Cli
from tests.samples.places import MODELS
from tests.samples.sample_lab import START, case


def litert(ms: int, *, model: str = "", signature: str = "", header: str = "INFO: ") -> str:
    """What LiteRT's program leaves in a phone's log, which echoes no parameter of its own."""
    loaded = f"[benchmark_litert_model.cc:305] Loading model from: {model}"
    named = f"[benchmark_litert_model.h:85] Signature name:       {signature}"
    lines = (
        *([loaded] if model else []),
        "[benchmark_litert_model.h:82] ",
        "========== BENCHMARK RESULTS ==========",
        *([named] if signature else []),
        "[benchmark_litert_model.h:88] Model initialization: 23760.10 ms",
        f"[benchmark_litert_model.h:95] Inference (avg):      {ms}.00 ms (10 runs)",
    )
    return "".join(f"{header}{line}\n" for line in lines)


def litert_lm(decode_s: int, *, model: str = "", tokens: int = 256) -> str:
    head = "I0000 00:00:1777020481.329016    6587 litert_lm_main.cc:133] "
    return (
        (f"{head}Model path: {model}\n{head}Choose backend: cpu\n" if model else "")
        + "INFO: Created TensorFlow Lite XNNPACK delegate for CPU.\nBenchmarkInfo:\n"
        + f"{'-' * 50}\n  Time to first token: 0.50 s\n{'-' * 50}\n"
        + "    Prefill Turn 1: Processed 1000 tokens in 1s duration.\n"
        + f"    Decode Turn 1: Processed {tokens} tokens in {decode_s}s duration.\n"
    )


COMMAND = "$ ./benchmark_model --graph=m.tflite"
ECHOED = "STARTING!\nGraph: [m.tflite]\nUse gpu: [1]\n"
RESULT = "Inference timings in us: Init: 83, First inference: 9, Warmup (avg): 5, Inference (avg): {}000.5\n"
LOGCAT = "09-28 06:21:39.336 19416 19416 I litert  : "
RAW = RawOutput(
    command="", exit_code=None, timed_out=False, started_at=START, duration_s=0.0, attachments=()
)
TWO_MODELS = [("mobilenet_v2", "", 233.0), ("resnet50", "", 2339.0)]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (
            litert(2339, model="/tmp/gemma.tflite", signature="prefill")
            + litert(233, model="/tmp/gemma.tflite", signature="decode"),
            [("gemma", "decode", 233.0), ("gemma", "prefill", 2339.0)],
        ),
        # The usual signature is no choice.
        (
            litert(2339, model="/tmp/resnet50.tflite", signature="serving_default")
            + litert(233, model="mobilenet_v2.tflite"),
            TWO_MODELS,
        ),
        (
            litert(2339, model=r"C:\models\resnet50.tflite", header=LOGCAT)
            + litert(233, model="/tmp/mobilenet_v2.tflite", header=LOGCAT),
            TWO_MODELS,
        ),
        # What the commands set and the program doesn't echo; a file of results is nothing.
        (
            "$ ./benchmark_litert_model --graph=m.tflite --use_gpu=true --gpu_backend=opencl\n"
            + litert(23, model="m.tflite")
            + "$ ./benchmark_litert_model --graph=m.tflite --gpu_precision=fp32 --result_file_path=a\n"
            + litert(24, model="m.tflite"),
            [("m", "fp32", 24.0), ("m", "opencl", 23.0)],
        ),
        # Who runs what the GPU leaves, echoed; and commands alone, where nothing is echoed.
        (
            f"{ECHOED}{RESULT.format(3)}{ECHOED}Use xnnpack: [0]\n{RESULT.format(2)}",
            [("m", "", 3.0005), ("m", "0", 2.0005)],
        ),
        (
            f"{COMMAND}\n{RESULT.format(3)}{COMMAND} --allow_fp16=true\n{RESULT.format(2)}",
            [("m", "", 3.0005), ("m", "true", 2.0005)],
        ),
        (
            f"$ taskset f0 {COMMAND[2:]}\n{ECHOED}{RESULT.format(3)}{COMMAND}\n{ECHOED}{RESULT.format(2)}",
            [("m", "", 2.0005), ("m", "f0", 3.0005)],
        ),
        (
            "".join(
                f"$ taskset --cpu-list {cores} {COMMAND[2:]}\n{ECHOED}{RESULT.format(number)}"
                for number, cores in enumerate(("0-3", "4-7"), start=2)
            ),
            [("m", "--cpu-list 0-3", 2.0005), ("m", "--cpu-list 4-7", 3.0005)],
        ),
        (
            "".join(
                f"Benchmarking model: q\nSpeculative decoding : {mode}\n----- Results -----\n"
                f"Prefill speed: 100.00 tokens/s\nDecode speed: {speed}.00 tokens/s\n"
                for mode, speed in (("auto", 100), ("on", 200))
            ),
            [
                ("q", "decode", 5.0),
                ("q", "decode", 10.0),
                ("q", "prefill", 10.0),
                ("q", "prefill", 10.0),
            ],
        ),
        (
            litert(2339) + litert(233),
            [
                ("unknown model of log.txt, run 1", "", 2339.0),
                ("unknown model of log.txt, run 2", "", 233.0),
            ],
        ),
        *(
            (
                (
                    f"$ ./benchmark_model --graph=/tmp/{name}\nInference (avg): 2000.5 us\n"
                    f"$ ./benchmark_model --graph=/tmp/{name}\nInference (avg): 3000.5 us\n"
                ),
                [
                    ("unknown model of log.txt, run 1", "", 2.0005),
                    ("unknown model of log.txt, run 2", "", 3.0005),
                ],
            )
            for name in ("{model}.tflite", "$m.tflite", "<your_model>.tflite")
        ),
        (
            litert_lm(5, model="/tmp/gemma3-1b.litertlm")
            + litert_lm(50, model="/tmp/qwen3-4b.litertlm"),
            [
                ("gemma3-1b", "decode", 5e3 / 256),
                ("gemma3-1b", "prefill", 1.0),
                ("qwen3-4b", "decode", 50e3 / 256),
                ("qwen3-4b", "prefill", 1.0),
            ],
        ),
        (
            litert_lm(5) + litert_lm(50),
            [
                ("unknown model of log.txt, run 1", "decode", 5e3 / 256),
                ("unknown model of log.txt, run 1", "prefill", 1.0),
                ("unknown model of log.txt, run 3", "decode", 50e3 / 256),
                ("unknown model of log.txt, run 3", "prefill", 1.0),
            ],
        ),
    ],
)
def test_each_run_is_of_its_own_model_and_signature(
    cli: Cli, tmp_path: Path, text: str, wanted: list[tuple[str, str, float]]
) -> None:
    path = tmp_path / "log.txt"
    path.write_text(text)
    done = cli.json("import", path, "-s", "A Phone")
    runs = cli.json("results runs", done["campaign_id"])
    read = [
        (
            run["case"]["model_name"],
            next(
                (value for name, value in run["case"]["flags"] if not name.endswith("_tokens")),
                "",
            ),
            run["report"]["inference_mean_us"] / 1e3,
        )
        for run in runs
    ]
    assert sorted(read) == [(*names, pytest.approx(ms, rel=1e-9)) for *names, ms in wanted]
    assert len({json.dumps(run["case"], sort_keys=True) for run in runs}) == len(wanted)


def test_answers_of_other_lengths_are_other_cases_and_shown_as_speeds(
    cli: Cli, tmp_path: Path
) -> None:
    path = tmp_path / "log.txt"
    one = litert_lm(5, model="/tmp/gemma3-1b.litertlm")
    path.write_text(one + one + litert_lm(5, model="/tmp/gemma3-1b.litertlm", tokens=64))
    done = cli.json("import", path, "-s", "A Phone")
    text = cli("report --format text", done["campaign_id"]).ok().stdout
    for told in ("decode 256 after 1000", "51.2", "decode 64 after 1000", "12.8"):
        assert told in text


def test_a_model_file_is_no_other_model_of_its_text(cli: Cli, tmp_path: Path) -> None:
    model = MODELS / "texturenet_0.25_256_int8.tflite"
    path = tmp_path / "log.txt"
    path.write_text(litert(23, model=f"/tmp/{model.name}") + litert(233, model="/tmp/b.tflite"))
    done = cli("import", path, "-m", model, "-s", "A Phone", "--json").json
    assert [run["case"]["model_name"] for run in done["runs"]] == [model.stem]
    assert "run 2: name the file of the one model that was measured, b: --model" in str(done)


def test_a_profiled_run_of_a_command_is_no_latency(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_text(f"{COMMAND} --enable_op_profiling=true\n{RESULT.format(3)}")
    assert "'enable_op_profiling' is on" in cli("import", path).ended_with(2).said


def tflite(pid: int = 7, second: str = "56.521", init: int = 92318, mean: str = "145528") -> str:
    """What `benchmark_model`'s app leaves in a phone's log."""
    lines = (
        "STARTING!",
        "Graph: [m.tflite]",
        f"count=25 first=187533 curr=140990 min=140071 max=195121 avg={mean} std=13583",
        (
            f"Inference timings in us: Init: {init}, First inference: 235158, "
            f"Warmup (avg): 211669, Inference (avg): {mean}"
        ),
    )
    return "".join(f"07-14 13:14:{second} {pid} {pid} I tflite  : {line}\n" for line in lines)


def without_header(text: str) -> str:
    return "".join(line.partition(" : ")[2] for line in text.splitlines(keepends=True))


COARSE = (
    "$ ./benchmark_model --graph=m.tflite\n"
    "Inference timings in us: Init: 83, First inference: 9, Warmup (avg): 5, Inference (avg): 5\n"
)


@pytest.mark.parametrize(
    ("text", "runs"),
    [
        (f"{tflite()}# again\n{tflite()}{tflite()}", 1),
        (without_header(tflite() + tflite()), 1),
        (tflite() + tflite(pid=8), 2),
        (tflite() + tflite(second="57.000"), 2),
        (tflite() + tflite(init=92319), 2),
        # Short figures may be equal by chance, but not at the same moment.
        (COARSE + COARSE, 2),
        (litert(10, model="m") + litert(10, model="m"), 2),
        (litert(10, header=LOGCAT) + litert(10, header=LOGCAT), 1),
    ],
)
def test_run_that_a_text_holds_twice_counts_once(
    cli: Cli, tmp_path: Path, text: str, runs: int
) -> None:
    path = tmp_path / "log.txt"
    path.write_text(text)
    done = cli.json("import", path, "-s", "A Phone")
    assert done["imported"] == runs
    assert ("not counted again: run 2" in str(done["notes"])) == (runs == 1)


def test_a_text_of_many_runs_is_read_once() -> None:
    texts = list[str]()

    def read(text: str) -> list[ToolReport]:
        texts.append(text)
        return [ToolReport(outcome="ok", label=word) for word in text.split()]

    tool = ImportedTool(ToolName.TEXT, read)
    labels = [
        tool.parse(replace(RAW, attachments=source_attachments(text, place)), case()).label
        for text in (b"a b c", b"d e")
        for place in range(2)
    ]
    assert labels == ["a", "b", "d", "e"]
    assert texts == ["a b c", "d e"]


def test_run_that_two_texts_hold_counts_once(cli: Cli, tmp_path: Path) -> None:
    texts = {"a": tflite(), "b": tflite() + tflite(pid=8, second="57.000"), "c": COARSE}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    done = cli.json("import", tmp_path / "a", tmp_path / "b", "-s", "A Phone")
    assert [each["imported"] for each in done["imports"]] == [1, 1]
    assert [each["known"] for each in done["imports"]] == [0, 1]
    # Of another phone it is another run; short figures may be equal by chance.
    assert cli.json("import", tmp_path / "a", "-s", "B Phone")["imported"] == 1
    (tmp_path / "d").write_text(f"{COARSE}\n")
    for name in "cd":
        assert cli.json("import", tmp_path / name, "-s", "A Phone")["imported"] == 1


@pytest.mark.parametrize(
    ("headings", "cases"),
    [
        (["## Pixel 6", "## Pixel 8"], 2),
        (["## Pixel 6\n### CPU", "## Pixel 8\n### CPU"], 2),
        (["=== Pixel 6 ===", "", "=== Pixel 8 ===", ""], 2),
        (["== 8A1X0ABCD ==", "== R58M12345 =="], 2),
        (["# Pixel 6", "# Pixel 8"], 2),
        (["## Results", ""], 1),
        (["=== run 1 of 2 ===", "=== run 2 of 2 ==="], 1),
    ],
)
def test_runs_below_the_headings_of_several_phones_are_no_case(
    cli: Cli, tmp_path: Path, headings: list[str], cases: int
) -> None:
    path = tmp_path / "log.md"
    path.write_text(
        "".join(
            f"{heading}\n```\n{ECHOED}{RESULT.format(ms)}```\n"
            for ms, heading in enumerate(headings, 2)
        )
    )
    runs = cli.json("import", path)["runs"]
    assert len(runs) == len(headings)
    assert len({json.dumps(run["case"], sort_keys=True) for run in runs}) == cases
    # A run that is told again below another heading is none.
    path.write_text(f"## A\n{tflite()}## B\n{tflite(pid=8)}## C\n{tflite()}")
    assert cli.json("import", path)["imported"] == 2


def test_rows_of_other_programs_below_several_headings_are_no_case(
    cli: Cli, tmp_path: Path
) -> None:
    path = tmp_path / "README.md"
    path.write_text(
        "".join(
            f"# Phone {ms}\n$ ./benchncnn 8 4 2 -1 1\nloop_count = 8\nnum_threads = 4\npowersave = 2\ngpu_device = -1\n"
            f"cooling_down = 1\n          squeezenet  min =    {ms}.60  max =    {ms}.70  avg =    {ms}.64\n"
            for ms in (3, 4)
        )
        # Long headings took minutes to read.
        + "".join(f"{marks} a{' ' * 60_000}b\n" * 8 for marks in ("#", "##"))
    )
    one, other = cli.json("import", path)["runs"]
    assert one["case"]["model_name"] == other["case"]["model_name"] == "squeezenet"
    assert one["case"] != other["case"]


NCNN = (
    "loop_count = 8\nnum_threads = 4\npowersave = {0}\ngpu_device = -1\ncooling_down = 1\n"
    "          squeezenet  min =    3.6{0}  max =    3.70  avg =    3.6{0}\n"
)
LLAMA = (
    "| model | size | params | backend | threads | test | t/s |\n| --- | ---: |\n"
    "| gemma | 1.51 GiB | 2.61 B | CPU | 4 | tg128 | 9.87 ± 0.05 |\n"
    "| gemma | 1.51 GiB | 2.61 B | CPU | 4 | tg128 @ d4096 | 9.10 ± 0.05 |\n"
    "| gemma | 1.51 GiB | 2.61 B | CPU | 6 | tg128 | 8.02 ± 0.44 |\n"
    "| gemma | 1.51 GiB | 2.61 B | CPU | 6 | tg128 | 8.03 ± 0.43 |\n"
)


@pytest.mark.parametrize(
    ("text", "cases"),
    [
        (NCNN.format(0) + NCNN.format(2), 2),
        (LLAMA, 3),
        (f"## Pixel 9\n{litert_lm(5)}## Galaxy S25\n{litert_lm(4)}", 4),
    ],
)
def test_figures_of_other_settings_or_phones_are_no_case(
    cli: Cli, tmp_path: Path, text: str, cases: int
) -> None:
    path, model = tmp_path / "log.md", tmp_path / "gemma.gguf"
    path.write_text(text)
    model.write_bytes(b"GGUF\3\0\0\0" + bytes(64))
    runs = cli.json("import", path, "-m", model, "-s", "A Phone")["runs"]
    assert len({json.dumps(run["case"], sort_keys=True) for run in runs}) == cases


def zipped(text: str) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("logs/run.txt", text)
    return file.getvalue()


@pytest.mark.parametrize(
    "form",
    [lambda text: text.encode("utf-16"), lambda text: gzip.compress(text.encode()), zipped],
    ids=["a Windows shell's", "gzip", "zip"],
)
def test_import_reads_the_forms_that_parse_reads(
    cli: Cli, tmp_path: Path, form: Callable[[str], bytes]
) -> None:
    path = tmp_path / "log"
    path.write_bytes(form(litert(2339, model="a.tflite") + litert(233, model="b.tflite")))
    done = cli.json("import", path, "-s", "A Phone")
    names = [run["case"]["model_name"] for run in done["runs"]]
    assert sorted(names) == ["a", "b"]
    runs = cli.json("results runs", done["campaign_id"])
    assert sorted(run["report"]["inference_mean_us"] for run in runs) == [233e3, 2339e3]


def test_a_text_that_is_too_large_is_refused(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    with path.open("wb") as file:
        file.write(litert(2339, model="a.tflite").encode())
        file.truncate(65 << 20)
    done = cli("import", path)
    assert done.exit_code == 2
    assert "more than 64 MiB" in done.stderr
    assert "import it in parts" in done.stderr


def test_a_faulty_file_of_a_program_is_told_and_all_else_is_read(cli: Cli, tmp_path: Path) -> None:
    programs = cli.home / "programs"
    programs.mkdir(parents=True)
    (programs / "mine.yaml").write_text("name: mine\n")
    path = tmp_path / "log.txt"
    path.write_text(tflite())
    done = cli("parse", path, "--json").ended_with(2)
    assert done.json["outcome"] == "ok"
    assert "mine.yaml" in done.stderr
    # What an import stores stays: it waits until all programs are known.
    assert "mine.yaml" in cli("import", path).ended_with(2).said


@pytest.mark.parametrize("option", ["--profile", "--app"])
def test_a_bundle_is_imported_without_options_that_it_answers_itself(
    cli: Cli, tmp_path: Path, option: str
) -> None:
    path = tmp_path / "bundle.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("manifest.json", "{}")
    assert option in cli("import", path, option, "pixel-8").ended_with(2).said


@pytest.mark.parametrize(
    ("line", "outputs"),
    [
        ("Use xnnpack: [0]", "reference"),
        ("INFO: Created TensorFlow Lite XNNPACK delegate for CPU.", "not checked"),
    ],
)
def test_xnnpacks_kernels_are_no_reference(
    cli: Cli, tmp_path: Path, line: str, outputs: str
) -> None:
    path = tmp_path / "log.txt"
    path.write_text(f"STARTING!\nGraph: [m.tflite]\nNum threads: [1]\n{line}\n{RESULT.format(2)}")
    assert len(cli.json("import", path, "-s", "A Phone")["runs"]) == 1
    cli("export", "--out", tmp_path / "runs.json").ok()
    (result,) = json.loads((tmp_path / "runs.json").read_text())["results"]
    assert (result["delegate"], result["outputs"]) == ("cpu", outputs)
