"""What is derived of a run's conditions, how it is graded, and how often throttling is told on
known truth."""

import random
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from orchestrator.analysis.findings import steadiness_findings
from orchestrator.analysis.quality import Ending, Observed, judge
from orchestrator.analysis.samples import derive_conditions, mean_khz, parse_samples
from orchestrator.passes import pass_of
from orchestrator.records.case import DelegateName, Pass
from orchestrator.records.device import DeviceState
from orchestrator.records.run import LatencySummary, Outcome
from orchestrator.records.verdict import Grade
from tests.unit.analysis.test_quality import CASE, FACTS, GOOD

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LOW, TOP = 300_000, 2_800_000
STEPS = (LOW, 1_000_000, 1_800_000, 2_200_000, 2_500_000, TOP)
SEEN = DeviceState(
    at=NOW, uptime_s=100.0, boot_id="b", thermal_status=0, screen_on=True, load_1min=0.5, boot_at_s=1000,
    clock_khz={0: LOW, 4: LOW}, clock_limit_khz={0: 1_800_000, 4: TOP}, clock_floor_khz={0: LOW, 4: LOW},
)  # fmt: skip


def look(
    uptime_s: float,
    busy_s: float,
    ticks: dict[int, int],
    *,
    limit_khz: int = TOP,
    clock_khz: int = LOW,
) -> str:
    policy = "/sys/devices/system/cpu/cpufreq/policy4"
    rows = "".join(f"{policy}/stats/time_in_state:{khz} {count}\n" for khz, count in ticks.items())
    busy = round(busy_s * 100)
    return (
        f"--look\n/proc/stat:cpu  {busy} 0 0 {round(uptime_s * 600) - busy} 0 0 0 0 0 0\n"
        f"/proc/uptime:{uptime_s:.2f} 9.9\n"
        f"{policy}/scaling_cur_freq:{clock_khz}\n{policy}/scaling_max_freq:{limit_khz}\n{rows}"
        "/sys/class/thermal/thermal_zone3/type:cpu-1\n/sys/class/thermal/thermal_zone3/temp:51000\n"
    )


def series(
    clocks: list[tuple[float, float, int]], *, own_s: float, foreign_cores: float = 0.1
) -> bytes:
    """Return what the watcher writes of stretches (seconds, busy cores of the program, kHz)."""
    uptime_s, busy_s = 100.0, 50.0
    ticks = dict.fromkeys(STEPS, 1000)
    text = look(uptime_s, busy_s, ticks)
    for seconds, cores, khz in clocks:
        uptime_s, busy_s = uptime_s + seconds, busy_s + seconds * (cores + foreign_cores)
        ticks = {**ticks, khz: ticks[khz] + round(seconds * 100)}
        text += look(uptime_s, busy_s, ticks)
    end = text.rindex("--look")
    return (
        f"{text[:end]}\n--times\n0m00.00s 0m00.00s\n0m{own_s:.2f}s 0m00.00s\n{text[end:]}".encode()
    )


def test_the_watchers_lines_become_a_time_series() -> None:
    looks = parse_samples(series([(1, 0.2, LOW), (2, 2, TOP), (2, 2, TOP)], own_s=8.2))
    assert [sample.uptime_s for sample in looks.samples] == [100, 101, 103, 105]
    assert looks.own_cpu_s == pytest.approx(8.2)
    assert looks.samples[0].heat_c == {"cpu-1": 51.0}
    assert looks.samples[0].clock_limit_khz == {4: TOP}
    assert looks.duration_s == 5


@pytest.mark.parametrize(
    "times",
    ["0m8.2s 0m0.0s\n1m2.50s 0m0.50s", "   0m08.20s     0m00.00s\n   1m02.50s     0m00.50s"],
)
def test_the_programs_own_time_is_the_second_line_of_times(times: str) -> None:
    assert parse_samples(
        f"{look(1, 1, {})}\n--times\n{times}\n".encode()
    ).own_cpu_s == pytest.approx(63.0)


@pytest.mark.parametrize("data", [b"", b"--look\n", b"\xff\xfe--look", b"garbage\n--times\n"])
def test_what_cannot_be_read_is_no_look(data: bytes) -> None:
    assert parse_samples(data).samples == ()


def test_looks_that_were_held_up_accuse_nobody() -> None:
    falling = series([(2, 2, TOP), (2, 2, TOP), (2, 2, 1_800_000)], own_s=12)
    assert throttled(falling)
    held_up = falling.replace(
        b"/proc/uptime:102.00 9.9\n", b"/proc/uptime:102.00 9.9\n/proc/uptime:102.90 9.9\n"
    )
    held_up = held_up.replace(
        b"/proc/uptime:104.00 9.9\n", b"/proc/uptime:104.00 9.9\n/proc/uptime:104.90 9.9\n"
    )
    assert not throttled(held_up)


