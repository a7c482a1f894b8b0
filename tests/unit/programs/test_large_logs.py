"""A log too large to be taken apart line by line is searched, and gives the same."""

import tracemalloc
from pathlib import Path

from orchestrator.programs.grammar.output import parse_file, parse_text

RUN = (
    "Loaded model m.tflite",
    "Initialized session in 19.505ms.",
    "Running benchmark for at least 1 iterations and at least 0.5 seconds but terminate if exceeding 150 seconds.",
    "count=3 first=5 curr=4 min=4 max=5 avg=4.5 std=0 p5=4 median=4 p95=5",
    "Running benchmark for at least 5 iterations and at least 1 seconds but terminate if exceeding 150 seconds.",
    "count=5 first=5 curr=4 min=4 max=5 avg=4.2 std=0 p5=4 median=4 p95=5",
    "Inference timings in us: Init: 19505, First inference: 5, Warmup (avg): 4.5, Inference (avg): 4.2",
)
NOISE = b"06-18 10:20:41.572  1234  1234 I ActivityManager: Start proc 77:com.example.app/u0a7 for service\n"


def noisy(pid: int, texts: tuple[str, ...], repeats: int) -> bytes:
    return b"".join(
        NOISE * repeats + f"06-18 10:20:41.572  {pid}  {pid} I tflite  : {text}\n".encode() for text in texts
    )


def test_runs_in_a_large_log_are_found_with_their_figures() -> None:
    data = noisy(11, RUN, 3000) + noisy(22, RUN, 3000)
    assert len(data) > 4_000_000
    reports = parse_text(data)
    assert [(report.outcome, report.inference_mean_us, report.init_us) for report in reports] == [
        ("ok", 4.2, 19505.0)
    ] * 2
    assert reports == parse_text(data.replace(NOISE, b""))


def test_crash_in_a_large_log_is_found_for_the_run_without_a_result() -> None:
    data = noisy(11, RUN[:4], 7000)
    data += (
        b"06-18 10:20:42.000    11    11 F libc    : Fatal signal 11 (SIGSEGV), code 1 (SEGV_MAPERR), fault addr 0x8\n"
    )
    data += NOISE * 100
    (report,) = parse_text(data)
    assert (report.outcome, report.failure_code) == ("crashed", "segfault")


def test_memory_stays_small_however_large_the_file(tmp_path: Path) -> None:
    path = tmp_path / "logcat.txt"
    path.write_bytes(noisy(11, RUN, 40_000))
    assert path.stat().st_size > 25_000_000
    tracemalloc.start()
    try:
        (report,) = parse_file(path)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert report.inference_mean_us == 4.2
    assert peak_bytes < 2_000_000
