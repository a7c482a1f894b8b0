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
from orchestrator.errors import closest
from orchestrator.files import write_whole
from orchestrator.ports import InvocationRequest, unplaced
from orchestrator.programs import program
from orchestrator.programs.running import benchmark_flags
from orchestrator.records.build_spec import FlagFault, FlagSchema, FlagSpec
from orchestrator.records.case import Build, Case, Pass

_HELP_LINE: Final = re.compile(
    r"^\t--(?P<name>[\w-]+)=(?P<default>.*?)\s*\t(?P<type>int32|int64|float|bool|string)"
    r"\t(?:optional|required|positional)\t(?P<help>.*)$"
)
_TABLE: Final = Path(__file__).with_name("flags.tsv")
_INTEGER: Final = re.compile(r"[-+]?\d{1,20}", re.ASCII)
_DECIMAL: Final = re.compile(
    r"[-+]?(?:\d{1,30}(?:\.\d{0,30})?|\.\d{1,30})(?:[eE][-+]?\d{1,3})?", re.ASCII
)
_TRUE, _FALSE = frozenset({"true", "1"}), frozenset({"false", "0"})
_INTEGER_BITS: Final = {"int32": 31, "int64": 63}


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

    ``flags.tsv`` has a line for each. Type: ``cl|gl`` are the only values of a string; others are
    silently ignored or refused at start. Build: the builds that have it (``gpu``: built with the
    GPU delegate). Needs: the flag without which it has no effect. A delegate's flag without a line
    is a switch.
    """
    is_litert = family in (FlagFamily.LITERT, FlagFamily.LITERT_BENCHMARK)
    owners = {"all", "litert" if is_litert else "benchmark_model"}
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
        for name in delegate.flags.get(family, ())
    }
    return FlagSchema(flags=switches | documented)


def _spec(row: Mapping[str, str]) -> FlagSpec:
    kind, *more = row["type"].split("|")
    return FlagSpec(
        name=row["flag"],
        kind="string" if more else kind,
        choices=(kind, *more) if more else (),
        **{key: row[key] for key in ("default", "build", "needs", "trap", "meaning")},
    )


def schema_faults(flags: Mapping[str, str], schema: FlagSchema) -> tuple[FlagFault, ...]:
    """Return all faults of flags, in their order."""
    wrong = (fault for name, value in flags.items() for fault in _value_faults(name, value, schema))
    return (*wrong, *_ineffective(flags, schema))


def _value_faults(name: str, value: str, schema: FlagSchema) -> Iterator[FlagFault]:
    spec = schema.flags.get(name)
    if spec is None:
        nearest = closest(name, schema.flags)
        program = "this binary" if schema.is_learned else "the program"
        message = f"{program} has no flag --{name}" + (
            f"; did you mean --{nearest}?" if nearest else ""
        )
        yield FlagFault(code="unknown-flag", flag=name, message=message)
    elif expected := _type_fault(spec, value):
        yield FlagFault(
            code="wrong-type", flag=name, message=f"--{name}={value}: {expected} is expected"
        )
    elif spec.choices and value and value not in spec.choices:
        message = f"--{name}={value}: one of {', '.join(spec.choices)} is expected"
        yield FlagFault(code="wrong-value", flag=name, message=message)


def _type_fault(spec: FlagSpec, value: str) -> str:
    """Return the expected type of a wrong value; empty for a right value."""
    if spec.kind == "bool":
        return "" if value in _TRUE | _FALSE else "true, false, 1 or 0"
    if spec.kind in _INTEGER_BITS:
        bits = _INTEGER_BITS[spec.kind]
        if _INTEGER.fullmatch(value) and -(2**bits) <= int(value) < 2**bits:
            return ""
        return f"a whole number of {bits + 1} bits"
    if spec.kind == "float":
        return "" if _DECIMAL.fullmatch(value) else "a number"
    return ""


def _ineffective(flags: Mapping[str, str], schema: FlagSchema) -> list[FlagFault]:
    faults = []
    for name, value in flags.items():
        spec = schema.flags.get(name)
        # A flag at its default has no effect to lose.
        if (
            spec is None
            or value == spec.default
            or not spec.needs
            or spec.needs not in schema.flags
        ):
            continue
        if not _is_on(flags.get(spec.needs, schema.flags[spec.needs].default)):
            needed = schema.flags[spec.needs]
            example = f"--{needed.name}=true" if needed.kind == "bool" else f"--{needed.name}=..."
            faults.append(_no_effect(name, f"without {example}"))
    if _is_on(flags.get("nnapi_accelerator_name", "")) and "disable_nnapi_cpu" in flags:
        faults.append(_no_effect("disable_nnapi_cpu", "when --nnapi_accelerator_name is given"))
    if (
        "run_delay" in flags
        and _DECIMAL.fullmatch(rate := flags.get("run_frequency", ""))
        and float(rate) > 0
    ):
        faults.append(_no_effect("run_delay", "when --run_frequency is above 0"))
    return faults


def _no_effect(name: str, when: str) -> FlagFault:
    return FlagFault(code="ineffective-flag", flag=name, message=f"--{name} does nothing {when}")


def _is_on(value: str) -> bool:
    return value not in _FALSE and bool(value)


#: A flag of performance_options only, whose help leaves out the flags of benchmark_model.
_OPTIONS_FLAG: Final = "perf_options_list"


class FlagBook:
    """Stores the ``--help`` output of programs in ``folder``, one file for each sha256."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._schemas: dict[str, FlagSchema] = {}

    def schema(self, build: Build) -> FlagSchema:
        """Return the flags of a build: its own completed by the tables, or the tables alone."""
        if build.sha256 not in self._schemas:
            self._schemas[build.sha256] = self._stored_schema(build) or documented_flags(
                program(build.tool).family
            )
        return self._schemas[build.sha256]

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
        self._schemas[build.sha256] = schema
        return True

    def faults(self, build: Build, case: Case, run_pass: Pass) -> Sequence[FlagFault]:
        """Return all faults of the flags of one pass over a case, with this program."""
        if (find := program(build.tool).flag_faults) is not None:
            return tuple(find(case))
        schema = self.schema(build)
        if not program(build.tool).is_benchmark_model:
            # Only the plan's flags, and not whether they lack others: the program may set these.
            faults = schema_faults(dict(case.flags), schema)
            return tuple(fault for fault in faults if fault.code != "ineffective-flag")
        return _case_faults(unplaced(case, run_pass, build, self.names(build)), schema)

    def _stored_schema(self, build: Build) -> FlagSchema | None:
        try:
            return _read_help(self._path(build).read_bytes())
        except OSError:
            return None

    def _path(self, build: Build) -> Path:
        return self._folder / f"{build.sha256}.txt"


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
