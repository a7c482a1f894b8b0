"""The flags of a benchmark program: learned from its ``--help``, merged with the documented tables,
and checked.

The programs hardly check flags: an unknown flag is a warning, ``--num_runs=2.5`` runs twice,
``--num_threads=1,2`` means one thread, ``--num_runs=`` means none. So a plan's flags are checked
before anything runs.
"""

from __future__ import annotations

import contextlib
import csv
import functools
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Final

from orchestrator.delegates import DELEGATES, FlagFamily, flags_of
from orchestrator.errors import UsageError, closest
from orchestrator.files import write_whole
from orchestrator.passes import pass_of
from orchestrator.ports import InvocationRequest, unplaced
from orchestrator.programs import program
from orchestrator.programs.running import benchmark_flags, pass_flags
from orchestrator.records.build_spec import DECIMAL, REQUIRED, FlagFault, FlagSchema, FlagSpec
from orchestrator.records.case import Build, Case, Pass, ToolName
from orchestrator.records.device import HOST_SERIAL

_HELP_LINE: Final = re.compile(
    r"^\t--(?P<name>[\w-]+)=(?P<default>.*?)\s*\t(?P<type>int32|int64|float|bool|string)"
    r"\t(?:optional|required|positional)\t(?P<help>.*)$"
)
_TABLE: Final = Path(__file__).with_name("flags.tsv")
_FALSE: Final = frozenset({"false", "0"})


def parse_help(text: str) -> FlagSchema | None:
    """Return the schema that a binary prints for ``--help``, or None for a text without flags.

    Of a flag that is listed twice, the first line counts.
    """
    flags: dict[str, FlagSpec] = {}
    for line in text.splitlines():
        match = _HELP_LINE.match(line)
        if match and match["name"] not in flags:
            flags[match["name"]] = FlagSpec(
                name=match["name"],
                kind=match["type"],
                default=match["default"],
                help=match["help"].strip(),
            )
    return FlagSchema(flags=flags, is_learned=True) if flags else None


@functools.cache
def documented_flags(family: FlagFamily) -> FlagSchema:
    """Return the flags that the sources of a program define, over all its builds.

    ``flags.tsv`` has a line for each; ``all`` are those that both benchmark_model have. Type:
    ``cl|gl`` are the only values of a string, ``1..9`` of a number; others are silently ignored or
    refused at start. Build: the builds that have it (``gpu``: built with the GPU delegate;
    ``android``: for phones only). Needs: the flag without which it has no effect. A delegate's flag
    without a line is a switch.
    """
    owners = {family.value}
    if family in (FlagFamily.BENCHMARK_MODEL, FlagFamily.LITERT):
        owners.add("all")
    with _TABLE.open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        documented = {row["flag"]: _spec(row) for row in rows if row["program"] in owners}
    switches = {
        name: FlagSpec(
            name=name,
            kind="bool",
            default="false",
            build=delegate.name.value,
            meaning=f"apply the delegate {delegate.label}",
        )
        for delegate in DELEGATES.values()
        for name, value in delegate.flags.get(family, {}).items()
        if value == "true"
    }
    return FlagSchema(flags=switches | documented)


def _spec(row: Mapping[str, str]) -> FlagSpec:
    kind, *choices = row["type"].split("|")
    if choices:
        kind, choices = "string", [kind, *choices]
    elif ".." in kind:
        kind, choices = "string" if "," in kind else "int32", [kind]
    return FlagSpec(
        name=row["flag"],
        kind=kind,
        choices=tuple(choices),
        **{key: row[key] for key in ("default", "build", "needs", "trap", "meaning")},
    )


def schema_faults(
    flags: Mapping[str, str], schema: FlagSchema, others: Mapping[str, str] = {}
) -> tuple[FlagFault, ...]:
    """Return all faults of flags, in their order; ``others`` are given beside them."""
    wrong = (fault for name, value in flags.items() for fault in _value_faults(name, value, schema))
    missing = (
        FlagFault(code="needed-flag", flag=name, message=f"--{name} is needed: --flag {name}=...")
        for name, spec in schema.flags.items()
        if spec.default == REQUIRED and name not in flags
    )
    return (*wrong, *missing, *_ineffective(flags, schema, {**others, **flags}))


