"""One device's part of a campaign: place files, prepare, run, read, judge, keep; again and again."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Final

from orchestrator.analysis.outcome import Ending, ending_of
from orchestrator.analysis.quality import judge
from orchestrator.clock import Clock
from orchestrator.engine.events import DeviceNote, FilePlaced, InvocationStarted, RunStored
from orchestrator.engine.sessions import covered, own_end
from orchestrator.errors import (
    BenchfarmError,
    DeviceChangedError,
    DeviceError,
    DeviceUnusableError,
    HostStorageError,
    InterruptedByUserError,
    StoreError,
)
from orchestrator.ports import Conditioner, Device, InvocationRequest, Observer, Store, Tool
from orchestrator.records.campaign import Campaign, Invocation
from orchestrator.records.device import DeviceFacts, DeviceKind, DeviceState
from orchestrator.records.identity import CaseKey, RunId, content_key
from orchestrator.records.run import Outcome, RawOutput, RunRecord, ToolReport
from orchestrator.records.workload import Build, Case, Model, Pass, ToolName
from orchestrator.units import format_duration

#: How often one invocation is tried when the way to the device fails.
ATTEMPTS: Final = 3
#: A state this old still tells how the device is.
RECENT_S: Final = 1.0
#: How long a device may take to come back after a lost link or a reboot.
READY_S: Final = 120.0
#: The code of a model with operators of TensorFlow's in a program without them.
_NEEDS_FLEX: Final = "flex-ops-missing"
#: After so many failures in a row with the same code, a case isn't tried further in this campaign.
FAILURES_MAX: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """What every device of a campaign uses together."""

    store: Store
    tools: Mapping[ToolName, Tool]
    conditioner: Conditioner
    observer: Observer
    clock: Clock
    cancelled: threading.Event


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What the cases of a campaign refer to, by content."""

    campaign: Campaign
    models: Mapping[str, Model]
    builds: Mapping[str, Build]
    #: The flags that a build has, by its sha256; those that weren't asked are left out.
    known_flags: Mapping[str, frozenset[str]] = field(default_factory=dict)
    #: A build's sha256 -> the build of the same program that has TensorFlow's operators, where there is one.
    flex_builds: Mapping[str, Build] = field(default_factory=dict)


@dataclass(slots=True)
class _Placed:
    model_path: str
    program_path: str
    file_paths: Mapping[str, str]


