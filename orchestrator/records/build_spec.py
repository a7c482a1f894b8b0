"""The declaration of a benchmark program in apk_builds/<name>.yaml
(``docs/reference/models-and-builds.md``), and its known flags.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field, replace
from typing import Annotated, Final, TypeAlias

from pydantic import AfterValidator, Field, WithJsonSchema
from pydantic.json_schema import SkipJsonSchema

from orchestrator.fields import NO_KEY, SOME, OneOrMany, Sha256, Text, by_rule, unknown_word_message
from orchestrator.records import frozen
from orchestrator.records.case import NAME_RULE, ToolName, is_name

ABIS: Final = (
    "arm64-v8a",
    "armeabi-v7a",
    "x86_64",
    "x86",
    "riscv64",
    "linux-x86_64",
    "linux-aarch64",
    "linux-armv7l",
)


def _abi(text: str) -> str:
    if text not in ABIS:
        raise ValueError(unknown_word_message(text, ABIS))
    return text


def _name(text: str) -> str:
    if not is_name(text):
        raise ValueError(f"{text!r} isn't a name of {NAME_RULE}")
    return text


def _url(text: str) -> str:
    if not re.fullmatch(r"https://[^\s/]+/\S+", text):
        raise ValueError(f"{text!r} isn't an https address")
    return text


_Abi: TypeAlias = Annotated[
    str, AfterValidator(_abi), WithJsonSchema({"type": "string", "enum": [*ABIS]})
]
_Name: TypeAlias = Annotated[Text, AfterValidator(_name)]
_Url: TypeAlias = Annotated[Text, AfterValidator(_url)]


@frozen
class BuildSource:
    """Where a person gets the program for one ABI: an address, or the commands that build it."""

    url: _Url = ""
    recipe: Annotated[OneOrMany[tuple[Text, ...]], SOME] = ()
    #: The contents that may be used; any content when none is pinned.
    sha256: OneOrMany[tuple[Sha256, ...]] = ()

    def __post_init__(self) -> None:
        """Raise ValueError for both, and for neither."""
        if bool(self.url) == bool(self.recipe):
            raise ValueError("needs exactly one of url and recipe")


@frozen
class Expected:
    """Contents that the program must have; checked before it is used."""

    package: Text = ""
    activity: Text = ""
    #: The lowest Android API level that it runs on, when that is known.
    min_sdk: Annotated[int, Field(ge=1, le=100)] | None = None
    debuggable: bool = False


@frozen
class LibrarySpec:
    """A shared library that lies beside a program on the phone."""

    #: Whether the program works without it.
    optional: bool = False
    #: ABI -> where it is downloaded; it is added by hand for the others. None: from the program's
    #: folder.
    url: dict[_Abi, _Url] | None = None


@frozen
class BuildSpec:
    """A build file, for one of its ABIs.

    An ABI is Android's own name (``arm64-v8a``), or ``linux-`` and the machine's name for this
    computer (``linux-x86_64``).
    """

    name: _Name
    title: Text
    tool: Annotated[ToolName, by_rule("program")]
    #: The program's file name, as people download it.
    program: _Name
    #: Which flavour: ``plain``, ``plus_flex``, ``performance_options``, ``litert`` ...
    variant: _Name = "plain"
    #: Whether it is taken for its tool when no build is named.
    default: bool = False
    abis: Annotated[dict[_Abi, BuildSource], SOME]
    #: By their file names on the phone.
    libraries: dict[_Name, LibrarySpec] = field(default_factory=dict)
    expected: Expected = Expected()
    #: The chosen ABI.
    abi: Annotated[str, NO_KEY, SkipJsonSchema()] = ""

    def __post_init__(self) -> None:
        """Raise ValueError for an app that can't be started."""
        if self.tool.is_app and not (self.expected.package and self.expected.activity):
            raise ValueError("an APK needs expected.package and expected.activity")

    def __hash__(self) -> int:
        """Hash its name: its mappings have no hash."""
        return hash((self.name, self.abi))

    @property
    def source(self) -> BuildSource:
        """Where it comes from for its ABI."""
        return self.abis[self.abi]

    @property
    def needed(self) -> list[str]:
        """The libraries that it doesn't work without."""
        return [name for name, library in self.libraries.items() if not library.optional]

    def library_url(self, name: str) -> str:
        """Return where a library is downloaded; empty for one that is added by hand."""
        urls = self.libraries[name].url
        if urls is not None:
            return urls.get(self.abi, "")
        return f"{self.source.url.rpartition('/')[0]}/{name}" if self.source.url else ""

    @property
    def how_to_get(self) -> str:
        """The way to get it, in one line."""
        source = self.source
        if source.recipe:
            return f"build it ({'; '.join(source.recipe)}), then: benchfarm build add FILE --name {self.name}"
        return f"benchfarm build fetch {self.name} --abi {self.abi}   (from {source.url})"


