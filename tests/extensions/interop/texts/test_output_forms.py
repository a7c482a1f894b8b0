"""The same run in every form that it reaches us."""

import json
from pathlib import Path

import pytest

from orchestrator.cli.output import to_json
from orchestrator.errors import OutputParseError
from orchestrator.extensions.interop.cli import describe, to_public
from orchestrator.extensions.interop.texts.output import iterate_file, parse_text
from orchestrator.extensions.interop.texts.pasted import parse_pasted
from orchestrator.reading.report import parse_run
from orchestrator.records.run import DelegateTruth, ToolReport
from tests.samples.outputs import RUN
from tests.samples.tools import raw_of

PREFIXES = {
    "old console": "",
    "console": "INFO: ",
    "threadtime": "06-18 10:20:41.572  4669  4669 I tflite  : ",
    "threadtime with year and uid": "2026-06-18 10:20:41.572123 +0200 u0_a123  4669  4669 I tflite  : ",
    "time": "06-18 10:20:41.572 I/tflite  ( 4669): ",
    "brief": "I/tflite  ( 4669): ",
    "time of day": "10:20:41 I/tflite  (4669): ",
    "tag": "I/tflite: ",
    "nslog": "2026-06-18 10:20:41.572123+0200 TFLiteBenchmark[4669:652100] ",
    "notebook": "    # ",
    "epoch": "         1718698841.572  4669  4669 I tflite  : ",
    "Android Studio": "2024-06-18 10:20:41.572  4669-4669  tflite            org.tensorflow.lite.benchmark        I  ",
    "Android Studio, native": "2024-06-18 10:20:41.572  4669-4702  tflite                  pid-4669           I  ",
    "Android Studio, 2022": "2022-06-18 10:20:41.572 4669-4702/org.tensorflow.lite.benchmark I/tflite: ",
    "Android Studio, bare": "4669-4669/org.tensorflow.lite.benchmark I/tflite: ",
    "build server": "2024-06-18T10:20:41.5728901Z INFO: ",
    "build server, all jobs": "measure\tRun phones\t2024-06-18T10:20:41.5728901Z INFO: ",
    "time in brackets": "[10:20:41] INFO: ",
    "ts": "Jun  8 10:20:41 INFO: ",
    "GitLab, output": "2024-06-18T10:20:41.572890Z 01O INFO: ",
    "journal": "Jun 18 10:20:41 lab-1 bench.sh[4669]: INFO: ",
    "logger": "2024-06-18 10:20:41,572 - lab.bench - INFO - INFO: ",
    "root logger": "INFO:root:INFO: ",
    "Docker Compose": "bench-1  | INFO: ",
    "Docker Compose, logcat": "bench_1       | 06-18 10:20:41.572  4669  4669 I tflite  : ",
    "Docker Compose, container_name": "phone.bench  | INFO: ",
    "Kubernetes": "2026-11-01T10:00:00.123456789Z stdout F INFO: ",
    "Kubernetes, error": "2026-11-01T10:00:00.123456789Z stderr F ",
    "UTC": "2026-11-01 10:00:00.123 UTC INFO: ",
    "UTC in brackets": "[2026-11-01 10:00:00 UTC] INFO: ",
    "serial": "R58M123ABCD: INFO: ",
    "serial of a network": "192.168.1.20:5555: INFO: ",
    "serial of an emulator": "emulator-5554: INFO: ",
    "coloured logcat": "\x1b[38;5;40m06-18 10:20:41.572  4669  4669 I tflite  : ",
}
#: What stands behind each line.
SUFFIXES = {"coloured logcat": "\x1b[0m"}


def prefixed(text: str, prefix: str, suffix: str = "") -> str:
    return "".join(f"{prefix}{line}{suffix}\n" for line in text.splitlines())


def figures(report: ToolReport) -> tuple[object, ...]:
    return (
        report.outcome, report.init_us, report.first_inference_us, report.warmup, report.inference,
        report.inference_mean_us, report.overall_memory_mib, report.model_size_mb, report.delegate,
    )  # fmt: skip


@pytest.mark.parametrize("form", PREFIXES)
def test_every_form_gives_the_same_report(form: str) -> None:
    (plain,) = parse_text(RUN)
    (report,) = parse_text(prefixed(RUN, PREFIXES[form], SUFFIXES.get(form, "")))
    assert plain.inference_mean_us == 11293.0
    assert plain.delegate.truth is DelegateTruth.PARTIAL
    assert figures(report) == figures(plain)


