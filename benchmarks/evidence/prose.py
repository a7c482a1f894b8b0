"""The text between the tables of docs/evidence.md."""

HEAD = """# Evidence for the statistics

Written by `make evidence`; don't edit. The methods are explained in [statistics.md](statistics.md). Series of known
truth are drawn from noise that was recorded from real runs, and put through the same functions that judge your
figures.
"""

NOISE = """## The noise

Recorded by `benchmarks/evidence/record.py` on a computer that other work kept busy: rougher than a quiet phone, with
bursts and slow processes. *Sized to a phone* keeps these shapes and scales them to 1.5 % between processes. Heavy
tails: 3 % of the invocations are slowed by 5 to 40 %. Drift: a ramp of up to 3 % and a random walk. Figures of virtual
phones are no measurements.
"""

COVERAGE = """## Coverage

How often a 95 % interval held the truth; {trials} trials in each cell. The bounds are on the mean over all noise. With
drift an interval of one case holds the truth more often than it says, because the phone's course widens it; pairs take
it out.
"""

MEANS = """The truth is what endless invocations would come to by the same estimate. The same for the plain mean and
Student's t in the place of the trimmed middle, as commonly done, with the mean of endless invocations as the truth:
"""

CLAIMS = """## A against B

How often a change was claimed (in its direction, where there is one) from ABBA pairs; {trials} trials in each cell. The
default budget is {pairs} pairs. *Planned* takes as many as the noise of 8 pilot pairs asks for. The noise of this
computer as recorded is no quiet phone's: no bound on power holds there, and the verdict is INCONCLUSIVE with a minimum
detectable effect that says so.
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
