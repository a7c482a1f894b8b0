"""One invocation: its files on the device, the request, and the record of its output."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.analysis.quality import Ending, Observed, ending_of, judge, skipped
from orchestrator.analysis.samples import with_busy_clock
from orchestrator.clock import Clock
from orchestrator.engine.events import FilePlaced
from orchestrator.errors import DeviceError, InstallError, ModelError, UsageError
from orchestrator.files import LEFT_OUT, safe_name
from orchestrator.passes import pass_of, stored_pass
from orchestrator.passes.parity import OWN_INPUTS
from orchestrator.passes.specification import RunProgram
from orchestrator.ports import (
    Device,
    HostFile,
    InvocationRequest,
    Observer,
    ParityBasis,
    ParityReference,
    SessionTool,
    Tool,
    session_of,
)
from orchestrator.programs import program
from orchestrator.records import frozen
from orchestrator.records.campaign import Campaign, Invocation
from orchestrator.records.case import Build, Case, Model, Pass, RunId, ToolName, content_key
from orchestrator.records.device import DeviceFacts, DeviceKind, DeviceState
from orchestrator.records.model import model_ending
from orchestrator.records.plan import Screen
from orchestrator.records.run import (
    SAMPLES_FILE,
    Attachment,
    RawOutput,
    RunRecord,
    ToolReport,
)
from orchestrator.records.verdict import (
    BASIS_FILE,
    ParityInput,
    PlacedInput,
    QualityVerdict,
)

if TYPE_CHECKING:
    from orchestrator.devices.conditioning import Conditioner
    from orchestrator.devices.lease import FileLease, QuarantineFolder
    from orchestrator.devices.rescue import Rescuer
    from orchestrator.store.opening import Store


@frozen
class CampaignContext:
    """What the devices of a campaign share: the campaign, its models and builds, the services."""

    campaign: Campaign
    #: By sha256.
    models: Mapping[str, Model]
    builds: Mapping[str, Build]
    #: The flags of each build, by its sha256; none where they were never read.
    known_flags: Mapping[str, frozenset[str]]
    store: Store
    tools: Mapping[ToolName, Tool]
    lease: FileLease
    conditioner: Conditioner
    rescuer: Rescuer
    quarantine: QuarantineFolder
    observer: Observer
    clock: Clock
    cancelled: threading.Event
    #: Returns the function that runs a program in a pass.
    runner_of: Callable[[Pass], RunProgram]
    #: The reference for outputs.
    reference: ParityReference
    #: How long a device that didn't become fit is paused.
    unfit_pause_s: float = 300.0


#: The path of a model, that of a program (empty for an app), and name -> path of further files.
_Paths = tuple[str, str, Mapping[str, str]]


class FilePlacer:
    """Places the files of cases on one device, and makes the requests for their runs."""

    def __init__(self, device: Device, facts: DeviceFacts, context: CampaignContext) -> None:
        self._device = device
        self._facts = facts
        self._context = context
        #: By the contents of model, program and further files.
        self._paths: dict[tuple[object, ...], _Paths] = {}
        self._sent_bytes = 0
        #: Names of files that were reported.
        self._reported: set[str] = set()

    def place_missing(self, case: Case) -> bool:
        """Place a case's files again; return whether any had been removed.

        False where they can't be placed: the next run reports why.
        """
        before = self._sent_bytes
        self.forget()
        try:
            self._place(case)
        except (DeviceError, UsageError):
            return False
        return self._sent_bytes > before

    def forget(self) -> None:
        """Check all files again: the connection was lost, or the device rebooted."""
        self._paths.clear()

    def request(
        self, invocation: Invocation, inputs: Sequence[ParityInput] = ()
    ) -> InvocationRequest:
        """Make sure that a case's files are on the device; return the request for one run by the
        campaign's terms, with a run id of its own.

        Raises DeviceError kinds.
        """
        case, run_pass = invocation.case, invocation.run_pass
        context, terms = self._context, self._context.campaign.terms
        model_path, program_path, file_paths = self._place(case)
        return InvocationRequest(
            case=case,
            run_id=RunId(uuid.uuid4().hex),
            run_pass=run_pass,
            facts=self._facts,
            build=context.builds[case.build_sha256],
            model_path=model_path,
            program_path=program_path,
            file_paths=file_paths,
            timeout_s=terms.timeout + 2 * case.max_secs,
            known_flags=context.known_flags[case.build_sha256],
            variant=pass_of(run_pass).variant(invocation.number, terms),
            cache_folder=f"{self._device.work_folder}/start-caches/{case.case_key}",
            inputs=self._place_inputs(inputs),
            model_file=context.models[case.model_sha256].path,
            cancelled=context.cancelled,
        )

    def _place(self, case: Case) -> _Paths:
        key = (case.model_sha256, case.build_sha256, case.files)
        if key in self._paths:
            return self._paths[key]
        model = self._context.models[case.model_sha256]
        build = self._context.builds[case.build_sha256]
        # Files that must lie together are identified by all of their contents.
        set_sha256 = content_key([build.sha256, *case.files]) if case.files else ""
        host_paths = self._context.campaign.terms.files
        # First: an iPhone's files lie in the app's folder.
        program_path = self._place_program(case.tool, build, set_sha256)
        model_path = self._place_file(
            HostFile(
                source=_source(model),
                kind="models",
                sha256=model.sha256,
                name=model.name + model_ending(model.path),
            )
        )
        file_paths = {
            name: self._place_file(
                HostFile(
                    source=Path(host_paths[sha256]),
                    kind="programs",
                    sha256=sha256,
                    name=name,
                    set_sha256=set_sha256,
                )
            )
            for name, sha256 in case.files
        }
        self._paths[key] = (model_path, program_path, file_paths)
        return self._paths[key]

    def _place_inputs(self, inputs: Sequence[ParityInput]) -> tuple[PlacedInput, ...]:
        return tuple(
            PlacedInput(
                name=item.name,
                shape=item.shape,
                path=self._place_file(
                    HostFile(source=item.path, kind="inputs", sha256=item.sha256, name="input.bin")
                ),
            )
            for item in inputs
        )

    def _place_program(self, tool: ToolName, build: Build, set_sha256: str) -> str:
        if program(tool).installed is not None and self._device.kind is DeviceKind.HOST:
            return str(build.path)
        if build.package and build.path is None:
            installed = self._device.package(build.package)
            if installed is None or installed.sha256 != build.sha256:
                problem = "another installation of it is" if installed else "it isn't"
                hint = "begin a new campaign, or name its file"
                raise InstallError(
                    f"{build.name}: {problem} on the phone now",
                    serial=self._device.serial,
                    hint=hint,
                )
            return ""
        if tool.is_app or build.package:
            assert build.path is not None
            started_s = self._context.clock.monotonic_s()
            pushed_bytes = self._device.install(
                build.path,
                sha256=build.sha256,
                package=build.package,
                cancelled=self._context.cancelled,
            )
            self._report_placed(build.name, pushed_bytes, started_s)
            # It has replaced another build's app of the same name.
            same_package = {
                other.sha256
                for other in self._context.builds.values()
                if other.package == build.package
            }
            replaced = same_package - {build.sha256}
            for key in [key for key in self._paths if key[1] in replaced]:
                del self._paths[key]
            return ""
        return self._place_file(
            HostFile(
                source=_source(build),
                kind="programs",
                sha256=build.sha256,
                name=build.name,
                executable=True,
                set_sha256=set_sha256,
            )
        )

    def _place_file(self, file: HostFile) -> str:
        started_s = self._context.clock.monotonic_s()
        placed = self._device.place(replace(file, name=safe_name(file.name)))
        self._report_placed(file.name, placed.pushed_bytes, started_s)
        return placed.path

    def _report_placed(self, name: str, pushed_bytes: int, started_s: float) -> None:
        self._sent_bytes += pushed_bytes
        # Not reported again: after a failed run, files are only checked.
        if name in self._reported and not pushed_bytes:
            return
        self._reported.add(name)
        duration_s = self._context.clock.monotonic_s() - started_s
        self._context.observer.on_event(
            FilePlaced(
                serial=self._device.serial,
                name=name,
                pushed_bytes=pushed_bytes,
                duration_s=duration_s,
            )
        )


def _source(item: Model | Build) -> Path:
    assert item.path is not None, f"{item.name} is known from the store only"
    return item.path


def same_process(
    tools: Mapping[ToolName, Tool], invocation: Invocation, queue: Sequence[Invocation]
) -> list[Invocation]:
    """Return the other invocations of the queue that the same process measured: those of the same
    round and session.
    """

    def process(item: Invocation) -> tuple[object, ...]:
        return item.case.tool, item.run_pass, item.number, session_of(tools, item.case)

    if not (pass_of(invocation.run_pass).shares_process and session_of(tools, invocation.case)):
        return []
    return [
        other
        for other in queue
        if other.key != invocation.key and process(other) == process(invocation)
    ]


@frozen
class Reading:
    """How an invocation ended, and the report of its raw output if there is any."""

    ending: Ending
    #: With the exit code as it counts for this case.
    raw: RawOutput | None = None
    report: ToolReport | None = None

    def verdict(
        self,
        case: Case,
        run_pass: Pass,
        facts: DeviceFacts,
        screen: Screen,
        states: tuple[DeviceState | None, DeviceState | None],
    ) -> QualityVerdict:
        """Return the quality verdict; ``states`` are the device's before and after."""
        samples = self.raw.data(SAMPLES_FILE) if self.raw is not None else b""
        before, after = states
        observed = Observed(
            case=case, facts=facts, before=before, after=after, samples=samples, screen=screen
        )
        return judge(self.report, self.ending, observed, stored_pass(run_pass).findings)


