"""Benchmark programs that a YAML file describes: their command line, and how what they print is
read.

A file holds no code and nothing that a shell would read: words with placeholders, values of
declared types, and expressions that are searched for in a bounded time.
docs/reference/declared-programs.md explains every key.
"""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field, PlainValidator

from orchestrator.errors import OutputParseError, PlanError, ProgramInUseError, UsageError, nearest
from orchestrator.fields import SOME, AnyText, OneOrMany, Text, unique
from orchestrator.files import expanded
from orchestrator.installation import add_program_place, program_places, remove_program_place
from orchestrator.plugins import Faults, checked, read_yaml
from orchestrator.records import frozen
from orchestrator.records.build_spec import REQUIRED, FlagSchema, FlagSpec
from orchestrator.records.case import DECLARED, DelegateName, ToolName
from orchestrator.records.model import BUNDLES, FOREIGN, PHASES

#: Characters of an expression, at most.
LONGEST: Final = 600
#: A line is searched up to here; its rest is dropped.
LONGEST_LINE: Final = 8192
#: CPU seconds that one search may take.
_TIMEOUT_S: Final = 1.0
#: Constructs that need backtracking, or that look outside the match.
_REFUSED: Final = re.compile(r"\\[1-9]|\\[gGKLXpPRN]|\(\?(?!:|P<\w+>|i\))|[*+?}]\+|\[\[")
_FEATURES: Final = "groups, named groups (?P<name>...), classes, alternatives and repeats"


class Pattern:
    """An expression whose searches have a time limit; exceeding it is an error of the expression."""

    __slots__ = ("_compiled", "text")

    def __init__(self, text: str) -> None:
        """Raise ValueError for an expression that isn't one of the simple kind."""
        if len(text) > LONGEST:
            raise ValueError(f"is an expression of {len(text)} characters; {LONGEST} are allowed")
        if refused := _REFUSED.search(text.replace("\\\\", "")):
            raise ValueError(
                f"{refused[0]!r} isn't allowed in an expression here; it may have {_FEATURES}"
            )
        import regex

        try:
            self._compiled = regex.compile(text, regex.V0)
        except regex.error as error:
            raise ValueError(f"isn't a regular expression: {error}") from None
        self.text = text

    @property
    def groups(self) -> frozenset[str]:
        """The names of its groups."""
        return frozenset(self._compiled.groupindex)

    def find(self, text: str) -> Mapping[str, str] | None:
        """Return the named groups that took part where the expression is found, None where it
        isn't.

        Raises OutputParseError where the search took too long.
        """
        try:
            match = self._compiled.search(text[:LONGEST_LINE], timeout=_TIMEOUT_S)
        except TimeoutError:
            raise OutputParseError(
                f"the expression {self.text!r} took more than {_TIMEOUT_S:g} s on one line",
                hint="write it without nested repeats",
            ) from None
        if match is None:
            return None
        return {name: value for name, value in match.groupdict().items() if value is not None}


def _expression(value: object) -> Pattern:
    if not isinstance(value, str):
        raise ValueError("must be a regular expression in one line")
    return Pattern(value)


#: A pattern as a file writes it.
Expression = Annotated[Pattern, PlainValidator(_expression)]

#: The files that come with benchfarm.
SHIPPED: Final = Path(__file__).with_name("declarations")
_NAME: Final = re.compile(r"[a-z][a-z0-9_.-]{0,39}")
_FIELD: Final = re.compile(r"[A-Za-z_][\w /.]{0,40}")
_FILE: Final = re.compile(r"[A-Za-z0-9_][\w.-]{0,79}")
_STREAM: Final = re.compile(r"stdout|stderr|logcat:[A-Za-z0-9_][\w.-]{0,79}")
_PLACEHOLDER: Final = re.compile(r"\{([^{}]*)\}")
#: Placeholders that every command line may use in addition to a file's own parameters.
STANDARD_PLACEHOLDERS: Final = ("model", "model_folder", "threads", "runs", "warmup_runs")

LineDoes = Literal["begin", "context", "part", "row", "samples", "end", "fail"]
Unit = Literal["s", "ms", "us", "ns", "1/s", "B", "KB", "KiB", "MB", "MiB", "GiB"]
Figure = Literal["mean", "median", "min", "max", "std", "first", "p5", "p95"]


def _matching(pattern: re.Pattern[str], description: str) -> AfterValidator:
    def check(value: str) -> str:
        if not pattern.fullmatch(value) or ".." in value:
            raise ValueError(f"{value!r} can't be {description}")
        return value

    return AfterValidator(check)


