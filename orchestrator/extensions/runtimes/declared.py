"""Programs that a file declares: how one is started, and its output read, as
declaration.py describes.
"""

from __future__ import annotations

import functools
import platform
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Final

from orchestrator.delegates import Delegate
from orchestrator.errors import ArtifactError, OutputParseError
from orchestrator.extensions.runtimes.declaration import (
    ProgramSection,
    declared,
    declared_names,
    every_declared,
    file_of,
    named,
    with_files,
)
from orchestrator.extensions.runtimes.litert_lm import on_path
from orchestrator.extensions.runtimes.output import DeclaredReader, reports_in, reports_of
from orchestrator.files import sha256_of
from orchestrator.plugins import Option, Program, ProgramSource, command_line, run_and_collect
from orchestrator.ports import Device, InvocationRequest
from orchestrator.reading.failures import Failure, end_failure
from orchestrator.reading.lines import program_lines
from orchestrator.records.build_spec import FlagFault
from orchestrator.records.case import DECLARED, Build, BuildSha, Case, ToolName
from orchestrator.records.device import DeviceKind
from orchestrator.records.model import FIGURE
from orchestrator.records.run import DelegateEvidence, DelegateTruth, RawOutput, ToolReport

#: Output beyond this is no benchmark's; the rest isn't read.
_MOST_BYTES: Final = 64 << 20
_LOG: Final = "logcat:"
_KINDS: Final = frozenset({DeviceKind.ANDROID, DeviceKind.HOST})


class DeclaredTool:
    """Runs a declared program detached from the connection, and reads its output by its file's rules."""

    def __init__(self, section: ProgramSection) -> None:
        """``section`` is the program's file."""
        self._section = section
        self.name = section.tool

    def run(self, device: Device, request: InvocationRequest) -> RawOutput:
        """Run one process and return its output, however it ends.

        Raises DeviceError kinds.
        """
        command = command_of(self._section, request)
        tags = [stream[len(_LOG) :] for stream in self._section.streams if stream.startswith(_LOG)]
        return run_and_collect(device, request, command, files=(), log_tags=tags)

    def parse(self, raw: RawOutput, case: Case) -> ToolReport:
        """Read the case's figure; after an error or an exit code other than 0 there is none."""
        section, flags = self._section, dict(case.flags)
        variant = section.delegates.get(case.delegate)
        reader = DeclaredReader(section)
        try:
            for stream in section.streams:
                kind, _, tag = stream.partition(":")
                for line in program_lines(raw.data(kind)[:_MOST_BYTES]):
                    if kind != "logcat" or line.tag in {"", tag}:
                        # The process has ended, so that no line is cut.
                        reader.feed(replace(line, is_cut=False))
            reports = reports_of(
                reader,
                section,
                requested=case.delegate.value,
                figure=flags.get(FIGURE, ""),
                proven=variant is not None and variant.proof == "success" and raw.exit_code == 0,
            )
        except OutputParseError as error:
            return _failed(Failure(code="benchmark-failed", reason=str(error)), case)
        errors = [error for process in reader.processes for error in process.errors]
        report = self._case_report(reports, raw, case, errors)
        last = next(
            (process.rows[-1].fields for process in reversed(reader.processes) if process.rows),
            {},
        )
        if report.outcome == "ok" and (ignored := self._ignored_settings(last, case)):
            return replace(report, unconsumed_flags=tuple(ignored))
        return report

    def _case_report(
        self, reports: list[ToolReport], raw: RawOutput, case: Case, errors: list[Failure]
    ) -> ToolReport:
        failed_report = next((report for report in reports if report.outcome != "ok"), None)
        end = end_failure(raw)
        if errors and not raw.timed_out:
            failure = errors[0] if end is None else replace(errors[0], outcome=end.outcome)
        elif end is not None:
            failure = end
        elif failed_report is not None:
            failure = Failure(
                code=failed_report.failure_code,
                reason=failed_report.failure_reason,
                outcome=failed_report.outcome,
            )
        elif len(reports) == 1:
            return reports[0]
        elif not reports:
            failure = Failure(code="no-result", reason="no result was printed")
        else:
            reason = f"{len(reports)} results were printed where one was expected"
            failure = Failure(code="benchmark-failed", reason=reason)
        failed = _failed(failure, case)
        evidence = next((report.delegate for report in reports if report.delegate.actual), None)
        return failed if evidence is None else replace(failed, delegate=evidence)

    def _ignored_settings(self, fields: Mapping[str, object], case: Case) -> list[str]:
        """Return the requested settings that the program replaced, with the values it reports."""
        requested = {**_case_values(case), **dict(case.flags)}
        return [
            f"{name}={requested[name]} (the program says {value})"
            for field, name in self._section.echo.items()
            if isinstance(value := fields.get(field), str)
            and name in requested
            and value != requested[name]
        ]


