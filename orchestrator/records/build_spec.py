"""What apk_builds/<name>.yaml declares about a benchmark program: where it comes from, what it must hold."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.records.workload import ToolName


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildSpec:
    """One declared program for one ABI.

    An ABI is Android's own name (``arm64-v8a``), or ``linux-`` and the machine's name for this computer
    (``linux-x86_64``).
    """

    name: str
    title: str
    tool: ToolName
    #: The program's file name, as people download it.
    program: str
    abi: str
    #: Which flavour: ``plain``, ``plus_flex``, ``performance_options``, ``litert`` ...
    variant: str = "plain"
    #: Whether it is taken for its tool when no build is named.
    is_default: bool = False
    #: Where a person gets it: an address, a file, or the commands that build it; the others are empty.
    url: str = ""
    file: str = ""
    recipe: tuple[str, ...] = ()
    #: The contents that may be used; any content when none is pinned.
    sha256s: tuple[str, ...] = ()
    #: What an APK must say about itself.
    package: str = ""
    activity: str = ""
    #: The lowest Android API level that it runs on, when that is known.
    min_sdk: int | None = None
    #: Shared libraries that must lie beside it on the phone.
    libraries: tuple[str, ...] = ()

    @property
    def how_to_get(self) -> str:
        """What to do to have it, in one line."""
        add = f"benchfarm builds add FILE --name {self.name}"
        if self.url:
            return f"download {self.url}, then: {add}"
        if self.recipe:
            return f"build it ({'; '.join(self.recipe)}), then: {add}"
        return f"benchfarm builds add {self.file} --name {self.name}"
