"""Comparing builds whose speeds are known, in turns and from the store; and finding the first slow
one.
"""

from __future__ import annotations

import re
import shutil
import signal
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from orchestrator.store.opening import open_store
from tests.e2e.conftest import Lab
from tests.samples.command import Cli, Done, heard
from tests.samples.places import MODELS

QUICK = ("--min-secs", "0.1")
#: As few pairs as say something of a large difference.
FEW = (*QUICK, "--runs", "5")
#: On a computer that does much else.
PATIENCE_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """A phone of its own, so that no other test heats it, and programs of known speed."""

    cli: Cli
    serial: str
    folder: Path
    model: Path

    def program(self, name: str, time: float = 0.0) -> Path:
        """Return a program that takes so many per cent longer; its content differs from all others."""
        path = self.folder / name
        if not path.exists():
            self.cli("virtual program", path, "--release", name, "--time", time).ok()
        return path

    def ab(self, *words: object, detect: str = "6%") -> Done:
        return self.cli(
            "ab", *words, "-m", self.model, "-s", self.serial, "--detect", detect, *QUICK,
            timeout_s=PATIENCE_S,
        )  # fmt: skip


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    folder = tmp_path_factory.mktemp("comparing")
    cli = Cli(home=folder / "home")
    try:
        (phone,) = cli.json("virtual up pixel-4 --speed 60 --seed 4")["phones"]
        yield Bench(
            cli=cli, serial=phone["serial"], folder=folder, model=min(MODELS.glob("*float*.tflite"))
        )
    finally:
        cli("virtual down")
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def slower(bench: Bench) -> dict[str, Any]:
    """An A/B comparison of a program with one that takes 15 % longer."""
    done = bench.ab(f"build:{bench.program('old')}", f"build:{bench.program('new', 15)}", "--json")
    assert done.exit_code == 1, done.stdout + done.stderr
    result: dict[str, Any] = done.json
    return result


def test_a_slower_build_is_found_with_its_size_and_the_exit_code_says_so(
    slower: dict[str, Any],
) -> None:
    (case,) = slower["cases"]
    verdict = case["verdict"]
    assert verdict["outcome"] == "slower"
    assert verdict["low"] < 1.15 < verdict["high"]
    assert verdict["method"].startswith("paired")
    assert verdict["counts"][0] >= 8
    assert 0 < verdict["detectable"] < 0.15
    assert case["is_virtual"]
    assert slower["fails"]


def test_a_build_that_leaves_operators_to_the_cpu_is_no_slower_build_and_that_is_told_after_a_pair(
    bench: Bench,
) -> None:
    fault = ("virtual fault", bench.serial, "delegate-partial")
    bench.cli(*fault, "subject=xnnpack of leaves", "times=0").ok()
    try:
        done = bench.ab(
            bench.program("old"), bench.program("leaves"), "--json", "--no-check-outputs"
        )
    finally:
        bench.cli("virtual fault", bench.serial, "clear")
    (case,) = done.json["cases"]
    assert case["verdict"]["outcome"] == "incomparable", done.stderr
    assert "ran in different places" in done.stderr
    # The pair that warms the phone, and the first ones: more would change nothing.
    runs = bench.cli.json("results runs newest")
    assert max(run["invocation"] for run in runs) == 4


def test_a_crash_is_named_in_the_verdict_and_the_exit_code_says_so(bench: Bench) -> None:
    words = ("ab threads:1 threads:4 -d xnnpack --runs 4 --min-secs 1 --json", "-m", bench.model)
    crash = ("virtual fault", bench.serial, "segv")
    bench.cli(*crash).ok()
    warmup = bench.cli(*words, "-s", bench.serial).ended_with(1).json
    (case,) = warmup["cases"]
    assert (case["verdict"]["outcome"], warmup["fails"]) == ("faster", True)
    assert "gave no result in #1: failed: segfault: " in "".join(case["verdict"]["reasons"])
    assert bench.cli("compare", warmup["campaign_id"]).ended_with(1).stdout.count("segfault") == 1


def test_a_comparison_that_its_budget_ends_has_its_verdict_s_exit_code(bench: Bench) -> None:
    words = (bench.program("old"), bench.program("twin"), "--budget", "3s", "--json")
    done = bench.ab(*words, detect="0.5%")
    assert done.json["no_time_for"], done.stderr
    assert done.exit_code == done.json["fails"], done.stderr


