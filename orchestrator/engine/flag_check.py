"""Checks the flags of every case against its program, before anything is run or stored."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from orchestrator.errors import DeviceError, PlanError
from orchestrator.files import safe_name
from orchestrator.planning.expansion import Expansion, with_skips
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

FindFaults = Callable[[Case, Pass], Sequence[FlagFault]]


def learn_flags(
    book: FlagBook,
    lease: FileLease,
    devices: Sequence[tuple[Device, DeviceFacts]],
    builds: Mapping[tuple[Serial, ToolName], Build | Skip],
) -> None:
    """Ask each program for its flags on one device, unless they are known.

    A device that is in use is skipped, and a device error is ignored: the documented flags are used
    until the next time, and the error shows up again when the device is measured.
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
    help_output = device.shell(book.help_command(build, placed.path), timeout_s=HELP_TIMEOUT_S)
    return book.learn(build, help_output.stdout + b"\n" + help_output.stderr)


def with_flag_skips(
    expansion: Expansion,
    *,
    delegates: Sequence[DelegateName],
    builds: Iterable[Build],
    book: FlagBook,
) -> Expansion:
    """Return the expansion with the cases skipped that their flags make pointless.

    A case is skipped when its program lacks the delegate, and when a flag has no effect with its
    delegate but has one with another delegate of the plan. Any other fault is an error.

    Args:
        expansion: of the plan.
        delegates: that the plan names.
        builds: that the cases name.
        book: the flags of the builds.

    Raises:
        PlanError: with one line for each fault.
    """
    by_sha = {build.sha256: build for build in builds}

    def find_faults(case: Case, run_pass: Pass) -> Sequence[FlagFault]:
        # Several declared programs may be one file.
        build = replace(by_sha[case.build_sha256], tool=case.tool)
        return book.faults(build, case, run_pass)

    passes: dict[CaseKey, dict[Pass, None]] = {}
    for item in (item for queue in expansion.invocations.values() for item in queue):
        passes.setdefault(item.case.case_key, {})[item.run_pass] = None
    skips: dict[CaseKey, Skip] = {}
    lines: dict[str, None] = {}
    for case in expansion.cases:
        skip, faults = _judge(case, list(passes[case.case_key]), delegates, find_faults)
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
    return with_skips(expansion, skips)


def _judge(
    case: Case, passes: Sequence[Pass], delegates: Sequence[DelegateName], find_faults: FindFaults
) -> tuple[Skip | None, Sequence[FlagFault]]:
    faults_by_pass = {run_pass: find_faults(case, run_pass) for run_pass in passes}
    all_faults = list(
        dict.fromkeys(fault for faults in faults_by_pass.values() for fault in faults)
    )
    missing_delegate = [fault for fault in all_faults if fault.code == "delegate-flag"]
    wrong = [
        fault for fault in all_faults if fault.code not in {"delegate-flag", "ineffective-flag"}
    ]
    if missing_delegate:
        # The delegate's flags are missing with it; a wrong value is wrong in any program.
        wrong = [fault for fault in wrong if fault.code != "unknown-flag"]
        return Skip(reason_code="delegate-not-in-build", reason=missing_delegate[0].message), wrong
    wrong_flags = {fault.flag for fault in wrong}
    ineffective = [
        fault
        for fault in all_faults
        if fault.code == "ineffective-flag"
        and fault.flag not in wrong_flags
        and all(fault in faults for faults in faults_by_pass.values())
    ]
    for fault in ineffective:
        other_cases = (
            replace(case, delegate=delegate)
            for delegate in delegates
            if delegate is not case.delegate
        )
        if any(_has_effect(other, fault.flag, passes, find_faults) for other in other_cases):
            reason = f"{fault.message}; with the delegate '{case.delegate}' it would be measured without effect"
            return Skip(reason_code="flag-without-effect", reason=reason), wrong
    return None, [*wrong, *ineffective]


def _has_effect(case: Case, flag: str, passes: Sequence[Pass], find_faults: FindFaults) -> bool:
    return any(
        not any(fault.flag == flag for fault in find_faults(case, run_pass)) for run_pass in passes
    )
