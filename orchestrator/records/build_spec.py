"""What apk_builds/<name>.yaml declares about a benchmark program, and what is known of its flags."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from orchestrator.records.case import ToolName


@dataclass(frozen=True, slots=True, kw_only=True)
class LibrarySpec:
    """A shared library that lies beside a program on the phone."""

    #: Its file name there.
    name: str
    #: Where it is downloaded; empty for one that is added by hand.
    url: str = ""
    #: Whether the program works without it.
    optional: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildSpec:
    """One declared program for one ABI.

    An ABI is Android's own name (``arm64-v8a``), or ``linux-`` and the machine's name for this
    computer (``linux-x86_64``).
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
    #: Where a person gets it: an address, or the commands that build it; the other is empty.
    url: str = ""
    recipe: tuple[str, ...] = ()
    #: The contents that may be used; any content when none is pinned.
    sha256s: tuple[str, ...] = ()
    #: What an APK must say about itself.
    package: str = ""
    activity: str = ""
    #: The lowest Android API level that it runs on, when that is known.
    min_sdk: int | None = None
    debuggable: bool = False
    libraries: tuple[LibrarySpec, ...] = ()

    @property
    def how_to_get(self) -> str:
        """What to do to have it, in one line."""
        if self.recipe:
            return f"build it ({'; '.join(self.recipe)}), then: benchfarm build add FILE --name {self.name}"
        return f"benchfarm build fetch {self.name} --abi {self.abi}   (from {self.url})"


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagSpec:
    """One flag."""

    name: str
    #: "int32", "int64", "float", "bool" or "string".
    kind: str
    default: str
    #: What the binary itself says of it; empty where its ``--help`` wasn't read.
    help: str = ""
    #: What it does, in benchfarm's words; empty for a flag that no table knows.
    meaning: str = ""
    #: Which builds have it: "all", or the delegate or platform that they are built with.
    build: str = "all"
    choices: tuple[str, ...] = ()
    #: A flag without which this one does nothing; "" for none.
    needs: str = ""
    #: What people get wrong about it; empty for most.
    trap: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagSchema:
    """The flags of one program, or of one binary of it."""

    flags: Mapping[str, FlagSpec]
    #: Whether it was learned from the binary itself, so that a flag that isn't here would be
    #: ignored by it.
    is_learned: bool = False

    def nearest(self, name: str) -> str:
        """Return the known name that is most like another, "" when none is."""
        return next(iter(difflib.get_close_matches(name, self.flags, n=1, cutoff=0.6)), "")

    def merged_with(self, documented: FlagSchema) -> FlagSchema:
        """Return this schema with what the tables know more of its flags; names, types and defaults
        stay.
        """
        merged = {
            name: replace(
                documented.flags.get(name, spec),
                kind=spec.kind,
                default=spec.default,
                help=spec.help,
            )
            for name, spec in self.flags.items()
        }
        return replace(self, flags=merged)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagFault:
    """One thing that is wrong with the flags of a run."""

    #: "bad-form", "unknown-flag", "duplicate-flag", "wrong-type", "wrong-value",
    #: "ineffective-flag", "needed-flag" (benchfarm needs one that the binary doesn't have) or
    #: "delegate-flag" (the binary doesn't have the delegate's).
    code: str
    flag: str
    message: str
    #: The right name where one is near, else "".
    nearest: str = ""


#: Flags of the benchmark programs that follow from a plan's own keys, and can't be set beside them.
_OWNERS: Final[Mapping[str, tuple[str, ...]]] = {
    "naming the model sets it": ("graph",),
    "matrix.threads or --threads sets it": ("num_threads",),
    "matrix.delegates or --delegate sets it": ("use_gpu", "use_nnapi", "use_hexagon", "use_coreml"),
    "a plan's settings set it": (
        "num_runs",
        "min_secs",
        "max_secs",
        "warmup_runs",
        "warmup_min_secs",
    ),
    "passes or --pass says what each invocation is for": (
        "enable_op_profiling",
        "op_profiling_output_mode",
        "op_profiling_output_file",
        "profiling_output_csv_file",
        "report_peak_memory_footprint",
    ),
    "benchfarm sets it for each run": (
        "result_file_path",
        "export_model_runtime_info",
        "model_runtime_info_output_file",
    ),
    "with it nothing is measured": ("help", "dry_run", "list_signatures"),
}

#: Flag -> who sets it. The programs take the first of two equal flags and hardly mention the
#: second.
OWNED_FLAGS: Final[Mapping[str, str]] = {
    name: owner for owner, names in _OWNERS.items() for name in names
}