def test_a_look_that_the_programs_end_cut_off_is_none() -> None:
    text = (
        look(100, 1, {TOP: 1}) + "--look\n/proc/uptime:103.00 9.9\n/proc/stat:cpu  100 0 0 900 0\n"
    )
    ended = f"{text}\n--times\n0m0s 0m0s\n0m2.0s 0m0.0s\n{look(103, 2, {TOP: 201})}"
    assert [sample.uptime_s for sample in parse_samples(ended.encode()).samples] == [100, 103]


def test_a_file_cut_off_anywhere_never_fails() -> None:
    whole = series([(2, 2, TOP)] * 3, own_s=12)
    for end in range(len(whole)):
        derive_conditions(SEEN, SEEN, parse_samples(whole[:end]))


def test_the_mean_clock_is_weighed_by_time_and_unknown_when_counters_began_again() -> None:
    assert mean_khz({1000: 10, 2000: 10}, {1000: 10 + 30, 2000: 10 + 10}) == 1250
    assert mean_khz({1000: 10}, {1000: 10}) is None
    assert mean_khz({1000: 10, 2000: 5}, {1000: 5, 2000: 50}) is None


def test_loads_are_told_apart_by_the_programs_own_time() -> None:
    looks = parse_samples(series([(2, 2.0, TOP)] * 5, own_s=20.0, foreign_cores=0.75))
    conditions = derive_conditions(SEEN, SEEN, looks)
    assert conditions.own_cores == pytest.approx(2.0)
    assert conditions.foreign_cores == pytest.approx(0.74)
    assert conditions.is_sampled


@pytest.mark.parametrize(("seconds", "busy_s"), [(0.03, 0.1), (0.11, 0.2)])
def test_a_short_run_is_not_accused_by_a_few_ticks(seconds: float, busy_s: float) -> None:
    start, end = look(100, 50, {TOP: 1}), look(100 + seconds, 50 + busy_s, {TOP: 1})
    looks = parse_samples(f"{start}\n--times\n0m0s 0m0s\n0m{seconds:.2f}s 0m0.00s\n{end}".encode())
    conditions = derive_conditions(SEEN, SEEN, looks)
    assert conditions.own_cores == pytest.approx(1.0)
    assert (conditions.foreign_cores or 0.0) < 0.5


def test_a_short_run_beside_heavy_work_is_seen() -> None:
    start, end = look(100, 50, {TOP: 1}), look(100.11, 50.39, {TOP: 1})
    looks = parse_samples(f"{start}\n--times\n0m0s 0m0s\n0m0.11s 0m0.00s\n{end}".encode())
    assert (derive_conditions(SEEN, SEEN, looks).foreign_cores or 0.0) > 1.0


def test_without_looks_the_states_tell_what_they_can() -> None:
    later = replace(SEEN, uptime_s=110.0, time_in_state={4: {LOW: 0, TOP: 1000}}, boot_at_s=1060)
    before = replace(SEEN, time_in_state={4: {LOW: 0, TOP: 0}})
    conditions = derive_conditions(before, later)
    assert not conditions.is_sampled
    assert conditions.foreign_cores is None
    assert conditions.clock_jump_s == 60
    assert [one.effective_mhz for one in conditions.clusters if one.cpu == 4] == [2800]
    assert derive_conditions(None, None).clusters == ()


def throttled(data: bytes, after: DeviceState = SEEN) -> bool:
    verdict = judge(
        GOOD, Ending(outcome=Outcome.COMPLETED),
        Observed(
            case=replace(CASE, delegate=DelegateName.XNNPACK), facts=FACTS, before=SEEN, after=after, samples=data
        ),
        pass_of(Pass.TIMING).findings,
    )  # fmt: skip
    return verdict.has("throttled")


def made_up(chance: random.Random, *, is_throttled: bool) -> tuple[bytes, DeviceState]:
    """Return a run as a phone's kernel would count it; a throttled one loses at least one clock
    step.

    Every run loads its model with idle cores first, has a full stretch of one to eight looks, and
    ends before the last look, with idle cores again. How much work the looks see differs by 1 %.
    """
    cores = chance.choice([1, 2, 4])
    stretches = [(chance.uniform(0.2, 2.0), 0.1 * cores, LOW)]
    count = chance.randint(1, 8)
    held = chance.randint(0, count - 1) if is_throttled else count
    lower = chance.choice(STEPS[1:-1])
    stretches += [
        (2.0, cores * chance.uniform(0.99, 1.0), TOP if k < held else lower) for k in range(count)
    ]
    stretches.append((chance.uniform(0.05, 1.9), cores * chance.uniform(0.0, 0.9), LOW))
    own_s = sum(seconds * busy for seconds, busy, _ in stretches)
    data = series(stretches, own_s=own_s).decode()
    if is_throttled and chance.random() < 0.5:
        # Half of the phones show it in the limit as well, at the last look; the others only in the
        # clocks.
        head, mark, last = data.rpartition("--look")
        return (
            head + mark + last.replace(f"scaling_max_freq:{TOP}", f"scaling_max_freq:{lower}")
        ).encode(), SEEN
    if is_throttled and (held == 0 or count < 2):
        # From the first look to the last: no clock to compare with, so the thermal HAL has to say
        # it.
        return data.encode(), replace(SEEN, cooling={"thermal-cpufreq-4": 3})
    return data.encode(), SEEN