def test_pairs_ran_in_turns_and_the_first_one_does_not_count(
    bench: Bench, slower: dict[str, Any]
) -> None:
    runs = bench.cli.json("results runs", slower["campaign_id"])
    pairs: dict[int, list[str]] = defaultdict(list)
    for run in runs:
        pairs[run["invocation"]].append(
            run["case"]["case_key"] if "case_key" in run["case"] else run["case"]["build_sha256"]
        )
    assert [run["invocation"] for run in runs] == sorted(run["invocation"] for run in runs)
    assert all(len(set(pair)) == 2 == len(pair) for pair in pairs.values())
    first = [pairs[number][0] for number in sorted(pairs)]
    sides = ["A" if side == first[0] else "B" for side in first[:8]]
    assert sides == list("ABBAABBA")
    (case,) = slower["cases"]
    used = set(case["baseline"]["run_ids"]) | set(case["candidate"]["run_ids"])
    assert not used & {run["run_id"] for run in runs if run["invocation"] == 1}
    assert case["verdict"]["counts"][0] == len(pairs) - 1


def test_the_result_is_shown_again_from_the_store(bench: Bench, slower: dict[str, Any]) -> None:
    again = bench.cli("compare --json", slower["campaign_id"]).ended_with(1).json
    assert again["cases"][0]["verdict"] == slower["cases"][0]["verdict"]
    text = bench.cli("compare", slower["campaign_id"]).ended_with(1).stdout
    assert any(line.startswith("1 slower; overall +1") for line in text.splitlines())
    assert "[virtual]" in text


def test_what_fails_can_be_chosen(bench: Bench, slower: dict[str, Any]) -> None:
    assert bench.cli("compare --fail-on never", slower["campaign_id"]).exit_code == 0
    assert bench.cli("compare --fail-on inconclusive", slower["campaign_id"]).exit_code == 1
    assert bench.cli("compare --fail-on sometimes", slower["campaign_id"]).exit_code == 2


def test_builds_within_a_campaign_are_compared_by_their_hashes(
    bench: Bench, slower: dict[str, Any]
) -> None:
    old, new = (slower["cases"][0][side]["build_sha256"] for side in ("baseline", "candidate"))
    turned = bench.cli.json("compare --by build", new[:12], old[:12])
    (case,) = turned["cases"]
    assert case["verdict"]["outcome"] == "faster"
    assert case["verdict"]["method"].startswith("paired")
    assert case["verdict"]["ratio"] == pytest.approx(1 / slower["cases"][0]["verdict"]["ratio"])
    # By each name of this computer: the store has one.
    bench.cli("build add --name renamed", bench.program("old")).ok()
    renamed = bench.cli("compare --json --by build renamed", new[:12]).ended_with(1).json
    assert renamed["cases"][0]["verdict"] == slower["cases"][0]["verdict"]


def test_a_comparison_that_was_cut_off_within_a_pair_goes_on_with_both_sides(bench: Bench) -> None:
    sides = [f"build:{bench.program('old')}", f"build:{bench.program('new', 15)}"]
    whole = bench.ab(*sides, "--runs", "4", "--json").json
    last = whole["cases"][0]["candidate"]["case_key"]
    newest = "campaign_no = (SELECT max(campaign_no) FROM campaigns)"
    second = "invocation = 1 AND case_no = (SELECT case_no FROM cases WHERE case_key = ?)"
    with closing(sqlite3.connect(bench.cli.home / "store.sqlite")) as rows, rows:
        rows.execute(f"DELETE FROM runs WHERE {newest} AND (invocation > 1 OR {second})", [last])
        rows.execute(f"UPDATE campaigns SET status = 'running', finished_at = NULL WHERE {newest}")
    resumed = bench.cli("run --resume --json", timeout_s=PATIENCE_S).json
    assert resumed["cases"][0]["verdict"]["counts"] == whole["cases"][0]["verdict"]["counts"]


