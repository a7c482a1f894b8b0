"""What is installed beside benchfarm, made from the pins: for whoever runs it, and for whoever asks
about licences.

``python requirements/bill.py`` writes ``runtime.txt``, ``build.txt`` and ``sbom.cdx.json``
(CycloneDX) here; ``--check`` says which of them are not as they would be written. It reads
``pinned.txt``, the requirements in ``pyproject.toml``, and the metadata of what is installed, which
must be what is pinned.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

HERE: Final = Path(__file__).resolve().parent
REPO: Final = HERE.parent
PROJECTS: Final = (REPO / "pyproject.toml", REPO / "virtual" / "pyproject.toml")
#: Extras that runtime.txt leaves out: TensorFlow, which only building models needs, and a large tree
#: under the GPL that is a program of its own.
LEFT_OUT: Final = frozenset({"models", "ios"})
OWN: Final = frozenset({"benchfarm", "benchfarm-virtual"})
#: Packages that put a checkout into an environment.
BUILDING: Final = (Requirement("hatchling"), Requirement("editables"))
_LONGEST_LICENCE: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """One pinned package."""

    name: str
    version: str
    #: Its lines in the file of pins: version and hashes.
    lines: str
    licence: str
    #: Names of the packages that it needs.
    needs: tuple[str, ...]


def read_pins(text: str) -> Mapping[str, tuple[str, str]]:
    """Return name -> (version, lines) of a file that pip-tools wrote; comments are left out."""
    lines = [
        line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")
    ]
    found: dict[str, tuple[str, str]] = {}
    name = ""
    for line in lines:
        if begins := re.match(r"([A-Za-z0-9._-]+)==(\S+)", line):
            name = canonicalize_name(begins[1])
            found[name] = (begins[2], "")
        version, before = found[name]
        found[name] = (version, f"{before}{line}\n")
    return found


def wanted() -> list[Requirement]:
    """Return what the projects ask for when they run, with every extra but those that are left out."""
    found = []
    for path in PROJECTS:
        if path.is_file():
            project = tomllib.loads(path.read_text("utf-8"))["project"]
            extras = project.get("optional-dependencies", {})
            texts = [
                *project.get("dependencies", ()),
                *(t for e in extras if e not in LEFT_OUT for t in extras[e]),
            ]
            found += [Requirement(text) for text in texts]
    return [item for item in found if canonicalize_name(item.name) not in OWN]


def needs_of(found: Distribution, extras: Iterable[str]) -> list[Requirement]:
    """Return what an installed package asks for on this platform."""
    asked = [Requirement(text) for text in found.requires or ()]
    return [
        item
        for item in asked
        if item.marker is None
        or any(item.marker.evaluate({"extra": extra}) for extra in ("", *extras))
    ]


def packages(roots: Iterable[Requirement], pins: Mapping[str, tuple[str, str]]) -> list[Package]:
    """Return the pinned packages that some requirements lead to, by name; exits where pins and
    environment differ.
    """
    needs: dict[str, set[str]] = {}
    left = list(roots)
    seen: set[tuple[str, frozenset[str]]] = set()
    while left:
        asked = left.pop()
        name = canonicalize_name(asked.name)
        if (name, frozenset(asked.extras)) in seen:
            continue
        seen.add((name, frozenset(asked.extras)))
        found = distribution(name)
        if name not in pins or found.version != pins[name][0]:
            sys.exit(
                f"{name} {found.version} is installed, and pinned is {pins.get(name, ('nothing', ''))[0]}"
            )
        further = needs_of(found, asked.extras)
        needs.setdefault(name, set()).update(canonicalize_name(item.name) for item in further)
        left += further
    return [
        Package(
            name=name,
            version=pins[name][0],
            lines=pins[name][1],
            licence=licence_of(distribution(name)),
            needs=tuple(sorted(needs[name])),
        )
        for name in sorted(needs)
    ]


def licence_of(found: Distribution) -> str:
    """Return what a package's metadata calls its licence."""
    told = found.metadata
    if expression := told.get("License-Expression"):
        return str(expression)
    classes = [text for text in told.get_all("Classifier") or () if text.startswith("License ::")]
    names = [text.rpartition(" :: ")[2] for text in classes if text != "License :: OSI Approved"]
    if names:
        return " or ".join(sorted(names))
    own = str(told.get("License", "")).strip()
    return own if own and "\n" not in own and len(own) <= _LONGEST_LICENCE else "see the package"


def bill_of(chosen: Iterable[Package]) -> str:
    """Return the CycloneDX document."""
    found = re.search(
        r'__version__ = "([^"]+)"', (REPO / "orchestrator" / "__init__.py").read_text("utf-8")
    )
    assert found is not None
    chosen = list(chosen)
    refs = {item.name: f"pkg:pypi/{item.name}@{item.version}" for item in chosen}
    roots = sorted({canonicalize_name(item.name) for item in wanted()})
    own = f"pkg:pypi/benchfarm@{found[1]}"
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": own,
                "name": "benchfarm",
                "version": found[1],
                "licenses": [{"license": {"id": "Apache-2.0"}}],
            }
        },
        "components": [
            {
                "type": "library",
                "bom-ref": refs[item.name],
                "name": item.name,
                "version": item.version,
                "purl": refs[item.name],
                "licenses": [{"license": {"name": item.licence}}],
            }
            for item in chosen
        ],
        "dependencies": [
            {"ref": own, "dependsOn": [refs[name] for name in roots]},
            *(
                {"ref": refs[item.name], "dependsOn": [refs[name] for name in item.needs]}
                for item in chosen
            ),
        ],
    }
    return json.dumps(document, indent=1) + "\n"


def written() -> Mapping[Path, str]:
    """Return every file with its content."""
    pins = read_pins((HERE / "pinned.txt").read_text("utf-8"))
    running, building = packages(wanted(), pins), packages(BUILDING, pins)
    head = "# Written by `make sbom` from pinned.txt: "
    return {
        HERE / "runtime.txt": f"{head}what running needs, for production installs.\n"
        + "".join(item.lines for item in running),
        HERE / "build.txt": f"{head}what puts a checkout into an environment.\n"
        + "".join(item.lines for item in building),
        HERE / "sbom.cdx.json": bill_of(running),
    }


def main() -> None:
    """Write the files, or check them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit with 1 when a file differs"
    )
    checks = parser.parse_args().check
    stale = [
        path
        for path, text in written().items()
        if not path.is_file() or path.read_text("utf-8") != text
    ]
    for path in stale:
        if not checks:
            path.write_text(written()[path], "utf-8")
        print(f"{path.relative_to(REPO)}: {'differs, run make sbom' if checks else 'written'}")
    sys.exit(1 if checks and stale else 0)


if __name__ == "__main__":
    main()
