"""Outputs that people kept in public repositories, 2018 to 2026, in place, against what a careful
reader gets out of each: the first collection, and one made after the reader was built."""

import json
import math

import pytest

from orchestrator.errors import OutputParseError
from orchestrator.extensions.interop.texts.output import parse_text
from tests.samples.beside import FRESH, WILD, needs_fresh, needs_wild
from tests.samples.careful_reader import found_in
from tests.samples.places import DATA

WILD_FILES = (
    json.loads((WILD / "expected.json").read_text(encoding="utf-8")) if WILD.is_dir() else {}
)
FRESH_FILES = json.loads((DATA / "fresh_expected.json").read_text(encoding="utf-8"))
FILES = sorted(name for name in WILD_FILES if not name.startswith("state-"))
#: Not said by the run itself: remarks of the reader, and what spans several runs.
REMARKS = {"from_context", "comment", "runs", "not_phone", "device_unknown", "fastest", "slowest"}
#: What is expected of each fresh run; what isn't named must not be found.
OF_FRESH = (
    "inference_avg_us",
    "requested_delegate",
    "actual_delegate",
    "delegate_truth",
    "accelerator",
)


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


@needs_wild
@pytest.mark.parametrize("name", FILES)
def test_every_value_that_a_careful_reader_finds_is_read(name: str) -> None:
    expected = WILD_FILES[name]
    reports = [found_in(report) for report in parse_text((WILD / name).read_bytes())]
    runs = expected.get("runs", [expected])
    assert len(reports) == len(runs)
    differing = {
        f"run {number}, {key}": (value, report.get(key))
        for number, (run, report) in enumerate(zip(runs, reports, strict=True))
        for key, value in run.items()
        if key not in REMARKS and not agrees(value, report.get(key))
    }
    assert not differing
    if "fastest" in expected:
        averages = {str(report["name"]): report["inference_avg_us"] for report in reports}
        assert min(averages, key=averages.__getitem__) == expected["fastest"]
        assert max(averages, key=averages.__getitem__) == expected["slowest"]


@needs_wild
@pytest.mark.parametrize("name", sorted(name for name in WILD_FILES if name.startswith("state-")))
def test_state_of_a_phone_is_not_taken_for_output(name: str) -> None:
    with pytest.raises(OutputParseError):
        parse_text((WILD / name).read_bytes())


@needs_fresh
def test_every_fresh_file_has_an_expectation() -> None:
    kept = {path.relative_to(FRESH).as_posix() for path in FRESH.rglob("*") if path.is_file()}
    assert kept - {"README.md", "PROVENANCE.txt"} == set(FRESH_FILES)


@needs_fresh
@pytest.mark.parametrize("name", FRESH_FILES)
def test_every_fresh_run_is_read_as_a_careful_reader_does(name: str) -> None:
    try:
        reports = parse_text((FRESH / name).read_bytes())
    except OutputParseError:
        reports = ()
    found = [
        {key: value for key, value in found_in(report).items() if key in OF_FRESH}
        | ({"operators": len(report.operators)} if report.operators else {})
        for report in reports
    ]
    assert found == FRESH_FILES[name]
    assert all(
        (report.outcome == "ok") == (report.inference_mean_us is not None) for report in reports
    )
