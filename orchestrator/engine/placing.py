"""The files of a case on a device: model, program and what lies beside it, each placed once and known by content."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.engine.events import FilePlaced
from orchestrator.engine.workload import Services, Workload
from orchestrator.errors import InstallError
from orchestrator.ports import Device, InvocationRequest
from orchestrator.programs import program
from orchestrator.records.contention import load_text
from orchestrator.records.device import DeviceFacts, DeviceKind
from orchestrator.records.identity import RunId, content_key
from orchestrator.records.parity import ParityInput, PlacedInput
from orchestrator.records.tokens import model_ending
from orchestrator.records.workload import Build, Case, Pass, ToolName


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """Where a case's files lie on a device."""

    model_path: str
    #: Empty for an app.
    program_path: str
    #: Name -> path of each of the case's files.
    file_paths: Mapping[str, str]


class Placer:
    """Places the files of cases on one device."""

    def __init__(self, device: Device, workload: Workload, services: Services) -> None:
        self._device = device
        self._workload = workload
        self._services = services
        self._placed: dict[tuple[object, ...], Placed] = {}

    def forget(self) -> None:
        """Look again whether files are there: the way to the device was lost, or it was rebooted."""
        self._placed.clear()

    def place(self, case: Case) -> Placed:
        """Make sure that a case's files lie on the device; raises DeviceError kinds."""
        key = (case.model_sha256, case.build_sha256, case.files)
        known = self._placed.get(key)
        if known is not None:
            return known
        model = self._workload.models[case.model_sha256]
        build = self._workload.build(case.build_sha256)
        # What must lie together is known by all of its contents.
        set_sha256 = content_key([build.sha256, *case.files]) if case.files else ""
        hosts = self._workload.campaign.terms.files
        # First, for an iPhone's files lie in its app's folder.
        program_path = self._put_program(case.tool, build, set_sha256)
        placed = Placed(
            model_path=self._put(model.name + model_ending(model.path), model.path, model.sha256, kind="models"),
            program_path=program_path,
            file_paths={
                name: self._put(name, Path(hosts[sha256]), sha256, kind="programs", set_sha256=set_sha256)
                for name, sha256 in case.files
            },
        )
        self._placed[key] = placed
        return placed

    def place_inputs(self, inputs: Sequence[ParityInput]) -> tuple[PlacedInput, ...]:
        """Make sure that a model's inputs lie on the device; raises DeviceError kinds."""
        return tuple(
            PlacedInput(
                name=item.name,
                shape=item.shape,
                path=self._put("input.bin", item.path, item.sha256, kind="inputs"),
            )
            for item in inputs
        )

    def _put_program(self, tool: ToolName, build: Build, set_sha256: str) -> str:
        if program(tool).installed is not None and self._device.kind is DeviceKind.HOST:
            return str(build.path)
        if build.package and build.path is None:
            found = self._device.package(build.package)
            if found is None or found.sha256 != build.sha256:
                what = "another installation of it is" if found else "it isn't"
                hint = "begin a new campaign, or name its file"
                raise InstallError(f"{build.name}: {what} on the phone now", serial=self._device.serial, hint=hint)
            return ""
        if tool.is_app or build.package:
            assert build.path is not None
            path = build.path
            self._timed(build.name, lambda: self._device.install(path, sha256=build.sha256, package=build.package))
            # An app of the same name has taken the place of the other build's.
            replaced = self._workload.of_package(build.package) - {build.sha256}
            for key in [key for key in self._placed if key[1] in replaced]:
                del self._placed[key]
            return ""
        return self._put(build.name, build.path, build.sha256, kind="programs", executable=True, set_sha256=set_sha256)

    def _put(
        self,
        name: str,
        source: Path | None,
        sha256: str,
        *,
        kind: str,
        executable: bool = False,
        set_sha256: str = "",
    ) -> str:
        assert source is not None, f"{name} is known from the store only"
        paths: list[str] = []

        def place() -> int:
            placed = self._device.place(
                source,
                kind=kind,
                sha256=sha256,
                name=safe_name(name),
                executable=executable,
                set_sha256=set_sha256,
            )
            paths.append(placed.path)
            return placed.pushed_bytes

        self._timed(name, place)
        return paths[0]

    def _timed(self, name: str, place: Callable[[], int]) -> None:
        start_s = self._services.clock.monotonic_s()
        pushed_bytes = place()
        duration_s = self._services.clock.monotonic_s() - start_s
        self._services.observer.on_event(
            FilePlaced(serial=self._device.serial, name=name, pushed_bytes=pushed_bytes, duration_s=duration_s)
        )


def request_of(
    case: Case,
    placed: Placed,
    workload: Workload,
    facts: DeviceFacts,
    *,
    run_pass: Pass,
    number: int = 0,
    cache_folder: str = "",
    inputs: tuple[PlacedInput, ...] = (),
) -> InvocationRequest:
    """Return what a tool is asked to run once, as a campaign's terms say; every request has a run id of its own."""
    return InvocationRequest(
        case=case,
        run_id=RunId(uuid.uuid4().hex),
        run_pass=run_pass,
        facts=facts,
        build=workload.build(case.build_sha256),
        model_path=placed.model_path,
        program_path=placed.program_path,
        file_paths=placed.file_paths,
        timeout_s=workload.campaign.terms.timeout_s + 2 * case.max_secs,
        known_flags=workload.known_flags.get(case.build_sha256, frozenset()),
        number=number,
        load=load_text(run_pass, number, workload.campaign.terms.contention),
        cache_folder=cache_folder,
        inputs=inputs,
    )


def safe_name(name: str) -> str:
    """Return a file name for the device: letters, digits, dot, dash and underscore only, not starting with a dash.

    The content's hash is in the folder's name, so that two names which become equal here stay apart; the benchmark app
    splits its arguments at white space and could not take the original.
    """
    kept = "".join(letter if letter.isascii() and (letter.isalnum() or letter in "._-") else "_" for letter in name)
    return kept.lstrip("-.")[-80:].lstrip("-.") or "file"
