"""``benchfarm compare --by``: phones by the names that people know, also an iPhone beside an Android
phone; where sides are looked for, and what their pairs are worth."""

from __future__ import annotations

import re
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from orchestrator.app.requests import CompareOptions
from orchestrator.cli.comparing import Output
from orchestrator.cli.comparing import compare as command
from orchestrator.cli.output import CommandResult
from orchestrator.errors import UsageError
from orchestrator.records.campaign import Campaign, CampaignStatus, Terms
from orchestrator.records.case import (
    Build,
    BuildSha,
    CampaignId,
    DelegateName,
    RunId,
    Serial,
    ToolName,
    content_key,
)
from orchestrator.records.device import DeviceKind
from orchestrator.records.run import Outcome, RunRecord
from orchestrator.records.verdict import Grade, Quality, QualityVerdict
from orchestrator.settings import Settings
from orchestrator.store.opening import open_store
from tests.samples.records import facts_of, pairing_of, settings_in
from tests.samples.sample_lab import (
    BUILDS,
    CAMPAIGN,
    MOBILENET,
    MOBILENET_INT8,
    PIXEL_3,
    REAL_PIXEL,
    START,
    Lab,
    campaign_of,
    case,
    run,
    series,
    stored,
)

IPHONE = facts_of(
    "lab-xs", kind=DeviceKind.IOS, manufacturer="Apple", model="iPhone XS", profile="iphone-xs"
)
APP = Build(name="an app", tool=ToolName.TEXT, sha256=BuildSha(content_key("ios app")), abi="arm64")
OTHER = replace(BUILDS[ToolName.NATIVE], sha256=BuildSha(content_key("other")))
ANDROID, IMPORTED = CampaignId("20260314-220500-nightly"), CampaignId("20260315-120000-iphone")


CPU, GPU, NPU = (
    case(REAL_PIXEL, MOBILENET, delegate, 1)
    for delegate in (DelegateName.CPU, DelegateName.GPU, DelegateName.NPU)
)
NEW = replace(GPU, build_sha256=OTHER.sha256)


def graded(runs: list[RunRecord], grade: Grade) -> list[RunRecord]:
    return [
        replace(run, verdict=QualityVerdict(quality=Quality.TRUSTED, grade=grade)) for run in runs
    ]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    on_iphone = replace(
        GPU,
        serial=IPHONE.serial,
        tool=ToolName.TEXT,
        build_sha256=APP.sha256,
        num_runs=1,
        min_secs=2.0,
    )
    android = graded(series(GPU, 6_450, 8), Grade.C) + series(
        case(PIXEL_3, MOBILENET, DelegateName.GPU, 1), 7_000, 8
    )
    imported = graded(series(on_iphone, 3_200, 8, campaign_id=IMPORTED), Grade.E)
    later = START + timedelta(hours=14)
    campaigns = (
        campaign_of(android),
        campaign_of(imported, campaign_id=IMPORTED, created_at=later),
    )
    return settings_of(tmp_path, [*android, *imported], *campaigns)


def settings_of(folder: Path, runs: list[RunRecord], *campaigns: Campaign) -> Settings:
    lab = Lab(
        campaigns=campaigns,
        runs=runs,
        devices={facts.serial: facts for facts in (REAL_PIXEL, PIXEL_3, IPHONE)},
        models={model.sha256: model for model in (MOBILENET, MOBILENET_INT8)},
        builds={build.sha256: build for build in (*BUILDS.values(), APP, OTHER)},
    )
    return settings_in(stored(folder / "home", lab))


def compare(settings: Settings, sides: list[str] | None = None, **options: Any) -> CommandResult:
    of_output = {name: options.pop(name) for name in ("form", "fail_on") if name in options}
    return command(settings, sides, rule=CompareOptions(**options), output=Output(**of_output))


def compared(settings: Settings, *sides: str, allow: str = "") -> CommandResult:
    return compare(settings, [*sides], by="device", allow=[allow])


def cases_of(result: CommandResult) -> list[dict[str, Any]]:
    assert isinstance(result.data, dict)
    cases: list[dict[str, Any]] = result.data["cases"]
    return cases


def compared_campaigns(settings: Settings) -> set[str]:
    (row,) = cases_of(compare(settings, ["cpu", "gpu"], by="delegate"))
    return {row[side]["campaign_id"] for side in ("baseline", "candidate")}


def test_an_iphone_and_an_android_phone_are_compared_when_that_is_let_pass(
    settings: Settings,
) -> None:
    result = compared(settings, "89AX0KQ3H", "lab-xs", allow="grade,settings,tool")
    (row,) = cases_of(result)
    assert (row["verdict"]["outcome"], result.exit_code) == ("faster", 0)
    assert row["verdict"]["ratio"] == pytest.approx(3_200 / 6_450, rel=0.01)
    told = " ".join(result.text.split())
    assert "Allowed: The tool differs: native and text." in told
    assert "--allow" not in told