def _value_faults(name: str, value: str, schema: FlagSchema) -> Iterator[FlagFault]:
    spec = schema.flags.get(name)
    if spec is None:
        nearest = closest(name, schema.flags)
        program = "this binary" if schema.is_learned else "the program"
        message = f"{program} has no flag --{name}" + (
            f"; did you mean --{nearest}?" if nearest else ""
        )
        yield FlagFault(code="unknown-flag", flag=name, message=message)
    elif expected := spec.expected(value):
        message = f"--{name}={value}: {expected} is expected"
        yield FlagFault(code="wrong-value", flag=name, message=message)


def _ineffective(
    flags: Mapping[str, str], schema: FlagSchema, given: Mapping[str, str]
) -> list[FlagFault]:
    faults = []
    for name, value in flags.items():
        spec = schema.flags.get(name)
        # A flag at its default has no effect to lose.
        if spec is None or value == spec.default or not spec.needs:
            continue
        needed_name, _, needed_value = spec.needs.partition("=")
        if needed_value:
            if given.get(needed_name) != needed_value:
                faults.append(_no_effect(name, f"without the {needed_name} {needed_value}"))
        elif spec.needs in schema.flags and not _is_on(
            given.get(spec.needs, schema.flags[spec.needs].default)
        ):
            needed = schema.flags[spec.needs]
            example = f"--{needed.name}=true" if needed.kind == "bool" else f"--{needed.name}=..."
            faults.append(_no_effect(name, f"without {example}"))
    if _is_on(flags.get("nnapi_accelerator_name", "")) and "disable_nnapi_cpu" in flags:
        faults.append(_no_effect("disable_nnapi_cpu", "when --nnapi_accelerator_name is given"))
    if (
        "run_delay" in flags
        and DECIMAL.fullmatch(rate := flags.get("run_frequency", ""))
        and float(rate) > 0
    ):
        faults.append(_no_effect("run_delay", "when --run_frequency is above 0"))
    return faults


def _no_effect(name: str, when: str) -> FlagFault:
    return FlagFault(code="ineffective-flag", flag=name, message=f"--{name} does nothing {when}")


def _is_on(value: str) -> bool:
    return value not in _FALSE and bool(value)


def require_right(
    flags: Mapping[str, str], family: FlagFamily, others: Mapping[str, str] = {}
) -> None:
    """Raise UsageError for faults of flags, as schema_faults finds them."""
    if faults := schema_faults(flags, documented_flags(family), others):
        raise UsageError("; ".join(fault.message for fault in faults), hint="see 'benchfarm flags'")


def schema_of(tool: ToolName) -> FlagSchema:
    """Return the flags of a program over all its builds: its own, or those of the tables."""
    return program(tool).own_schema or documented_flags(program(tool).family)


#: A flag of performance_options only, whose help leaves out the flags of benchmark_model.
_OPTIONS_FLAG: Final = "perf_options_list"


