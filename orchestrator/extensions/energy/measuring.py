"""The pass ``energy``: a run between two rests while the phone's own meters are recorded.

perfetto's data source ``android.power`` reads both kinds of meters: the chip's rails on phones that
have them, else the battery's current, voltage and charge. Where it reads neither, a script on the
phone samples the battery. Without any meter the run is an ordinary one, with the reason why it has
no energy.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import Final

from orchestrator.delegates import DELEGATES
from orchestrator.errors import (
    DeviceCommandError,
    DeviceStorageError,
    HostStorageError,
    OutputParseError,
)
from orchestrator.extensions.energy.figure import (
    BATTERY_FILE,
    ENERGY_FILE,
    LEAST_REST_S,
    LEAST_UPDATES,
    LEAST_WORK_S,
    POWER_FILE,
    BatterySample,
    EnergyFigure,
    Inferences,
    Marks,
    MeterBook,
    NoEnergyError,
    PowerMeters,
    PowerSource,
    battery_energy,
    rails_energy,
)
from orchestrator.passes.recording import has_perfetto, recorded
from orchestrator.passes.specification import Hold, PortPower
from orchestrator.ports import Device, InvocationRequest, PhasedTool, TokenPhase, Tool
from orchestrator.reading.profile import decode_trace, text_of
from orchestrator.records import frozen
from orchestrator.records.case import Case, CaseKey
from orchestrator.records.run import RawOutput, ToolReport
from orchestrator.scripts import run_scripts, script_command

#: How often the meters are read; perfetto takes no less than 100 ms.
_POLL_MS: Final = 250
#: How long a phone's meters are recorded to detect them, in seconds.
_DETECT_S: Final = 2
_BUFFER_KB: Final = 16_384
#: perfetto's data source of the rails' energy, and of the battery's charge, current and voltage.
_SOURCES: Final = (
    f'data_sources {{ config {{ name: "android.power" android_power_config {{ battery_poll_ms: {_POLL_MS} '
    "battery_counters: BATTERY_COUNTER_CHARGE battery_counters: BATTERY_COUNTER_CURRENT "
    "battery_counters: BATTERY_COUNTER_VOLTAGE collect_power_rails: true } } }"
)
#: Factor on the least lengths, for clocks that are a little off.
_MARGIN: Final = 1.1
#: How often the script samples the battery, and where its files are.
_SAMPLE_S: Final = 1
_SUPPLY: Final = "/sys/class/power_supply"
#: Repetitions of a process that works in phases, when their length is measured.
_TRIAL_REPETITIONS: Final = 2
#: From this share of a process's time on, all of it counts as one kind of phase.
_ALONE_SHARE: Final = 0.97
_MISSING: Final = b"missing "
_CHARGED: Final = (
    "the phone has no rails and is charged ({}), so its battery doesn't show its energy: connect it by Wi-Fi with the "
    "cable out, or by a USB hub whose ports uhubctl can power off"
)
#: When a run has begun on the phone, and needs no link until its end; and a process's time beside
#: its inferences.
_BEGIN_S: Final = 10.0
_SLACK_S: Final = 60.0


#: Errors of a recording, which cost a run its energy and nothing else.
_NO_RECORDING: Final = (DeviceCommandError, DeviceStorageError)


class EnergyMeter:
    """Runs programs with the phone's meters recorded."""

    def __init__(self, hold: Hold, meters: MeterBook, power: PortPower) -> None:
        """``hold`` makes a change that is journalled first."""
        self._hold = hold
        self._book = meters
        self._power = power
        #: Length of a repetition of a case whose process works in phases.
        self._repetition_s: dict[CaseKey, float] = {}

    def run(self, tool: Tool, device: Device, request: InvocationRequest) -> RawOutput:
        """Run one invocation between two rests.

        Raises DeviceError kinds for the run itself only.
        """
        meters = None
        is_charged = False
        why = ""
        try:
            meters = self._book.load(
                device.serial, request.facts.fingerprint
            ) or self._detect_meters(device, request)
            if meters.source is PowerSource.NONE:
                why = (
                    "the phone has no meter: neither perfetto's android.power (Android 10 and later) nor "
                    "power_supply/*/current_now nor its battery service reports a current"
                )
            elif meters.source is PowerSource.BATTERY:
                plugged = device.state().plugged
                is_charged = plugged not in ("", "none")
                why = (
                    _CHARGED.format(plugged)
                    if is_charged and not self._power.can_switch(device)
                    else ""
                )
        except (*_NO_RECORDING, OutputParseError) as error:
            why = f"its meters can't be read: {error}"
        if why or meters is None:
            raw = tool.run(device, request)
            return raw.with_data(ENERGY_FILE, _MISSING + why.encode())
        longer = self._with_length(tool, device, request, meters)
        span_s = longer.timeout_s - request.timeout_s + _SLACK_S + longer.case.warmup_min_secs
        off: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
        if is_charged:
            off = self._power.off(device, after_s=_BEGIN_S, lasts_s=span_s)
            # Its link ends on purpose, also where the campaign's time is over meanwhile.
            longer = replace(longer, away_s=math.inf)
        with off:
            raw = self._run_between(tool, device, longer, meters)
        if is_charged:
            # Nothing else runs on the phone before its port is on again.
            raw = replace(raw, duration_s=max(raw.duration_s, _BEGIN_S + span_s))
        figure = run_energy(tool, tool.parse(raw, request.case), raw, request.case)
        if (
            isinstance(figure, EnergyFigure)
            and figure.gauge is not None
            and figure.gauge != meters.gauge
        ):
            self._keep(replace(meters, gauge=figure.gauge))
        return raw

    def _run_between(
        self,
        tool: Tool,
        device: Device,
        request: InvocationRequest,
        meters: PowerMeters,
    ) -> RawOutput:
        rest_s = math.ceil(LEAST_REST_S[meters.source])
        sampler = script_command(
            "battery", math.ceil(request.timeout_s / _SAMPLE_S), _SAMPLE_S, _SUPPLY
        )
        sampler = sampler if meters.is_sampled else ""
        between = replace(
            request,
            enclosed=lambda command: script_command("energy", rest_s, sampler, command),
            enclosing_files=(ENERGY_FILE, BATTERY_FILE) if sampler else (ENERGY_FILE,),
        )
        if sampler:
            raw, why = tool.run(device, between), ""
        else:
            raw, why = self._run_recorded(tool, device, between)
        if not why and raw.data(ENERGY_FILE):
            return raw
        return raw.with_data(ENERGY_FILE, _MISSING + (why or "no times were written").encode())

    def _run_recorded(
        self, tool: Tool, device: Device, request: InvocationRequest
    ) -> tuple[RawOutput, str]:
        """Run with perfetto's recording of the meters; return also why there is none."""
        # The run is whole without a recording.
        with contextlib.ExitStack() as stack:
            why, data = "", b""
            try:
                recording = self._recorded(device, request, duration_s=request.timeout_s)
                end = stack.enter_context(recording)
            except _NO_RECORDING as error:
                why = str(error)
            raw = tool.run(device, request)
            try:
                data = b"" if why else end()
            except _NO_RECORDING as error:
                why = str(error)
            return raw.with_data(POWER_FILE, data), why

    def _with_length(
        self,
        tool: Tool,
        device: Device,
        request: InvocationRequest,
        meters: PowerMeters,
    ) -> InvocationRequest:
        """Return the request with a process that is long enough for the meters, and a timeout for it
        and its rests.
        """
        case, period_s = request.case, meters.gauge.period_s if meters.gauge is not None else 0.0
        work_s = math.ceil(
            _MARGIN * max(LEAST_WORK_S[meters.source], LEAST_UPDATES * period_s, case.min_secs)
        )
        if isinstance(tool, PhasedTool):
            if case.case_key not in self._repetition_s:
                tried = replace(request, case=tool.for_energy(case, _TRIAL_REPETITIONS))
                phases = tool.token_phases(tool.run(device, tried), case)
                # A failing process fails again in the block, where its reason is stored.
                self._repetition_s[case.case_key] = (
                    sum(phase.seconds for phase in phases) / _TRIAL_REPETITIONS or work_s
                )
            case = tool.for_energy(
                case, max(_TRIAL_REPETITIONS, math.ceil(work_s / self._repetition_s[case.case_key]))
            )
        else:
            case = replace(
                case, num_runs=1, min_secs=float(work_s), max_secs=max(case.max_secs, 2.0 * work_s)
            )
        more_s = 2 * LEAST_REST_S[meters.source] + 2 * work_s
        return replace(request, case=case, timeout_s=request.timeout_s + more_s)

    def _detect_meters(self, device: Device, request: InvocationRequest) -> PowerMeters:
        """Detect a phone's meters, and store them.

        Raises DeviceError kinds, OutputParseError.
        """
        power = _Power()
        if has_perfetto(device):
            with self._recorded(device, request, duration_s=60.0) as end:
                device.shell(f"sleep {_DETECT_S}")
                power = _read(end())
        is_sampled = not power.rails and not power.battery
        if is_sampled:
            scripts = {"battery": script_command("battery", 2, _SAMPLE_S, _SUPPLY)}
            power = _read_samples(run_scripts(device.shell, scripts).sections.get("battery", b""))
        # Some phones have the file and always report 0.
        has_battery = any(item.current for item in power.battery)
        source = (
            PowerSource.RAILS
            if power.rails
            else PowerSource.BATTERY
            if has_battery
            else PowerSource.NONE
        )
        meters = PowerMeters(
            serial=device.serial,
            fingerprint=request.facts.fingerprint,
            source=source,
            is_sampled=is_sampled and has_battery,
        )
        self._keep(meters)
        return meters

    def _keep(self, meters: PowerMeters) -> None:
        # Meters that can't be stored are detected again; the run is worth more.
        with contextlib.suppress(HostStorageError):
            self._book.save(meters)

    def _recorded(
        self, device: Device, request: InvocationRequest, *, duration_s: float
    ) -> contextlib.AbstractContextManager[Callable[[], bytes]]:
        return recorded(
            device,
            self._hold,
            _SOURCES,
            sdk=request.facts.sdk or 0,
            duration_s=duration_s,
            buffer_kb=_BUFFER_KB,
        )


