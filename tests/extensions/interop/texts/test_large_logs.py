"""A phone's log of any size gives the same as a small one, and takes no more memory."""

import pytest

from orchestrator.extensions.interop.texts.output import parse_text
from tests.samples.outputs import RUN

LINES = tuple(line for line in RUN.splitlines() if line)
NOISE = b"06-18 10:20:41.572  1234  1234 I ActivityManager: Start proc 77:com.example.app/u0a7 for service\n"


def noisy(pid: int, texts: tuple[str, ...], repeats: int) -> bytes:
    return b"".join(
        NOISE * repeats + f"06-18 10:20:41.572  {pid}  {pid} I tflite  : {text}\n".encode()
        for text in texts
    )


def test_crash_in_a_large_log_is_found_for_the_run_without_a_result() -> None:
    data = noisy(11, LINES[:11], 2500)
    data += b"06-18 10:20:42.000    11    11 F libc    : Fatal signal 11 (SIGSEGV), code 1 (SEGV_MAPERR), fault addr 0x8\n"
    data += NOISE * 100
    (report,) = parse_text(data)
    assert (report.outcome, report.failure_code) == ("crashed", "segfault")


@pytest.mark.parametrize(
    ("own", "others"),
    [
        (
            "06-18 10:20:41.572  11  11 I tflite  : {}\n",
            "06-18 10:20:41.572  888  999 W SELinux : avc:  granted  { find } for pid=11, GPU error\n",
        ),
        ("I/tflite  (   11): {}\n", "E/WifiHAL (  888): STARTING!\nD/ (   77): count=5\n"),
    ],
    ids=["threadtime", "brief"],
)
def test_lines_of_other_tags_change_nothing_wherever_they_stand(own: str, others: str) -> None:
    plain = "".join(own.format(text) for text in LINES)
    assert parse_text(others + "".join(own.format(text) + others for text in LINES)) == parse_text(
        plain
    )
    (report,) = parse_text(plain)
    assert report.inference_mean_us == 11293.0
    # What SELinux denies is logged under the tag of whom it denied it to.
    denial = '06-18 10:20:41.572  11  11 W benchmark_model: avc:  denied  { read } for pid=11 name="m" permissive=0\n'
    cut = "".join(own.format(text) for text in LINES[:8]) + others
    codes = {found.failure_code for text in (cut, denial + cut) for found in parse_text(text)}
    assert codes == {"no-result", "selinux-denied"}
