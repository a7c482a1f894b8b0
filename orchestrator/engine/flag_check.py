"""The flags of every case against the program that is to take them, before anything is run or
stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from orchestrator.errors import DeviceError, PlanError
from orchestrator.files import safe_name
from orchestrator.planning.expansion import Expansion, without
from orchestrator.ports import Device, HostFile
from orchestrator.records.build_spec import FlagFault
from orchestrator.records.case import (
    Build,
    Case,
    CaseKey,
    DelegateName,
    Pass,
    Serial,
    Skip,
    ToolName,
)
from orchestrator.records.device import DeviceFacts

if TYPE_CHECKING:
    from orchestrator.devices.lease import FileLease
    from orchestrator.programs.flags import FlagBook

#: Longer than any program needs to print its flags, also on a phone that is busy.
HELP_TIMEOUT_S: Final = 30.0

FaultsOf = Callable[[Case, Pass], Sequence[FlagFault]]


def learn_flags(
    book: FlagBook,
    lease: FileLease,
    devices: Sequence[tuple[Device, DeviceFacts]],
    builds: Mapping[tuple[Serial, ToolName], Build | Skip],
) -> None:
    """Ask every program that wasn't asked yet for its flags, each on one device.

    A device that somebody else uses is left alone, and one that fails is no error here: the
    documented flags stand in until the next time, and what ails the device shows when it is
    measured on.
    """
    for device, facts in devices:
        for (serial, _), build in builds.items():
            if serial != facts.serial or isinstance(build, Skip) or book.names(build):
                continue
            if not book.help_command(build, build.name) or build.path is None:
                continue
            if build.is_virtual and not facts.is_virtual:
                continue
            try:
                with lease.acquire(device.serial):
                    ask_for_flags(book, device, build)
            except DeviceError:
                continue


def ask_for_flags(book: FlagBook, device: Device, build: Build) -> bool:
    """Ask a program for its flags on a device; False when it lists none.

    Raises DeviceError kinds.
    """
    assert build.path is not None, f"{build.name} has no file"
    placed = device.place(
        HostFile(
            source=build.path,
            kind="programs",
            sha256=build.sha256,
            name=safe_name(build.name),
            executable=True,
        )
    )
    said = device.shell(book.help_command(build, placed.path), timeout_s=HELP_TIMEOUT_S)
    return book.learn(build, said.stdout + b"\n" + said.stderr)


def check_flags(
    expansion: Expansion,
    *,
    delegates: Sequence[DelegateName],
    builds: Iterable[Build],
    book: FlagBook,
) -> Expansion:
    """Return the expansion without the cases that their flags make pointless, which are listed as
    skipped.

    A case is skipped when its program lacks the delegate, and when a flag has no effect with its
    delegate but has with another one of the plan. Everything else that is wrong is an error.

    Args:
        expansion: of the plan.
        delegates: that the plan names.
        builds: that the cases name.
        book: what is known of their flags.

    Raises:
        PlanError: with one line for each fault.
    """
    by_sha = {build.sha256: build for build in builds}

    def faults_of(case: Case, run_pass: Pass) -> Sequence[FlagFault]:
        return book.faults(by_sha[case.build_sha256], case, run_pass)

    passes: dict[CaseKey, dict[Pass, None]] = {}
    for item in (item for queue in expansion.invocations.values() for item in queue):
        passes.setdefault(item.case.case_key, {})[item.run_pass] = None
    skips: dict[CaseKey, Skip] = {}
    lines: dict[str, None] = {}
    for case in expansion.cases:
        skip, faults = _judge(case, list(passes[case.case_key]), delegates, faults_of)
        if skip is not None:
            skips[case.case_key] = skip
        for fault in faults:
            lines[f"{by_sha[case.build_sha256].name}: {fault.message}"] = None
    if lines:
        count = "a fault" if len(lines) == 1 else f"{len(lines)} faults"
        raise PlanError(
            f"{count} in the flags; nothing was run:",
            faults=[f"  {line}" for line in lines],
            hint="'benchfarm flags' lists them, 'benchfarm flags NAME' explains one",
        )
    return without(expansion, skips)


def _judge(
    case: Case, passes: Sequence[Pass], delegates: Sequence[DelegateName], faults_of: FaultsOf
) -> tuple[Skip | None, Sequence[FlagFault]]:
    found = {run_pass: faults_of(case, run_pass) for run_pass in passes}
    every = list(dict.fromkeys(fault for faults in found.values() for fault in faults))
    lacking = [fault for fault in every if fault.code == "delegate-flag"]
    wrong = [fault for fault in every if fault.code not in {"delegate-flag", "ineffective-flag"}]
    if lacking:
        # With the delegate its flags are missing; a wrong value is wrong with any program.
        wrong = [fault for fault in wrong if fault.code != "unknown-flag"]
        return Skip(reason_code="delegate-not-in-build", reason=lacking[0].message), wrong
    named = {fault.flag for fault in wrong}
    idle = [
        fault
        for fault in every
        if fault.code == "ineffective-flag"
        and fault.flag not in named
        and all(fault in faults for faults in found.values())
    ]
    for fault in idle:
        others = (
            replace(case, delegate=delegate)
            for delegate in delegates
            if delegate is not case.delegate
        )
        if any(_has_effect(other, fault.flag, passes, faults_of) for other in others):
            reason = f"{fault.message}; with the delegate '{case.delegate}' it would be measured without effect"
            return Skip(reason_code="flag-without-effect", reason=reason), wrong
    return None, [*wrong, *idle]


def _has_effect(case: Case, flag: str, passes: Sequence[Pass], faults_of: FaultsOf) -> bool:
    return any(
        not any(fault.flag == flag for fault in faults_of(case, run_pass)) for run_pass in passes
    )
