"""A probe's test is a file {probe, command, output, expected}: a new format is a new file."""

import json
from pathlib import Path

import pytest

from orchestrator.devices import discovery, probes, runs
from tests.samples.places import DATA

FOLDER = DATA / "probes"
MODULES = {"discovery": discovery, "probes": probes, "runs": runs}


def agrees(found: object, expected: object) -> bool:
    """Compare with JSON's types: a record, and fields of one, are compared by the keys that are
    expected."""
    if isinstance(found, (list, tuple)):
        return (
            isinstance(expected, list)
            and len(found) == len(expected)
            and all(agrees(f, e) for f, e in zip(found, expected, strict=True))
        )
    if isinstance(expected, dict):
        if not isinstance(found, dict):
            return all(agrees(getattr(found, name), value) for name, value in expected.items())
        named = {str(key): value for key, value in found.items()}
        are_all = set(named) == set(expected) or all(key.isidentifier() for key in expected)
        return are_all and all(agrees(named[key], value) for key, value in expected.items())
    return found == (pytest.approx(expected) if isinstance(expected, float) else expected)


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.json")), ids=lambda path: path.stem)
def test_probe_reads_what_the_phone_printed(path: Path) -> None:
    case = json.loads(path.read_text("utf-8"))
    module, _, name = case["probe"].partition(".")
    found = getattr(MODULES[module], name)("\n".join(case["output"]) + "\n")
    assert agrees(found, case["expected"]), found


def test_every_probe_has_a_file() -> None:
    named = {json.loads(path.read_text("utf-8"))["probe"] for path in FOLDER.glob("*.json")}
    parsers = {
        f"probes.{name}"
        for name, made in vars(probes).items()
        if name.startswith("parse_") and made.__module__ == probes.__name__
    }
    assert parsers <= named, parsers - named