@pytest.mark.slow
def test_of_thousands_of_runs_the_throttled_are_caught_and_the_others_are_not_accused() -> None:
    chance = random.Random(20)
    caught = sum(throttled(*made_up(chance, is_throttled=True)) for _ in range(1200))
    accused = sum(throttled(*made_up(chance, is_throttled=False)) for _ in range(1200))
    assert caught >= 0.99 * 1200, caught
    assert accused <= 0.01 * 1200, accused


def graded(
    before: DeviceState | None, after: DeviceState | None, data: bytes = b""
) -> Grade | None:
    return judge(
        GOOD, Ending(outcome=Outcome.COMPLETED),
        Observed(case=CASE, facts=FACTS, before=before, after=after, samples=data),
        pass_of(Pass.TIMING).findings,
    ).grade  # fmt: skip


def test_grades_follow_their_rules() -> None:
    at_limit = replace(SEEN, clock_khz=SEEN.clock_limit_khz)
    pinned = replace(at_limit, clock_floor_khz=SEEN.clock_limit_khz)
    by_governor = replace(at_limit, governors={0: "performance", 4: "performance"})
    assert graded(pinned, pinned) is Grade.A
    assert graded(by_governor, by_governor) is Grade.A
    assert graded(pinned, replace(pinned, clock_khz={0: LOW, 4: LOW})) is not Grade.A
    assert graded(at_limit, at_limit) is Grade.B
    assert graded(SEEN, SEEN, series([(2, 2, TOP)] * 3, own_s=12)) is Grade.B
    assert graded(SEEN, SEEN) is Grade.C
    assert graded(SEEN, replace(SEEN, screen_on=None)) is Grade.D
    assert graded(replace(SEEN, thermal_status=None), SEEN) is Grade.D
    assert graded(SEEN, replace(SEEN, thermal_status=1)) is Grade.D
    assert graded(replace(SEEN, load_1min=9.0), SEEN) is Grade.D
    assert graded(SEEN, None) is Grade.E
    assert graded(DeviceState(at=NOW), DeviceState(at=NOW)) is Grade.E


def test_a_failed_run_has_no_grade() -> None:
    ending = Ending(outcome=Outcome.FAILED, reason_code="x")
    verdict = judge(
        None,
        ending,
        Observed(case=CASE, facts=FACTS, before=SEEN, after=SEEN),
        pass_of(Pass.TIMING).findings,
    )
    assert verdict.grade is None


def codes(latencies: list[float]) -> set[str]:
    """Return what is said of a series by the summary that a program prints of it."""
    ordered = sorted(latencies)
    count = len(ordered)
    mean = sum(ordered) / count
    summary = LatencySummary(
        count=count, first_us=latencies[0], current_us=latencies[-1], min_us=ordered[0], max_us=ordered[-1],
        mean_us=mean, std_us=(sum((value - mean) ** 2 for value in ordered) / count) ** 0.5,
        p5_us=ordered[int(0.05 * count)], median_us=ordered[count // 2], p95_us=ordered[int(0.95 * count)],
    )  # fmt: skip
    return {finding.code for finding in steadiness_findings(summary)}


def test_a_trend_two_modes_and_outliers_are_told_apart() -> None:
    chance = random.Random(3)
    noise = [chance.uniform(-3, 3) for _ in range(100)]
    assert codes([100 + n for n in noise]) == set()
    assert codes([100 + 0.4 * k + 0.3 * n for k, n in enumerate(noise)]) == {"unsteady-trend"}
    assert codes([140 - 0.4 * k + 0.3 * n for k, n in enumerate(noise)]) == {"unsteady-trend"}
    shuffled = [100.0] * 50 + [130.0] * 50
    chance.shuffle(shuffled)
    assert codes([s + 0.3 * n for s, n in zip(shuffled, noise, strict=True)]) == {
        "unsteady-two-modes"
    }
    assert codes([100 + n for n in noise[:97]] + [900.0, 800.0, 700.0]) == {"outliers"}
    assert "unsteady" in codes([50 + 1.0 * (37 * k % 100) for k in range(100)])


def test_series_of_one_peak_without_a_trend_are_hardly_ever_said_to_have_one_or_two_peaks() -> None:
    chance = random.Random(4)
    draws = {
        "uniform": lambda: chance.uniform(80, 120),
        "normal": lambda: chance.gauss(100, 8),
        "skewed": lambda: 90 + chance.gammavariate(2.0, 6.0),
    }
    for name, draw in draws.items():
        said = [codes([draw() for _ in range(60)]) for _ in range(1000)]
        assert sum("unsteady-two-modes" in one for one in said) <= 10, name
        assert sum("unsteady-trend" in one for one in said) <= 20, name
