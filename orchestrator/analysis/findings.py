"""The findings of an invocation: their codes, and those that its printed figures give. Pure.

Of the inferences only a summary is known: count, first, last, min, max, mean, deviation and three
percentiles. Each finding is one that the summary proves or makes very unlikely otherwise; where it
doesn't, the spread alone is reported.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from orchestrator.delegates import DELEGATES
from orchestrator.records.run import LatencySummary, StartStage, ToolReport
from orchestrator.records.verdict import Finding, Severity
from orchestrator.units import format_latency, format_percent

INFO, WARNING, ERROR = Severity.INFO, Severity.WARNING, Severity.ERROR


@dataclass(frozen=True, slots=True)
class FindingCode:
    """The common facts of all findings with a code."""

    code: str
    #: The default severity.
    severity: Severity
    meaning: str
    next_step: str
    #: When it is made, and what follows.
    condition: str = ""
    #: Another severity that it may have, and when.
    also: tuple[Severity, str] | None = None

    @property
    def rule(self) -> str:
        """When it is made, what follows, and when its severity differs; for docs and
        ``benchfarm explain``.
        """
        also = " ".join(self.also) if self.also is not None else ""
        return "; ".join(filter(None, (self.condition, also)))


#: Every finding; ``make docs`` writes the table of docs/reference/findings.md from these.
_FINDINGS: Final = (
    FindingCode(
        "virtual-device",
        INFO,
        "the figures come from benchfarm's virtual phone; they are no measurement",
        "Measure on a real phone before you conclude anything about phones.",
    ),
    FindingCode(
        "emulator",
        WARNING,
        "the figures come from an Android emulator, not from a phone",
        "Measure on a real phone: an emulator's figures are those of the computer that it runs on.",
    ),
    FindingCode(
        "not-completed",
        ERROR,
        "the invocation gave no result",
        "See the invocation's reason and the end of the log.",
    ),
    FindingCode(
        "delegate-partial",
        INFO,
        "a part of the operators ran on the CPU",
        "See the operators left to the CPU; converting them may take the model to the delegate whole.",
    ),
    FindingCode(
        "delegate-unknown",
        WARNING,
        "nothing shows where the operators ran",
        "Run with a build of the program that says what its delegates took.",
        also=(INFO, "where the delegate is reported and only the number of its operators isn't"),
    ),
    FindingCode(
        "sampled-on-cpu",
        WARNING,
        "the CPU chose the tokens because the GPU's sampler is missing: decoding is up to 3 times slower",
        "Put the GPU's sampler library beside the program; the log names it.",
        "a case of decoding whose log says so",
    ),
    FindingCode(
        "flags-ignored",
        ERROR,
        "the program left flags unused",
        "Remove the flags from the plan, or use a build that knows them.",
    ),
    FindingCode(
        "few-inferences",
        WARNING,
        "too few inferences",
        "Raise num_runs or min_secs in the plan.",
        "fewer than 10",
    ),
    FindingCode(
        "unsteady",
        WARNING,
        "the inferences of this process differ widely",
        "Close what runs beside it, keep to the big cores, let the phone cool; then measure again.",
        "90 % of them spread over more than half of the median",
    ),
    FindingCode(
        "unsteady-trend",
        WARNING,
        "the inferences became slower, or faster, while the process ran",
        "Let the phone cool longer before each run, or take the sustained pass to see where it settles.",
        "the first was among the quickest 5 % and the last among the slowest, or the other way "
        "round, and the spread is over 10 %",
    ),
    FindingCode(
        "unsteady-two-modes",
        WARNING,
        "the inferences fall into two groups",
        "Pin the program to one cluster: it probably moved between fast and slow cores.",
        "the deviation is over a third of the range, more than one group can have",
    ),
    FindingCode(
        "outliers",
        INFO,
        "a few inferences took very long; the median hides them, the mean doesn't",
        "Close what runs beside it; the median is little changed, p95 and the maximum are not.",
        "the mean is more than 10 % above the median",
    ),
    FindingCode(
        "coarse-resolution",
        WARNING,
        "the program rounds its figures too coarsely for so short a latency",
        "Use a newer build, which prints more digits, or a larger model.",
        "rounding may have moved them by more than 1 %",
    ),
    FindingCode(
        "sources-disagree",
        WARNING,
        "the result line, the statistics and the result file have different figures",
        "Read the raw output: a line of it is damaged or of another run; measure again.",
    ),
    FindingCode(
        "unwatched",
        INFO,
        "the sampler read clocks, heat and load too rarely while the program ran",
        "The figure stands. Run benchfarm device check to see what the sampler lacks on the phone.",
        "fewer than two samples; only the states before and after the run are known",
    ),
    FindingCode(
        "log-cut",
        INFO,
        "the log ends before its result line; the figures are the result file's",
        "The figures stand. If it recurs, check the phone's free space and its connection.",
    ),
    FindingCode(
        "files-refused",
        INFO,
        "the phone refuses to hand out the app's files; the figures are the log's",
        "The evidence says why. Install a debuggable build for the phone's main user; figures stand.",
    ),
    FindingCode(
        "output-cut",
        INFO,
        "the program printed very much; the middle of its output isn't kept",
        "Have the program print less (no --verbose, no tracing of each operator), then measure again.",
        "over 16 MB to one stream; whole lines of its first and last 8 MB are kept",
    ),
    FindingCode(
        "throttled",
        WARNING,
        "the phone limited its clocks because of heat",
        "Let the phone cool down, take it out of its case, or wait longer between cases.",
        'a thermal status above "light", or "light" where neither clock limits nor cooling '
        "devices could be read; a cooling device of CPU, GPU or NPU at work; a clock limit that "
        "fell; or cores that had as much to do clocked lower as the run went on",
    ),
    FindingCode(
        "clocks-capped",
        INFO,
        "clocks were limited all along, and nothing says whether by heat",
        "Let the phone cool, and end its battery saver: something keeps the clocks below their limit.",
        "the grade is D",
    ),
    FindingCode(
        "clocks-low",
        WARNING,
        "the clocks were lower than in the case's other invocations",
        "Raise warm-up, or use a fixed performance mode: the governor held the clocks back.",
        "of four or more in one campaign some worked below 92 % of the others' clocks and took "
        "longer, by at least half of what the clock lost; more than a quarter stay in the figure",
        also=(INFO, "for up to a quarter, which it leaves out"),
    ),
    FindingCode(
        "slow-start",
        INFO,
        "the first invocation was slower than all others: left out",
        "Nothing: it is left out. To measure first starts, use the pass cold.",
        "of five or more the first is at least 3 % slower than the others' mean and beyond five of their deviations",
    ),
    FindingCode(
        "clock-jumped",
        ERROR,
        "the device's wall clock was moved during the run",
        "Keep the phone's clock from being set during a run; times taken over the jump are wrong.",
        "by 3 s or more",
        also=(WARNING, "where the program prints a median"),
    ),
    FindingCode(
        "rebooted",
        ERROR,
        "the phone rebooted during the run",
        "Look for the cause (heat, battery, driver crash in last_kmsg), then measure again.",
    ),
    FindingCode(
        "foreign-load",
        WARNING,
        "something else kept the processor busy",
        "End what else runs on this phone or computer ('top' shows it), then measure again.",
        "over 0.3 cores of this computer before the run, or over 0.5 cores of a phone during it: "
        "all work less the program's own and 0.1 s, by which short runs may be miscounted",
    ),
    FindingCode(
        "more-threads-than-big-cores",
        INFO,
        "threads shared the big cores or ran on small ones",
        "Ask for no more threads than there are big cores.",
        "more threads than big cores, on the CPU",
    ),
    FindingCode(
        "warm-cold-start",
        ERROR,
        "a start that was to be cold used a cache",
        "Remove the named cache, or the flag that names another one; then measure again.",
        '"from serialized data", or bytes that were there before',
    ),
    FindingCode(
        "start-unknown",
        WARNING,
        "the start may have been warm: the GPU's shaders stay in the iPhone app's folder",
        "Reinstall the app for a start without its shaders; take these figures for warm starts.",
    ),
    FindingCode(
        "cache-not-used",
        WARNING,
        "a start that was to be warm found no cache, or didn't use it",
        "Look at the first load's output: a driver or delegate that keeps no cache has no warm start.",
    ),
    FindingCode(
        "screen-off",
        WARNING,
        "the screen was off at the run's end",
        "Keep the screen on for an app on it: with the screen off it isn't scheduled as it is in use.",
        "where the plan doesn't ask for that",
    ),
    FindingCode(
        "foreground-changed",
        WARNING,
        "another app came to the screen during the run",
        "Keep other apps from coming to the front, then measure again.",
    ),
    FindingCode(
        "charging-changed",
        INFO,
        "the charger was connected or disconnected during the run",
        "Keep the phone plugged in, or unplugged, for the whole campaign.",
    ),
    FindingCode(
        "battery-draining",
        INFO,
        "the battery was emptied though the phone was plugged in",
        "Use a hub or charger that gives more current.",
    ),
    FindingCode(
        "mixed-grades",
        INFO,
        "the case's invocations were made under differently controlled conditions",
        "Measure again, so that all invocations run under the same control of the phone.",
        "the worst is the case's",
    ),
    FindingCode(
        "two-states",
        INFO,
        "the case's invocations fall into two groups, as at two clocks",
        "Use a fixed performance mode, or raise warm-up: the phone ran at one of two clocks.",
        "of eight or more, at least 1 % apart with nothing between them; the interval is the median's then",
    ),
    FindingCode(
        "battery-low",
        WARNING,
        "the battery was low; phones limit their clocks then",
        "Charge the phone above 15 %, then measure again.",
        "less than 15 %",
    ),
    FindingCode(
        "wrong-outputs",
        ERROR,
        "the outputs aren't the model's",
        "Don't use this configuration: it computes something else. Try one without half precision.",
        "further from every reference than correct kernels are; the case's latency is rejected with them",
    ),
    FindingCode(
        "outputs-drift",
        WARNING,
        "the outputs differ more than they should",
        "Judge by the task's own accuracy whether this loss of precision is acceptable.",
        "by less than five times the threshold, pointing the same way: cosine of 0.999 or more",
    ),
    FindingCode(
        "outputs-unreadable",
        ERROR,
        "there are no outputs to compare",
        "Read its log: the program wrote no outputs that could be compared.",
        "none were written, or not as many bytes as the model has",
    ),
    FindingCode(
        "parity-degenerate",
        WARNING,
        "the model's outputs hardly depend on its inputs; they show nothing",
        "Give real inputs (parity_inputs), or a trained model: these outputs show nothing.",
        "the reference gives constants, or the same for other inputs within the threshold",
    ),
    FindingCode(
        "imported",
        INFO,
        "the run is imported; the device's heat, load and battery are unknown",
        "Ask whoever ran it how warm, loaded and charged the phone was.",
    ),
    FindingCode(
        "imported-unread",
        WARNING,
        "its raw output was deleted before it was exported, so that its figures can't be read again",
        "Ask for a bundle that was exported before the raw output was deleted; remove the campaign "
        "('benchfarm results remove') before you import that one.",
    ),
    FindingCode(
        "reference-moved",
        WARNING,
        "the reference workload's figure had moved when it was next run: the device changed",
        "Let the phone cool, look at what else runs on it, then measure these cases again.",
        "every run since it last agreed; by 2 % or more, beyond its own noise",
    ),
)
CODES: Final[Mapping[str, FindingCode]] = {item.code: item for item in _FINDINGS}
#: Rounding that may move a figure by more than this share of its value hides small changes.
ROUNDING_MAX: Final = 0.01
#: Fewer inferences than this say little about the process's own spread.
INFERENCES_MIN: Final = 10
#: (p95 - p5) / median of a steady run stays below this.
SPREAD_MAX: Final = 0.5
#: From this spread on, a trend or two modes matter.
SPREAD_REPORTED: Final = 0.1
#: A last repetition of a process this much slower than the first shows heat; repetitions that
#: differ so much, anything.
REPETITIONS_FALL_MAX: Final = 0.1
REPETITIONS_SPREAD_MAX: Final = 0.25
#: Signs in the summary of an imported run: mean over median, deviation over mean, p95 over
#: median, median over the first inference on a CPU, and the warm-up over the measurement elsewhere.
SUMMARY_SKEW_MAX: Final = 0.05
SUMMARY_SPREAD_MAX: Final = 0.1
SUMMARY_TAIL_MAX: Final = 0.3
SUMMARY_FALL_MAX: Final = 0.1
SUMMARY_RAMP_MAX: Final = 0.2
#: The shape of a distribution needs as many inferences.
_SHAPE_COUNT: Final = 20
#: A mean this much above the median comes from a few inferences that took very long.
_OUTLIER_SHARE: Final = 0.1


def finding(
    code: str, message: str = "", evidence: str = "", *, severity: Severity | None = None
) -> Finding:
    """Return a finding, by default with the severity and the message of its code."""
    defaults = CODES[code]
    return Finding(
        code=code,
        severity=severity or defaults.severity,
        message=message or defaults.meaning,
        evidence=evidence,
    )


def finding_step(code: str) -> str:
    """Return a finding's next step; empty for an unknown code."""
    return CODES[code].next_step if code in CODES else ""