@frozen
class _Power:
    """The readings of a recording of the meters."""

    #: Name -> (seconds since boot, microjoules since boot).
    rails: Mapping[str, tuple[tuple[float, float], ...]] = field(default_factory=dict)
    battery: tuple[BatterySample, ...] = ()


def _read(data: bytes) -> _Power:
    """Read a recording; raises OutputParseError."""
    names: dict[int, str] = {}
    read: dict[int, dict[float, float]] = {}
    battery: list[BatterySample] = []
    for packet in decode_trace(data).packet:
        for descriptor in packet.power_rails.rail_descriptor:
            names[descriptor.index] = text_of(descriptor.rail_name)
        for item in packet.power_rails.energy_data:
            read.setdefault(item.index, {})[item.timestamp_ms / 1e3] = float(item.energy)
        if packet.HasField("battery") and packet.battery.HasField("current_ua"):
            status = packet.battery
            battery.append(
                BatterySample(
                    at_s=packet.timestamp / 1e9,
                    current=float(status.current_ua),
                    voltage_uv=float(status.voltage_uv),
                    charge_uah=float(status.charge_counter_uah)
                    if status.HasField("charge_counter_uah")
                    else None,
                )
            )
    rails = {
        names.get(index, f"rail {index}"): tuple(sorted(values.items()))
        for index, values in read.items()
    }
    return _Power(rails=rails, battery=tuple(sorted(battery, key=lambda item: item.at_s)))


