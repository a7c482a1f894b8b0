"""The text between the tables of docs/evidence.md."""

HEAD = """# Evidence for the statistics

Written by `make evidence`; don't edit. The methods are explained in [statistics.md](internals/statistics.md). Series
of known truth are drawn from noise that was recorded from real runs, and put through the same functions that judge your
figures.
"""

QUICK = """
**Written with a fifth of the trials** (`benchmarks/evidence --quick`): shares are known to a few per cent only, and a
bound near its limit may be missed by chance.
"""

NOISE = """## The noise

Recorded by `benchmarks/evidence/record.py` on a computer that other work kept busy: rougher than a quiet phone, with
bursts and slow processes. *Sized to a phone* keeps these shapes and scales them to 1.5 % between processes. Heavy
tails: 3 % of the invocations are slowed by 5 to 40 %. Drift: a ramp of up to 3 % and a random walk. Figures of virtual
phones are no measurements.
"""

COVERAGE = """## Coverage

How often a 95 % interval held the truth; {trials} trials in each cell. The bounds are on the mean over all noise. Here
each case is alone, and nothing shows that these series don't remember: intervals of few invocations are wider than they
need to be, and hold the truth up to 99 times of 100 (see *Noise that remembers*). Drift of a phone widens the interval
of one case further; pairs take it out.
"""

STOPPING = """### The stopping rule, cell by cell

The rule that the engine runs, with every look it takes; {trials} trials in each cell. Whoever looks at the figures to
decide whether they are enough stops on lucky ones, most of all where the noise lets the rule stop somewhere between 8
and 40: normal noise of 3 to 5 %. Here the bound holds for each cell, not only in the mean.
"""

REMEMBERING = """## Noise that remembers

Normal noise of 1.5 % whose neighbours in time are correlated, as heat makes it, and phones with two clock states 4 %
apart, 30 : 70, with 0.5 % of noise in each; *staying 0.5*: half of the invocations keep the clock of the one before.
{trials} trials in each cell. Of two clock states the interval is that of the median. *As if independent* is Student's
interval of the trimmed middle, without a look at the order; *width* is the factor that memory costs.

### One case alone

At least 90 % is promised. A case of which nothing else is known is taken to remember: it can't show with 8 invocations
that it forgets. Without memory its intervals hold the truth up to 99 times of 100.
"""

SIBLINGS = """### {cases} cases of a device

Cases that run in turns show each other what their device remembers; {devices} devices in each cell. From 12
invocations on the bound is 93 to 98 % for correlated noise. Of two clock states, whose medians order statistics hold
more often than they say, it is at least 93 %; **not held** by 8 invocations of states that stay, where it is 91 %.
"""

REMEMBERING_STOPS = """### The stopping rule

One case alone, 8 to 40 invocations; {trials} trials in each cell. At least 93 % is promised. An interval that is
narrow enough must be so once more after 3 further invocations.
"""

REMEMBERING_NIGHTS = """### Two nights that remember

`benchfarm compare` of two stored nights; {trials} trials in each cell. At most 2.5 % of equal nights may be called a
change. Where both nights show the two clock states, each state is compared with its own. Where one does, only what no
other share of the states explains is claimed: with 8 invocations, the other night may have drawn one state alone.
"""

REMEMBERING_PAIRS = """Pairs A B B A of the same noise:
"""

SMALL_STEPS = """### Steps of 1 %

`ab --detect 1%`: threshold 0.7 %, at most 200 pairs; {trials} trials in each cell,
at its level of 99 % and with `--level 95%`. At most 10 % of equals may be called a change.
"""

NIGHTS = """## Two nights

`benchfarm compare` of two stored campaigns: two samples that weren't measured in pairs; {trials} trials in each cell
({fewer} for the two last columns). *Nights that differ*: each night as a whole is off by a normal {off}, as another
temperature of the room makes it. No number of invocations of two nights can tell that from a change of the program: an
A/B comparison can. The noise of this computer, as recorded, mixes very unlike series: its bound is 1.5 %.
"""

CLOCKS = """## Invocations at lower clocks

Eight invocations of a case on the physics of virtual phones, with a normal 1.5 % of noise between them (3 % of them
slowed by 5 to 40 %) and 0.1 to 6 seconds of idle time around each. In half of the cases the clocks of one invocation
are held down. Healthy are those that aren't held down and whose clocks heat didn't take. Virtual phones: no
measurement.
"""

MEANS = """The truth is what endless invocations would come to by the same estimate. The same for the plain mean and
Student's t in the place of the trimmed middle, as commonly done, with the mean of endless invocations as the truth:
"""

