"""Lines of others in a phone's log change nothing."""

import pytest

from orchestrator.extensions.interop.texts.output import parse_text
from tests.samples.outputs import RUN

LINES = tuple(line for line in RUN.splitlines() if line)


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
