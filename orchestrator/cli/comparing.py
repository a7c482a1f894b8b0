"""``benchfarm compare`` and ``ab``: options to a comparison, and its formats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from orchestrator.analysis.comparison import Comparison, FailOn
from orchestrator.analysis.matching import Axis, Rule
from orchestrator.app import comparing, pairing
from orchestrator.app.comparing import comparison_html, default_path, rule_for, ways_out
from orchestrator.app.pairing import AbRequest, pair_comparison
from orchestrator.bootstrap import Farm, Settings
from orchestrator.cli.download_progress import farm_telling
from orchestrator.cli.files import format_of, share_of
from orchestrator.cli.result import CommandResult, to_json
from orchestrator.engine.campaign import CampaignResult
from orchestrator.errors import UsageError
from orchestrator.files import check_writable, write_file
from orchestrator.report import comparisons
from orchestrator.report.escapes import one_line

FORMATS: Final = ("text", "markdown", "json", "junit", "github", "html")


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """How a comparison is shown, and when it is a failure."""

    #: Empty: by the ending of ``out``.
    form: str = ""
    out: Path | None = None
    fail_on: str = "slower"

    @property
    def wanted(self) -> str:
        """The format; raises UsageError."""
        return format_of(self.form, self.out, FORMATS, default="text")

    def check(self) -> None:
        """Raise UsageError for an unknown format or word, and for a file that can't be written."""
        _ = self.wanted
        if self.fail_on not in list(FailOn):
            raise UsageError(f"--fail-on {self.fail_on!r} isn't known", hint=f"choose one of {', '.join(FailOn)}")
        if self.out is not None:
            check_writable(self.out)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareRequest:
    """The options of ``benchfarm compare``, as they were typed."""

    sides: tuple[str, ...]
    by: str
    campaigns: tuple[str, ...]
    threshold: str
    level: str
    allowed: tuple[str, ...]


def compare(settings: Settings, request: CompareRequest, output: Output) -> CommandResult:
    """Compare two sides of what is stored.

    What keeps cases apart and may be let pass is told with the option that does it.

    Raises:
        UsageError: a side, fact or number that isn't known.
    """
    output.check()
    rule = rule_of(request)
    if rule.axis is Axis.CAMPAIGN and request.campaigns:
        raise UsageError("--campaign is for --by", hint="give the two campaigns as they are: compare A B")
    with Farm(settings, makes_store=False) as farm:
        comparison = comparing.compare(farm, request.sides, rule, campaigns=request.campaigns)
        notes = (*comparison.notes, *ways_out(comparison, request.allowed))
        return rendered(farm, replace(comparison, notes=notes), output)


def rule_of(request: CompareRequest) -> Rule:
    """Return the rule that the options mean; raises UsageError."""
    return rule_for(
        request.by,
        request.sides,
        threshold=share_of(request.threshold, "--threshold", most=0.5),
        level=share_of(request.level, "--level", least=0.5, most=0.9999, example="95%"),
        allowed=request.allowed,
    )


def rendered(
    farm: Farm,
    comparison: Comparison,
    output: Output,
    *,
    further: Mapping[str, object] | None = None,
    lines: Sequence[str] = (),
    is_incomplete: bool = False,
) -> CommandResult:
    """Return a comparison in the wanted form; ``further`` goes to the JSON, ``lines`` to the text beside it.

    HTML goes to a file: the one that is named, else one in the data folder's ``reports``.
    """
    fail_on = FailOn(output.fail_on)
    data = {**comparisons.to_data(comparison), **(further or {})}
    data["fails"] = fails = comparing.fails(comparison, fail_on, is_incomplete=is_incomplete)
    text = {
        "text": lambda: "\n".join([comparisons.to_text(comparison), *lines]),
        "markdown": lambda: comparisons.to_markdown(comparison),
        "json": lambda: to_json(data),
        "junit": lambda: comparisons.to_junit(comparison, fail_on=fail_on),
        "github": lambda: comparisons.to_github(comparison, fail_on=fail_on),
        "html": lambda: comparison_html(farm, comparison),
    }[output.wanted]()
    out = output.out
    if output.wanted == "html" and out is None:
        out = default_path(farm.settings, comparison)
    if out is not None:
        write_file(out, text if text.endswith("\n") else text + "\n")
        text = "\n".join([comparisons.summary_line(comparison), *lines, str(out)])
        data["path"] = out
    return CommandResult(text=text.rstrip("\n"), data=data, exit_code=int(fails))


def compare_ab(settings: Settings, request: AbRequest, output: Output) -> CommandResult:
    """Measure two sides in turns and compare them; raises UsageError kinds before anything runs."""
    output.check()
    with farm_telling(settings) as farm:
        return told_pairs(farm, pairing.compare_ab(farm, request), output)


def told_pairs(farm: Farm, result: CampaignResult, output: Output) -> CommandResult:
    """Return what came of pairs."""
    campaign = result.campaign
    lines = [f"{serial}: {one_line(reason)}" for serial, reason in result.lost.items()]
    if result.left:
        lines.append(f"{result.left} invocations are left; 'benchfarm run --resume' runs them")
    lines.append(f"campaign: {campaign.campaign_id}")
    further = {
        "campaign_id": campaign.campaign_id,
        "status": result.status,
        "stored": result.stored,
        "left": result.left,
        "lost": result.lost,
    }
    comparison = pair_comparison(farm, campaign)
    shown = rendered(farm, comparison, output, further=further, lines=lines, is_incomplete=bool(result.left))
    return replace(shown, is_kept=True)