@pytest.mark.parametrize(
    ("form", "moment"),
    [
        ("epoch", "1718698841.572"),
        ("Kubernetes", "2026-11-01T10:00:00.123456789"),
        ("UTC in brackets", "2026-11-01 10:00:00"),
        ("serial of a network", None),
    ],
)
def test_the_time_of_a_result_is_that_of_its_line(form: str, moment: str | None) -> None:
    (report,) = parse_text(prefixed(RUN, PREFIXES[form]))
    assert report.extra.get("logged_at") == moment


@pytest.mark.parametrize(
    "prefixes",
    [
        ("bench-1  | ", "bench-12 | "),
        ("pixel    | ", "galaxy   | "),
        ("28081JEGR12345: ", "emulator-5554: "),
        tuple(f"Jun 18 10:20:41 a b[{n}]: " for n in "12"),
    ],
)
def test_processes_of_one_log_are_told_apart(prefixes: tuple[str, str]) -> None:
    runs = [RUN, RUN.replace("11293", "22586")]
    commands = ["./benchmark_model --graph=a.tflite --use_gpu=true", "$ benchmark_model --graph=b"]
    texts = [f"+ {command}\n{run}" for command, run in zip(commands, runs, strict=True)]
    alone = [parse_text(text)[0] for text in texts]
    pairs = zip(*(text.splitlines() for text in texts), strict=True)
    both = "".join(
        f"{prefix}{line}\n" for pair in pairs for prefix, line in zip(prefixes, pair, strict=True)
    )
    assert [figures(report) for report in parse_text(both)] == [figures(each) for each in alone]


@pytest.mark.parametrize("prefix", ["", "R58M123ABCD: "])
def test_a_command_is_of_the_output_below_it_whether_or_not_that_names_its_phone(
    prefix: str,
) -> None:
    # Without the parameters, which tell the flags themselves.
    run = "\n".join(line for line in RUN.splitlines() if ": [" not in line)
    text = "$ adb shell benchmark_model --graph=m.tflite\n"
    text += prefixed(run, prefix) if prefix else f"R58M123ABCD: begins\n{run}\n"
    (report,) = parse_text(text)
    assert report.extra["command"] == "--graph=m.tflite"


def test_a_long_tag_that_android_studio_shortens_is_known() -> None:
    start = "2024-06-18 10:20:40.572  4669-4669  tflite_Ben...delActivity org.tensorflow.lite.benchmark        I  "
    text = f"{start}Running TensorFlow Lite benchmark with args: --use_gpu=true --graph=m.tflite\n"
    (report,) = parse_text(
        text + prefixed(RUN.removeprefix("STARTING!\n"), PREFIXES["Android Studio"])
    )
    assert (report.delegate.requested, report.delegate.truth) == ("gpu", DelegateTruth.FELL_BACK)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-8-sig"])
def test_what_a_windows_shell_writes_is_read(encoding: str, tmp_path: Path) -> None:
    mark = "\ufeff" if encoding.startswith("utf-16-") else ""
    path = tmp_path / "log.txt"
    path.write_bytes((mark + RUN.replace("\n", "\r\n")).encode(encoding))
    assert parse_text(path.read_bytes()) == parse_text(RUN)
    assert tuple(iterate_file(path)) == parse_text(RUN)


def test_bytes_that_are_no_text_change_nothing() -> None:
    data = RUN.encode().replace(b"STARTING!\n", b"STARTING!\n\xff\xfe\x00\xf0\x9f garbage \x80\n")
    assert figures(parse_text(data)[0]) == figures(parse_text(RUN)[0])


def test_processes_that_log_at_the_same_time_are_kept_apart() -> None:
    other = RUN.replace("11293", "999.5").replace("19505", "777")
    pairs = zip(
        prefixed(RUN, "06-18 10:20:41.572 11 11 I tflite  : ").splitlines(keepends=True),
        prefixed(other, "06-18 10:20:41.572 22 22 I tflite  : ").splitlines(keepends=True),
        strict=True,
    )
    first, second = parse_text("".join(line for pair in pairs for line in pair))
    assert (first.inference_mean_us, second.inference_mean_us) == (11293.0, 999.5)


def test_runs_after_one_another_are_kept_apart_without_any_heading() -> None:
    without_start = RUN.removeprefix("STARTING!\n")
    reports = parse_text(without_start * 3)
    assert [report.inference_mean_us for report in reports] == [11293.0] * 3


def test_a_single_statistics_line_without_context_is_no_result() -> None:
    with pytest.raises(OutputParseError):
        parse_text("nothing here")
    (report,) = parse_text("count=50 first=1 curr=2 min=1 max=3 avg=2 std=0\n")
    assert report.outcome == "truncated"
    assert report.inference_mean_us is None
    assert report.inference is None


