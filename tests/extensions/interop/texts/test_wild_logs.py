"""Outputs that people kept in public repositories, 2018 to 2026, against what a careful reader gets
out of each."""

import json
import math

import pytest

from orchestrator.errors import OutputParseError
from orchestrator.extensions.interop.texts.output import parse_text
from orchestrator.extensions.interop.texts.public import to_public
from tests.samples.beside import WILD, needs_wild

EXPECTED = json.loads((WILD / "expected.json").read_text(encoding="utf-8")) if WILD.is_dir() else {}
FILES = sorted(name for name in EXPECTED if not name.startswith("state-"))
#: Not said by the run itself: remarks of the reader, and what spans several runs.
REMARKS = {"from_context", "comment", "runs", "not_phone", "device_unknown", "fastest", "slowest"}

pytestmark = needs_wild


def agrees(expected: object, found: object) -> bool:
    if isinstance(expected, dict):
        return isinstance(found, dict) and all(
            agrees(value, found.get(key)) for key, value in expected.items()
        )
    if isinstance(expected, list):
        return (
            isinstance(found, list)
            and len(expected) == len(found)
            and all(map(agrees, expected, found))
        )
    if isinstance(expected, bool) or isinstance(found, bool):
        return expected is found
    if isinstance(expected, int | float) and isinstance(found, int | float):
        return math.isclose(expected, found, rel_tol=1e-6)
    return expected == found


@pytest.mark.parametrize("name", FILES)
def test_every_value_that_a_careful_reader_finds_is_read(name: str) -> None:
    expected = EXPECTED[name]
    reports = [to_public(report) for report in parse_text((WILD / name).read_bytes())]
    runs = expected.get("runs", [expected])
    assert len(reports) == len(runs)
    differing = {
        f"run {number}, {key}": (value, report.get(key))
        for number, (run, report) in enumerate(zip(runs, reports, strict=True))
        for key, value in run.items()
        if key not in REMARKS and not agrees(value, report.get(key))
    }
    assert not differing


@pytest.mark.parametrize("name", [name for name in FILES if "fastest" in EXPECTED[name]])
def test_rows_of_performance_options_keep_their_order(name: str) -> None:
    reports = [to_public(report) for report in parse_text((WILD / name).read_bytes())]
    averages = {str(report["name"]): report["inference_avg_us"] for report in reports}
    assert min(averages, key=averages.__getitem__) == EXPECTED[name]["fastest"]
    assert max(averages, key=averages.__getitem__) == EXPECTED[name]["slowest"]


@pytest.mark.parametrize("name", sorted(name for name in EXPECTED if name.startswith("state-")))
def test_state_of_a_phone_is_not_taken_for_output(name: str) -> None:
    with pytest.raises(OutputParseError):
        parse_text((WILD / name).read_bytes())