def test_two_phones_have_one_verdict_whether_one_campaign_measured_them_or_two(
    tmp_path: Path,
) -> None:
    shown = []
    phones = (PIXEL_3, replace(PIXEL_3, serial=Serial("virtual-pixel-3-02")))
    for names in ((ANDROID, ANDROID), (ANDROID, IMPORTED)):
        runs = [
            made
            for facts, us, name in zip(phones, (20_000, 20_800), names, strict=True)
            for made in series(case(facts), us, 10, campaign_id=name)
        ]
        campaigns = [
            campaign_of([run for run in runs if run.campaign_id == name], campaign_id=name)
            for name in dict.fromkeys(names)
        ]
        devices = {facts.serial: facts for facts in phones}
        models = {MOBILENET.sha256: MOBILENET}
        lab = Lab(campaigns=campaigns, runs=runs, devices=devices, models=models)
        home = stored(tmp_path / f"{len(campaigns)}", lab)
        settings = settings_in(home)
        (row,) = cases_of(compared(settings, *devices))
        shown.append((row["verdict"]["outcome"], row["verdict"]["is_between_sessions"]))
    # Each phone's session is one draw of it.
    assert shown == [("inconclusive", True)] * 2


def test_what_may_not_be_let_pass_is_not_offered(settings: Settings) -> None:
    result = compared(settings, str(PIXEL_3.serial), "lab-xs")
    assert cases_of(result)[0]["verdict"]["outcome"] == "incomparable"
    assert "--allow" not in result.text


@pytest.mark.parametrize("word", ["lab-xs", "iphone-xs", "iPhone XS", "Apple iPhone XS"])
def test_a_phone_is_named_by_serial_number_profile_or_title(settings: Settings, word: str) -> None:
    (row,) = cases_of(compared(settings, "89AX0KQ3H", word))
    assert row["candidate"]["serial"] == "lab-xs"


def test_a_name_of_several_phones_is_refused_with_their_serial_numbers(settings: Settings) -> None:
    with pytest.raises(UsageError, match=f"'Pixel 3' fits 89AX0KQ3H, {PIXEL_3.serial}"):
        compared(settings, "Pixel 3", "lab-xs")
    # What isn't known of a phone is no name of it: the iPhone has no codename here.
    for word in ("pixel-9", "\u5c0f\u7c73"):
        with pytest.raises(
            UsageError, match=rf"no device '{word}' is stored in .*store\.sqlite"
        ) as refused:
            compared(settings, word, "lab-xs")
        assert "lab-xs" in refused.value.hint


def test_sides_are_looked_for_where_they_were_measured_not_only_planned(tmp_path: Path) -> None:
    whole = [*series(CPU, 9_000, 8), *series(GPU, 6_450, 8)]
    cut = CampaignId("20260315-120000-cut")
    planned = [run for item in (CPU, GPU) for run in series(item, 9_000, 8, campaign_id=cut)]
    settings = settings_of(
        tmp_path,
        [*whole, *(run for run in planned if run.case == CPU)],
        campaign_of(whole),
        campaign_of(planned, campaign_id=cut, created_at=START + timedelta(hours=14)),
    )
    assert compared_campaigns(settings) == {ANDROID}


def test_a_side_that_was_only_skipped_has_no_grade_of_control(tmp_path: Path) -> None:
    skipped = run(NPU, 0, None, outcome=Outcome.SKIPPED, reason_code="no-npu", reason="no NPU here")
    runs = [*graded(series(GPU, 6_450, 8), Grade.C), skipped]
    settings = settings_of(tmp_path, runs, campaign_of(runs))
    said = compare(settings, ["gpu", "npu"], by="delegate").text
    assert "no-npu: no NPU here" in " ".join(said.split())
    assert "grade" not in said
    page = Path(compare(settings, ["gpu", "npu"], by="delegate", form="html").text.splitlines()[-1])
    (facts,) = re.findall("<tr><th[^>]*>grade of control<.*?</tr>", page.read_text("utf-8"))
    assert re.findall("<td[^>]*>([^<]*)", facts) == ["C", "---"]


