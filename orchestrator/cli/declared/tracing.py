"""Traces."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.frame import Builds, Deed, Devices, app, command
from orchestrator.records.workload import BUILTIN, USUAL_TOOL


@dataclass(frozen=True, kw_only=True)
class TraceOptions:
    """What 'trace' reads."""

    model: Annotated[Path, typer.Argument(help="Model file (.tflite).")]
    device: Devices = None
    delegate: Annotated[str, typer.Option("--delegate", "-d", help="cpu, xnnpack, gpu, nnapi, hexagon ...")] = BUILTIN
    threads: Annotated[int, typer.Option("--threads", "-t", min=1, help="Number of threads.")] = 1
    tool: Annotated[str, typer.Option("--tool", help="native, apk, litert-native or perf-options.")] = USUAL_TOOL
    build: Builds = None
    num_runs: Annotated[int, typer.Option(min=1, help="Inferences beside the warm-up, at least.")] = 20
    timeout: Annotated[float, typer.Option(min=1, help="Seconds that the run may take.")] = 120.0
    summary: Annotated[bool, typer.Option("--summary/--no-summary", help="Read the trace after recording it.")] = True
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder for the trace files.")] = None


@command(app, "trace")
def _trace(options: TraceOptions) -> Deed:
    """Record a trace of one run, with the time of each operator.

    Example: benchfarm trace model.tflite --delegate gpu

    The trace opens in the Perfetto UI.
    """
    from orchestrator.app.tracing import TraceRequest
    from orchestrator.cli import tracing

    request = TraceRequest(
        model=options.model,
        serials=tuple(options.device or ()),
        delegate=options.delegate,
        threads=options.threads,
        tool=options.tool,
        builds=tuple(options.build or ()),
        num_runs=options.num_runs,
        timeout_s=options.timeout,
        has_summary=options.summary,
    )
    return lambda settings: tracing.trace(settings, request, options.out)
