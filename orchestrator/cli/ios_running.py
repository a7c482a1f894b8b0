"""``benchfarm ios run``: an export's cases on an iPhone that is plugged into this computer."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from orchestrator.bootstrap import Settings
from orchestrator.cli import ios
from orchestrator.cli.importing import read_source
from orchestrator.cli.result import CommandResult
from orchestrator.errors import DeviceTimeoutError, UsageError
from orchestrator.files import write_file
from orchestrator.report.escapes import one_line

if TYPE_CHECKING:
    from orchestrator.devices.iphone import CabledIPhone
    from orchestrator.programs.ios_bundle import ExportedCase, IosExport

#: Lines after which a run has nothing more to measure.
_LAST: Final = re.compile(r".*(?:Inference timings in us:|Benchmarking failed|Failed to run benchmark)")
_BUNDLE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,200}")


@dataclass(frozen=True, slots=True, kw_only=True)
class IPhoneRun:
    """The options of ``benchfarm ios run``, as they were typed."""

    folder: Path
    bundle_id: str
    udid: str
    package: Path | None
    wanted: str
    command: str
    timeout_s: float
    quiet_s: float


def run(settings: Settings, request: IPhoneRun, out: Path | None) -> CommandResult:
    """Measure what the folder still lacks, keep each console's text in it, and import it.

    Raises UsageError kinds before the phone is touched, DeviceError kinds for the phone; texts that came are kept.
    """
    from orchestrator.devices.iphone import CabledIPhone, find_command
    from orchestrator.programs.ios_bundle import MANIFEST, load_manifest

    if not _BUNDLE.fullmatch(request.bundle_id):
        raise UsageError(f"{request.bundle_id!r} is no bundle identifier", hint="for example org.tensorflow.Benchmark")
    if request.package is not None and not request.package.exists():
        raise UsageError(f"{request.package}: there is no such app")
    path = request.folder / MANIFEST
    made = load_manifest(read_source(path).decode("utf-8", "replace"), where=str(path))
    cases = [item for item in made.cases if not request.wanted or ios.is_wanted(item, request.wanted)]
    if not cases:
        raise UsageError(f"{request.wanted!r} is no case of {request.folder}")
    command = find_command(request.command, settings.environ)
    phone = CabledIPhone(command, udid=request.udid, environ=settings.environ)
    if request.package is not None:
        phone.install(request.package)
    for item in cases:
        for target in _missing(request.folder, item):
            _measure(phone, request, made, item, target)
    return ios.import_results(settings, request.folder, (), request.wanted, out)


def _missing(folder: Path, item: ExportedCase) -> Iterator[Path]:
    """Yield a new file for each run that a case still lacks."""
    from orchestrator.programs.ios_bundle import RESULTS_FOLDER

    results = folder / item.folder / RESULTS_FOLDER
    stems = {path.stem for path in results.glob("*") if path.is_file() and not path.name.startswith(".")}
    number = 0
    for _ in range(len(stems), item.invocations):
        number = next(n for n in range(number + 1, number + len(stems) + 2) if str(n) not in stems)
        yield results / f"{number}.txt"


def _measure(phone: CabledIPhone, request: IPhoneRun, made: IosExport, item: ExportedCase, target: Path) -> None:
    from orchestrator.programs.ios_bundle import DATA_FOLDER

    data = request.folder / item.folder / DATA_FOLDER
    ios.read_model(data / item.resource, item.case.model_sha256)
    for path in (data / "benchmark_params.json", data / item.resource):
        phone.push(request.bundle_id, path, f"/Documents/{path.name}")
    console = phone.follow(
        request.bundle_id, timeout_s=request.timeout_s, quiet_s=request.quiet_s,
        is_last=lambda line: _LAST.match(line) is not None,
    )  # fmt: skip
    if console.pid is not None:
        phone.end(console.pid)
    # Hidden at first: an import reads what is visible, and this may be of no case.
    kept = target.with_name(f".refused-{target.name}")
    write_file(kept, console.text)
    faults = ios.faults_of(made, item, console.text, shown=kept)
    if console.is_over and not faults:
        kept.replace(target)
        return
    if not console.is_over:
        raise DeviceTimeoutError(
            f"{item.folder}: the app printed no result in {request.timeout_s:g} s; what it printed is in {kept}",
            serial=made.serial,
            hint="an app that waits for its button wants a tap; --timeout gives more time",
        )
    raise UsageError(
        "\n  ".join([f"{item.folder}: what the app printed isn't of this case:", *map(one_line, faults)]),
        hint=f"it is kept in {kept}; does the app read its Documents folder? (docs/guides/iphone.md)",
    )
