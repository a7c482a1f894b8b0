"""Which build of a benchmark program a device gets."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.app.virtual_phones import fake_build
from orchestrator.errors import ArtifactError
from orchestrator.planning.selection import NO_BUILD, tools_for
from orchestrator.programs import program
from orchestrator.records.case import IMPORTED_TOOLS, Build, Serial, Skip, ToolName
from orchestrator.records.device import DeviceFacts, DeviceKind
from orchestrator.records.plan import Plan

if TYPE_CHECKING:
    from orchestrator.artifacts.library import BuildLibrary


class BuildChoice:
    """Finds the builds that devices are measured with."""

    def __init__(self, library: BuildLibrary, fakes: Path) -> None:
        """``fakes`` is the folder for the programs that virtual phones run."""
        self._library = library
        self._fakes = fakes
        #: Programs that came with a job, used before this computer's own: by tool, and by what they
        #: replace.
        self._brought: dict[ToolName, Build] = {}
        self._brought_twins: dict[str, Build] = {}

    def of(
        self, plan: Plan, devices: Sequence[DeviceFacts]
    ) -> dict[tuple[Serial, ToolName], Build | Skip]:
        """Find the build of every tool for every device.

        Raises ArtifactError for one that the plan names.
        """
        return {
            (facts.serial, tool): self._build_of(plan.builds.get(tool, ""), facts, tool)
            for facts in devices
            for tool in tools_for(plan, facts.kind)
        }

    def _build_of(self, named: str, facts: DeviceFacts, tool: ToolName) -> Build | Skip:
        own = program(tool)
        is_kept = tool.is_declared and "/" not in named and self._library.has(tool, facts, named)
        if (
            own.installed is not None
            and facts.kind is DeviceKind.HOST
            and facts.kind in own.kinds
            and not is_kept
        ):
            return _installed(own.installed, named)
        if tool.is_declared and not own.file_name:
            return Skip(
                reason_code="tool-not-on-device", reason=f"'{tool}' is declared without a program"
            )
        if (find := own.on_device) is not None and facts.kind in own.kinds:
            return self._brought.get(tool) or _installed(lambda given: find(facts, given), named)
        if tool in self._brought:
            self._library.check_for(self._brought[tool], facts)
            return self._brought[tool]
        if tool in IMPORTED_TOOLS:
            return Skip(
                reason_code="tool-not-on-device", reason=f"benchfarm doesn't start '{tool}'"
            )
        if (
            facts.is_virtual
            and facts.kind in own.kinds
            and not named
            and (tool.is_app or own.file_name)
        ):
            return fake_build(self._fakes, tool, facts.abis[0])
        if tool.is_declared and not named and not is_kept:
            how = f"benchfarm build add PATH/{own.file_name} --tool {tool}, or --build {tool}=PATH/{own.file_name}"
            return Skip(reason_code=NO_BUILD, reason=f"no program is here for '{tool}' ({how})")
        return _installed(
            lambda name: self._library.resolve_for(facts, tool, name_or_path=name), named
        )

    def bring(self, builds: Sequence[Build], twins: Mapping[str, Build]) -> None:
        """Use these programs before this computer's own; ``twins`` (with Flex) by the sha256 of
        what they replace.
        """
        self._brought = {build.tool: build for build in builds}
        self._brought_twins = dict(twins)

    def with_flex(self, builds: Sequence[Build]) -> dict[str, Build]:
        """Return the build with TensorFlow's operators (Flex) of each build that has one on this
        computer.
        """
        twins = {
            build.sha256: self._flex_twin(build)
            for build in builds
            if program(build.tool).is_benchmark_model
        }
        return {
            sha256: twin
            for sha256, twin in twins.items()
            if twin is not None and twin.sha256 != sha256
        }

    def _flex_twin(self, build: Build) -> Build | None:
        if build.sha256 in {brought.sha256 for brought in self._brought.values()}:
            # As on the computer that sent it: this one's own would be another program.
            return self._brought_twins.get(build.sha256)
        if build.is_virtual:
            return fake_build(self._fakes, build.tool, build.abi.split(",")[0], has_flex=True)
        abis = build.abi.split(",")
        flex = (
            s
            for s in self._library.specs
            if s.tool is build.tool and s.variant == "plus_flex" and s.abi in abis
        )
        if (spec := next(flex, None)) is None:
            return None
        with contextlib.suppress(ArtifactError):
            return self._library.resolve(build.tool, spec.abi, name_or_path=spec.name)
        return None


def _installed(find: Callable[[str], Build], named: str) -> Build | Skip:
    """Return a build, or why there is none; raises ArtifactError for one that the plan names."""
    try:
        return find(named)
    except ArtifactError as error:
        if named:
            raise
        return Skip(
            reason_code=NO_BUILD, reason=str(error) + (f" ({error.hint})" if error.hint else "")
        )
