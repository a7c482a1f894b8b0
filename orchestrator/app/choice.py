"""Which build of a program runs on which device, and why not another or none."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.app.virtual_phones import fake_build
from orchestrator.errors import ArtifactError, UsageError
from orchestrator.planning.selection import (
    NO_BUILD,
    is_unavailable_for_auto,
    kind_skip,
    tools_for,
)
from orchestrator.programs import program, programs
from orchestrator.records import frozen
from orchestrator.records.build_spec import BuildSpec
from orchestrator.records.case import Build, BuildSha, Companion, Serial, Skip, ToolName, grouped
from orchestrator.records.device import DeviceFacts, DeviceKind
from orchestrator.records.plan import Plan

if TYPE_CHECKING:
    from orchestrator.artifacts.library import BuildLibrary


@frozen
class MissingProgram:
    """A program that a plan needs, and that isn't on this computer."""

    tool: ToolName
    serials: tuple[Serial, ...]
    #: What is missing and how to get it.
    reason: str
    #: Its declaration; None for an undeclared program.
    spec: BuildSpec | None

    @property
    def assumed(self) -> Build:
        """A placeholder build to expand a plan with; nothing can be run with it."""
        spec = self.spec
        libraries = spec.needed if spec else []
        return Build(
            name=spec.name if spec else self.tool.value,
            tool=self.tool,
            sha256=BuildSha("0" * 64),
            abi=spec.abi if spec else "",
            companions=tuple(Companion(name=name, sha256="0" * 64) for name in libraries),
        )


