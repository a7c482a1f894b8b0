"""The text between the tables of docs/evidence.md."""

HEAD = """# Evidence for the statistics

Written by `make evidence`; don't edit. Series of known truth are drawn from noise that was recorded from real runs, and
judged by the functions that judge your figures ([method](method.md)). Tables show
the lowest and highest figure over the kinds of noise; every cell is a row of the CSV files in
`docs/evidence`.
"""

FEWER = """
**Written with 1 of {divisor} trials** (`benchmarks/evidence --fewer {divisor}`): shares are known to a few per cent only,
and a bound near its limit may be missed by chance.
"""

BOUNDS = """## Bounds

{kept} of {all} bounds are kept, each for one kind of noise and one number of invocations:
`bounds.csv` there says what each promises and what was found.
"""

NOISE = """## The noise

Recorded by `benchmarks/evidence/record.py` on a busy computer: rougher than a quiet phone. *Sized to a phone* scales these
shapes to 1.5 % between processes. Heavy tails: 3 % of the invocations are
slowed by 5 to 40 %. Drift: a ramp of up to 3 % and a random walk. Figures of virtual phones are no measurements.
"""

COVERAGE = """## Coverage

How often a 95 % interval held the truth; {trials} trials in each cell. The bounds are on the mean over all noise. Each
case is alone here, which widens intervals of few invocations, and drift those of one case.
"""

MEANS = """The plain mean with Student's t:
"""

STOPPING = """### The stopping rule

With every look that the engine takes; {trials} trials in each cell. The bound holds for each cell.
"""

CLAIMS = """## A against B

How often a change was claimed (in its direction) from ABBA pairs; {trials} trials in each cell.
*`ab`* is the command at its defaults ({planned} trials). No bound on power holds for the noise as
recorded: the verdict there is INCONCLUSIVE, with a minimum detectable effect.
"""

TODAY = """### What people do today

Equals called a change / 3 % slower found, of the same series:
"""

NIGHTS = """## Two nights

`benchfarm compare` of two stored campaigns of a series without earlier sessions, not measured in pairs;
{trials} trials in each cell ({fewer} for the two last columns). *Nights that differ*: each night as a whole is off by a
normal {off}. No number of invocations tells that from a change of the
program, so the interval holds it: an A/B comparison finds small changes.
"""

REMEMBERING = """## Noise that remembers

Normal noise of 1.5 % whose neighbours in time are correlated (0 to 0.6), as heat makes it, and phones with two clock
states 4 % apart, 30 : 70; *staying 0.5*: half of the invocations keep the clock of the one before. {trials} trials in
each cell. *As if independent* is Student's interval of the trimmed mean; *width* is the factor that memory costs.

### One case alone

At least 93 % is promised, and 90 % where the correlation is 0.5 or more.
"""

SIBLINGS = """### {cases} cases of a device

In turns; {devices} devices in each cell. **Not held** by 8 invocations of clock states that stay: 91 % there.
"""

REMEMBERING_STOPS = """### The stopping rule on them

One case alone, 8 to 40 invocations; {trials} trials in each cell; the same is promised.
"""

REMEMBERING_NIGHTS = """### Two nights that remember

`benchfarm compare` as above; {trials} trials in each cell.
"""

REMEMBERING_PAIRS = """Pairs A B B A of the same noise, 10 or {most}: {found} of equals are called a change.
"""

SMALL_STEPS = """### Steps of 1 %

`ab --detect 1%`: threshold 0.7 %, at most 200 pairs; {trials} trials in each cell, at its level of 99 % and with
`--level 95%`.
"""

HISTORY = """## Changes over the nights

`benchfarm history changes`, asked each night from the 91st to the 150th: {series} series without a
change, and {half} of each step, which begins on the 101st night and counts as found within 14
nights. **Not held: 9 of 10 steps of 3 % where nights remember.** The two last columns are what a likelihood ratio finds
at as many false candidates that is given the size and correlation of the noise, and in the last column the level.
"""

KINDS = """## Seventeen kinds of noise

The commands' defaults on noise of 1.5 % in seventeen shapes (*two states* are 4 % apart; *outliers* are slowed by 5 to
40 %; *the first ones warm it* by 2 %; whole ms at 20.4 ms, 10 us at 0.3 ms). Coverage of a case alone with 8 invocations
and by the stopping rule, with its processes ({trials} trials); `benchfarm ab`: equals called
a change, called the same, steps of 2 % found and pairs ({turns} trials); `benchfarm history
changes`: false candidates of 1,000 series-nights, steps of 5 % found ({series} series). At least 93 % coverage is
promised, 90 % where the correlation is 0.5. **Not held where memory is 0.8**: at least 78 %. At most 1 false
candidate is promised, 2 with 10 % outliers, 3 with two states that stay for nights: those look like steps.
"""

SESSIONS = """## Between sessions

`benchfarm compare` of two stored sessions of 12 invocations with a noise of 1 %, which differ as a whole by a
normal deviation; {trials} trials in each cell. *Next figure held*: the 95 % interval of the ratio holds 1. At most 1 %
false is promised where sessions differ by up to 1.5 %, the default, and 2 % where they differ by 2 % and 20 are known.
**Not held: sessions that differ by more than the default, of which few are known.**
"""

WINNERS = """### The fastest of several

How often one of equals is called slower than the fastest, of 12 invocations with a noise of 1.5 % and shared heat.
"""

YOUNG = """## A lab's first nights, and steps that pass

{labs} labs of 20 series, asked once. *Found*: a step of 5 % that all series made three to five nights ago. Three nights
after the end of a step of 5 % that lasted ten nights, {left} of series are still called slower.
"""

COST = """## Device time

A campaign of {cases} cases, quiet and noisy ones mixed. The fixed scheme gives 10 invocations of 50 inferences to every
case until as large a share of the cases has an interval under 2 % as with the stopping rule.
"""

ALONE = """One case alone, when it must only reach the width that 10 x 50 gives *it*, by the choice of inferences
per process (10 to 50):
"""

JUDGING = """## Throttled runs

{runs} runs of the physics of virtual phones, in a third of them clocks that something else than heat takes. The
truth is the physics' own count of the time in which clocks were held down while there was work; runs in
which that was between nothing and {touched} of the time count on neither side. No
measurement.
"""

CLOCKS = """## Invocations at lower clocks

Eight invocations of a case on virtual phones' physics, with a normal 1.5 % of noise; in half of the
cases the clocks of one are held down. No measurement.
"""