CLAIMS = """## A against B

How often a change was claimed (in its direction, where there is one) from ABBA pairs; {trials} trials in each cell.
*`ab`* is the command at its defaults ({planned} trials): a change of 2 % is looked for after 8, 12, 18 ... 200 pairs,
until it is shown or that there is none. The noise of this computer as recorded is no quiet phone's: no bound on power
holds there, and the verdict is INCONCLUSIVE with a minimum detectable effect that says so.
"""

TODAY = """### What people do today

The same series, in the same run: equals called a change / 3 % slower found.
"""

COST = """## Device time

A campaign of {cases} cases, quiet and noisy ones mixed: noise between processes is lognormal, 1.5 % in the middle and
three times as much at the 90th percentile. The fixed scheme gives 10 invocations of 50 inferences to every case, again
and again, until as large a share of the cases has an interval under 2 % as with the stopping rule. Equal width is asked
of the *set* here: a scheme that doesn't look at the figures must give all cases what the noisiest need.
"""

ALONE = """One case alone can't be had for half: there is no way round the number of processes. When each case must only
reach the width that 10 x 50 gives *it*, the choice of inferences per process by cost and variance (10 to 50) is all
that is left to save (published latencies of real models; what a process costs beside its inferences varies):
"""

JUDGING = """## Throttled runs

The judge of every run, on {runs} runs of the physics of virtual phones: heat, clocks that heat takes, and in a third of
the runs clocks that something else takes for a while. Phones of all profiles, cool or warm, as far as a plan's default
limits let a run begin at all; 1 to 60 seconds on 1 to 4 big cores. The truth is the physics' own count of the time in
which clocks were held down while there was work; runs in which that was between nothing and {touched} of the time
count on neither side. The judge sees what it would see of a phone: limits and time at each clock before and after, the
looks of the watcher beside the run, the thermal service. The bounds are those of phones with a thermal service.
Virtual phones: no measurement.
"""

HISTORY = """## Changes over the nights

`benchfarm history changes` with its defaults, asked each night from the 91st to the 150th: {series} series without a
change, and {half} of each step, which begins on the 101st night and counts as found when it is told within 14
nights. At most 1 false candidate in 1,000 series-nights is promised, and that 19 of 20 steps of 5 % are found. **Not
held: 9 of 10 steps of 3 % where nights remember.** With 90 nights it can't be: a step of two deviations has too little
of its own in 14 nights that resemble each other. The two last columns are what a likelihood ratio finds at 1 false
candidate in 1,000 series-nights that is told the size and correlation of the noise, and in the last column also the
level before the step.
"""

KINDS = """## Seventeen kinds of noise

All that is promised at the defaults of the commands, on noise of 1.5 % in seventeen shapes (*two states* are 4 % apart,
30 : 70; *outliers* are slowed by 5 to 40 %; *the first ones warm it*: by 2 %; programs that print whole ms at 20.4 ms,
and 10 us at 0.3 ms; of noise that triples or swaps, which happens in the middle of a sample or on the 101st night, the
new level is the old one). {trials} trials in each cell: how often the 95 % interval of a case alone held the truth, with
8 and 12 invocations and as the stopping rule ends it, that of the energy of 12 blocks, and the invocations that the rule
takes: where nothing is known of the device, and beside four earlier campaigns of it. At least 90 % is promised.
**Not held where memory lasts for longer than a few invocations, or where the device is still warming**: at least 70 %.
"""

KINDS_TURNS = """### In turns

`benchfarm ab` at its defaults: {trials} trials in each cell. Equals called a change (at most 1.5 % is promised), equals
called the same and the pairs that this takes, then steps: found in their direction, and the pairs that it takes.
"""

KINDS_NIGHTS = """### Over the nights

`benchfarm history changes` at its defaults on {series} series, asked each night from the 91st to the 130th. At most 5
false candidates of 1,000 series-nights are promised, and at most 6 where the noise itself changes or nights remember
for long. Two states that stay for nights look like steps.
"""

SESSIONS = """## Between sessions

`benchfarm compare` of two stored sessions of 12 invocations with a noise of 1 % in each, which differ as a whole by a
normal deviation; {trials} trials in each cell. The interval holds what sessions of the series differed by, or a default
of 1.5 % until eleven are known. *Next figure held*: the 95 % interval of the ratio holds 1.
"""

WINNERS = """### The fastest of several

How often one of equal configurations is called slower than the fastest, of 12 invocations with a noise of 1.5 % and heat
that they share: those of the same rounds are compared in pairs, and all comparisons share an error of 5 %.
"""

YOUNG = """## A lab's first nights, and steps that pass

{labs} labs of 20 series, asked once. *Found*: a step of 5 % that all series made three to five nights ago. Three nights
after the end of a step of 5 % that lasted ten nights, {left} of series are still called slower; the others went away.
"""
