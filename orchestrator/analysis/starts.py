"""Whether a process of the pass ``cold`` started as its stage says."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.delegates import DELEGATES
from orchestrator.records.run import ToolReport
from orchestrator.records.start import StartStage
from orchestrator.records.verdict import Finding, Severity


def start_findings(report: ToolReport) -> Iterator[Finding]:
    """Yield what speaks against a start's figures; nothing for a report of another pass.

    A GPU delegate says that it used its cache ("from serialized data"); XNNPACK and NNAPI don't, so that for them the
    cache's size before the start is all there is to go by.
    """
    stage = report.extra.get("start_stage")
    line = str(report.extra.get("from_cache", ""))
    size = report.extra.get("cache_bytes_before")
    if stage in {StartStage.FIRST_LOAD, StartStage.PROCESS_COLD}:
        if line or (stage == StartStage.FIRST_LOAD and size):
            evidence = line or f"{size:.0f} bytes were cached before the start"
            yield Finding(
                code="warm-cold-start",
                severity=Severity.ERROR,
                message=f"the start '{stage}' used a cache: it wasn't cold",
                evidence=evidence,
            )
    elif stage == StartStage.CACHE_WARM:
        if not size:
            message = "the first load had left no cache, so that this start wasn't warm"
        elif _reports_cache(report.delegate.actual) and not line:
            message = "there was a cache, and the delegate didn't say that it used it"
        else:
            return
        yield Finding(code="cache-not-used", severity=Severity.WARNING, message=message, evidence=line)


def _reports_cache(actual: str) -> bool:
    """Whether what ran says that it used its cache."""
    return any(own.reports_cache for name, own in DELEGATES.items() if name.value == actual)