def _read_samples(output: bytes) -> _Power:
    """Read the output of the script ``battery``, without lines that are cut off or have no current
    or voltage.
    """
    battery = []
    for line in output.decode("utf-8", "replace").splitlines():
        with contextlib.suppress(ValueError):
            at_s, current, voltage_uv, charge_uah = line.split()
            sample = BatterySample(
                at_s=float(at_s),
                current=float(current),
                voltage_uv=float(voltage_uv),
                charge_uah=None if charge_uah == "-" else float(charge_uah),
            )
            battery.append(sample)
    return _Power(battery=tuple(sorted(battery, key=lambda item: item.at_s)))


def run_energy(tool: Tool, report: ToolReport, raw: RawOutput, case: Case) -> EnergyFigure | str:
    """Return a run's energy, or the reason why there is none."""
    times = raw.data(ENERGY_FILE)
    if times.startswith(_MISSING):
        return times.removeprefix(_MISSING).decode("utf-8", "replace").strip()
    try:
        marks = _marks(times)
        inferences = _inferences(report, case)
        if isinstance(tool, PhasedTool):
            inferences = _in_phases(tool.token_phases(raw, case))
        power = (
            _read_samples(raw.data(BATTERY_FILE))
            if raw.data(BATTERY_FILE)
            else _read(raw.data(POWER_FILE))
        )
        if power.rails:
            return rails_energy(power.rails, marks, inferences, part=_part(case))
        is_charged = b"powered: true" in times
        return battery_energy(power.battery, marks, inferences, is_charged=is_charged)
    except NoEnergyError as reason:
        return str(reason)
    except OutputParseError as error:
        return f"the recording of the meters can't be read: {error}"


