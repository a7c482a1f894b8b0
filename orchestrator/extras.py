"""Packages that only an extra of benchfarm installs: whether they are there, and which extra to
install.
"""

from __future__ import annotations

import importlib.metadata
import re
from collections import Counter
from importlib.util import find_spec
from typing import Final

from orchestrator.errors import MissingPackageError

_REQUIREMENT: Final = re.compile(r"([\w.-]+).*extra\s*==\s*[\"']([\w.-]+)[\"']")


def require_packages(purpose: str, *modules: str) -> None:
    """Raise MissingPackageError unless all of these modules can be imported; ``purpose`` needs
    them.
    """
    for module in modules:
        if find_spec(module) is None:
            raise missing_package(module, purpose)


def missing_package(module: str, purpose: str = "this command") -> MissingPackageError:
    """Return the error that says which extra installs a module that isn't there."""
    top = module.partition(".")[0]
    extra = extra_of(top)
    what = f"'benchfarm[{extra}]'" if extra else top.replace("_", "-")
    return MissingPackageError(
        f"{purpose} needs the package {top.replace('_', '-')}, which isn't installed",
        hint=f"install it with: pip install {what}",
    )


def extra_of(module: str) -> str:
    """Return the smallest extra of benchfarm that brings a module; empty where none does."""
    distribution = module.replace("_", "-").lower()
    try:
        requirements = importlib.metadata.requires("benchfarm") or []
    except importlib.metadata.PackageNotFoundError:
        return ""
    found = [match for text in requirements if (match := _REQUIREMENT.match(text))]
    sizes = Counter(match[2] for match in found)
    named = [match[2] for match in found if match[1].replace("_", "-").lower() == distribution]
    return min(
        (extra for extra in named if extra in sizes), key=lambda extra: sizes[extra], default=""
    )