def test_pairs_of_an_a_b_comparison_have_one_verdict_by_whatever_words(tmp_path: Path) -> None:
    # Enough for a change had 12 pairs been decided on before, not where there was a look after 8.
    shifts = (0.0, 0.05, 0.1, 0.02, 0.09, 0.01, 0.08, 0.03, 0.06, 0.04, 0.07, 0.05, 0.02)
    runs = [
        made
        for number, shift in enumerate(shifts)
        for made in (run(GPU, number, 20_000), run(NEW, number, 20_000 * (1.01 + shift)))
    ]
    pairing = pairing_of(
        (GPU, NEW),
        baseline="build old",
        candidate="build new",
        kind="build",
        detect=0.03,
        threshold=0.015,
        most=12,
    )
    settings = settings_of(tmp_path, runs, campaign_of(runs, terms=Terms(pairing=pairing)))
    sides = (GPU.build_sha256[:12], NEW.build_sha256[:12])
    (stored_row,) = cases_of(compare(settings, [CAMPAIGN]))
    assert stored_row["verdict"]["outcome"] == "inconclusive"
    for named in ((), (CAMPAIGN,)):
        (row,) = cases_of(compare(settings, [*sides], by="build", campaign=[*named]))
        shown = [{**each["verdict"], "reasons": ()} for each in (row, stored_row)]
        assert shown[0] == shown[1]
    turned = cases_of(compare(settings, [*sides[::-1]], by="build"))[0]["verdict"]
    assert turned["low"] == pytest.approx(1 / stored_row["verdict"]["high"])
    # Its pairs ended by a claim of their own.
    assert stored_row["verdict"]["threshold"] == 0.015
    for other in ({"threshold": 0.05}, {"threshold": 0.02}, {"level": 0.95}):
        for by, of in (("campaign", (CAMPAIGN,)), ("build", sides)):
            with pytest.raises(UsageError, match=r"own threshold \(1\.5 %\) and level \(99\.0 %\)"):
                compare(settings, [*of], by=by, **other)
    own = compare(settings, [CAMPAIGN], threshold=0.015, level=0.99)
    assert "Its A/B comparison claims" not in own.text
    # Beside pairs that another threshold ended, each has its own.
    later = [replace(made, campaign_id=IMPORTED, run_id=RunId(f"l-{made.run_id}")) for made in runs]
    wider = Terms(pairing=replace(pairing, threshold=0.03))
    both = settings_of(
        tmp_path / "both",
        [*runs, *later],
        campaign_of(runs, terms=Terms(pairing=pairing)),
        campaign_of(later, campaign_id=IMPORTED, terms=wider),
    )
    told = compare(both, [*sides], by="build", campaign=[CAMPAIGN, IMPORTED]).text
    for least in ("1.5", "3.0"):
        assert f"Its A/B comparison claims a change of at least {least} %." in told


def test_an_a_b_comparison_with_runs_left_fails_whoever_shows_it(tmp_path: Path) -> None:
    runs = [run(side, number, 20_000) for number in range(5) for side in (GPU, NEW)]
    pairing = pairing_of((GPU, NEW), baseline="old", candidate="new", kind="build")
    cut = campaign_of(runs, terms=Terms(pairing=pairing), status=CampaignStatus.INTERRUPTED)
    settings = settings_of(tmp_path, runs, cut)
    told = compare(settings, [CAMPAIGN], form="junit")
    assert (told.exit_code, 'type="incomplete"' in told.text) == (1, True)
    told = compare(settings, [CAMPAIGN], fail_on="never")
    assert told.exit_code == 0
    assert f"benchfarm run --resume {CAMPAIGN}" in told.text


def test_builds_of_two_nights_are_compared_as_their_campaigns_are(tmp_path: Path) -> None:
    runs, campaigns = [], []
    for night, off in enumerate((0, 6, 1, 7, 2, 6, 0, 5, 1, 7, 0, 6, 10)):
        gpu = NEW if night == 12 else GPU
        name = CampaignId(f"202603{night + 10}-220000-night")
        own = series(gpu, 20_000 * (1 + off / 100), 10, campaign_id=name)
        at = START + timedelta(days=night)
        runs += own
        campaigns.append(campaign_of(own, campaign_id=name, created_at=at))
    campaigns[-1] = replace(campaigns[-1], status=CampaignStatus.RUNNING)
    # What was compared in turns is no session.
    pairing = pairing_of(baseline="", candidate="", kind="build")
    in_turns = series(gpu, 30_000, 10, campaign_id=IMPORTED)
    at = START + timedelta(days=5, hours=1)
    terms = Terms(pairing=pairing)
    ab = campaign_of(in_turns, campaign_id=IMPORTED, name="ab", created_at=at, terms=terms)
    settings = settings_of(tmp_path, runs + in_turns, ab, *campaigns)
    sides = (BUILDS[ToolName.NATIVE].sha256[:12], OTHER.sha256[:12])
    nights = compare(settings)
    assert f"benchfarm run --resume {campaigns[-1].campaign_id}" in " ".join(nights.text.split())
    (by_night,) = cases_of(nights)
    (by_build,) = cases_of(compare(settings, [*sides], by="build"))
    shown = [{**row["verdict"], "reasons": ()} for row in (by_night, by_build)]
    assert shown[0] == shown[1]
    assert "(from 12 sessions)" in " ".join(by_build["verdict"]["reasons"])
    # Nor is what was hidden.
    with closing(open_store(tmp_path / "home" / "store.sqlite")) as store:
        store.hide_campaign(campaigns[5].campaign_id)
    (without,) = cases_of(compare(settings))
    assert "(from 11 sessions)" in " ".join(without["verdict"]["reasons"])