def _failed(failure: Failure, case: Case) -> ToolReport:
    accelerated = not case.delegate.is_cpu and failure.code in {
        "delegate-failed",
        "gpu-init-failed",
        "npu-init-failed",
    }
    truth = DelegateTruth.FAILED if accelerated else DelegateTruth.UNKNOWN
    return failure.report(DelegateEvidence(requested=case.delegate.value, truth=truth))


def _case_values(case: Case) -> dict[str, str]:
    return {
        "threads": str(case.threads),
        "runs": str(case.num_runs),
        "warmup_runs": str(case.warmup_runs),
    }


def command_of(section: ProgramSection, request: InvocationRequest) -> str:
    """Return the command line for the device's shell, every word quoted."""
    case, flags = request.case, dict(request.case.flags)
    variants = [
        section.delegates[case.delegate],
        *([section.figures[flags[FIGURE]]] if FIGURE in flags else []),
    ]
    values = {
        **{name: parameter.default or "" for name, parameter in section.parameters.items()},
        **flags,
        **_case_values(case),
        "model": request.model_path,
        "model_folder": str(PurePosixPath(request.model_path).parent),
    }
    for variant in variants:
        values |= {name: section.filled(text, values) for name, text in variant.set.items()}
    words = [
        *section.argv,
        *(text for variant in variants for text in variant.argv),
        *section.operands,
    ]
    arguments = [section.filled(text, values) for text in words]
    return f"{command_line(request, arguments)} < /dev/null"


def _options(section: ProgramSection, delegate: Delegate, plan_flags: Option) -> tuple[Option, ...]:
    """Return for each figure the default values of the parameters that the plan doesn't set."""
    options = []
    for figure in section.figures or ("",):
        used = [
            name for name in section.used(delegate.name, figure) if name not in dict(plan_flags)
        ]
        usual = [
            (name, default)
            for name in used
            if (default := section.parameters[name].default) is not None
        ]
        options.append((*usual, *([(FIGURE, figure)] if figure else [])))
    return tuple(options)


def _flag_faults(section: ProgramSection, case: Case) -> Iterator[FlagFault]:
    """Yield the fault of a figure that the program doesn't have."""
    figure = dict(case.flags).get(FIGURE, "")
    if figure and figure not in section.figures:
        message = f"{section.name} has no figure {figure!r}"
        yield FlagFault(code="wrong-value", flag=FIGURE, message=message)


def installed_build(section: ProgramSection, name_or_path: str) -> Build:
    """Return the program on this computer, ``name_or_path`` or on PATH, known by its content.

    Raises ArtifactError.
    """
    program = section.program or section.name
    path = on_path(program, name_or_path, f"build or install it, then --build {section.name}=PATH")
    try:
        digest = sha256_of(path)
    except OSError as error:
        raise ArtifactError(f"{path} can't be read: {error.strerror}") from error
    return Build(
        name=program,
        tool=section.tool,
        sha256=BuildSha(digest),
        abi=platform.machine(),
        path=path,
    )


def program_of(tool: ToolName) -> Program:
    """Return a declared program; raises UsageError where it is no longer declared."""
    section = declared(tool.value.removeprefix(DECLARED))
    return Program(
        name=section.tool,
        tool=lambda: DeclaredTool(section),
        kinds=_KINDS if section.program else frozenset(),
        own_delegates=frozenset(section.delegates),
        options=functools.partial(_options, section),
        flag_faults=functools.partial(_flag_faults, section),
        endings=frozenset(section.models),
        file_name=section.program or "",
        library_patterns=("lib*.so",),
        declared_in=file_of(section),
        own_schema=section.flags,
        installed=functools.partial(installed_build, section),
        title=section.title,
    )


SOURCE: Final = ProgramSource(
    names=declared_names,
    named=named,
    program=program_of,
    with_files=with_files,
    read=reports_in,
    faults=lambda: every_declared()[1],
)