Name = Annotated[
    Text, _matching(_NAME, "a name; write small letters, digits, dot, dash and underscore")
]
FieldName = Annotated[Text, _matching(_FIELD, "the name of a field")]
FileName = Annotated[
    Text, _matching(_FILE, "a file name here; it is one in the program's own folder")
]
Stream = Annotated[Text, _matching(_STREAM, "a stream: stdout, stderr or logcat:TAG")]


@frozen
class ParameterSection:
    """One value of a command line, and the values that it may have."""

    #: What it is, for people.
    meaning: AnyText = ""
    type: Literal["int", "word", "choice"]
    default: AnyText | None = None
    min: int = 0
    max: int | None = None
    values: OneOrMany[tuple[Text, ...]] = ()

    def __post_init__(self) -> None:
        if (self.type == "choice") != bool(self.values):
            raise ValueError("'values' are those of a parameter of the type choice")
        spec = replace(self.flag(""), default=REQUIRED)
        if self.default is not None and (expected := spec.expected(self.default)):
            raise ValueError(f"default: {expected} is expected, not {self.default!r}")

    def flag(self, name: str) -> FlagSpec:
        """Return it as a flag of the program."""
        limits = (f"{self.min}..{'' if self.max is None else self.max}",)
        spec = FlagSpec(
            name=name,
            kind=self.type,
            default=REQUIRED if self.default is None else self.default,
            choices=limits if self.type == "int" else self.values,
        )
        meaning = f"{self.meaning}: {spec.allowed}" if self.meaning else spec.allowed
        return replace(spec, meaning=meaning)


@frozen
class VariantSection:
    """The parameters and words of the command line for one delegate or one figure."""

    set: dict[Name, AnyText] = field(default_factory=dict)
    argv: tuple[Text, ...] = ()
    #: Of a delegate: whether a run that ends well shows by itself that all ran there.
    proof: Literal["none", "success"] = "none"


@frozen
class MeasureSection:
    """A figure of a result, from its fields."""

    field: FieldName
    minus: FieldName | None = None
    #: A number, or fields whose sum it is divided by.
    per: OneOrMany[tuple[Text, ...]] = ()
    unit: Unit
    #: Of samples: how many of the first don't count.
    drop_first: Annotated[int, Field(ge=0, le=1000)] = 0


@frozen
class ResultSection:
    """Which figures a result has, and the fields that they are computed from."""

    figure: Name | None = None
    label: AnyText = ""
    #: Fields and what they hold; a field that isn't there holds nothing.
    where: dict[FieldName, Expression] = field(default_factory=dict)
    unit: Literal["inference", "token"] = "inference"
    #: Of several ways to a figure the first is taken whose fields are there.
    latency: dict[Figure, OneOrMany[tuple[MeasureSection, ...]]]
    samples: MeasureSection | None = None
    count: OneOrMany[tuple[FieldName, ...]] = ()
    init: OneOrMany[tuple[MeasureSection, ...]] = ()
    first_inference: OneOrMany[tuple[MeasureSection, ...]] = ()
    peak_memory: OneOrMany[tuple[MeasureSection, ...]] = ()
    first_token: OneOrMany[tuple[MeasureSection, ...]] = ()
    #: To what a printed figure is rounded, in milliseconds.
    resolution_ms: Annotated[float, Field(gt=0)] | None = None
    #: Fields that are kept as they are printed.
    keep: tuple[FieldName, ...] = ()

    def __post_init__(self) -> None:
        if not (self.latency.get("mean") or self.latency.get("median") or self.samples):
            raise ValueError("needs a mean, a median or samples")


@frozen
class LineSection:
    """One form of line."""

    regex: Expression
    does: LineDoes
    #: Of ``fail``: a code of benchfarm's.
    code: Name = "benchmark-failed"
    #: Whether the expression matches whole figures only, so that a text may end without a line end
    #: after it.
    whole: bool = False

    def __post_init__(self) -> None:
        if self.does in {"part", "row", "samples"} and not self.regex.groups:
            raise ValueError("needs a named group, whose text is the field")


@frozen
class TableSection:
    """Results in a form that has names for its fields."""

    kind: Literal["json", "csv", "markdown", "sql"]
    #: Of JSON: the list of results in its object, whose other values hold for each.
    each: FieldName | None = None
    #: The line that it begins in: JSON's own first characters, or the row of column names.
    start: Expression


@frozen
class RanOnSection:
    """Evidence of where the operators ran: a line, fields of the result, or both."""

    is_: Annotated[DelegateName, Field(alias="is")]
    line: Expression | None = None
    where: dict[FieldName, Expression] = field(default_factory=dict)