def test_models_and_flags_are_sides_too(bench: Bench) -> None:
    def compared(sides: str, *more: object) -> Any:
        words = f"ab {sides} -s {bench.serial} --detect 10% --fail-on never --json"
        return bench.cli(words, *more, *FEW).ok().json["cases"][0]

    other = bench.folder / "other.tflite"
    other.write_bytes(bench.model.read_bytes() + b"\0" * 16)
    models = compared("", f"model:{bench.model}", f"model:{other}")
    assert models["verdict"]["outcome"] in {"same", "inconclusive"}
    assert models["verdict"]["counts"] == [5, 5]
    flags = compared(
        "flags:xnnpack_force_fp16=false flags:xnnpack_force_fp16=true", "-m", bench.model
    )
    assert flags["verdict"]["outcome"] == "faster"


@pytest.mark.parametrize("side", ["threads:1,2", "delegate:all"])
def test_a_side_of_several_configurations_is_refused(bench: Bench, side: str) -> None:
    other = f"{side.partition(':')[0]}:{'4' if 'threads' in side else 'cpu'}"
    done = bench.ab(side, other, "--runs", "2").ended_with(2)
    assert f"'{side}' names several configurations" in done.stderr


def test_what_neither_side_can_run_is_told_beside_what_was_compared(bench: Bench) -> None:
    sides = ("threads:1", "threads:2", "-d", "xnnpack,coreml", "--runs", "2")
    done = bench.ab(*sides, "--fail-on", "never").ok()
    assert "over 1 case" in done.stdout
    assert f"not run on {bench.serial}: coreml, native: 'native' has no" in done.stdout


def test_a_phone_without_a_pair_has_no_part_in_a_comparison(
    lab_of: Callable[..., Lab], bench: Bench
) -> None:
    lab = lab_of("pixel-3", "moto-e5-play")
    words = ("ab threads:1 threads:8 -d xnnpack --runs 2 --fail-on never", "-m", bench.model)
    done = lab.cli(*words, *QUICK).ok()
    assert "4 invocations on Google Pixel 3 (virtual)\n" in done.stderr
    assert f"not run on {lab.serials[1]}: xnnpack, native: 8 threads on 4 cores" in done.stdout
    with closing(open_store(lab.cli.home / "store.sqlite")) as store:
        assert list(store.devices()) == [lab.serial]


def test_each_of_several_phones_gets_its_pairs(bench: Bench, lab: Lab) -> None:
    words = "ab threads:1 threads:2 -d xnnpack --runs 3 --fail-on never --where virtual --json"
    done = lab.cli(words, "-m", bench.model, *QUICK).ok()
    assert {tuple(case["verdict"]["counts"]) for case in done.json["cases"]} == {(3, 3)}
    (campaign, *_) = lab.cli.json("results list")
    assert campaign["status"] == "finished"
    runs = lab.cli.json("results runs", campaign["campaign_id"])
    # One pair warms each phone.
    assert Counter(run["case"]["serial"] for run in runs) == dict.fromkeys(lab.serials, 8)


def test_two_nights_are_compared_and_a_changed_setting_makes_them_incomparable(
    bench: Bench,
) -> None:
    for settings in ((), (), ("--inferences", "20")):
        bench.cli(f"bench -d xnnpack -n 3 -s {bench.serial}", bench.model, *QUICK, *settings).ok()
    changed = bench.cli("compare --json")
    assert changed.exit_code == 1
    assert changed.json["counts"]["incomparable"] == 1
    # The newest alone is compared with what was before it.
    assert bench.cli("compare newest --json").json["cases"] == changed.json["cases"]
    assert changed.json["cases"][0]["differences"][0]["fact"] == "settings"
    first, second = [item["campaign_id"] for item in bench.cli.json("results list")[1:3]][::-1]
    nights = bench.cli.json("compare --fail-on never", first, second)
    assert nights["cases"][0]["verdict"]["method"] == "welch"
    allowed = bench.cli.json("compare --allow settings --fail-on never")
    assert any(
        reason.startswith("Allowed:") for reason in allowed["cases"][0]["verdict"]["reasons"]
    )