class FlagBook:
    """Stores the ``--help`` output of programs in ``folder``, one file for each sha256."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._schemas: dict[tuple[ToolName, str], FlagSchema] = {}

    def schema(self, build: Build) -> FlagSchema:
        """Return the flags of a build: its own completed by the tables, or the tables alone."""
        key = build.tool, build.sha256
        if key not in self._schemas:
            self._schemas[key] = self._stored_schema(build) or schema_of(build.tool)
        return self._schemas[key]

    def names(self, build: Build) -> frozenset[str]:
        """Return the names of the flags that a program lists; empty when it was never asked."""
        schema = self.schema(build)
        return frozenset(schema.flags) if schema.is_learned else frozenset()

    def help_command(self, build: Build, program_path: str) -> str:
        """Return the device's command line to print a program's flags; empty if it can't.

        The programs print them to standard error and exit with 1.
        """
        # LiteRT's own program needs its libraries to print anything; performance_options leaves out
        # the flags of benchmark_model.
        if build.tool.is_app or not program(build.tool).is_benchmark_model:
            return ""
        libraries = shlex.quote(str(PurePosixPath(program_path).parent))
        return f"LD_LIBRARY_PATH={libraries} {shlex.quote(program_path)} --help"

    def learn(self, build: Build, help_output: bytes) -> bool:
        """Store a program's ``--help`` output; return False if it lists no flags, storing nothing."""
        schema = _read_help(help_output)
        if schema is None:
            return False
        # A cache that can't be written only costs time: the program is asked again.
        with contextlib.suppress(OSError):
            write_whole(self._path(build), help_output)
        self._schemas[build.tool, build.sha256] = schema
        return True

    def faults(self, build: Build, case: Case, run_pass: Pass) -> Sequence[FlagFault]:
        """Return all faults of the flags of one pass over a case, with this program."""
        spec, schema = program(build.tool), self.schema(build)
        if not spec.is_benchmark_model:
            flags = dict(case.without_figure.flags)
            others = {
                **flags_of(case.delegate, spec.family),
                **pass_flags(pass_of(run_pass), spec.family, "/"),
            }
            faults = schema_faults(flags, schema, others)
            return (*faults, *_misplaced(case, schema), *spec.flag_faults(case))
        return _case_faults(unplaced(case, run_pass, build, self.names(build)), schema)

    def _stored_schema(self, build: Build) -> FlagSchema | None:
        try:
            return _read_help(self._path(build).read_bytes())
        except OSError:
            return None

    def _path(self, build: Build) -> Path:
        return self._folder / f"{build.sha256}.txt"


def _misplaced(case: Case, schema: FlagSchema) -> Iterator[FlagFault]:
    """Yield the faults of flags that only the program for other devices has."""
    is_host = case.serial == HOST_SERIAL
    others, where = ("android", "phones") if is_host else ("host", "this computer")
    for name, _ in case.flags:
        if name in schema.flags and schema.flags[name].build == others:
            message = f"--{name} is a flag of the program for {where} alone"
            yield FlagFault(code="wrong-value", flag=name, message=message)


def _case_faults(request: InvocationRequest, schema: FlagSchema) -> tuple[FlagFault, ...]:
    """Return the faults of all flags of one pass over a case: the plan's, the delegate's and
    benchfarm's own.
    """
    case, flags = request.case, benchmark_flags(request, folder="/")
    plan_flags = dict(case.flags)
    faults = []
    for fault in schema_faults(flags, schema):
        if fault.flag in plan_flags or fault.code != "unknown-flag":
            faults.append(fault)
            continue
        code = "needed-flag"
        message = f"the pass '{request.run_pass}' needs --{fault.flag}, which this binary doesn't have; use a newer build"
        if fault.flag in flags_of(case.delegate, FlagFamily.BENCHMARK_MODEL):
            code = "delegate-flag"
            message = (
                f"this binary has no delegate '{case.delegate}': it doesn't know --{fault.flag}"
            )
        faults.append(FlagFault(code=code, flag=fault.flag, message=message))
    for name, value in plan_flags.items() if case.tool.is_app else ():
        if re.search(r"\s", value):
            message = f"--{name}={value!r}: the benchmark app splits its flags at white space and can't take any"
            faults.append(FlagFault(code="wrong-value", flag=name, message=message))
    return tuple(faults)


def _read_help(help_output: bytes) -> FlagSchema | None:
    """Return the flags that a program printed, completed by the tables; None if not all are."""
    learned = parse_help(help_output.decode("utf-8", "replace"))
    if learned is None or _OPTIONS_FLAG in learned.flags:
        return None
    return learned.merged_with(documented_flags(FlagFamily.BENCHMARK_MODEL))