@frozen
class ProgramSection:
    """A whole file."""

    name: Name
    title: Text
    version: Annotated[int, Field(ge=1, le=1)]
    #: The executable's file name; without one its output is read, and it isn't started.
    program: FileName | None = None
    models: OneOrMany[
        tuple[Annotated[Text, _matching(re.compile(r"\.[a-z0-9]{1,12}"), "a file's ending")], ...]
    ] = ()
    argv: tuple[Text, ...] = ()
    #: Words after those of the delegate and the figure.
    operands: tuple[Text, ...] = ()
    parameters: dict[Name, ParameterSection] = field(default_factory=dict)
    figures: dict[Name, VariantSection] = field(default_factory=dict)
    delegates: dict[DelegateName, VariantSection] = field(default_factory=dict)
    #: ``stdout``, ``stderr``, ``logcat:TAG``, read in this order.
    streams: Annotated[OneOrMany[tuple[Stream, ...]], AfterValidator(unique)] = ("stdout", "stderr")
    #: Fields in which the program echoes its settings -> their parameters or standard
    #: placeholders.
    echo: dict[FieldName, Name] = field(default_factory=dict)
    #: One of these words is in every text of the program.
    marks: Annotated[OneOrMany[tuple[Text, ...]], SOME]
    lines: tuple[LineSection, ...] = ()
    tables: tuple[TableSection, ...] = ()
    #: Fields that are taken apart into others.
    split: dict[FieldName, Expression] = field(default_factory=dict)
    results: Annotated[tuple[ResultSection, ...], SOME]
    ran_on: tuple[RanOnSection, ...] = ()

    @property
    def tool(self) -> ToolName:
        """Its name in a plan's cases."""
        return ToolName(f"{DECLARED}{self.name}")

    @property
    def flags(self) -> FlagSchema:
        """Its parameters, in the order of its file."""
        return FlagSchema(flags={name: each.flag(name) for name, each in self.parameters.items()})

    def names_in(self, text: str) -> list[str]:
        """Return the placeholders of a text."""
        return _PLACEHOLDER.findall(text)

    def filled(self, text: str, values: Mapping[str, str]) -> str:
        """Return a text with its placeholders' values; one without a value is empty."""
        return _PLACEHOLDER.sub(lambda match: values.get(match[1], ""), text)

    def used(self, delegate: DelegateName, figure: str) -> list[str]:
        """Return the parameters that a command line for a delegate and a figure uses."""
        variants = [self.delegates.get(delegate), self.figures.get(figure)]
        texts = [
            *self.argv,
            *self.operands,
            *(text for each in variants if each for text in (*each.argv, *each.set.values())),
        ]
        names = dict.fromkeys(name for text in texts for name in self.names_in(text))
        return [name for name in names if name in self.parameters]