def test_a_killed_comparison_continues_without_repeating_or_losing_a_run(bench: Bench) -> None:
    process = bench.cli.start(
        f"ab --detect 2% --min-secs 2 --runs 6 -s {bench.serial}",
        *(bench.program("old"), bench.program("killed", 15), "-m", bench.model),
    )
    # Early: however late the kill comes, the comparison isn't over before.
    heard(process, " 4/")
    process.kill()
    process.communicate()
    campaign = bench.cli.json("results list")[0]
    assert campaign["status"] == "cut off"
    before = {run["run_id"] for run in bench.cli.json("results runs", campaign["campaign_id"])}
    assert 4 <= len(before) < 14
    page = bench.folder / "killed.html"
    result = bench.cli("run --resume --json --out", page)
    assert result.json["path"] == str(page)
    assert "<html" in page.read_text()
    assert result.json["campaign_id"] == campaign["campaign_id"]
    assert (result.json["left"], result.json["status"], result.exit_code) == (0, "finished", 1)
    after = bench.cli.json("results runs", campaign["campaign_id"])
    assert before <= {run["run_id"] for run in after}
    keys = [(run["case"]["build_sha256"], run["invocation"]) for run in after]
    assert len(keys) == len(set(keys))
    assert result.json["cases"][0]["verdict"]["outcome"] == "slower"


def test_a_comparison_that_is_stopped_after_its_warm_up_is_shown(
    bench: Bench,
) -> None:
    words = f"ab threads:1 threads:2 -d xnnpack --min-secs 100 --max-secs 150 -s {bench.serial}"
    process = bench.cli.start(words, "-m", bench.model)
    heard(process, " 2/")
    process.send_signal(signal.SIGINT)
    _, rest = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, rest
    assert "no pair that counts is complete: " in " ".join(rest.split())


def test_a_closed_comparison_says_how_many_runs_were_abandoned_and_when_it_was_closed(
    bench: Bench,
) -> None:
    process = bench.cli.start(
        f"ab threads:1 threads:2 -d xnnpack --min-secs 2 -s {bench.serial}", "-m", bench.model
    )
    heard(process, " 6/")
    process.kill()
    process.communicate()
    cut = bench.cli.json("results list")[0]
    closed = bench.cli("results close", cut["campaign_id"]).ok().stdout
    abandoned = re.search(r"closed, (\d+) invocations? abandoned", closed)
    assert abandoned is not None, closed
    (row, *_) = bench.cli.json("results list --status closed")
    assert (row["stored"], row["abandoned"]) == (cut["stored"], int(abandoned[1]))
    told = bench.cli("compare --fail-on never", cut["campaign_id"]).ok().stdout
    assert re.search(r"The campaign was closed after \d pairs", told), told


def test_a_bisection_that_was_stopped_continues_with_its_comparison(bench: Bench) -> None:
    for number, time in enumerate((0, 40)):
        program = bench.program(f"half{number}", time)
        bench.cli("build add --name half", program, "--release", f"v{number}").ok()
    listed = bench.cli.json("build list --all")
    half = {item["tag"]: f"half@{item['release_id']}" for item in listed if item["name"] == "half"}
    words = (
        "bisect --detect 20%", half["v0"], half["v1"], "-m", bench.model, "-s", bench.serial, *FEW, "--min-secs", "20",
    )  # fmt: skip
    process = bench.cli.start(*words)
    # Of half a second each: the next ones wait for the stop.
    said = heard(process, " 1/")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, said
    before = bench.cli("results list --json --name bisect").ok().json
    assert before[0]["status"] == "interrupted"
    assert f"first bad: {half['v1']}" in bench.cli(*words, timeout_s=PATIENCE_S).ok().stdout
    after = bench.cli("results list --json --name bisect").ok().json
    assert [item["status"] for item in after] == ["finished", *(b["status"] for b in before[1:])]
    assert after[0]["campaign_id"] == before[0]["campaign_id"]