def _part(case: Case) -> str:
    """Return the part of the chip whose rail a case needs; empty for the CPU, which has one on every
    phone with rails.
    """
    delegate = DELEGATES[case.delegate]
    return "" if case.delegate.is_cpu else "gpu" if delegate.is_on_gpu else "npu"


def _marks(output: bytes) -> Marks:
    times: dict[str, float] = {}
    for line in output.decode("utf-8", "replace").splitlines():
        name, _, value = line.partition(" ")
        if name in {"rest", "work", "end", "over"}:
            with contextlib.suppress(ValueError):
                times[name] = float(value)
    moments = [times.get(name, math.nan) for name in ("rest", "work", "end", "over")]
    if not all(early <= late for early, late in itertools.pairwise(moments)):
        raise NoEnergyError("the times of the rests and the work are missing or out of order")
    return Marks(rest_s=moments[0], work_s=moments[1], end_s=moments[2], over_s=moments[3])


def _inferences(report: ToolReport, case: Case) -> Inferences:
    inference = report.inference
    mean_us = (
        inference.mean_us
        if inference is not None and inference.mean_us
        else report.inference_mean_us
    )
    if (
        report.outcome != "ok"
        or inference is None
        or not inference.count
        or mean_us is None
        or mean_us <= 0
    ):
        raise NoEnergyError("the run has no figures of its inferences")
    period_s = mean_us / 1e6
    flags = dict(case.flags)
    with contextlib.suppress(ValueError, ZeroDivisionError):
        if (rate := float(flags.get("run_frequency", "0"))) > 0:
            period_s = max(period_s, 1 / rate)
        elif (pause_s := float(flags.get("run_delay", "0"))) > 0:
            period_s += pause_s
    return Inferences(count=inference.count, period_s=period_s)


def _in_phases(phases: Sequence[TokenPhase]) -> Inferences:
    """Return the tokens of a process that works in phases, of which the last ends with the process."""
    left_s = length_s = sum(phase.seconds for phase in phases)
    own_s = sum(phase.seconds for phase in phases if phase.is_own)
    tokens = sum(phase.tokens for phase in phases if phase.is_own)
    if not tokens or own_s <= 0:
        raise NoEnergyError("the run has no figures of its phases")
    spans = []
    for phase in phases:
        if phase.is_own:
            spans.append((left_s, left_s - phase.seconds))
        left_s -= phase.seconds
    is_alone = own_s >= _ALONE_SHARE * sum(phase.seconds for phase in phases if phase.tokens)
    return Inferences(
        count=tokens,
        period_s=own_s / tokens,
        length_s=length_s,
        spans=tuple(spans),
        is_alone=is_alone,
    )


def with_energy(tool: Tool, report: ToolReport, raw: RawOutput, case: Case) -> ToolReport:
    """Return a report with the energy, ``energy_...``; or ``energy_missing``, the reason why there is
    none.
    """
    if not raw.data(ENERGY_FILE):
        return report
    energy = run_energy(tool, report, raw, case)
    extra: dict[str, float | str] = dict(report.extra)
    if isinstance(energy, str):
        extra["energy_missing"] = energy
        return replace(report, extra=extra)
    extra |= {
        "energy_net_uj": energy.net_uj,
        "energy_gross_uj": energy.gross_uj,
        "energy_work_w": energy.work_w,
        "energy_rest_before_w": energy.rest_w[0],
        "energy_rest_after_w": energy.rest_w[1],
        "energy_grade": energy.grade.value,
    }
    if energy.rails:
        extra["energy_rails"] = " ".join(energy.rails)
    return replace(report, extra=extra)
