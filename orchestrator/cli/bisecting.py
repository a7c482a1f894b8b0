"""``benchfarm bisect``: what the search came to, as text and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from orchestrator.app import bisecting
from orchestrator.app.bisecting import Bisected, BisectRequest, figure_text, titled
from orchestrator.bootstrap import Settings
from orchestrator.cli.comparing import PAIR_HELP, PAIR_KEYS, PairOptions
from orchestrator.cli.frame import PlanKeys, command, opt
from orchestrator.cli.progress import farm_telling
from orchestrator.cli.result import CommandResult, table
from orchestrator.config.plan_keys import PlanOptions
from orchestrator.engine.bisect import BisectResult
from orchestrator.errors import UsageError
from orchestrator.quantities import parse_seconds
from orchestrator.report.comparisons import interval_text
from orchestrator.report.escapes import one_line
from orchestrator.units import format_change

if TYPE_CHECKING:
    from orchestrator.artifacts.releases import Release


@command("bisect")
def bisect(
    settings: Settings,
    good: Annotated[str, opt("--good", "The build that was fast: NAME@DIGITS.")],
    bad: Annotated[str, opt("--bad", "The build that is slow: NAME@DIGITS.")],
    options: Annotated[
        PlanOptions, PlanKeys(f"devices {PAIR_KEYS}", devices="Serial number of the phone.", **PAIR_HELP)
    ],
    pairs: PairOptions,
    fresh: Annotated[str, opt("--fresh", "Reuse stored A/B results up to this age.")] = "24 h",
) -> CommandResult:
    """Find the first build that is slower than a good one.

    Example: benchfarm bisect --good tflite@4f1c --bad tflite@9e02 -m model.tflite -s SERIAL

    Each step measures two builds in turns on one phone.
    """
    try:
        fresh_s = parse_seconds(fresh)
    except ValueError as error:
        raise UsageError(f"--fresh: {error}") from error
    asked = pairs.request(options, sides=(), name="bisect")
    with farm_telling(settings) as farm:
        return _shown(bisecting.bisect(farm, BisectRequest(good=good, bad=bad, fresh_s=fresh_s, ab=asked)))


def _shown(bisected: Bisected) -> CommandResult:
    result, releases, facts = bisected.result, bisected.releases, bisected.facts
    rows = []
    for index, release in enumerate(releases):
        probe = next((item for item in result.probes if item.index == index), None)
        judgement = "the good one" if index == 0 else probe.judgement.value if probe is not None else ""
        verdict = probe.compared.verdict if probe is not None else None
        why = probe.compared.reason if probe is not None else ""
        change = format_change(verdict.ratio) if verdict is not None else why
        interval = interval_text(verdict) if verdict is not None else ""
        mark = "<- first bad" if index == result.first_bad else ""
        rows.append((release.release_id, release.tag, f"{release.seen_at:%Y-%m-%d}", judgement, change, interval, mark))
    lines = [
        f"{releases[0].name} on {facts.title} {facts.serial}",
        "",
        table(("release", "which", "first seen", "is", "change", "interval", ""), rows),
        "",
        one_line(_sentence(result, releases)),
        *(one_line(remark) for remark in result.remarks),
    ]
    if facts.is_virtual:
        lines.append("Figures of virtual phones are computed; they are no measurement.")
    return CommandResult(
        text="\n".join(lines),
        data={
            "serial": facts.serial,
            "is_virtual": facts.is_virtual,
            "first_bad": _release_data(releases, result.first_bad),
            "last_good": _release_data(releases, result.last_good),
            "suspects": [_release_data(releases, index) for index in result.suspects],
            "step": result.step,
            "remarks": result.remarks,
            "builds": [_release_data(releases, index) for index in range(len(releases))],
            "probes": [
                {
                    **(_release_data(releases, probe.index) or {}),
                    "judgement": probe.judgement,
                    "compared": probe.compared,
                }
                for probe in result.probes
            ],
        },
        exit_code=int(result.first_bad is None),
    )


def _sentence(result: BisectResult, releases: Sequence[Release]) -> str:
    if result.first_bad is not None and result.last_good is not None:
        return (
            f"first bad: {titled(releases[result.first_bad])}; last good: {titled(releases[result.last_good])}"
            f"{figure_text(result.step)}"
        )
    if result.suspects and result.last_good is not None:
        among = ", ".join(titled(releases[index]) for index in result.suspects)
        last = titled(releases[result.last_good])
        return f"the first bad one is among {among}; last good: {last}{figure_text(result.step)}"
    return "no first bad build was found"


def _release_data(releases: Sequence[Release], index: int | None) -> dict[str, object] | None:
    if index is None:
        return None
    release = releases[index]
    return {
        "name": release.name,
        "release_id": release.release_id,
        "tag": release.tag,
        "seen_at": release.seen_at,
        "build_sha256": release.program.sha256,
    }
