"""Traces."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.frame import Builds, Devices, Json, app, show


@app.command("trace")
def _trace(
    model: Annotated[Path, typer.Argument(help="Model file (.tflite).")],
    device: Devices = None,
    delegate: Annotated[str, typer.Option("--delegate", "-d", help="cpu, xnnpack, gpu, nnapi, hexagon ...")] = "cpu",
    threads: Annotated[int, typer.Option("--threads", "-t", min=1, help="Number of threads.")] = 1,
    tool: Annotated[str, typer.Option("--tool", help="native, apk, litert-native or perf-options.")] = "native",
    build: Builds = None,
    num_runs: Annotated[int, typer.Option(min=1, help="Inferences, at the least, beside the warm-up.")] = 20,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds that the run may take.")] = 120.0,
    summary: Annotated[bool, typer.Option("--summary/--no-summary", help="Read the trace after recording it.")] = True,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder for the trace files.")] = None,
    as_json: Json = False,
) -> None:
    """Record one run with perfetto (or atrace), for the Perfetto UI, and sum up what each operator took."""
    from orchestrator.cli import tracing

    request = tracing.TraceRequest(
        model=model,
        serials=tuple(device or ()),
        delegate=delegate,
        threads=threads,
        tool=tool,
        builds=tuple(build or ()),
        num_runs=num_runs,
        timeout_s=timeout,
        has_summary=summary,
    )
    show(lambda settings: tracing.trace(settings, request, out), as_json=as_json)