class CaseRunner:
    """Runs invocations on one device, one after the other."""

    def __init__(self, device: Device, facts: DeviceFacts, workload: Workload, services: Services) -> None:
        self._device = device
        self._facts = facts
        self._workload = workload
        self._services = services
        self._placed: dict[tuple[object, ...], _Placed] = {}
        #: When a state was last read, and what it was.
        self._last_state: tuple[float, DeviceState | None] = (0.0, None)
        #: Case -> the code it failed with last, and how often in a row.
        self._failures: dict[tuple[CaseKey, Pass], tuple[str, int]] = {}
        #: Cases that ended hopelessly, with the ending's code and reason.
        self._hopeless: dict[tuple[CaseKey, Pass], tuple[str, str]] = {}
        #: Invocations that another one's process has measured.
        self._covered: set[tuple[CaseKey, Pass, int]] = set()
        #: What the last process left behind.
        self._last_raw: RawOutput | None = None

    def run_all(self, invocations: Sequence[Invocation]) -> None:
        """Run and store every invocation in this order.

        Raises:
            InterruptedByUserError: cancelled; what ran before is stored.
            DeviceError: the device is out of reach or can't be used; what ran before is stored.
            StoreError, HostStorageError: a run couldn't be kept; nothing further is run.
        """
        for position, invocation in enumerate(invocations, start=1):
            self._check_cancelled()
            if (invocation.case.case_key, invocation.run_pass, invocation.number) in self._covered:
                continue
            for run in self._runs_of(invocation, invocations, position):
                self._services.store.append_run(run)
                self._services.observer.on_event(RunStored(run=run, position=position, total=len(invocations)))

    def _runs_of(self, invocation: Invocation, queue: Sequence[Invocation], position: int) -> Iterator[RunRecord]:
        """Yield the runs that an invocation comes to: its own last, so that a resume misses none of the others."""
        key = (invocation.case.case_key, invocation.run_pass)
        if key in self._hopeless:
            run = self._skipped(invocation, *self._hopeless[key])
        else:
            self._services.observer.on_event(
                InvocationStarted(invocation=invocation, position=position, total=len(queue))
            )
            run = self._run_with_retries(invocation)
            self._learn(key, run)
        for other in self._others_covered(run, invocation, queue):
            self._learn((other.case.case_key, other.run_pass), other)
            self._covered.add((other.case.case_key, other.run_pass, other.invocation))
            yield other
        twin = self._workload.flex_builds.get(invocation.case.build_sha256)
        if twin is not None and _NEEDS_FLEX in {run.reason_code, self._hopeless.get(key, ("", ""))[0]}:
            with_flex = replace(invocation, case=replace(invocation.case, build_sha256=twin.sha256))
            yield from self._runs_of(with_flex, (), position)
            run = replace(run, reason=f"{run.reason}; the case was run with {twin.name} instead")
        yield run

    def _others_covered(
        self, run: RunRecord, invocation: Invocation, queue: Sequence[Invocation]
    ) -> Iterator[RunRecord]:
        """Yield the runs of the other cases that the same process measured; they share its raw output."""
        raw = self._last_raw
        if raw is None or run.report is None or run.outcome is Outcome.ABORTED:
            return
        tool = self._services.tools[invocation.case.tool]
        for other in covered(tool, raw, invocation, queue):
            report = tool.parse(raw, other.case)
            yield self._judged(other, raw, report, run_id=None, before=run.state_before, after=run.state_after)

    def _learn(self, key: tuple[CaseKey, Pass], run: RunRecord) -> None:
        """Give a case up that fails the same way again, or takes all its time: the phone has better things to do."""
        if run.outcome is Outcome.FAILED:
            before, count = self._failures.get(key, ("", 0))
            count = count + 1 if before == run.reason_code else 1
            self._failures[key] = (run.reason_code, count)
            is_hopeless = count >= FAILURES_MAX
        else:
            self._failures.pop(key, None)
            is_hopeless = run.outcome is Outcome.TIMED_OUT
        if is_hopeless:
            self._hopeless[key] = (run.reason_code, run.reason)

    def _check_cancelled(self) -> None:
        if self._services.cancelled.is_set():
            raise InterruptedByUserError

    def _run_with_retries(self, invocation: Invocation) -> RunRecord:
        error: BenchfarmError | None = None
        started_at = self._services.clock.now()
        for attempt in range(1, ATTEMPTS + 1):
            self._check_cancelled()
            started_at = self._services.clock.now()
            try:
                return self._run_once(invocation, started_at)
            except (StoreError, HostStorageError, InterruptedByUserError, DeviceUnusableError):
                raise
            except BenchfarmError as caught:
                self._check_cancelled()
                error = caught
                if not caught.transient and not isinstance(caught, DeviceChangedError):
                    return self._not_run(invocation, started_at, Outcome.FAILED, caught)
                text = str(caught).removeprefix(f"{self._facts.serial}: ")
                self._note(f"{text} (attempt {attempt} of {ATTEMPTS})", is_problem=True)
                # A device that doesn't come back is given up: its open invocations wait for a resume.
                self._placed.clear()
                self._device.wait_until_ready(timeout_s=READY_S)
        assert error is not None
        return self._not_run(invocation, started_at, Outcome.ABORTED, error)

    def _run_once(self, invocation: Invocation, started_at: datetime) -> RunRecord:
        case = invocation.case
        tool = self._services.tools[case.tool]
        placed = self._place(case)
        fitness = self._services.conditioner.prepare(
            self._device,
            self._workload.campaign.terms.limits,
            quiet=self._workload.campaign.terms.quiet,
            hold_s=self._hold_s(invocation),
            recent=self._recent_state(),
            on_wait=lambda reason: self._note(f"waits to be fit: {reason}"),
            on_note=lambda text: self._note(text, is_problem=True),
            cancelled=self._services.cancelled,
        )
        self._check_cancelled()
        if fitness.reason:
            # Waiting as long before each of its invocations would hold the night; they stay open for a resume.
            waited = format_duration(fitness.waited_s)
            raise DeviceUnusableError(f"not fit after {waited}: {fitness.reason}", serial=self._facts.serial)
        before = fitness.state or self._device.state()
        request = InvocationRequest(
            case=case,
            run_id=RunId(uuid.uuid4().hex),
            run_pass=invocation.run_pass,
            facts=self._facts,
            build=self._build(case),
            model_path=placed.model_path,
            program_path=placed.program_path,
            file_paths=placed.file_paths,
            timeout_s=self._workload.campaign.terms.timeout_s + 2 * case.max_secs,
            known_flags=self._workload.known_flags.get(case.build_sha256, frozenset()),
            number=invocation.number,
            cache_folder=f"{self._device.work_folder}/start-caches",
        )
        raw = tool.run(self._device, request, cancelled=self._services.cancelled)
        self._check_cancelled()
        after = self._state_after(before)
        self._last_state = (self._services.clock.monotonic_s(), after)
        self._last_raw = raw
        return self._judged(invocation, raw, tool.parse(raw, case), run_id=request.run_id, before=before, after=after)

    def _hold_s(self, invocation: Invocation) -> float:
        """Return how long the device is silent at most: for one invocation, with room for transfers and a wait."""
        terms = self._workload.campaign.terms
        sustained_s = terms.sustained_s if invocation.run_pass is Pass.SUSTAINED else 0.0
        return terms.timeout_s + 2 * invocation.case.max_secs + sustained_s + terms.limits.wait_s

    def _state_after(self, before: DeviceState) -> DeviceState | None:
        """Return the state after a run, None when the way to the device failed just now: the run itself is whole.

        Raises DeviceChangedError when the device was booted anew meanwhile.
        """
        try:
            after = self._device.state()
        except DeviceError as error:
            if not error.transient:
                raise
            return None
        if before.boot_id and after.boot_id and before.boot_id != after.boot_id:
            raise DeviceChangedError("the device was booted anew during the run", serial=self._facts.serial)
        return after

    def _judged(
        self,
        invocation: Invocation,
        raw: RawOutput,
        report: ToolReport,
        *,
        run_id: RunId | None,
        before: DeviceState | None,
        after: DeviceState | None,
    ) -> RunRecord:
        """Return the record of a case that a process measured."""
        raw = own_end(self._services.tools[invocation.case.tool], raw, report)
        ending = ending_of(report, exit_code=raw.exit_code, timed_out=raw.timed_out)
        return self._record(
            invocation, raw.started_at, ending, run_id=run_id, raw=raw, report=report, before=before, after=after
        )

    def _recent_state(self) -> DeviceState | None:
        """Return the state after the last run if nothing has happened since; a computer changes too quickly."""
        read_at_s, state = self._last_state
        age_s = self._services.clock.monotonic_s() - read_at_s
        return state if age_s < RECENT_S and self._device.kind is not DeviceKind.HOST else None

    def _place(self, case: Case) -> _Placed:
        key = (case.model_sha256, case.build_sha256, case.files)
        known = self._placed.get(key)
        if known is not None:
            return known
        model = self._workload.models[case.model_sha256]
        build = self._build(case)
        # What must lie together is known by all of its contents.
        set_sha256 = content_key([build.sha256, *case.files]) if case.files else ""
        hosts = self._workload.campaign.terms.files
        placed = _Placed(
            model_path=self._put(model.name + ".tflite", model.path, model.sha256, kind="models"),
            program_path=self._put_program(case.tool, build, set_sha256),
            file_paths={
                name: self._put(name, Path(hosts[sha256]), sha256, kind="programs", set_sha256=set_sha256)
                for name, sha256 in case.files
            },
        )
        self._placed[key] = placed
        return placed

    def _put_program(self, tool: ToolName, build: Build, set_sha256: str) -> str:
        if tool is ToolName.LITERT:
            return str(build.path)
        if tool is ToolName.APK:
            assert build.path is not None
            path = build.path
            self._timed(build.name, lambda: self._device.install(path, sha256=build.sha256, package=build.package))
            # An app of the same name has taken the place of the other build's.
            for key in [key for key in self._placed if key[1] in self._replaced_by(build)]:
                del self._placed[key]
            return ""
        return self._put(build.name, build.path, build.sha256, kind="programs", executable=True, set_sha256=set_sha256)

    def _build(self, case: Case) -> Build:
        twins = {twin.sha256: twin for twin in self._workload.flex_builds.values()}
        return self._workload.builds.get(case.build_sha256) or twins[case.build_sha256]

    def _replaced_by(self, build: Build) -> set[object]:
        """Return the other builds of an app: only one of them can be installed."""
        builds = (*self._workload.builds.values(), *self._workload.flex_builds.values())
        return {b.sha256 for b in builds if b.package == build.package and b.sha256 != build.sha256}

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
            FilePlaced(serial=self._facts.serial, name=name, pushed_bytes=pushed_bytes, duration_s=duration_s)
        )

    def _note(self, text: str, *, is_problem: bool = False) -> None:
        self._services.observer.on_event(DeviceNote(serial=self._facts.serial, text=text, is_problem=is_problem))

    def _skipped(self, invocation: Invocation, code: str, reason: str) -> RunRecord:
        ending = Ending(
            outcome=Outcome.SKIPPED,
            reason_code="failed-before",
            reason=f"the same case ended before with {code}: {reason}",
        )
        return self._record(invocation, self._services.clock.now(), ending)

    def _not_run(
        self, invocation: Invocation, started_at: datetime, outcome: Outcome, error: BenchfarmError
    ) -> RunRecord:
        hint = f" ({error.hint})" if error.hint else ""
        ending = Ending(outcome=outcome, reason_code=error.code, reason=f"{error}{hint}")
        return self._record(invocation, started_at, ending)

    def _record(
        self,
        invocation: Invocation,
        started_at: datetime,
        ending: Ending,
        *,
        run_id: RunId | None = None,
        raw: RawOutput | None = None,
        report: ToolReport | None = None,
        before: DeviceState | None = None,
        after: DeviceState | None = None,
    ) -> RunRecord:
        verdict = judge(
            report,
            ending,
            case=invocation.case,
            run_pass=invocation.run_pass,
            facts=self._facts,
            before=before,
            after=after,
        )
        return RunRecord(
            run_id=run_id or RunId(uuid.uuid4().hex),
            campaign_id=self._workload.campaign.campaign_id,
            case=invocation.case,
            run_pass=invocation.run_pass,
            invocation=invocation.number,
            outcome=ending.outcome,
            reason_code=ending.reason_code,
            reason=ending.reason,
            is_virtual=self._facts.is_virtual,
            started_at=raw.started_at if raw else started_at,
            duration_s=raw.duration_s if raw else 0.0,
            command=raw.command if raw else "",
            exit_code=raw.exit_code if raw else None,
            attachments=raw.attachments if raw else (),
            report=report,
            verdict=verdict,
            state_before=before,
            state_after=after,
        )


def safe_name(name: str) -> str:
    """Return a file name for the device: letters, digits, dot, dash and underscore only, not starting with a dash.

    The content's hash is in the folder's name, so that two names which become equal here stay apart; the benchmark app
    splits its arguments at white space and could not take the original.
    """
    kept = "".join(letter if letter.isascii() and (letter.isalnum() or letter in "._-") else "_" for letter in name)
    return kept.lstrip("-.")[-80:].lstrip("-.") or "file"
