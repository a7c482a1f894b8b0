"""``benchfarm builds``."""

from __future__ import annotations

from pathlib import Path

from orchestrator.bootstrap import Farm, Settings
from orchestrator.cli.result import CommandResult, table
from orchestrator.units import format_bytes


def list_builds(settings: Settings) -> CommandResult:
    """List the declared build families and what is in the cache."""
    with Farm(settings) as farm:
        builds = farm.library.list()
        specs = farm.library.specs
    rows = [(build.name, build.tool.value, build.abi, build.sha256[:12], "here") for build in builds]
    names = {build.name for build in builds}
    rows += [(spec.name, spec.tool.value, spec.abi, "", "not here") for spec in specs if spec.name not in names]
    text = table(("build", "tool", "ABI", "sha256", "on this computer"), rows)
    hint = "get a program from the place that its file in apk_builds/ names, then: benchfarm builds add FILE"
    return CommandResult(text=f"{text}\n{hint}", data={"cached": builds, "declared": specs})


def add(settings: Settings, file: Path, name: str) -> CommandResult:
    """Take a program into the cache; raises ArtifactError for one that isn't what it should be."""
    with Farm(settings) as farm:
        build = farm.library.add(file, name=name)
    size = format_bytes(build.path.stat().st_size) if build.path else ""
    text = f"{build.name}: {build.tool}, {build.abi}, {size}, sha256 {build.sha256}"
    return CommandResult(text=text, data=build)


def verify(settings: Settings) -> CommandResult:
    """Hash every cached program again."""
    with Farm(settings) as farm:
        checked = farm.library.verify()
    rows = [(build.name, build.sha256[:12], "as it was" if intact else "DAMAGED") for build, intact in checked]
    damaged = [build.name for build, intact in checked if not intact]
    text = table(("build", "sha256", "content"), rows) if rows else "no program is in the cache"
    return CommandResult(text=text, data={"checked": len(checked), "damaged": damaged}, exit_code=4 if damaged else 0)