def test_zero_averages_with_exit_code_0_are_no_measurement() -> None:
    text = RUN.replace(
        "count=89 first=11274 curr=11238 min=11203 max=11932 avg=11293 std=129 p5=11221 median=11248 p95=11526",
        "count=89 curr=0(all same) p5=0 median=0 p95=0",
    ).replace("Inference (avg): 11293", "Inference (avg): 0")
    report = parse_run(raw_of(text))
    assert (report.outcome, report.failure_code) == ("failed", "all-zero")
    assert report.inference_mean_us is None


def test_view_of_the_ios_app_is_read() -> None:
    (report,) = parse_text(
        "Startup latency: 12.5 ms\n\nInference:\n - Num runs: 50\n - Average: 3.25 ms\n - Min: 3.1 ms \n - Max: 4 ms \n"
        " - Std deviation: 0.1 ms\n\nWarmup:\n - Num runs: 2\n - Average: 9.5 ms\n - Min: 9 ms \n - Max: 10 ms \n"
        " - Std deviation: 0.5 ms"
    )
    assert (report.outcome, report.init_us, report.inference_mean_us) == ("ok", 12500.0, 3250.0)
    assert report.inference is not None
    assert (report.inference.count, report.inference.max_us) == (50, 4000.0)
    assert report.warmup_mean_us == 9500.0


@pytest.mark.parametrize(
    ("line", "code", "outcome"),
    [
        (
            "I lowmemorykiller: Kill 'org.tensorflow.lite.benchmark' (4669), uid 10123",
            "low-memory-kill",
            "failed",
        ),
        (
            "F libc    : Fatal signal 11 (SIGSEGV), code 1 (SEGV_MAPERR), fault addr 0x0",
            "segfault",
            "crashed",
        ),
    ],
)
def test_end_of_an_app_is_told_from_the_phone_s_log(line: str, code: str, outcome: str) -> None:
    cut = RUN[: RUN.index("Running benchmark for at least 50")]
    log = prefixed(cut, PREFIXES["threadtime"]) + f"06-18 10:20:49.000  4669  4669 {line}\n"
    report = parse_run(raw_of(logcat=log.encode(), exit_code=None))
    assert (report.outcome, report.failure_code) == (outcome, code)
    assert report.inference_mean_us is None


def test_names_are_those_of_a_stored_report_and_lines_leave_out_what_is_unknown() -> None:
    (report,) = parse_text(RUN)
    public = to_public(report)
    assert public.items() >= json.loads(to_json(report)).items()
    assert public["peak_memory_mib"] is None
    lines = describe(report)
    assert {"  inference_mean_us: 11293", "    truth: partial"} <= set(lines)
    assert not [line for line in lines if "None" in line or "peak_memory_mib" in line]


def test_long_logcat_is_refused_as_its_processes_could_not_be_told_apart() -> None:
    text = "".join(
        f"[ 06-18 10:20:41.572  4669: 4669 I/tflite   ]\n{line}\n\n" for line in RUN.splitlines()
    )
    with pytest.raises(OutputParseError, match="logcat -v long") as refused:
        parse_text(text)
    assert "-v threadtime" in str(refused.value.hint)


@pytest.mark.parametrize("word", ["RESNET50", "MOBILENETV2", "RESNET50V2", "ERROR0001"])
def test_a_word_with_a_number_is_no_phone_in_front_of_a_line(word: str) -> None:
    line = parse_pasted(f"{word}: begins")
    assert (line.text, line.stream) == (f"{word}: begins", "")


@pytest.mark.parametrize("serial", ["R58M123ABCD", "28081JEGR12345", "1A2B3C4D", "a1b2c3d4"])
def test_a_serial_number_is_a_phone_in_front_of_a_line(serial: str) -> None:
    line = parse_pasted(f"{serial}: begins")
    assert (line.text, line.stream) == ("begins", serial)


def test_a_line_that_kubernetes_logs_in_parts_is_one() -> None:
    moment = "2026-11-01T10:00:00.123456789Z"
    # A part of standard error comes between.
    lines = []
    for line in RUN.splitlines():
        half = len(line) // 2
        lines += [
            f"{moment} stdout P {line[:half]}",
            f"{moment} stderr F another line",
            f"{moment} stdout F {line[half:]}",
        ]
    (report,) = parse_text("\n".join(lines) + "\n")
    (plain,) = parse_text(RUN)
    assert figures(report) == figures(plain)
    assert report.echoed == plain.echoed


def test_a_table_without_outer_pipes_is_no_services_output() -> None:
    rows = "".join(
        f"{name}  | count=50 first=17 curr=4 min=4 max=17 avg=4.2 std=0\n"
        for name in ("mobilenet", "resnet", "yolo")
    )
    with pytest.raises(OutputParseError):
        parse_text(rows)
    (report,) = parse_text(rows + RUN)
    (plain,) = parse_text(RUN)
    assert figures(report) == figures(plain)
