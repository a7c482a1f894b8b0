"""``benchfarm parse``."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.app.run_logs import begun_reading, describe_report, public_report
from orchestrator.cli.result import CommandResult, Streamed
from orchestrator.report.escapes import one_line


def parse_files(files: tuple[str, ...]) -> CommandResult:
    """Read benchmark output; raises UsageError for an unreadable file, OutputParseError for one without any.

    A single file with a single run gives one JSON object, everything else a list. Runs are read while they are
    written, so that a file may hold any number of them.
    """
    # A file without any run is told before anything is printed.
    readers = [(file, *begun_reading(file)) for file in files]

    def items() -> Iterator[dict[str, object]]:
        for file, _, reports in readers:
            for report in reports:
                yield {"file": file, **public_report(report)} if len(files) > 1 else public_report(report)

    def lines() -> Iterator[str]:
        is_first = True
        for file, begun, reports in readers:
            for number, report in enumerate(reports, start=1):
                if not is_first:
                    yield ""
                is_first = False
                yield f"{file}, run {number}" if len(begun) > 1 else file
                yield from (f"  {one_line(line)}" for line in describe_report(report))

    begun = readers[0][1]
    is_single = len(files) == 1 and len(begun) == 1
    return CommandResult(text="", lines=lines(), data=public_report(begun[0]) if is_single else Streamed(items))