def test_the_first_slow_one_of_five_builds_is_found_and_found_again_without_measuring(
    bench: Bench,
) -> None:
    # Of five pairs the interval of equal builds is up to 20 % wide by chance.
    for number, time in enumerate((0, 0, 0, 100, 100)):
        program = bench.program(f"release{number}", time)
        bench.cli("build add --name mine", program, "--release", f"v{number}").ok()
    listed = bench.cli.json("build list --all")
    mine = {item["tag"]: item["release_id"] for item in listed if item["name"] == "mine"}
    words = (
        "bisect --detect 50%", f"mine@{mine['v0']}", f"mine@{mine['v4']}", "-m", bench.model, "-s", bench.serial, *FEW,
    )  # fmt: skip
    found = bench.cli.json(*words, timeout_s=PATIENCE_S)
    tags = {build["release_id"]: build["tag"] for build in found["builds"]}
    assert (tags[found["first_bad"]], tags[found["last_good"]]) == ("v3", "v2")
    assert found["step"]["verdict"]["ratio"] == pytest.approx(2, rel=0.1)
    assert [tags[b["release_id"]] for b in found["builds"] if b["is_first_bad"]] == ["v3"]
    assert found["is_virtual"]
    assert sum(build["compared"] is not None for build in found["builds"]) < 4
    stored = len(bench.cli.json("results list"))
    again = bench.cli(*words).ok()
    assert f"first bad: mine@{mine['v3']} (v3); last good: mine@{mine['v2']} (v2)" in again.stdout
    assert again.stdout.count("<- first bad") == 1
    assert len(bench.cli.json("results list")) == stored
    # A budget without time for a pair compares nothing that could be used again.
    for more in (1, 2):
        short = bench.cli(*words, "--budget", "0.01s", timeout_s=PATIENCE_S).ended_with(1)
        assert "The budget left no time for a whole pair; give more with --budget." in short.stdout
        assert len(bench.cli.json("results list")) == stored + more
    swapped = bench.cli("bisect", f"mine@{mine['v4']}", f"mine@{mine['v0']}", "-m", bench.model)
    assert swapped.exit_code == 2
    assert "wasn't archived before" in swapped.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("ab build:a", "two sides"),
        ("ab build:a model:b.tflite", "differ in kind"),
        ("ab build:a build:b", "-m FILE.tflite"),
        ("ab build: build:b -m x.tflite", "names nothing"),
        ("ab threads:x threads:2 -m x.tflite", "\nthreads:x: 'x' should be a valid integer"),
        ("ab model:x.tflite y.tflite", "\nmodel:x.tflite: there is no file"),
        ("ab threads:1 threads:2 -t 4 -m x.tflite", "the threads are the sides; leave -t out"),
        ("ab delegate:gpu delegate:cpu -d xnnpack -m x.tflite", "leave -d out"),
        ("ab a b -m x.tflite --detect 0%", "--detect"),
        ("ab a b -m x.tflite --budget -5", "--budget"),
        ("bisect mine@1a2b mine@3c4d -m x.tflite --budget nonsense", "--budget"),
        ("compare --by moon a b", "--by"),
        ("compare --by config threads b", "isn't name=value"),
        ("compare --by device a", "two sides"),
        ("compare --allow virtual", "isn't a fact that may differ"),
        ("compare --format pdf", "no format"),
        ("compare --level 1.5", "isn't between 50% and 99.99%"),
        ("compare previous newest third", "two sides"),
    ],
)
def test_what_cannot_be_compared_is_told_in_one_clear_error(
    cli: Cli, words: str, message: str
) -> None:
    done = cli(words)
    assert done.exit_code == 2, done.stdout + done.stderr
    assert message in done.stderr


def test_a_side_against_itself_tells_what_the_phone_can_resolve(bench: Bench) -> None:
    copy = bench.folder / "copy"
    shutil.copy(bench.program("old"), copy)
    unwritten = bench.ab(bench.program("old"), copy, "--out", bench.folder / "x.xml").ended_with(2)
    assert "there is no comparison to write" in unwritten.said
    done = bench.ab(bench.program("old"), copy, "--runs", "3", "--budget", "20min")
    assert done.exit_code == 0
    assert "smallest change found" in done.stdout
    with closing(open_store(bench.cli.home / "store.sqlite")) as store:
        budgets = [item.terms.budget for item in store.campaigns() if item.name == "aa"]
    assert budgets == [300.0] * 4
    sessions = bench.cli.json("results list --name aa")
    # At most three pairs in each, from which other numbers of pairs follow.
    assert [item["stored"] for item in sessions] == [6] * 4
    assert re.search(r"^ab, 5 pairs +\d", done.stdout, re.MULTILINE)
    cut = bench.ab(bench.program("old"), copy, "--budget", "0.1s").ended_with(6)
    assert "out of time: " in cut.said