_WHOLE: Final = re.compile(r"[-+]?\d{1,20}", re.ASCII)
DECIMAL: Final = re.compile(
    r"[-+]?(?:\d{1,30}(?:\.\d{0,30})?|\.\d{1,30})(?:[eE][-+]?\d{1,3})?", re.ASCII
)
#: Nothing that begins an option or leaves a folder.
_WORD: Final = re.compile(r"(?!-)[\w.,:=\[\]@%+x -]{1,200}", re.ASCII)
#: Type of a flag -> its values, and these in words; all others take any text.
_TYPES: Final = {
    "bool": (re.compile("true|false|1|0"), "true, false, 1 or 0"),
    "float": (DECIMAL, "a number"),
    "int32": (_WHOLE, "a whole number of 32 bits"),
    "int64": (_WHOLE, "a whole number of 64 bits"),
    "int": (_WHOLE, "a whole number"),
    "word": (_WORD, "a word"),
}
#: The default of a flag that has none: a plan has to set it.
REQUIRED: Final = "(required)"


@frozen
class FlagSpec:
    """One flag."""

    name: str
    #: "int32", "int64", "float", "bool" or "string"; of a declared program "int", "word" or "choice".
    kind: str
    default: str
    #: What the binary itself says of it; empty where its ``--help`` wasn't read.
    help: str = ""
    #: What it does, in benchfarm's words; empty for a flag that no table knows.
    meaning: str = ""
    #: Which builds have it: "all", or the delegate or platform that they are built with.
    build: str = "all"
    #: The allowed values: words, whole numbers as ``1..99`` or ``1..``, several with commas between
    #: as ``1..99,...``.
    choices: tuple[str, ...] = ()
    #: A flag, or a value of it (``backend=cpu``), without which this one does nothing; "" for none.
    needs: str = ""
    #: What people get wrong about it; empty for most.
    trap: str = ""

    @property
    def allowed(self) -> str:
        """The allowed values in words, empty for any text."""
        if self.choices:
            words = re.sub(r"\.\.$", " or more", ", ".join(self.choices))
            return f"one of {words}" if len(self.choices) > 1 else words
        return _TYPES[self.kind][1] if self.kind in _TYPES else ""

    @property
    def set_by(self) -> str:
        """Which keys of a plan set it; empty where a plan sets it as a flag."""
        return OWNED_FLAGS.get(self.name, "")

    def expected(self, value: str) -> str:
        """Return the words for what it must be instead of a value; empty for an allowed value."""
        pattern, of_type = _TYPES.get(self.kind, (None, ""))
        bits = {"int32": 31, "int64": 63}.get(self.kind)
        if pattern is not None and not pattern.fullmatch(value):
            return of_type
        if bits is not None and not -(2**bits) <= int(value) < 2**bits:
            return of_type
        is_free = not self.choices or value == self.default
        return "" if is_free or any(_is_in(value, each) for each in self.choices) else self.allowed


def _is_in(value: str, choice: str) -> bool:
    """Whether a value is a choice, or the numbers of it in its range."""
    low, dots, high = choice.removesuffix(",...").partition("..")
    if not dots:
        return value == choice
    numbers = value.split(",") if choice.endswith(",...") else [value]
    return all(
        _WHOLE.fullmatch(number) and int(low) <= int(number) <= int(high or number)
        for number in numbers
    )


@frozen
class FlagSchema:
    """The flags of one program, or of one binary of it."""

    flags: Mapping[str, FlagSpec]
    #: Whether it was learned from the binary itself, so that a flag that isn't here would be
    #: ignored by it.
    is_learned: bool = False

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


@frozen
class FlagFault:
    """One thing that is wrong with the flags of a run."""

    #: "unknown-flag", "wrong-value", "ineffective-flag", "needed-flag" (benchfarm needs one that the
    #: binary doesn't have, or the program one that isn't given) or "delegate-flag" (the binary
    #: doesn't have the delegate's).
    code: str
    flag: str
    message: str


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
