"""Prove the statistics on series of known truth, and write docs/evidence.md with its charts.

Run as ``make evidence``. Everything is drawn from noise.json with one seed, so that the same code
writes the same pages; ``--fewer N`` does with 1 of N trials, ``--quick`` with a fifth.
``--processes N`` takes so many (default: 4). Ends with 1 when a stated bound is missed. ``--record``
takes the noise again first.
"""

from __future__ import annotations

import argparse
import csv
import math
import re
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import cost
import drawing
import history
import judging
import kinds as noise_kinds
import numpy as np
import prose
import remembering
import trials
from noise import Noise, drift, recorded

SEED = 20261122
COVERAGE_TRIALS, CLAIM_TRIALS, TODAY_TRIALS, COST_SETS = 1000, 1000, 600, 9
NIGHTS_TRIALS, PLANNED_TRIALS = 2000, 400
#: Normal noise around the sizes at which the stopping rule stops somewhere between its first and
#: its last.
NORMAL_STDS = (0.015, 0.02, 0.03, 0.035, 0.04, 0.045, 0.05)
#: What a night as a whole may be off by, beside its invocations.
NIGHT_STD = 0.015
#: Devices of twelve cases, and trials of comparisons that look for 1 %.
DEVICES, SMALL_TRIALS = 200, 400
#: What chance adds to a share of so few trials.
SMALL_CHANCE = 0.01
HISTORY_SERIES = 400
#: What holds less is named in the text: devices' cases of 8 invocations of one kind of noise.
LESS_HELD, LESS_HELD_OF_EIGHT = 0.91, "two clock states, staying 0.5"
#: Single cases and the stopping rule where the noise remembers: cells near their bounds.
REMEMBERING_TRIALS, STOPPED_TRIALS = 2000, 4000
#: Series that the limit of what history can find is drawn from.
LIMIT_SERIES = 3000
#: Trials on each of the seventeen kinds, and what intervals hold where memory lasts; elsewhere 93 %.
KIND_TRIALS, TURN_TRIALS, KIND_SERIES = 1000, 400, 600
HELD_OF_KIND = {
    "autocorrelation 0.5": 0.9,
    "two states, staying 0.5": 0.9,
    "autocorrelation 0.8": 0.78,
}
SESSION_TRIALS, YOUNG_LABS = 2000, 60
#: Labs of nothing but nights that look like steps: two states that last, and outliers side by side.
MORE_FALSE = {"two states, staying 0.5": 0.003, "outliers, 10 %": 0.002}
#: Columns that name rows, and keep their units.
LABELS = {"what", "promised", "noise", "between sessions"}
EFFECTS = (0.01, 0.02, 0.03, 0.05)
DOCS = Path(__file__).parents[2] / "docs"


#: What a comparison in turns reaches at the defaults of the command.
PLANNED_POWER_MIN, PLANNED_SAME_MIN = 0.95, 0.80


#: The names of how many trials there are.
COUNTS = (
    *("COVERAGE_TRIALS", "CLAIM_TRIALS", "TODAY_TRIALS", "COST_SETS", "NIGHTS_TRIALS"),
    *("PLANNED_TRIALS", "DEVICES", "SMALL_TRIALS", "HISTORY_SERIES", "REMEMBERING_TRIALS"),
    *("STOPPED_TRIALS", "LIMIT_SERIES", "KIND_TRIALS", "TURN_TRIALS", "KIND_SERIES"),
    *("SESSION_TRIALS", "YOUNG_LABS"),
)