def _consistency_faults(section: ProgramSection) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yield the faults between keys of a file, with their locations; each key by itself is valid."""
    if section.program is not None:
        for key in ("argv", "delegates", "models"):
            if not getattr(section, key):
                yield (key,), f"is needed for a program that is started: {key}"
    variants = [("delegates", str(name), each) for name, each in section.delegates.items()]
    variants += [("figures", name, each) for name, each in section.figures.items()]
    set_by = {
        kind: [set(each.set) for group, _, each in variants if group == kind]
        for kind in ("delegates", "figures")
    }
    everywhere = {name for sets in set_by.values() if sets for name in set.intersection(*sets)}
    known_names = {*STANDARD_PLACEHOLDERS, *section.parameters, *everywhere}
    texts: list[tuple[tuple[str | int, ...], str, set[str]]] = [
        ((key, number), text, known_names)
        for key in ("argv", "operands")
        for number, text in enumerate(getattr(section, key))
    ]
    for group, name, each in variants:
        texts += [
            ((group, name, "argv", number), text, known_names | set(each.set))
            for number, text in enumerate(each.argv)
        ]
        texts += [
            ((group, name, "set", key), text, known_names - everywhere)
            for key, text in each.set.items()
        ]
        for key in each.set.keys() & {*STANDARD_PLACEHOLDERS, *section.parameters}:
            yield (group, name, "set", key), f"{key!r} is a parameter already"
    for location, text, allowed in texts:
        for name in section.names_in(text):
            if name not in allowed:
                hint = nearest(name, sorted(allowed))
                yield location, f"unknown placeholder {{{name}}}" + (f"; {hint}" if hint else "")
        if re.search(r"[{}]", _PLACEHOLDER.sub("", text)) or not text.isprintable():
            yield (
                location,
                "braces are for placeholders such as {model}; control characters aren't allowed",
            )
    for name in section.parameters.keys() & {*STANDARD_PLACEHOLDERS}:
        yield ("parameters", name), f"{name!r} is the name of a standard placeholder"
    for number, result in enumerate(section.results):
        if result.figure is not None and result.figure not in section.figures:
            yield ("results", number, "figure"), f"{result.figure!r} isn't among the figures"
        if result.figure is not None and (result.figure in PHASES) != (result.unit == "token"):
            yield (
                ("results", number, "unit"),
                f"the figures {' and '.join(PHASES)} have the unit token, and no others do",
            )


def load_declared(path: Path) -> ProgramSection:
    """Read one file.

    Raises PlanError with one line for each fault, as ``file:line:column: key: what is wrong``.
    """
    file = read_yaml(path)
    section = checked(file, ProgramSection)
    faults = Faults(file)
    if section.name in list(ToolName):
        faults.add(("name",), f"{section.name!r} is a program of benchfarm's own")
    for location, message in _consistency_faults(section):
        faults.add(location, message)
    faults.raise_if_any()
    return section


#: Files that were read, by path and modification time.
_read: dict[tuple[Path, int], ProgramSection] = {}


def _files() -> dict[str, Path]:
    """Return every file by its program's name, which is the file's stem."""
    paths: dict[str, Path] = {}
    for place in (*program_places(), SHIPPED):
        for path in [place] if place.suffix == ".yaml" else sorted(place.glob("*.yaml")):
            paths.setdefault(path.stem, path)
    return paths


def declared_names() -> list[str]:
    """Return the names of all declared programs; reads no file."""
    return sorted(_files())


def file_of(section: ProgramSection) -> Path:
    """Return the file that declares a program."""
    return _files()[section.name]


#: Files that jobs brought -> how many jobs need them now.
_job_files: Counter[Path] = Counter()
_job_files_lock: Final = threading.Lock()


@contextmanager
def with_files(files: Sequence[Path]) -> Iterator[None]:
    """Declare the programs of these files while the context lasts, before others of their names.

    Raises ProgramInUseError where another job uses another file of the same name, PlanError for
    a faulty file.
    """
    with _job_files_lock:
        for path in files:
            if any(other.stem == path.stem and other != path for other in _job_files):
                raise ProgramInUseError(f"another job uses another file that declares {path.stem}")
        for path in files:
            _job_files[path] += 1
            add_program_place(path)
    try:
        for path in files:
            declared(path.stem)
        yield
    finally:
        with _job_files_lock:
            _job_files.subtract(files)
            for path in [path for path, jobs in _job_files.items() if jobs <= 0]:
                del _job_files[path]
                remove_program_place(path)


def declared(name: str) -> ProgramSection:
    """Return a declared program.

    Raises UsageError for one that isn't declared, PlanError for a faulty file.
    """
    return _declared(name, _files())


def _declared(name: str, files: Mapping[str, Path]) -> ProgramSection:
    if name not in files:
        raise UsageError(
            f"no program is declared as {name!r} here",
            hint=nearest(name, files)
            or f"there are {', '.join(files)}; put your own files into the folder programs",
        )
    path = files[name]
    key = (path, path.stat().st_mtime_ns)
    if key not in _read:
        section = load_declared(path)
        if section.name != path.stem:
            raise PlanError(
                f"{path}: name: {section.name!r} must be the file's name, {path.stem!r}"
            )
        _read[key] = section
        FOREIGN.update(set(section.models) - {".tflite", *BUNDLES})
    return _read[key]


def every_declared() -> tuple[list[ProgramSection], list[PlanError]]:
    """Return all declared programs, by name, and the errors of the files that have faults."""
    # List the folders only once: every text that is read needs all programs.
    files = _files()
    sections, errors = list[ProgramSection](), list[PlanError]()
    for name in sorted(files):
        try:
            sections.append(_declared(name, files))
        except PlanError as error:
            errors.append(error)
    return sections, errors


def named(word: str) -> ToolName | None:
    """Return the declared program of a name or a file in a plan, None for another word.

    Raises ValueError for a faulty or missing file.
    """
    name = word.removeprefix(DECLARED)
    if word.endswith(".yaml"):
        path = expanded(Path(word)).absolute()
        if not path.is_file():
            raise ValueError(f"there is no file {word!r}")
        add_program_place(path)
        name = path.stem
    if name not in _files():
        return None
    try:
        return declared(name).tool
    except PlanError as error:
        raise ValueError(str(error)) from None
