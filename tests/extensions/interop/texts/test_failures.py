"""Failure codes: each documented, each with a next step, and found from text, exit code and system
log together."""

import pytest

from docs.write_commands import failures_page
from orchestrator.extensions.interop.texts.output import parse_text
from orchestrator.reading.failures import SIGNALS, FailureClues, SystemLog, signal_failure
from orchestrator.reading.lines import Line
from orchestrator.reading.report import parse_run
from orchestrator.records.failures import FAILURES, Source, next_step_of, texts_of
from tests.samples.places import REPO
from tests.samples.tools import raw_of

PAGE = (REPO / "docs" / "reference" / "failures.md").read_text(encoding="utf-8")


def test_the_page_has_every_code_as_its_record_says() -> None:
    assert failures_page(PAGE) == PAGE, "make docs writes it"
    assert all(f"| `{code}` | " in PAGE for code in FAILURES)


def test_every_code_that_a_signal_gives_is_known() -> None:
    assert {code for code, _ in SIGNALS.values()} <= set(FAILURES)


@pytest.mark.parametrize(
    ("code", "example", "start"),
    [
        (item.code, text.example, "STARTING!\n" if text.rank else "")
        for text, item in texts_of(Source.PROGRAM)
    ],
)
def test_every_text_of_a_program_is_read_as_its_code(code: str, example: str, start: str) -> None:
    """Once as a run's error stream, once as a text that somebody gives to ``parse``."""
    read = parse_run(raw_of(stderr=f"{example}\n".encode(), exit_code=1))
    assert read.failure_code == code
    assert read.failure_reason
    assert next_step_of(code, read.failure_reason)
    assert [report.failure_code for report in parse_text(f"{start}{example}\n")] == [code]


@pytest.mark.parametrize("why", ["out of memory", "the driver is in a mood"])
def test_times_of_calls_that_failed_are_no_figure_where_the_last_line_is_lost(why: str) -> None:
    (report,) = parse_text(
        f"STARTING!\nERROR: [benchmark_litert_model.h:346] Run failed: {why}\n"
        "INFO: count=50 first=5 curr=4 min=3 max=6 avg=4.5 std=1\n"
        "Inference timings in us: Init: 83, First inference: 5, Warmup (avg): 5, Inference (avg): 4.5\n"
    )
    assert (report.outcome, report.latency_us()) == ("failed", None)
    assert why in report.failure_reason


def test_a_refusal_that_litert_prints_below_its_places_is_told() -> None:
    text = (
        "INFO: STARTING!\nINFO: [benchmark_litert_model.cc:305] Loading model from: m.tflite\n"
        "ERROR: [benchmark_litert_model.cc:367] Failed to compile model.\n"
        "└ ERROR: [compiled_model.cc:1091]\n└ Some ops are not accelerated. Add more.\n"
        "ERROR: Benchmarking failed.\n"
    )
    report = parse_run(raw_of(stderr=text.encode(), exit_code=1), requested="gpu")
    assert report.failure_code == "full-delegation-refused"
    text = text.replace("└ Some ops are not accelerated. Add more.\n", "")
    report = parse_run(raw_of(stderr=text.encode(), exit_code=1), requested="gpu")
    assert report.failure_reason.startswith("Failed to compile model.")


@pytest.mark.parametrize(
    ("exit_code", "code", "outcome"),
    [
        (139, "segfault", "crashed"),
        (-11, "segfault", "crashed"),
        (134, "aborted", "crashed"),
        (132, "illegal-instruction", "crashed"),
        (137, "killed", "truncated"),
        (143, "terminated", "truncated"),
        (126, "not-executable", "failed"),
        (127, "program-not-found", "failed"),
    ],
)
def test_exit_code_alone_tells_signal_or_shell(exit_code: int, code: str, outcome: str) -> None:
    failure = signal_failure(exit_code)
    assert failure is not None
    assert (failure.code, failure.outcome) == (code, outcome)


def test_crash_of_the_shell_s_child_keeps_the_reason_before_it() -> None:
    (report,) = parse_text(
        "ERROR: NN API returned error X.\nERROR: Failed to apply NNAPI delegate.\nSegmentation fault \n"
    )
    assert report.outcome == "crashed"
    assert report.failure_reason == "NN API returned error X. then Segmentation fault"


def test_tombstone_s_first_frames_are_kept_with_the_process() -> None:
    log = SystemLog()
    for tag, text in (
        ("libc", "Fatal signal 6 (SIGABRT), code -1 (SI_QUEUE) in tid 5 (x), pid 4 (x)"),
        ("DEBUG", "pid: 4, tid: 5, name: x  >>> /data/local/tmp/benchmark_model <<<"),
        ("DEBUG", "      #00 pc 0000000000051a90  /vendor/lib64/libOpenCL.so (clFinish+12)"),
    ):
        log.feed(Line(text, text, tag=tag, pid=4, severity="F"))
    # Another tombstone, whose first line is left out because it names a process of others.
    log.feed(
        Line(
            "Abort message: 'of another'",
            "Abort message: 'of another'",
            tag="DEBUG",
            pid=9,
            severity="F",
        )
    )
    crash = log.find_end(4)
    assert crash is not None
    assert (crash.code, crash.process) == ("aborted", "/data/local/tmp/benchmark_model")
    assert ("libOpenCL.so" in crash.frames[0], crash.abort_message) == (True, "")
    # Another process crashes before this tombstone's end.
    fatal = "Fatal signal 11 (SIGSEGV), code 1 (SEGV_MAPERR) in tid 8 (y), pid 8 (y)"
    log.feed(Line(fatal, fatal, tag="libc", pid=8, severity="F"))
    log.feed(
        Line(
            "Abort message: 'its own'", "Abort message: 'its own'", tag="DEBUG", pid=4, severity="F"
        )
    )
    assert crash.abort_message == "its own"


