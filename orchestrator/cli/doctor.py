"""``benchfarm doctor`` and ``benchfarm farm doctor``: what was found, the worst first, with what to do about it."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.app.doctor import Finding, of_host, problem
from orchestrator.bootstrap import Farm, Settings
from orchestrator.cli.result import CommandResult, table
from orchestrator.errors import StoreError
from orchestrator.report.escapes import one_line


def doctor(settings: Settings) -> CommandResult:
    """Check this host; exit code 1 when there is a problem."""
    with Farm(settings, makes_store=False) as farm:
        return shown(of_host(farm))


def farm_doctor(settings: Settings, *, host_too: bool) -> CommandResult:
    """Check the queue and what hosts say of themselves; with ``host_too`` this host as well, also without a queue."""
    from orchestrator.app.farm_doctor import of_farm

    with Farm(settings) as farm:
        try:
            found = of_farm(farm)
        except StoreError as error:
            found = [problem("queue", str(error), error.hint or "mend that, then ask again")]
        return shown([*found, *(of_host(farm) if host_too else [])])


def shown(findings: Sequence[Finding]) -> CommandResult:
    """Return findings as a table with their next steps, the worst first; exit code 1 with a problem."""
    order = ("problem", "warning", "ok")
    ranked = sorted(findings, key=lambda item: order.index(item.level))
    lines = [table(("", "check", "found"), [(item.level, item.check, item.text) for item in ranked])]
    steps = [f"{item.check}: {item.next_step}" for item in ranked if item.next_step]
    lines += ["", "what to do:", *map(one_line, dict.fromkeys(steps))] if steps else []
    counts = {level: sum(item.level == level for item in ranked) for level in order}
    return CommandResult(
        text="\n".join(lines),
        data={"findings": ranked, "problems": counts["problem"], "warnings": counts["warning"]},
        exit_code=int(counts["problem"] > 0),
    )