def start_findings(report: ToolReport) -> Iterator[Finding]:
    """Yield the findings of a start's figures; none for a report of another pass.

    A GPU delegate says that it used its cache ("from serialized data"); XNNPACK and NNAPI don't, so
    that for them the cache's size before the start is all there is to go by.
    """
    stage, line = report.extra.get("start_stage"), str(report.extra.get("from_cache", ""))
    size = report.extra.get("cache_bytes_before")
    if stage in {StartStage.FIRST_LOAD, StartStage.PROCESS_COLD}:
        if line or (stage == StartStage.FIRST_LOAD and size):
            evidence = line or f"{size:.0f} bytes were cached before the start"
            yield finding(
                "warm-cold-start", f"the start '{stage}' used a cache: it wasn't cold", evidence
            )
    elif stage == StartStage.CACHE_WARM:
        reports_cache = any(
            delegate.reports_cache
            for name, delegate in DELEGATES.items()
            if name.value == report.delegate.actual
        )
        if not size:
            yield finding(
                "cache-not-used",
                "the first load had left no cache, so that this start wasn't warm",
                line,
            )
        elif reports_cache and not line:
            yield finding(
                "cache-not-used", "there was a cache, and the delegate didn't say that it used it"
            )


def rounding_findings(report: ToolReport) -> Iterator[Finding]:
    """Yield a finding where a program rounds its figures too coarsely for so short a latency."""
    median, resolution = (
        report.inference.median_us if report.inference else None,
        report.extra.get("resolution_us"),
    )
    if median and isinstance(resolution, float) and resolution / 2 / median > ROUNDING_MAX:
        share = format_percent(resolution / median)
        yield finding(
            "coarse-resolution",
            f"figures are rounded to {format_latency(resolution)}, {share} of the median",
        )