def test_two_a_b_comparisons_are_compared_as_it_is_asked(tmp_path: Path) -> None:
    runs, campaigns = [], []
    for name, build, us in ((ANDROID, BUILDS[ToolName.NATIVE], 20_000), (IMPORTED, OTHER, 20_300)):
        one, two = (
            case(REAL_PIXEL, MOBILENET, DelegateName.XNNPACK, threads, build_sha256=build.sha256)
            for threads in (1, 2)
        )
        pairing = pairing_of(
            (one, two),
            baseline="threads 1",
            candidate="threads 2",
            detect=0.01,
            level=0.999,
            threshold=0.007,
        )
        own = [
            run(each, number, us / each.threads, campaign_id=name)
            for number in range(9)
            for each in (one, two)
        ]
        runs += own
        campaigns.append(campaign_of(own, campaign_id=name, terms=Terms(pairing=pairing)))
    settings = settings_of(tmp_path, runs, *campaigns)
    sides = (BUILDS[ToolName.NATIVE].sha256[:12], OTHER.sha256[:12])
    for asked, claim in (({}, (0.02, 0.99)), ({"threshold": 0.05, "level": 0.95}, (0.05, 0.95))):
        result = compare(settings, [*sides], by="build", **asked)
        assert isinstance(result.data, dict)
        assert (result.data["threshold"], result.data["level"]) == claim
        for row in cases_of(result):
            assert (row["verdict"]["threshold"], row["verdict"]["level"]) == claim


@pytest.mark.parametrize(
    ("by", "sides"),
    [("delegate", ("gpu", "gpu")), ("config", ("delegate=gpu", "threads=1"))],
)
def test_a_case_is_not_compared_with_itself(
    settings: Settings, by: str, sides: tuple[str, str]
) -> None:
    with pytest.raises(UsageError, match=r"both sides have mobilenet.* on .*: gpu"):
        compare(settings, [*sides], by=by)


def test_an_iphone_and_an_android_phone_are_matched_and_told_what_compares_them(
    settings: Settings,
) -> None:
    result = compared(settings, "89AX0KQ3H", "lab-xs")
    (row,) = cases_of(result)
    assert row["verdict"]["outcome"] == "incomparable"
    assert {item["fact"] for item in row["differences"]} == {"tool", "settings", "grade"}
    told = " ".join(result.text.split())
    assert "The tool differs: native and text." in told
    assert "'--allow grade,settings,tool' compares 1 case more" in told


def test_a_campaign_with_both_sides_comes_before_newer_ones_with_one_each(tmp_path: Path) -> None:
    both = [*series(CPU, 9_000, 8), *series(GPU, 6_450, 8)]
    later = {
        CampaignId(f"2026031{day}-120000-later"): series(
            side, 9_000, 8, campaign_id=CampaignId(f"2026031{day}-120000-later")
        )
        for day, side in ((5, CPU), (6, GPU))
    }
    settings = settings_of(
        tmp_path,
        [*both, *(run for runs in later.values() for run in runs)],
        campaign_of(both),
        *(campaign_of(runs, campaign_id=name, name=name) for name, runs in later.items()),
    )
    assert compared_campaigns(settings) == {ANDROID}


def test_another_model_of_the_same_name_is_no_session_of_this_one(tmp_path: Path) -> None:
    gpu = case(REAL_PIXEL, MOBILENET, DelegateName.GPU, 1)
    other = replace(gpu, model_sha256=MOBILENET_INT8.sha256)
    nights = [
        series(side, latency_us, 8, campaign_id=CampaignId(f"2026031{day}-120000-night"))
        for day, (side, latency_us) in enumerate(
            [(gpu, 6_450), (other, 30_000), (gpu, 6_460), (gpu, 7_400)]
        )
    ]
    settings = settings_of(
        tmp_path,
        [run for runs in nights for run in runs],
        *(
            campaign_of(
                runs, campaign_id=runs[0].campaign_id, created_at=START + timedelta(days=day)
            )
            for day, runs in enumerate(nights)
        ),
    )
    (row,) = cases_of(compare(settings, [str(runs[0].campaign_id) for runs in nights[2:]]))
    assert row["verdict"]["outcome"] == "slower"