class BuildChoice:
    """Chooses the builds that devices are measured with."""

    def __init__(
        self, library: Callable[[], BuildLibrary], fakes: Path, hint: Callable[[str], None]
    ) -> None:
        """``library`` returns the library, which is read when it is needed; ``fakes`` is the folder
        for the programs that virtual phones run; ``hint`` gets texts for people.
        """
        self._library = library
        self._fakes = fakes
        self._hint = hint
        #: Programs of a job, used before this computer's own: by tool, and by the sha256 of the
        #: program that they replace.
        self._brought: dict[ToolName, Build] = {}
        self._brought_flex: dict[str, Build] = {}
        #: What stands for missing programs while a plan is only shown.
        self._assumed: dict[tuple[Serial, ToolName], Build] = {}

    def of(
        self, plan: Plan, devices: Sequence[DeviceFacts]
    ) -> dict[tuple[Serial, ToolName], Build | Skip]:
        """Return the build of every tool for every device, or why there is none.

        Raises ArtifactError for one that the plan names.
        """
        return {
            (facts.serial, tool): self._assumed.get((facts.serial, tool))
            or self._choose(tool, facts, plan.builds.get(tool, ""))
            for facts in devices
            for tool in tools_for(plan, facts.kind)
        }

    def _choose(self, tool: ToolName, facts: DeviceFacts, name: str) -> Build | Skip:
        if skip := kind_skip(tool, facts.kind):
            return skip
        if (brought := self._brought.get(tool)) is not None:
            # The phone itself looks into an app.
            if program(tool).on_device is None:
                self._library().check_for(brought, facts)
            return brought
        try:
            return self._find(tool, facts, name)
        except ArtifactError as error:
            if name:
                raise
            hint = f" ({error.hint})" if error.hint else ""
            return Skip(reason_code=NO_BUILD, reason=f"{error}{hint}")

    def _find(self, tool: ToolName, facts: DeviceFacts, name: str) -> Build | Skip:
        """Return the build of a program that runs on a device, from the first place that applies.

        - a package of this computer, where the program is one, and no file of it was added
        - the device, for an app that is installed there
        - a fake binary, for a virtual phone and a plan that names none
        - the library, or the file that the plan names
        """
        spec = program(tool)
        is_kept = tool.is_declared and "/" not in name and self._library().has(tool, facts, name)
        if spec.installed is not None and facts.kind is DeviceKind.HOST and not is_kept:
            return spec.installed(name)
        if tool.is_declared and not spec.file_name:
            reason = f"'{tool}' is declared without a program"
            return Skip(reason_code="tool-not-on-device", reason=reason)
        if spec.on_device is not None:
            return spec.on_device(facts, name)
        if facts.is_virtual and not name and (tool.is_app or spec.file_name):
            return fake_build(self._fakes, tool, facts.abis[0])
        if tool.is_declared and not name and not is_kept:
            file = f"PATH/{spec.file_name}"
            raise ArtifactError(
                f"no program is here for '{tool}'",
                hint=f"benchfarm build add {file} --tool {tool}, or --build {tool}={file}",
            )
        return self._library().resolve_for(facts, tool, name_or_path=name)

    def missing(self, plan: Plan, devices: Sequence[DeviceFacts]) -> list[MissingProgram]:
        """Return the programs that devices lack, each once for all of its devices.

        A program that ``auto`` tries only where it is available isn't missing. Raises ArtifactError
        for a named one.
        """
        by_serial = {item.serial: item for item in devices}
        lacking = [
            (by_serial[serial], tool, build.reason)
            for (serial, tool), build in self.of(plan, devices).items()
            if isinstance(build, Skip)
            and build.reason_code == NO_BUILD
            and not is_unavailable_for_auto(plan, by_serial[serial].kind, tool, NO_BUILD)
        ]
        return [
            MissingProgram(
                tool=tool,
                serials=tuple(device.serial for device, _, _ in alike),
                reason=reason,
                spec=self._library().declared_for(alike[-1][0], tool),
            )
            for (tool, reason), alike in grouped(lacking, lambda item: item[1:]).items()
        ]

    def assume(self, missing: Sequence[MissingProgram]) -> None:
        """Plan as if missing programs were installed; nothing is run with them."""
        self._assumed = {
            (serial, item.tool): item.assumed for item in missing for serial in item.serials
        }

    def bring(self, builds: Sequence[Build], flex_builds: Mapping[str, Build]) -> None:
        """Use these programs before this computer's own; ``flex_builds`` (with Flex) by the sha256 of the
        program that they replace.
        """
        self._brought = {build.tool: build for build in builds}
        self._brought_flex = dict(flex_builds)

    def with_flex(self, builds: Sequence[Build]) -> dict[str, Build]:
        """Return the build with TensorFlow's operators (Flex) of each build that has one on this
        computer.
        """
        return {
            build.sha256: flex_build
            for build in builds
            if program(build.tool).is_benchmark_model
            and (flex_build := self._flex_build(build)) is not None
            and flex_build.sha256 != build.sha256
        }

    def _flex_build(self, build: Build) -> Build | None:
        if build in self._brought.values():
            # As on the computer that sent it: this one's own would be another program.
            return self._brought_flex.get(build.sha256)
        abis = build.abi.split(",")
        if build.is_virtual:
            return fake_build(self._fakes, build.tool, abis[0], has_flex=True)
        for spec in self._library().specs:
            if spec.tool is build.tool and spec.variant == "plus_flex" and spec.abi in abis:
                with contextlib.suppress(ArtifactError):
                    return self._library().resolve(build.tool, spec.abi, name_or_path=spec.name)
                return None
        return None

    def check(
        self,
        plan: Plan,
        devices: Sequence[DeviceFacts],
        *,
        lacks_devices: bool = False,
        has_finer: bool = False,
        is_shared: bool = False,
    ) -> None:
        """Raise UsageError for each build of a program that none of a plan's devices runs; hint at
        a name that may mean a kept build or a file.

        With ``lacks_devices`` it may be the missing one's; a plan that ``is_shared`` by many hosts
        needs one build of its programs only. With ``has_finer`` it may also be for a finer program,
        which measures models that are too fast for the others; raises ArtifactError where it isn't
        there.
        """
        for name in dict.fromkeys(plan.builds.values()):
            if "/" not in name and Path(name).is_file() and self._library().named(name):
                self._hint(
                    f"{name} is the build that is kept under this name; ./{name} is the file here"
                )
        if not plan.builds:
            return
        kinds = {facts.kind for facts in devices}
        if lacks_devices or (plan.devices.host and not plan.devices.serials):
            kinds |= {item.usual_on for item in programs() if item.usual_on is not None}
        used = {tool for kind in kinds for tool in tools_for(plan, kind)}
        unused = [tool for tool in plan.builds if tool not in used]
        finer = {program(tool).finer_program for tool in used} if has_finer else set()
        if is_shared and used & plan.builds.keys():
            return
        if unneeded := [tool for tool in unused if tool not in finer]:
            raise UsageError(
                f"a build is for {', '.join(unneeded)}, and these devices run {', '.join(sorted(used))}",
                hint="name a build of that with --build TOOL=NAME, or the program with --tool",
            )
        if unused:
            self.of(replace(plan, matrix=replace(plan.matrix, tools=tuple(unused))), devices)