def steadiness_findings(inference: LatencySummary) -> Iterator[Finding]:
    """Yield the findings of a series of inferences."""
    count = inference.count
    if count is None or count < INFERENCES_MIN:
        number = "an unknown number of" if count is None else count
        yield finding(
            "few-inferences", f"{number} inferences, at least {INFERENCES_MIN} are needed"
        )
    median, p5, p95 = inference.median_us, inference.p5_us, inference.p95_us
    if not median or p5 is None or p95 is None:
        return
    spread, mean = (p95 - p5) / median, inference.mean_us
    percentiles = f"p5 {format_latency(p5)}, p95 {format_latency(p95)}"
    if spread > SPREAD_MAX:
        message = f"90 % of the inferences spread over {format_percent(spread, 0)} of the median"
        yield finding("unsteady", message, percentiles)
    if count is None or count < _SHAPE_COUNT:
        return
    if spread > SPREAD_REPORTED and (trend := _trend(inference, p5, p95)):
        evidence = f"first {format_latency(inference.first_us or 0)}, last {format_latency(inference.current_us or 0)}"
        yield finding("unsteady-trend", trend, evidence)
    elif spread > SPREAD_REPORTED and _has_two_modes(inference):
        message = "the inferences fall into two groups: a clock or a core changed between them"
        yield finding("unsteady-two-modes", message, percentiles)
    if spread <= SPREAD_MAX and mean is not None and mean > (1 + _OUTLIER_SHARE) * median:
        excess = format_percent(mean / median - 1, 0)
        longest = (
            f"longest {format_latency(inference.max_us)}" if inference.max_us is not None else ""
        )
        yield finding(
            "outliers",
            f"a few inferences took so long that the mean is {excess} over the median",
            longest,
        )


