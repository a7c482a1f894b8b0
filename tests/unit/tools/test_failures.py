"""Failure codes: each documented, each with a next step, and found from text, exit code and system log together."""

from pathlib import Path

import pytest

from orchestrator.tools.failure_codes import FAILURE_CODES, INSTALL_CODES, next_step
from orchestrator.tools.failures import RULES, SIGNALS, FailureClues, SystemLog, signal_failure
from orchestrator.tools.output import parse_run, parse_text

PAGE = (Path(__file__).parents[3] / "docs" / "failures.md").read_text(encoding="utf-8")


def test_every_code_is_on_the_page_with_its_meaning_and_next_step() -> None:
    for code in FAILURE_CODES.values():
        assert f"| `{code.code}` | {code.meaning} | {code.next_step} |" in PAGE
    for name, step in INSTALL_CODES.items():
        assert f"| `{name}` | {step} |" in PAGE


def test_every_code_that_a_rule_or_signal_gives_is_known() -> None:
    given = {code for _, code, _ in RULES} | {code for code, _ in SIGNALS.values()}
    assert given <= set(FAILURE_CODES)


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("/system/bin/sh: ./benchmark_model: not executable: 64-bit ELF file", "wrong-abi"),
        ('CANNOT LINK EXECUTABLE "./b": library "libomp.so" not found: needed by main executable', "missing-library"),
        ('CANNOT LINK EXECUTABLE "./b": cannot locate symbol "_ZN3foo" referenced by "./b"...', "missing-symbol"),
        ("Didn't find op for builtin opcode 'CONV_2D' version '9'. An older version", "model-too-new"),
        ("Encountered unresolved custom op: FlexErf.", "flex-ops-missing"),
        ("Encountered unresolved custom op: TFLite_X.", "unresolved-custom-op"),
        ("Incompatible versions between interface library and libhexagon_skel 1 vs 2. Abort.", "hexagon-version-skew"),
        ("Failed to fetch Hexagon NN version. This might be because you're using incompatible", "hexagon-init-failed"),
        ("terminate called after throwing an instance of 'std::bad_alloc'", "out-of-memory"),
        ("write failed: No space left on device", "storage-full"),
        ("adb: failed to install x.apk: Failure [INSTALL_FAILED_OLDER_SDK]", "install-failed"),
        ("Error: Activity class {a/b.C} does not exist.", "activity-missing"),
    ],
)
def test_line_explains_the_failure(line: str, code: str) -> None:
    clues = FailureClues()
    clues.feed(line, "E")
    failure = clues.text_failure()
    assert failure is not None
    assert failure.code == code
    assert next_step(failure.code)


def test_root_cause_is_told_rather_than_what_followed_from_it() -> None:
    text = (
        "ERROR: NN API returned error ANEURALNETWORKS_OP_FAILED at line 4768 while completing NNAPI compilation.\n"
        "ERROR: Node number 266 (TfLiteNnapiDelegate) failed to prepare.\n"
        "ERROR: Failed to apply NNAPI delegate.\nERROR: Benchmarking failed.\n"
    )
    report = parse_run(stdout=b"", stderr=text.encode(), exit_code=1, timed_out=False)
    assert report.failure_code == "nnapi-failed"
    assert report.failure_reason.startswith("NN API returned error ANEURALNETWORKS_OP_FAILED")


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


def test_deadline_without_a_result_is_timed_out() -> None:
    report = parse_run(stdout=b"INFO: STARTING!\n", stderr=b"", exit_code=None, timed_out=True)
    assert (report.outcome, report.failure_code) == ("truncated", "timed-out")


def test_silence_with_exit_code_0_is_no_result() -> None:
    report = parse_run(stdout=b"", stderr=b"", exit_code=0, timed_out=False)
    assert (report.outcome, report.failure_code) == ("truncated", "no-result")


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
        log.feed(text, tag=tag, pid=4, severity="F")
    crash = log.end_of(4)
    assert crash is not None
    assert (crash.code, crash.process) == ("aborted", "/data/local/tmp/benchmark_model")
    assert "libOpenCL.so" in crash.frames[0]


def test_another_process_s_death_is_not_ours() -> None:
    log = SystemLog()
    log.feed("Fatal signal 11 (SIGSEGV), code 1 (SEGV_MAPERR), fault addr 0x0", tag="libc", pid=99, severity="F")
    assert log.end_of(4, ("org.tensorflow.lite.benchmark",)) is None
