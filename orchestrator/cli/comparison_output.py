"""What a comparison is made of and how it is shown, whether it is of stored runs or measured in turns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from orchestrator.analysis.comparison import Comparison, FailOn, is_failure
from orchestrator.analysis.matching import Measured, measured_cases
from orchestrator.bootstrap import Farm
from orchestrator.cli.compared_pages import comparison_html, default_path
from orchestrator.cli.files import check_writable, format_of, write_file
from orchestrator.cli.result import CommandResult, to_json
from orchestrator.errors import UsageError
from orchestrator.records.campaign import Campaign
from orchestrator.records.run import RunRecord
from orchestrator.report import comparisons

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
    fails = is_failure(comparison, fail_on) or (is_incomplete and fail_on is not FailOn.NEVER)
    data["fails"] = fails
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


def load_measured(
    farm: Farm, campaigns: Sequence[Campaign], wanted: Callable[[RunRecord], bool] | None = None
) -> list[Measured]:
    """Return the measured cases of some campaigns, without the pairs that only warmed a device."""
    known = {campaign.campaign_id: campaign for campaign in campaigns}

    def counts(run: RunRecord) -> bool:
        is_warm_up = known[run.campaign_id].is_warm_up(run.run_pass, run.invocation)
        return not is_warm_up and (wanted is None or wanted(run))

    return measured_cases(
        farm.store.runs(campaign_ids=[campaign.campaign_id for campaign in campaigns]) if campaigns else (),
        devices={str(serial): facts for serial, facts in farm.store.devices().items()},
        builds=farm.store.builds(),
        systems={
            (campaign.campaign_id, serial): fingerprint
            for campaign in campaigns
            for serial, fingerprint in campaign.terms.fingerprints.items()
        },
        origins={item.campaign_id: item.terms.origin.text for item in campaigns if item.terms.origin is not None},
        wanted=counts,
    )