QNN_TEXT = (
    "ERROR: [qnn_manager.cc:349] Qnn System library version 1.8.0 is mismatched. The minimum supported version is "
    "1.11.0.\nERROR: [dispatch_api.cc:139] Failed to set up QNN manager\n"
    "ERROR: [dispatch_delegate.cc:131] Failed to create a dispatch delegate kernel: No usable Dispatch runtime found\n"
    "ERROR: Benchmarking failed.\n"
)


def test_the_version_explains_a_dispatch_runtime_that_cannot_be_used() -> None:
    report = parse_run(raw_of(stderr=QNN_TEXT.encode(), exit_code=1))
    assert report.failure_code == "npu-version-skew"
    assert "1.11.0" in report.failure_reason


def test_a_newer_qnn_library_that_is_used_is_no_failure() -> None:
    clues = FailureClues()
    clues.feed(
        "[qnn_manager.cc:278] Qnn System library version 1.10.0 is used. The version LiteRT using is 1.6.0.",
        "W",
    )
    assert clues.text_failure() is None


DENIAL = (
    'avc: denied { read } for name="net.tflite" dev="dm-5" ino=81374 scontext=u:r:untrusted_app:s0:c120,c256 '
    "tcontext=u:object_r:shell_data_file:s0 tclass=file permissive=0 app=org.tensorflow.lite.benchmark"
)


def app_log(*lines: tuple[str, str, str]) -> bytes:
    """A log of the app, process 4242: (level, tag, text) each."""
    start = (
        "I",
        "tflite_BenchmarkModelActivity",
        "Running TensorFlow Lite benchmark with args: --graph=/d/net.tflite",
    )
    return "".join(
        f"05-14 19:55:39.{number:03d}  4242  4242 {level} {tag}: {text}\n"
        for number, (level, tag, text) in enumerate((start, *lines))
    ).encode()


def test_a_file_that_selinux_denied_is_told_as_a_denial() -> None:
    log = app_log(
        ("W", "lite.benchmark", f"type=1400 audit(0.0:1984): {DENIAL}"),
        ("E", "tflite", "Could not open '/d/net.tflite'."),
        ("E", "tflite", "Benchmarking failed."),
    )
    report = parse_run(raw_of(logcat=log, exit_code=None))
    assert report.failure_code == "selinux-denied"
    assert report.failure_reason.startswith('avc: denied { read } for name="net.tflite"')


@pytest.mark.parametrize(
    "denial",
    [
        DENIAL.replace("net.tflite", "tethering"),
        DENIAL.replace("permissive=0", "permissive=1"),
        DENIAL.replace("for name", 'for pid=99 comm="other" name'),
    ],
    ids=["another file", "only noted", "another process"],
)
def test_a_denial_that_is_not_the_reason_changes_no_code(denial: str) -> None:
    log = app_log(
        ("W", "lite.benchmark", f"type=1400 audit(0.0:1984): {denial}"),
        ("E", "tflite", "Could not open '/d/net.tflite'."),
    )
    report = parse_run(raw_of(logcat=log, exit_code=None))
    assert report.failure_code == "model-not-found"


def test_a_denial_explains_a_run_that_says_nothing_else() -> None:
    for line in (
        ("W", "lite.benchmark", f"type=1400 audit(0.0:1984): {DENIAL}"),
        (
            "E",
            "audit",
            "type=1400 audit(1709019390.134:12783): "
            + DENIAL.replace("for ", 'for  pid=4242 comm="x" '),
        ),
    ):
        report = parse_run(raw_of(logcat=app_log(line), exit_code=None))
        assert report.failure_code == "selinux-denied"


@pytest.mark.parametrize(
    ("line", "outcome"),
    [
        (("F", "libc", "Fatal signal 8 (SIGFPE), code 1 (FPE_INTDIV), fault addr 0x8"), "crashed"),
        (
            (
                "I",
                "ActivityManager",
                "Killing 4242:lite.benchmark/u0a1: Trimming phantom processes",
            ),
            "failed",
        ),
    ],
)
def test_a_process_crashes_by_itself_and_is_not_crashed_by_the_system(
    line: tuple[str, str, str], outcome: str
) -> None:
    log = app_log(line)
    assert parse_run(raw_of(logcat=log, exit_code=None)).outcome == outcome
    # An app that ended at its start has no line of the tool itself.
    (report,) = parse_text(log.splitlines(keepends=True)[1])
    assert report.outcome == outcome


ANR = "ANR in org.tensorflow.lite.benchmark (org.tensorflow.lite.benchmark/.BenchmarkModelActivity)"


def test_an_anr_is_of_the_process_that_it_names() -> None:
    system = SystemLog()
    for text in (ANR, "PID: 4242"):
        system.feed(Line(text, text, tag="ActivityManager", pid=1003, severity="E"))
    anr = system.find_end(4242)
    assert anr is not None
    assert (anr.code, anr.pid) == ("app-not-responding", 4242)
    assert system.find_end(77) is None


@pytest.mark.parametrize(
    ("timed_out", "code"), [(False, "app-not-responding"), (True, "timed-out")]
)
def test_an_app_that_did_not_respond_is_told_also_when_its_time_was_over(
    timed_out: bool, code: str
) -> None:
    log = app_log(("I", "tflite", "Loaded model /d/net.tflite"))
    log += f"05-14 19:55:49.000  1003  1060 E ActivityManager: {ANR}\n".encode()
    report = parse_run(raw_of(logcat=log, exit_code=None, timed_out=timed_out))
    assert report.failure_code == code
    assert "ANR in org.tensorflow.lite.benchmark" in report.failure_reason
