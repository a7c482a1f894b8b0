"""Fake binaries for the programs of other runtimes, with output and exit codes of
``other_runtimes.yaml`` around times of one model.

A model costs its bytes' multiply-adds; its results aren't computed. A missing GPU is replaced or
refused as in each program.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from benchfarm_virtual.commands.invocation import Invocation
from benchfarm_virtual.contract import PhoneFileError
from benchfarm_virtual.data import read_yaml
from benchfarm_virtual.latency import Speed
from benchfarm_virtual.programs.process import Pace, announce, read_content

#: Two bytes a weight, one multiply-add each; and at least this time.
_MACS_A_BYTE: Final = 0.5
_LEAST_US: Final = 80.0
#: Percentiles of onnxruntime_perf_test: the digits after the decimal point.
_SHARES: Final = (50, 90, 95, 99, 999)


_DEFAULTS, _ROWS = (
    read_yaml(Path(__file__).with_name("other_runtimes.yaml"))[part]
    for part in ("defaults", "programs")
)
#: The programs by their names; the file says what each field means.
_PROGRAMS: Final = {name: SimpleNamespace(**{**_DEFAULTS, **row}) for name, row in _ROWS.items()}
NAMES: Final = tuple(_PROGRAMS)


def run_other(call: Invocation, version: str, *, program: str) -> int:
    """Run one of the programs, by its name; return its exit code."""
    announce(call, "start")
    code = _Run(call, version, _PROGRAMS[program]).run()
    announce(call, "results")
    return code


class _Run:
    """One run of a program: its options, and the values for its output."""

    def __init__(self, call: Invocation, version: str, program: SimpleNamespace) -> None:
        self._call = call
        self._version = version
        self._program = program
        self._options = options = _options(call.args, program)
        self._has_gpu = call.system.hardware.profile.gpu is not None
        self._wants_gpu = any(
            re.fullmatch(asks, options[name]) for name, asks in program.gpu.items()
        )
        self._on_gpu = self._wants_gpu and self._has_gpu
        self._values: dict[str, Any] = {
            **options,
            **{
                f"{name}_name": labels.get(options[name], "N/A")
                for name, labels in program.names.items()
            },
            "threads": options[program.threads],
            "gpu": "GPU" if self._on_gpu else "",
            "backends": "OpenCL,CPU" if self._has_gpu else "CPU",
        }

    def run(self) -> int:
        """Run each model; return the exit code."""
        program = self._program
        self._say(program.found_gpu if self._on_gpu else ())
        self._say(program.begin)
        self._say(program.no_gpu if self._wants_gpu and not self._has_gpu else ())
        for path in self._paths():
            model, refusal = b"", None
            try:
                model = read_content(self._call, path)
            except PhoneFileError:
                refusal = program.missing or program.refused
            self._values |= {"model": path, "name": path.rpartition("/")[2], "bytes": len(model)}
            refusal = refusal or _refusal(program, self._options, model)
            if refusal is not None:
                self._say(refusal["lines"])
                if "code" in refusal:
                    return int(refusal["code"])
                continue
            lines = program.on_gpu if self._on_gpu else program.on_cpu
            self._say(lines if program.verbose in {"", *self._options} else ())
            self._measure(len(model))
        return 0

    def _paths(self) -> list[str]:
        end, options = self._program.folder, self._options
        if not end:
            return [options[self._program.model]]
        folder = self._call.path(options["folder"])
        names = self._call.files.list(folder)
        return [f"{folder}/{name}" for name in names if name.endswith(end)]

    def _measure(self, size: int) -> None:
        """Run the requested number of times at the phone's speed, and print the results."""
        call, program, options, values = self._call, self._program, self._options, self._values
        announce(call, "run")
        count = int(options[program.count])
        done = {name: int(options[name]) for name in program.work}
        work = sum(program.work[name] * number for name, number in done.items()) or 1.0
        macs = size * _MACS_A_BYTE * work

        def step_us(speed: Speed) -> float:
            return _LEAST_US + macs / speed.f32_gmacs / 1e3 + speed.op_overhead_us

        threads = max(1, int(options[program.threads]))
        pace = Pace(call, self._version, threads=threads, on_gpu=self._on_gpu)
        times = pace.times_us(count + program.warms_up, step_us)
        first, times = times[0], times[program.warms_up :]
        ordered, total = sorted(times), sum(times)
        times_by_name = {
            "first": first,
            "mean": total / count,
            "low": ordered[0],
            "high": ordered[-1],
        }
        times_by_name |= {
            f"p{share}": ordered[int(count * float(f".{share}"))] for share in _SHARES
        }
        for name, time_us in (times_by_name | {"total": total}).items():
            values |= {f"{name}_ns": time_us * 1e3, f"{name}_ms": time_us / 1e3}
            values[f"{name}_s"] = time_us / 1e6
        things = sum(done.values()) or 1
        values |= {
            "count": count,
            "per_s": things / times_by_name["mean"] * 1e6,
            "times_ns": json.dumps([round(time_us * 1000) for time_us in times]),
            "rates": json.dumps([things / time_us * 1e6 for time_us in times]),
        }
        if program.each:
            for number, time_us in enumerate(times, start=1):
                values |= {"number": number, "each_ms": time_us / 1e3}
                self._say([program.each])
        self._say(program.end)

    def _say(self, lines: Iterable[str]) -> None:
        call = self._call
        for line in lines:
            where, _, text = line.partition(" ")
            message = text.format_map(self._values)
            if where == "log":
                call.log(self._program.tag, message)
            else:
                stream = call.stdout if where == "out" else call.stderr
                stream.write(f"{message}\n".encode())


def _refusal(
    program: SimpleNamespace, options: Mapping[str, str], model: bytes
) -> Mapping[str, Any] | None:
    """Return a program's refusal of a model, None when it runs it."""
    if not re.match(program.magic.encode(), model, re.DOTALL):
        refused: Mapping[str, Any] = program.refused
        return refused
    return next(
        (
            refusal
            for refusal in program.refuses
            if all(
                re.fullmatch(values, options.get(name, ""))
                for name, values in refusal["options"].items()
            )
        ),
        None,
    )


def _options(words: Iterable[str], program: SimpleNamespace) -> dict[str, str]:
    """Return options and words by their names, without dashes."""
    options, names, todo = dict(program.options), list(program.words), list(words)
    while todo:
        word = todo.pop(0)
        name, equals, value = word.lstrip("-").partition("=")
        if equals or name in program.bare:
            options[name] = value
        elif re.match("-+[a-zA-Z]", word):
            options[name] = todo.pop(0) if todo else ""
        elif names:
            options[names.pop(0)] = word
    return options