def reduce(divisor: int) -> None:
    """Make all parts do with fewer trials, in this process and those that it starts."""
    for name in COUNTS:
        globals()[name] = max(3, globals()[name] // divisor)


class Bounds:
    """What is promised, what was found, and whether it was kept."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, str, str, bool]] = []

    def check(self, what: str, value: float, *, low: float = 0.0, high: float = 1.0) -> None:
        """Hold a share against what is promised of it."""
        promise = f"at least {100 * low:.0f} %" if low else f"at most {100 * high:g} %"
        if low and high < 1:
            promise = f"{100 * low:.0f} to {100 * high:g} %"
        told = f"{100 * value:.2f} %" if high < 0.01 else percent(value)
        self.rows.append((what, promise, told, low <= value <= high))

    @property
    def are_kept(self) -> bool:
        return all(row[3] for row in self.rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--quick", dest="fewer", action="store_const", const=5, default=1)
    parser.add_argument("--fewer", type=int)
    parser.add_argument("--processes", type=int, default=4)
    options = parser.parse_args()
    if options.record:
        import record

        sys.argv = sys.argv[:1]
        record.main()
    noises = recorded()
    kinds = trials.kinds_of(noises)
    bounds = Bounds()
    # Each part draws from streams of its own, so that it comes out alike in whatever order parts
    # are worked on.
    with ProcessPoolExecutor(
        options.processes, initializer=reduce, initargs=(options.fewer,)
    ) as pool:
        work = [
            pool.submit(part_of, part, given)
            for part, given in (
                (coverage_part, kinds),
                (stopping_part, kinds),
                (claims_part, kinds),
                (nights_part, kinds),
                (remembering_part, None),
                (remembering_nights_part, None),
                (small_steps_part, kinds),
                (history_part, None),
                (kinds_part, None),
                (between_part, None),
                (young_part, None),
                (cost_part, noises),
                (judging_part, None),
                (clocks_part, None),
            )
        ]
        parts = [noise_part(noises)]
        for item in work:
            text, rows = item.result()
            parts.append(text)
            bounds.rows += rows
    head = prose.HEAD
    if options.fewer > 1:
        head += prose.FEWER.format(divisor=options.fewer)
    text = "\n".join([head, bounds_table(bounds), *parts])
    (DOCS / "evidence.md").write_text(text, "utf-8")
    for what, promise, found, is_kept in bounds.rows:
        print(f"{'kept  ' if is_kept else 'MISSED'}  {what}: {found} ({promise})")
    return 0 if bounds.are_kept else 1


def part_of(
    part: Callable[..., str], given: object
) -> tuple[str, list[tuple[str, str, str, bool]]]:
    """Return a part's text and its bounds."""
    bounds = Bounds()
    text = part(bounds) if given is None else part(given, bounds)
    return text, bounds.rows


def chance(part: int, *more: int) -> np.random.Generator:
    """Return a stream of its own for each cell, so that one more row changes no other."""
    return np.random.default_rng((SEED, part, *more))


def coverage_part(kinds: Sequence[trials.Kind], bounds: Bounds) -> str:
    table = {
        way: [
            trials.coverage(kind, way, chance(1, row, column), COVERAGE_TRIALS)
            for column, kind in enumerate(kinds)
        ]
        for row, way in enumerate(trials.WAYS)
    }
    for way, values in table.items():
        high = 0.995 if "pairs" in way else 1.0
        bounds.check(
            f"coverage of 95 % intervals over all noise: {way}",
            float(np.mean(values)),
            low=0.93,
            high=high,
        )
    rows = [
        (way, *map(percent, values), percent(float(np.mean(values))))
        for way, values in table.items()
    ]
    bars = [(way, 100 * float(np.mean(values)), True) for way, values in table.items()]
    heads = ("interval", *(kind.name for kind in kinds), "all")
    data("coverage", heads, rows)
    draw(
        "coverage.svg",
        drawing.bars(
            "95 % intervals that hold the truth", bars, start=85, top=100, limits=(93, 97)
        ),
    )
    means = [(name, *map(percent, values)) for name, values in means_coverage(kinds).items()]
    return "\n".join(
        [
            prose.COVERAGE.format(trials=COVERAGE_TRIALS),
            markdown(heads, rows),
            "![coverage](evidence/coverage.svg)\n",
            prose.MEANS,
            markdown(heads[:-1], means),
        ]
    )


def stopping_part(kinds: Sequence[trials.Kind], bounds: Bounds) -> str:
    """Return the coverage of the rule as the engine runs it, cell by cell, and what it gives."""
    cells = [
        *(kind for kind in kinds if not kind.drifts),
        *trials.normal_kinds(NORMAL_STDS, chance(14)),
    ]
    rows = []
    for column, kind in enumerate(cells):
        held, given = trials.stopped_coverage(kind, chance(15, column), COVERAGE_TRIALS)
        bounds.check(f"coverage of 95 % intervals, stopping rule, {kind.name}", held, low=0.93)
        rows.append((kind.name, percent(held), f"{given:.1f}"))
    return "\n".join(
        [
            prose.STOPPING.format(trials=COVERAGE_TRIALS),
            markdown(("noise", "coverage", "invocations, mean"), rows),
        ]
    )


def nights_part(kinds: Sequence[trials.Kind], bounds: Bounds) -> str:
    """Return what comparing two nights comes to: not in pairs, sides of like and unlike size."""
    cells = [
        *(kind for kind in kinds if not kind.drifts),
        *trials.normal_kinds((0.015, 0.03, 0.045), chance(16)),
    ]
    rows = []
    for column, kind in enumerate(cells):
        for row, counts in enumerate(trials.NIGHTS):
            name = f"{counts[0]} against {counts[1]}"
            alarm, held = trials.nights(kind, chance(17, column, row), NIGHTS_TRIALS, counts)
            power, _ = trials.nights(
                kind, chance(18, column, row), PLANNED_TRIALS, counts, effect=math.log1p(0.05)
            )
            off, _ = trials.nights(
                kind, chance(19, column, row), PLANNED_TRIALS, counts, night_std=NIGHT_STD
            )
            bounds.check(
                f"A/A false alarms, two nights, {name}, {kind.name}",
                alarm,
                high=0.01,
            )
            bounds.check(
                f"coverage of 95 % intervals, two nights, {name}, {kind.name}", held, low=0.93
            )
            rows.append(
                (kind.name, name, percent(alarm), percent(held), percent(power), percent(off))
            )
    heads = ("noise", "invocations", "A/A", "coverage", "5 % slower", "A/A, nights that differ")
    text = prose.NIGHTS.format(trials=NIGHTS_TRIALS, fewer=PLANNED_TRIALS, off=percent(NIGHT_STD))
    data("two-nights", heads, rows)
    return "\n".join([text, ranges(heads, rows)])


def remembering_part(bounds: Bounds) -> str:
    """Return intervals and the stopping rule on invocations that resemble their neighbours."""
    single, device, rule = [], [], []
    for row, kind in enumerate(remembering.kinds()):
        for column, count in enumerate((8, 12, 20, 40)):
            held, naive, grown = remembering.fixed(
                kind, chance(22, row, column), REMEMBERING_TRIALS, count
            )
            high = 0.995 if kind.truth == 0.0 and count >= 20 else 1.0
            bounds.check(
                f"coverage of 95 % intervals, one case of {count}, {kind.name}",
                held,
                low=0.9 if kind.is_lasting else 0.93,
                high=high,
            )
            single.append((kind.name, str(count), percent(held), percent(naive), f"{grown:.2f}"))
        for column, count in enumerate((8, 12, 20)):
            held, grown = remembering.siblings(kind, chance(23, row, column), DEVICES, count)
            name = f"coverage of 95 % intervals, {remembering.SIBLINGS} cases of {count} on a device, {kind.name}"
            is_correlated = kind.truth == 0.0
            low = LESS_HELD if count == 8 and kind.name == LESS_HELD_OF_EIGHT else 0.92
            bounds.check(name, held, low=low, high=0.985 if is_correlated and count > 8 else 1.0)
            device.append((kind.name, str(count), percent(held), f"{grown:.2f}"))
    stopping = [
        *remembering.kinds(),
        *(remembering.autoregressive(rho, 0.03) for rho in (0.5, 0.6)),
    ]
    for row, kind in enumerate(stopping):
        held, given = remembering.stopped(kind, chance(24, row), STOPPED_TRIALS)
        low = 0.9 if kind.is_lasting else 0.93
        bounds.check(f"coverage of 95 % intervals, stopping rule, {kind.name}", held, low=low)
        rule.append((kind.name, percent(held), f"{given:.1f}"))
    alone = ("noise", "invocations", "coverage", "as if independent", "width")
    siblings = ("noise", "invocations", "coverage", "width")
    data("remembering", alone, single)
    data("remembering-devices", siblings, device)
    return "\n".join(
        [
            prose.REMEMBERING.format(trials=REMEMBERING_TRIALS),
            ranges(alone, single),
            prose.SIBLINGS.format(cases=remembering.SIBLINGS, devices=DEVICES),
            ranges(siblings, device),
            prose.REMEMBERING_STOPS.format(trials=STOPPED_TRIALS),
            markdown(("noise", "coverage", "invocations, mean"), rule),
        ]
    )


def remembering_nights_part(bounds: Bounds) -> str:
    """Return two nights, and pairs, of invocations that resemble their neighbours."""
    rows, pairs = [], []
    for row, kind in enumerate(remembering.kinds()):
        for column, counts in enumerate(((8, 8), (12, 12), (8, 40), (30, 30))):
            alarm, held, found = remembering.nights(
                kind, chance(26, row, column), COVERAGE_TRIALS, counts
            )
            name = f"{counts[0]} against {counts[1]}, {kind.name}"
            bounds.check(f"A/A false alarms, two nights, {name}", alarm, high=0.01)
            bounds.check(f"coverage of 95 % intervals, two nights, {name}", held, low=0.93)
            rows.append(
                (
                    kind.name,
                    f"{counts[0]} against {counts[1]}",
                    percent(alarm),
                    percent(held),
                    percent(found),
                )
            )
        alarms = []
        for column, count in enumerate((10, trials.PAIRS)):
            draw = remembering.drawn_from([kind.draw], chance(27, row, column))
            alarms.append(remembering.paired(draw, COVERAGE_TRIALS, count))
            bounds.check(f"A/A false alarms, {count} pairs, {kind.name}", alarms[-1], high=0.015)
        pairs.append((kind.name, *map(percent, alarms)))
    heads = ("noise", "invocations", "A/A", "coverage", "5 % slower")
    of_pairs = ("noise", "A/A, 10 pairs", f"A/A, {trials.PAIRS} pairs")
    data("remembering-nights", heads, rows)
    data("remembering-pairs", of_pairs, pairs)
    highest = within([cell for row in pairs for cell in row[1:]])
    return "\n".join(
        [
            prose.REMEMBERING_NIGHTS.format(trials=COVERAGE_TRIALS),
            ranges(heads, rows),
            prose.REMEMBERING_PAIRS.format(most=trials.PAIRS, found=highest),
        ]
    )


def small_steps_part(kinds: Sequence[trials.Kind], bounds: Bounds) -> str:
    """Return what 'compare --ab' reaches for changes of 1 %."""
    cells = [
        (kind.name, [_drawn(kind, noise) for noise in kind.series])
        for kind in kinds
        if kind.is_phone_sized
    ]
    cells += [(kind.name, [kind.draw]) for kind in remembering.kinds()]
    rows = []
    for row, (name, draws) in enumerate(cells):
        told = []
        for at, level in enumerate((0.99, 0.95)):
            found = [
                remembering.small_steps(
                    remembering.drawn_from(draws, chance(28, row, column, at)),
                    SMALL_TRIALS,
                    detect=0.01,
                    effect=effect,
                    level=level,
                )
                for column, effect in enumerate((0.0, 0.01))
            ]
            bounds.check(
                f"A/A false alarms, 'ab --detect 1%' at {level:.0%}, {name}",
                found[0][0],
                high=1 - level + SMALL_CHANCE,
            )
            told += [percent(found[0][0]), percent(found[1][0]), f"{found[1][1]:.0f}"]
        rows.append((name, *told))
    heads = (
        "noise",
        *(f"{head}, {level}" for level in ("99 %", "95 %") for head in ("A/A", "found", "pairs")),
    )
    return "\n".join([prose.SMALL_STEPS.format(trials=SMALL_TRIALS), markdown(heads, rows)])


def history_part(bounds: Bounds) -> str:
    """Return what 'regressions' finds of steps, and what it takes for one, on nights that remember
    each other."""
    rows = []
    for row, kind in enumerate(history.KINDS):
        false = history.candidates(kind, chance(29, row), HISTORY_SERIES)
        bounds.check(
            f"false candidates of 1,000 series-nights, {kind.name}", false / 1000, high=0.001
        )
        steps = [
            history.found(kind, chance(30, row, column), HISTORY_SERIES // 2, step)
            for column, step in enumerate((0.03, 0.05))
        ]
        bounds.check(f"steps of 5 % found within 14 nights, {kind.name}", steps[1], low=0.95)
        limits = [
            percent(
                history.attainable(
                    kind, chance(31, row, column), LIMIT_SERIES, 0.03, knows_level=knows
                )
            )
            if kind.share == 1
            else ""
            for column, knows in enumerate((False, True))
        ]
        rows.append((kind.name, f"{false:.2f}", *map(percent, steps), *limits))
    heads = (
        *(
            "noise of 1.5 % between nights",
            "false candidates of 1,000 series-nights",
            "3 % found",
            "5 % found",
        ),
        *("3 %, noise known", "3 %, noise and level known"),
    )
    return "\n".join(
        [
            prose.HISTORY.format(series=HISTORY_SERIES, half=HISTORY_SERIES // 2),
            markdown(heads, rows),
        ]
    )


def kinds_part(bounds: Bounds) -> str:
    """Return all that is promised, on seventeen kinds of noise."""
    single, turns, nights = [], [], []
    for row, kind in enumerate(noise_kinds.KINDS):
        one = noise_kinds.alone(kind, chance(32, row), KIND_TRIALS)
        for what, held in (("8", one.eight), ("12", one.twelve), ("stopping rule", one.stopped)):
            low = HELD_OF_KIND.get(kind.name, 0.93)
            bounds.check(f"coverage of 95 % intervals, {what}, {kind.name}", held, low=low)
        shares = (one.eight, one.twelve, one.stopped, one.energy)
        counts = (f"{one.processes:.1f}", f"{one.known_processes:.1f}")
        single.append((kind.name, *map(percent, shares), *counts))
        equal, *steps = noise_kinds.turns(kind, chance(33, row), TURN_TRIALS)
        bounds.check(f"A/A false alarms, 'ab', {kind.name}", equal[0], high=0.015)
        told = (f"{percent(found)}, {pairs:.0f}" for found, _, pairs in steps)
        turns.append((kind.name, percent(equal[0]), percent(equal[1]), f"{equal[2]:.0f}", *told))
        false, found = noise_kinds.nights(kind, chance(34, row), KIND_SERIES)
        most = MORE_FALSE.get(kind.name, 0.001)
        bounds.check(f"false candidates of series-nights, {kind.name}", false / 1000, high=most)
        nights.append((kind.name, f"{false:.2f}", percent(found)))
    few = noise_kinds.alarms(noise_kinds.fifth_remembers(chance(35), KIND_SERIES), 90)
    false = noise_kinds.false_candidates(few, 90)
    name = "a fifth of series with 0.8"
    bounds.check(f"false candidates of series-nights, {name}", false / 1000, high=0.0015)
    nights.append((name, f"{false:.2f}", ""))
    heads = ("noise", "8", "12", "stopping rule", "energy, 12 blocks", "processes", "known device")
    of_turns = (
        "noise",
        "A/A",
        "equals SAME",
        "pairs, equals",
        "2 %, pairs",
        "3 %, pairs",
        "5 %, pairs",
    )
    of_nights = ("noise", "false of 1,000 series-nights", "5 % found")
    data("kinds", heads, single)
    data("kinds-in-turns", of_turns, turns)
    data("kinds-over-nights", of_nights, nights)
    both = [
        (one[0], one[1], one[3], one[5], turn[1], turn[2], turn[4], *night[1:])
        for one, turn, night in zip(single, turns, nights, strict=False)
    ]
    shown = (
        *("noise", "8", "stopping rule", "processes", "`ab`: A/A", "SAME", "2 %, pairs"),
        *("nights: false", "nights: found"),
    )
    return "\n".join(
        [
            prose.KINDS.format(trials=KIND_TRIALS, turns=TURN_TRIALS, series=KIND_SERIES),
            markdown(shown, both),
        ]
    )


def between_part(bounds: Bounds) -> str:
    """Return what comparisons of two sessions and of many configurations come to."""
    rows, winners = [], []
    for row, between in enumerate((0.0, 0.01, 0.015, 0.02)):
        for column, known in enumerate((0, 20)):
            rng = chance(36, row, column)
            claimed, held, found = noise_kinds.sessions(rng, SESSION_TRIALS, between, known)
            name = (
                f"{percent(between)} between sessions, {f'{known} known' if known else 'default'}"
            )
            if between <= 0.015 or known:
                most = 0.01 if between <= 0.015 else 0.02
                bounds.check(f"A/A false alarms, {name}", claimed, high=most)
                bounds.check(f"next session's figure held, {name}", held, low=0.93)
            rows.append(
                (percent(between), str(known or "none"), *map(percent, (claimed, held, found)))
            )
    for row, members in enumerate((2, 5, 10)):
        shares = [
            noise_kinds.false_winners(
                chance(37, row, at), SESSION_TRIALS, members, in_rounds=paired
            )
            for at, paired in enumerate((True, False))
        ]
        bounds.check(
            f"an equal called slower, {members} configurations in rounds", shares[0], high=0.05
        )
        winners.append((str(members), *map(percent, shares)))
    heads = ("between sessions", "sessions known", "A/A", "next figure held", "8 % found")
    return "\n".join(
        [
            prose.SESSIONS.format(trials=SESSION_TRIALS),
            markdown(heads, rows),
            prose.WINNERS,
            markdown(("configurations", "in the same rounds", "apart"), winners),
        ]
    )


def young_part(bounds: Bounds) -> str:
    """Return what is told in a lab's first nights, and of steps that passed."""
    rows = []
    for row, count in enumerate((6, 9, 11, 14, 20)):
        false, found = noise_kinds.young(chance(38, row), YOUNG_LABS, count)
        bounds.check(f"false alarms of series, lab of {count} nights", false / 1000, high=0.003)
        bounds.check(f"a step that all share found, lab of {count} nights", found, low=0.9)
        rows.append((str(count), f"{false:.2f}", percent(found)))
    left = noise_kinds.passing(chance(39), KIND_SERIES)
    bounds.check("still slower three nights after a passing step", left, high=0.05)
    heads = ("nights", "false of 1,000 series", "5 % of all series found")
    return "\n".join(
        [prose.YOUNG.format(labs=YOUNG_LABS, left=percent(left)), markdown(heads, rows)]
    )


def _drawn(kind: trials.Kind, noise: Noise) -> Callable[[np.random.Generator, int], trials.Floats]:
    def draw(rng: np.random.Generator, count: int) -> trials.Floats:
        logs = noise.draw(rng, count, runs=trials.RUNS)
        return logs + drift(rng, count) if kind.drifts else logs

    return draw


def means_coverage(kinds: Sequence[trials.Kind]) -> dict[str, list[float]]:
    """Return the coverage of mean and t, whose truth is the mean of endless invocations."""
    return {
        f"mean and t, {count} invocations": [
            trials.coverage_of_means(kind, chance(2, count, column), COVERAGE_TRIALS, count=count)
            for column, kind in enumerate(kinds)
        ]
        for count in (8, 15)
    }


def claims_part(kinds: Sequence[trials.Kind], bounds: Bounds) -> str:
    up = math.log1p(0.03)
    rows = []
    for column, kind in enumerate(kinds):
        alarm = trials.claims(kind, chance(3, column), CLAIM_TRIALS, effect=0.0)
        few = trials.claims(kind, chance(4, column), CLAIM_TRIALS, effect=0.0, pairs=10)
        slower = trials.claims(kind, chance(5, column), CLAIM_TRIALS, effect=up)
        faster = trials.claims(kind, chance(6, column), CLAIM_TRIALS, effect=-up)
        wanted = math.log1p(0.02)
        found = trials.in_turns_of(kind, chance(7, column), PLANNED_TRIALS, effect=wanted)
        equal = trials.in_turns_of(kind, chance(20, column), PLANNED_TRIALS, effect=0.0)
        bounds.check(
            f"A/A false alarms, 'ab' at its defaults, {kind.name}", equal.claimed, high=0.01
        )
        bounds.check(f"A/A false alarms, {trials.PAIRS} pairs, {kind.name}", alarm, high=0.01)
        bounds.check(f"A/A false alarms, 10 pairs, {kind.name}", few, high=0.01)
        if kind.is_phone_sized:
            bounds.check(
                f"power for 3 % slower, {trials.PAIRS} pairs, {kind.name}", slower, low=0.95
            )
            bounds.check(
                f"power for 3 % faster, {trials.PAIRS} pairs, {kind.name}", faster, low=0.95
            )
        if kind.is_phone_sized:
            bounds.check(
                f"2 % slower found, 'ab' at its defaults, {kind.name}",
                found.claimed,
                low=PLANNED_POWER_MIN,
            )
            bounds.check(
                f"equals called the same, 'ab' at its defaults, {kind.name}",
                equal.same,
                low=PLANNED_SAME_MIN,
            )
        own = (alarm, few, slower, faster, found.claimed, equal.claimed, equal.same)
        rows.append((kind.name, *map(percent, own), f"{found.pairs:.0f}", f"{equal.pairs:.0f}"))
    heads = (
        "noise",
        "A/A, 40 pairs",
        "A/A, 10 pairs",
        "3 % slower",
        "3 % faster",
        "`ab`: 2 % slower",
        "`ab`: A/A",
        "`ab`: equals called SAME",
        "pairs, 2 % slower",
        "pairs, equals",
    )
    return "\n".join(
        [
            prose.CLAIMS.format(trials=CLAIM_TRIALS, planned=PLANNED_TRIALS),
            markdown(heads, rows),
            today(kinds),
        ]
    )


def today(kinds: Sequence[trials.Kind]) -> str:
    """Return what people do today on the same series, false alarms and power, and the chart of
    both."""
    with_inferences = [
        kind for kind in kinds if any(noise.within is not None for noise in kind.series)
    ]
    rows, alarms = [], []
    for number, way in enumerate(trials.TODAY):
        found = [
            [
                trials.claims_today(
                    kind, way, chance(8, number, column, side), TODAY_TRIALS, effect=effect
                )
                for side, effect in enumerate((0.0, math.log1p(0.03)))
            ]
            for column, kind in enumerate(with_inferences)
        ]
        rows.append((way, *(f"{percent(alarm)} / {percent(power)}" for alarm, power in found)))
        alarms.append((way, 100 * float(np.mean([alarm for alarm, _ in found])), False))
    sized = with_inferences[1]
    own = [
        (
            100 * effect,
            100 * trials.claims(sized, chance(9, column), TODAY_TRIALS, effect=math.log1p(effect)),
        )
        for column, effect in enumerate((0.0, *EFFECTS))
    ]
    curves = [
        ("ABBA pairs", own, True),
        *(power_today(sized, way, number) for number, way in enumerate(trials.TODAY)),
    ]
    ours = [("benchfarm, 40 ABBA pairs", own[0][1], True)]
    draw(
        "false-alarms.svg",
        drawing.bars("Equals called a change", ours + alarms, top=100, limits=(1,)),
    )
    draw(
        "power.svg",
        drawing.lines(
            "Changes claimed", curves, x_name="true change in %", y_name="claimed in % of trials"
        ),
    )
    return "\n".join(
        [
            prose.TODAY,
            markdown(("rule", *(kind.name for kind in with_inferences)), rows),
            "![false alarms](evidence/false-alarms.svg)\n",
            "![power](evidence/power.svg)\n",
        ]
    )


def power_today(
    kind: trials.Kind, way: str, number: int
) -> tuple[str, list[tuple[float, float]], bool]:
    """Return a curve: true change and claims, both in %."""
    points = []
    for column, effect in enumerate((0.0, *EFFECTS)):
        rng = chance(10, number, column)
        found = trials.claims_today(kind, way, rng, TODAY_TRIALS, effect=math.log1p(effect))
        points.append((100 * effect, 100 * found))
    return way.split(",", maxsplit=1)[0], points, False


def cost_part(noises: Sequence[Noise], bounds: Bounds) -> str:
    real = [noise for noise in noises if not noise.is_virtual]
    sets = [cost.campaign(real, chance(11, number)) for number in range(COST_SETS)]
    median = float(np.median([one.median_share for one in sets]))
    bounds.check(
        "device time for equal widths, median over a mixed set, against 10 x 50", median, high=0.5
    )
    rows = [
        (
            str(number + 1),
            percent(one.median_share),
            percent(one.total_share),
            percent(one.reached),
            str(one.fixed_invocations),
        )
        for number, one in enumerate(sets)
    ]
    counts = sorted(case.invocations for case in sets[0].spent)
    bars = [
        (f"{part}0 % of cases: at most", float(counts[(len(counts) - 1) * part // 10]), True)
        for part in (1, 5, 7, 9, 10)
    ]
    draw(
        "invocations.svg",
        drawing.bars(
            "Invocations given by the stopping rule",
            bars,
            top=45,
            unit="",
            limits=(sets[0].fixed_invocations,),
        ),
    )
    with_inferences = [noise for noise in real if noise.within is not None]
    alone = []
    for number, setup_s in enumerate((0.5, 1.0, 2.0, 5.0)):
        spent = cost.one_by_one(with_inferences, setup_s, chance(12, number))
        shares = [case.share for case in spent]
        alone.append(
            (
                f"{setup_s:g} s",
                percent(float(np.median(shares))),
                percent(min(shares)),
                percent(max(shares)),
            )
        )
    return "\n".join(
        [
            prose.COST.format(cases=len(cost.latencies_s())),
            markdown(
                (
                    "set",
                    "time, median case",
                    "time, all cases",
                    "cases under 2 %",
                    "fixed invocations",
                ),
                rows,
            ),
            "![invocations](evidence/invocations.svg)\n",
            prose.ALONE,
            markdown(("a process costs", "time, median case", "best case", "worst case"), alone),
        ]
    )


def clocks_part(bounds: Bounds) -> str:
    """Return how often an invocation is called one at lower clocks than its siblings, rightly and
    wrongly."""
    rows = []
    for row, (way, has_looks) in enumerate(judging.LOOKS.items()):
        found = judging.clock_rates(chance(21, row), has_looks=has_looks)
        bounds.check(f"healthy invocations accused of clocks-low, {way}", found.accused, high=0.01)
        rows.append(
            (
                way,
                percent(found.accused),
                str(found.rows[0][2]),
                percent(found.caught),
                str(found.rows[1][2]),
            )
        )
    heads = ("", "healthy, accused", "healthy", "held down, found", "held down")
    return "\n".join([prose.CLOCKS, markdown(heads, rows)])


def judging_part(bounds: Bounds) -> str:
    found = judging.rates(chance(13))
    bounds.check("throttled runs caught", found.caught, low=0.99)
    bounds.check("calm runs accused of throttling", found.accused, high=0.01)
    rows = [(name, percent(rate), str(count)) for name, rate, count in found.rows]
    text = prose.JUDGING.format(runs=judging.RUNS, touched=percent(judging.TOUCHED))
    return "\n".join([text, markdown(("runs", "called throttled", "runs"), rows)])


def noise_part(noises: Sequence[Noise]) -> str:
    rows = [
        (
            noise.name,
            f"{noise.source}{' (virtual)' if noise.is_virtual else ''}",
            str(len(noise.between)),
            f"{noise.latency_us / 1000:.2f} ms",
            percent(float(np.std(noise.between, ddof=1))),
            percent(float(1.4826 * np.median(np.abs(noise.between - np.median(noise.between))))),
            percent(float(np.mean(noise.inner))),
        )
        for noise in noises
    ]
    heads = (
        "series",
        "source",
        "processes",
        "latency",
        "between processes",
        "robustly",
        "within a process",
    )
    return "\n".join(
        [
            prose.NOISE,
            markdown(heads, rows),
        ]
    )


def bounds_table(bounds: Bounds) -> str:
    """Return how many bounds were kept, and those that weren't; every bound is a row of
    bounds.csv.
    """
    rows = [(*row[:3], "yes" if row[3] else "no") for row in bounds.rows]
    data("bounds", ("what", "promised", "found", "kept"), rows)
    missed = [f"- {row[0]}: {row[2]} ({row[1]})\n" for row in bounds.rows if not row[3]]
    text = prose.BOUNDS.format(kept=len(bounds.rows) - len(missed), all=len(bounds.rows))
    return text + (f"\nMissed:\n\n{''.join(missed)}" if missed else "")


def within(cells: Sequence[str]) -> str:
    """Return the lowest and the highest figure of cells of one unit, as they are written."""
    ordered = sorted(cells, key=lambda cell: float(cell.split()[0]))
    low, high = ordered[0], ordered[-1]
    return low if low == high else f"{low.split()[0]}-{high}"


def ranges(heads: Sequence[str], rows: Sequence[Sequence[str]], by: int = 1) -> str:
    """Return a table with a row for each value of one column: lowest to highest over the noise,
    which is the first column."""
    groups: dict[str, list[Sequence[str]]] = {}
    for row in rows:
        groups.setdefault(row[by], []).append(row)
    shown = [column for column in range(1, len(heads)) if column != by]
    return markdown(
        (heads[by], *(heads[column] for column in shown)),
        [
            (value, *(within([row[column] for row in group]) for column in shown))
            for value, group in groups.items()
        ],
    )


def markdown(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table; a unit of a whole column stands in its head."""
    named, columns = [], []
    for head, *column in zip(heads, *rows, strict=True):
        is_share = all(re.fullmatch(r"[\d.-]+ %", cell) for cell in column)
        named.append(f"{head} (%)" if is_share and head not in LABELS else head)
        columns.append(
            [cell.removesuffix(" %") for cell in column] if named[-1] != head else column
        )
    lines = [
        f"|{'|'.join(named)}|",
        f"|{'---|' * len(heads)}",
        *(f"|{'|'.join(row)}|" for row in zip(*columns, strict=True)),
    ]
    return "\n".join(lines) + "\n"


def data(name: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Write every row of a table beside the page."""
    folder = DOCS / "evidence"
    folder.mkdir(exist_ok=True)
    with (folder / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([heads, *rows])


def percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def draw(name: str, svg: str) -> None:
    folder = DOCS / "evidence"
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(svg, "utf-8")


if __name__ == "__main__":
    sys.exit(main())