def summary_findings(report: ToolReport, *, is_cpu: bool) -> Iterator[Finding]:
    """Yield the findings of an imported run of which only a summary is known.

    Nobody saw the phone's heat and clocks, so that their traces in the figures count: a mean far
    above the median, a wide spread, a CPU that was faster at first, a GPU that was still warming
    up.
    """
    inference = report.inference
    if inference is None or not inference.median_us or not inference.mean_us:
        return
    median, mean = inference.median_us, inference.mean_us
    signs = (
        ("the mean's distance from the median", mean / median - 1, SUMMARY_SKEW_MAX),
        ("the deviation", (inference.std_us or 0.0) / mean, SUMMARY_SPREAD_MAX),
        (
            "p95's distance from the median",
            (inference.p95_us or median) / median - 1,
            SUMMARY_TAIL_MAX,
        ),
    )
    beyond = [
        f"{name} is {format_percent(share, 0)} (at most {format_percent(limit, 0)})"
        for name, share, limit in signs
        if share > limit
    ]
    if beyond:
        yield finding("unsteady", "; ".join(beyond))
    first, warmup = report.first_inference_us, report.warmup_mean_us
    if is_cpu and first and median > (1 + SUMMARY_FALL_MAX) * first:
        slower = format_percent(median / first - 1, 0)
        yield finding("unsteady-trend", f"the median is {slower} slower than the first inference")
    if not is_cpu and warmup and warmup > (1 + SUMMARY_RAMP_MAX) * mean:
        slower = format_percent(warmup / mean - 1, 0)
        yield finding(
            "unsteady-trend",
            f"the warm-up was {slower} slower than the measurement: it still ramped up",
        )


