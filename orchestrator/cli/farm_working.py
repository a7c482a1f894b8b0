"""``benchfarm farm worker``: what a worker tells while it works and when it ends."""

from __future__ import annotations

from functools import partial

from orchestrator.app import farm_worker
from orchestrator.app.farm_worker import WorkerRequest
from orchestrator.bootstrap import Settings
from orchestrator.cli.progress import observer_for_stderr, tell
from orchestrator.cli.result import CommandResult


def work(settings: Settings, request: WorkerRequest) -> CommandResult:
    """Work until the worker is stopped or drained; raises as the use case."""
    done = farm_worker.work(
        settings,
        request,
        tell=partial(tell, settings.log_format, "worker", host=request.host),
        observer=partial(observer_for_stderr, settings.log_format),
    )
    text = f"{done.jobs} jobs ended on {done.host}"
    if done.drained:
        text += f"; {done.drained} is drained: 'benchfarm farm resume {done.drained}', then start the worker again"
    return CommandResult(text=text, data=done)
