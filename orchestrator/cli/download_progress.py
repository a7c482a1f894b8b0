"""Downloads: the offer to fetch a missing program, and how far it is, always on standard error."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from orchestrator.bootstrap import Farm, Settings
from orchestrator.cli.progress import observer_for_stderr, tell
from orchestrator.cli.terminal import say
from orchestrator.records.build_spec import BuildSpec
from orchestrator.report.escapes import one_line
from orchestrator.units import format_bytes

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from orchestrator.artifacts.fetching import FileProgress


#: Without a length from the server, a line comes after so many bytes.
_LINE_BYTES: Final = 8 << 20


class LineDownloads:
    """Lines, for logs."""

    def __init__(self, log_format: str) -> None:
        self._log_format = log_format
        self._name = ""
        self._said = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def on_progress(self, progress: FileProgress) -> None:
        """Print a line when another tenth has come."""
        if progress.name != self._name:
            self._name, self._said = progress.name, -1
        total = progress.total_bytes
        step = progress.received_bytes * 10 // total if total else progress.received_bytes // _LINE_BYTES
        if step == self._said:
            return
        self._said = step
        share = f" of {format_bytes(total)} ({step * 10} %)" if total else ""
        tell(
            self._log_format,
            "download",
            f"{progress.name}: {format_bytes(progress.received_bytes)}{share}",
            file=progress.name,
            received_bytes=progress.received_bytes,
            total_bytes=total,
        )


class TerminalDownloads:
    """A bar for each file."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

        self._progress: Progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            DownloadColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def on_progress(self, progress: FileProgress) -> None:
        """Move the file's bar."""
        if progress.name not in self._tasks:
            self._tasks[progress.name] = self._progress.add_task(one_line(progress.name), total=progress.total_bytes)
        self._progress.update(self._tasks[progress.name], completed=progress.received_bytes, total=progress.total_bytes)


def downloads_on_stderr(log_format: str) -> LineDownloads | TerminalDownloads:
    """Return bars on a terminal, and lines elsewhere or where they are to be JSON."""
    return TerminalDownloads() if sys.stderr.isatty() and log_format != "json" else LineDownloads(log_format)


def farm_telling(settings: Settings, *, makes_store: bool = True) -> Farm:
    """Return a farm of which standard error tells what is done with it, and that offers to get a missing program."""
    farm = Farm(settings, makes_store=makes_store, observer=observer_for_stderr(settings.log_format))
    farm.on_missing = download_offer(farm)
    return farm


def download_offer(farm: Farm) -> Callable[[Sequence[BuildSpec]], None]:
    """Return what asks for each missing program whether to download it, and does so."""
    #: Whoever said no isn't asked again.
    asked: set[BuildSpec] = set()

    def offer(specs: Sequence[BuildSpec]) -> None:
        if not (farm.settings.may_ask and sys.stdin.isatty() and sys.stderr.isatty()):
            return
        for spec in [spec for spec in dict.fromkeys(specs) if spec not in asked]:
            asked.add(spec)
            # What has to be built, or lies somewhere, nobody can download; the error that follows says what to do.
            if spec.url and _is_wanted(spec):
                with downloads_on_stderr(farm.settings.log_format) as downloads:
                    farm.build_fetcher().fetch(spec, on_progress=downloads.on_progress)

    return offer


def _is_wanted(spec: BuildSpec) -> bool:
    say(one_line(f"{spec.name} for {spec.abi} is not on this computer; it comes from {spec.url}"), err=True)
    say("Download it now? [Y/n] ", err=True, end="")
    # An empty line is the default; the end of the input is no answer.
    return sys.stdin.readline().lower() in {"\n", "y\n", "yes\n"}
