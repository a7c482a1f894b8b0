"""What apk_builds/<name>.yaml declares about a benchmark program: where it comes from, what it must hold."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.records.workload import ToolName


@dataclass(frozen=True, slots=True, kw_only=True)
class LibrarySpec:
    """A shared library that lies beside a program on the phone."""

    #: Its file name there.
    name: str
    #: Where it is downloaded, or lies; both empty for one that is added by hand.
    url: str = ""
    file: str = ""
    #: Whether the program works without it.
    optional: bool = False
    #: Libraries of a group must be of one release; those without a group are of the program's.
    group: str = ""


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
    debuggable: bool = False
    #: sha256 of the certificates of those who may have signed an APK; anybody when empty.
    signers: tuple[str, ...] = ()
    libraries: tuple[LibrarySpec, ...] = ()

    @property
    def how_to_get(self) -> str:
        """What to do to have it, in one line."""
        if self.recipe:
            return f"build it ({'; '.join(self.recipe)}), then: benchfarm build add FILE --name {self.name}"
        return f"benchfarm build fetch {self.name} --abi {self.abi}   (from {self.url or self.file})"
