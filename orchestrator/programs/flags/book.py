"""What is known of the flags of each program: what it printed for ``--help``, kept by its sha256,
and the tables.
"""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Final

from orchestrator.delegates import flags_of
from orchestrator.delegates.specification import FlagFamily
from orchestrator.errors import OutputParseError
from orchestrator.files import write_whole
from orchestrator.passes import pass_of
from orchestrator.programs import program
from orchestrator.programs.flags.arguments import case_flags, format_flags
from orchestrator.programs.flags.checking import check_flags, documented_flags, parse_help
from orchestrator.records.build_spec import FlagFault, FlagSchema
from orchestrator.records.case import Build, Case, DelegateName, Pass

#: Only performance_options has it, whose help leaves out every flag that it hands on to
#: benchmark_model.
_OPTIONS_FLAG: Final = "perf_options_list"


class FlagBook:
    """Keeps what programs print for ``--help`` in ``folder``, one file for each sha256."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._schemas: dict[str, FlagSchema] = {}

    def schema(self, build: Build) -> FlagSchema:
        """Return the flags of a build: its own with what the tables know of them, the tables alone
        when unknown.
        """
        if build.sha256 not in self._schemas:
            self._schemas[build.sha256] = self._learned(build) or documented_flags(
                program(build.tool).family
            )
        return self._schemas[build.sha256]

    def names(self, build: Build) -> frozenset[str]:
        """Return the flags that a program says it has; empty when it was never asked."""
        schema = self.schema(build)
        return frozenset(schema.flags) if schema.is_learned else frozenset()

    def help_command(self, build: Build, program_path: str) -> str:
        """Return the device's command line that makes a program print its flags; "" for one that
        can't.

        The programs print them to standard error and end with 1.
        """
        # LiteRT's own program needs its libraries beside it to say anything; performance_options
        # lists only the flags that it has beside benchmark_model's.
        if build.tool.is_app or not program(build.tool).is_benchmark_model:
            return ""
        libraries = shlex.quote(str(PurePosixPath(program_path).parent))
        return f"LD_LIBRARY_PATH={libraries} {shlex.quote(program_path)} --help"

    def learn(self, build: Build, printed: bytes) -> bool:
        """Keep what a program printed when asked for its flags.

        False (and nothing kept) when it lists none.
        """
        schema = _read(printed)
        if schema is None:
            return False
        # It can be asked for again: a cache that can't be written costs time, nothing else.
        with contextlib.suppress(OSError):
            write_whole(self._path(build), printed)
        self._schemas[build.sha256] = schema
        return True

    def faults(self, build: Build, case: Case, run_pass: Pass) -> Sequence[FlagFault]:
        """Return everything that is wrong with the flags of one pass over a case, with this
        program.
        """
        if (find := program(build.tool).flag_faults) is not None:
            found = find(dict(case.flags))
            return tuple(
                FlagFault(code="wrong-value", flag=flag, message=told) for flag, told in found
            )
        schema = self.schema(build)
        if not program(build.tool).is_benchmark_model:
            # Only the user's own, and not for what they need beside them: the program may set that
            # itself.
            known = check_flags(format_flags(list(case.flags)), schema)
            return tuple(fault for fault in known if fault.code != "ineffective-flag")
        return case_faults(case, run_pass, schema)

    def _learned(self, build: Build) -> FlagSchema | None:
        try:
            return _read(self._path(build).read_bytes())
        except OSError:
            return None

    def _path(self, build: Build) -> Path:
        return self._folder / f"{build.sha256}.txt"


def case_faults(case: Case, run_pass: Pass, schema: FlagSchema) -> tuple[FlagFault, ...]:
    """Return what is wrong with all flags of one pass over a case: the user's, the delegate's and
    benchfarm's own.
    """
    known = frozenset(schema.flags) if schema.is_learned else frozenset[str]()
    words = format_flags(case_flags(case, pass_of(run_pass), "model.tflite", "/", known))
    users = dict(case.flags)
    faults = []
    for fault in check_flags(words, schema):
        if fault.flag in users or fault.code != "unknown-flag":
            faults.append(fault)
        elif fault.flag in own_flags(case.delegate):
            message = (
                f"this binary has no delegate '{case.delegate}': it doesn't know --{fault.flag}"
            )
            faults.append(FlagFault(code="delegate-flag", flag=fault.flag, message=message))
        else:
            message = f"the pass '{run_pass}' needs --{fault.flag}, which this binary doesn't have; use a newer build"
            faults.append(FlagFault(code="needed-flag", flag=fault.flag, message=message))
    for name, value in users.items() if case.tool.is_app else ():
        if re.search(r"\s", value):
            message = f"--{name}={value!r}: the benchmark app splits its flags at white space and can't take any"
            faults.append(FlagFault(code="wrong-value", flag=name, message=message))
    return tuple(faults)


def own_flags(delegate: DelegateName) -> frozenset[str]:
    """Return the flags that a delegate is switched on with."""
    return frozenset(
        name
        for name, value in flags_of(delegate, FlagFamily.BENCHMARK_MODEL).items()
        if value == "true"
    )


def _read(printed: bytes) -> FlagSchema | None:
    """Return the flags that a program printed, with what the tables know of them.

    None when they aren't all listed.
    """
    try:
        learned = parse_help(printed.decode("utf-8", "replace"))
    except OutputParseError:
        return None
    if _OPTIONS_FLAG in learned.flags:
        return None
    return learned.merged_with(documented_flags(FlagFamily.BENCHMARK_MODEL))