def read_output(tool: Tool, raw: RawOutput, case: Case, run_pass: Pass) -> Reading:
    """Return the reading of a raw output for a case in a pass."""
    report = pass_of(run_pass).read(tool, tool.parse(raw, case), raw, case)
    for cut in filter(
        None, (LEFT_OUT.search(raw.data(name)) for name in ("stdout", "stderr", "logcat"))
    ):
        report = replace(report, extra={**report.extra, "output_cut": cut[1].decode()})
    if not isinstance(tool, SessionTool):
        report = with_busy_clock(report, raw.data(SAMPLES_FILE))
    elif report.outcome == "ok":
        # The end of a process with several cases says nothing of a case that has its result.
        raw = replace(raw, exit_code=raw.exit_code if raw.exit_code == 0 else None, timed_out=False)
    ending = ending_of(report, exit_code=raw.exit_code, timed_out=raw.timed_out)
    return Reading(raw=raw, report=report, ending=ending)


class RunRecords:
    """Makes the records of one device's runs in a campaign."""

    def __init__(
        self, facts: DeviceFacts, campaign: Campaign, tools: Mapping[ToolName, Tool], clock: Clock
    ) -> None:
        self._facts = facts
        self._campaign = campaign
        self._tools = tools
        self._clock = clock

    def measured(
        self,
        invocation: Invocation,
        raw: RawOutput,
        *,
        run_id: RunId | None = None,
        before: DeviceState | None = None,
        after: DeviceState | None = None,
    ) -> RunRecord:
        """Return the record of a measured case."""
        reading = read_output(
            self._tools[invocation.case.tool], raw, invocation.case, invocation.run_pass
        )
        return self._record(invocation, reading, raw.started_at, run_id, (before, after))

    def not_run(
        self,
        invocation: Invocation,
        ending: Ending,
        *,
        started_at: datetime | None = None,
        state: DeviceState | None = None,
    ) -> RunRecord:
        """Return the record of an invocation without output; ``started_at`` is now by default."""
        started_at = started_at or self._clock.now()
        return self._record(invocation, Reading(ending=ending), started_at, None, (state, None))

    def _record(
        self,
        invocation: Invocation,
        reading: Reading,
        started_at: datetime,
        run_id: RunId | None,
        states: tuple[DeviceState | None, DeviceState | None],
    ) -> RunRecord:
        raw, ending, case = reading.raw, reading.ending, invocation.case
        screen = self._campaign.terms.quiet.screen
        return RunRecord(
            run_id=run_id or RunId(uuid.uuid4().hex),
            campaign_id=self._campaign.campaign_id,
            case=case,
            run_pass=invocation.run_pass,
            invocation=invocation.number,
            outcome=ending.outcome,
            reason_code=ending.reason_code,
            reason=ending.reason,
            is_virtual=self._facts.is_virtual,
            started_at=started_at,
            duration_s=raw.duration_s if raw else 0.0,
            command=raw.command if raw else "",
            exit_code=raw.exit_code if raw else None,
            attachments=raw.attachments if raw else (),
            report=reading.report,
            verdict=reading.verdict(case, invocation.run_pass, self._facts, screen, states),
            state_before=states[0],
            state_after=states[1],
        )


def parity_basis(invocation: Invocation, context: CampaignContext) -> ParityBasis | Ending:
    """Return the basis for comparing an invocation's outputs, or its ending if it can't be run."""
    case = invocation.case
    if input_flags := [name for name, _ in case.flags if name in OWN_INPUTS]:
        reason = f"the flag {input_flags[0]} sets the inputs or outputs itself"
        return skipped("parity-own-inputs", reason)
    try:
        return context.reference.basis(
            context.models[case.model_sha256], context.campaign.terms.parity_inputs
        )
    except ModelError as error:
        return skipped("parity-no-reference", str(error))


def with_basis(raw: RawOutput, basis: ParityBasis, facts: DeviceFacts) -> RawOutput:
    """Return a run's raw output with the basis of its comparison and the device's system."""

    def with_system(item: Attachment) -> Attachment:
        if item.name != BASIS_FILE:
            return item
        content = {**json.loads(item.data), "system": facts.computes_with}
        return replace(item, data=json.dumps(content, sort_keys=True).encode())

    return replace(raw, attachments=(*raw.attachments, *map(with_system, basis.attachments)))