def repetition_findings(each_us: Sequence[float]) -> Iterator[Finding]:
    """Yield the findings of a process's repetitions, from the time of each, in their order.

    They are one trajectory: the phone heats up while they run.
    """
    if len(each_us) < 2 or min(each_us) <= 0:
        return
    first, last = each_us[0], each_us[-1]
    evidence = f"{len(each_us)} repetitions: " + ", ".join(
        format_latency(each) for each in each_us[:20]
    )
    if last > (1 + REPETITIONS_FALL_MAX) * first:
        slower = format_percent(last / first - 1, 0)
        yield finding(
            "unsteady-trend", f"the last repetition is {slower} slower than the first", evidence
        )
    elif max(each_us) > (1 + REPETITIONS_SPREAD_MAX) * min(each_us):
        longer = format_percent(max(each_us) / min(each_us) - 1, 0)
        yield finding(
            "unsteady", f"the slowest repetition takes {longer} longer than the fastest", evidence
        )


def _trend(inference: LatencySummary, p5: float, p95: float) -> str:
    """Return the direction of a trend as a sentence: the first is among the extremes of one side and
    the last of the other; empty for none.

    In an order without a trend that happens once in 200 runs (0.05 x 0.05, either way).
    """
    first, last = inference.first_us, inference.current_us
    if first is None or last is None:
        return ""
    if first <= p5 and last >= p95:
        return "the inferences became slower while the process ran"
    if first >= p95 and last <= p5:
        return "the inferences became faster while the process ran"
    return ""


def _has_two_modes(inference: LatencySummary) -> bool:
    """Whether the deviation is larger than any distribution with one peak between this minimum and
    maximum can have.

    The variance of a unimodal distribution on [a, b] is at most (b - a)**2 / 9 (H. I. Jacobson,
    "The maximum variance of restricted unimodal distributions", Annals of Mathematical Statistics
    40, 1969).
    """
    low, high, std = inference.min_us, inference.max_us, inference.std_us
    return (
        low is not None
        and high is not None
        and std is not None
        and high > low
        and std > (high - low) / 3
    )
