"""What the build files say, asked by name."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from orchestrator.artifacts.program import ProgramFacts
from orchestrator.errors import ArtifactError
from orchestrator.programs import program
from orchestrator.records.build_spec import BuildSpec, LibrarySpec
from orchestrator.records.workload import ToolName


class Declarations:
    """The declared builds."""

    def __init__(self, specs: Sequence[BuildSpec]) -> None:
        self.specs = tuple(specs)

    def name_for(self, path: Path, facts: ProgramFacts, tool: ToolName | None = None) -> str:
        """Return the declared name that a file's name stands for, else the file's own without .apk."""
        specs = [s for s in self.specs if (s.tool is tool if tool else not program(s.tool).shares_file_name)]
        for spec in specs:
            if spec.tool.is_app != facts.is_apk or not set(facts.abis) & {spec.abi}:
                continue
            if path.name == spec.url.rpartition("/")[2]:
                return spec.name
        by_program = {spec.program: spec.name for spec in specs}
        return by_program.get(path.name) or path.name.removesuffix(".apk")

    def spec(self, name: str, abis: Sequence[str]) -> BuildSpec | None:
        """Return what is declared of a build; for an ABI that isn't declared, what holds for all, without its pins."""
        of_name = [spec for spec in self.specs if spec.name == name]
        fitting = next((spec for spec in of_name if spec.abi in abis), None)
        return fitting or (dataclasses.replace(of_name[0], sha256s=()) if of_name else None)

    def libraries(self, name: str) -> Sequence[LibrarySpec]:
        """Return the libraries that are declared of a build, whatever its ABI."""
        return list({item.name: item for s in self.specs if s.name == name for item in s.libraries}.values())

    def check_complete(self, spec: BuildSpec, names: Sequence[str]) -> None:
        """Raise ArtifactError when a library that is always needed isn't among the names."""
        missing = [item.name for item in spec.libraries if not item.optional and item.name not in names]
        if missing:
            raise ArtifactError(
                f"{spec.name} needs {' and '.join(missing)} beside it",
                hint=f"{spec.how_to_get}; or put all files into one folder, then add the program",
            )
