"""Whether a tag names the release that the code and the changelog are: ``release.py v1.2.3``."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from typing import Final

REPO: Final = Path(__file__).resolve().parent.parent


def faults(tag: str, repo: Path = REPO) -> list[str]:
    """Return why a tag can't be released; nothing when it can."""
    code = (repo / "orchestrator" / "__init__.py").read_text("utf-8")
    found = re.search(r'^__version__ = "([^"]+)"$', code, re.MULTILINE)
    virtual = tomllib.loads((repo / "virtual" / "pyproject.toml").read_text("utf-8"))
    versions = {
        "orchestrator/__init__.py": found[1] if found else "none",
        "virtual/pyproject.toml": virtual["project"]["version"],
    }
    told = [
        f"{file} says {version}, and the tag is {tag}"
        for file, version in versions.items()
        if f"v{version}" != tag
    ]
    heading = rf"^## {re.escape(tag.removeprefix('v'))} \(\d{{4}}-\d\d-\d\d\)$"
    if not re.search(heading, (repo / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE):
        told.append(f"CHANGELOG.md has no heading '## {tag.removeprefix('v')} (YYYY-MM-DD)'")
    return told


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: release.py v1.2.3")
    if problems := faults(sys.argv[1]):
        sys.exit("\n".join(problems))
