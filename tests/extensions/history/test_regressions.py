"""Months of a small lab with changes of known cause: found, dated, attributed, grouped, and told as
expected."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import Engine, event

from orchestrator.app.workspace import Workspace
from orchestrator.errors import UsageError
from orchestrator.extensions.history.changes import find_changes, rerun_status
from orchestrator.extensions.history.farm_now import FarmNow
from orchestrator.extensions.history.metrics import Numbers
from orchestrator.extensions.history.pages import farm_page
from orchestrator.extensions.history.regressions import (
    Question,
    Regressions,
    find_regressions,
    fits,
    parse_night,
)
from orchestrator.extensions.history.site import gather
from orchestrator.extensions.history.web import LivePages, recent_changes
from orchestrator.records.case import BuildSha, CampaignId, Case, DelegateName, Pass, content_key
from orchestrator.records.history import Annotation, Confirmation, ConfirmationStatus, Points
from orchestrator.records.verdict import (
    ComparisonOutcome,
    ComparisonVerdict,
    Finding,
    Quality,
    QualityVerdict,
    Severity,
)
from orchestrator.store.opening import MemoryStore, Store
from tests.samples.history_lab import (
    NEW,
    NIGHTS,
    OLD,
    START,
    Weeks,
    copied,
    night_of_place,
    phone,
)
from tests.samples.manual_clock import ManualClock
from tests.samples.records import settings_in
from tests.samples.sample_lab import run

#: Filling months of a lab takes half a second each time.
pytestmark = pytest.mark.slow

CHANGE = 33
PHONES = [
    phone("P0", "Pixel 4", "Adreno 640"),
    phone("P1", "Pixel 4", "Adreno 640"),
    phone("P2", "Pixel 3", "Adreno 630"),
    phone("P3", "Pixel 6", "Mali-G78"),
]


def weeks(**given: Any) -> Store:
    """Return a store with the weeks of four phones."""
    store = MemoryStore()
    Weeks(phones=PHONES, invocations=1, **given).fill(store)
    return store


def gpu_on_640(case: Case, night: int) -> float:
    return (
        1.08
        if case.delegate is DelegateName.GPU and case.serial in ("P0", "P1") and night >= CHANGE
        else 1.0
    )


def new_driver(serial: str, night: int) -> str:
    return "2" if serial in ("P0", "P1") and night >= CHANGE else "1"


@pytest.fixture(scope="module")
def steady() -> Store:
    """Nothing changed; to be read only."""
    return weeks()


@pytest.fixture(scope="module")
def slowed() -> Store:
    """A driver slowed GPU cases; to be read only."""
    return weeks(factor=gpu_on_640, driver=new_driver)


def newer_from(night: int):
    return {"build": lambda place: NEW if place >= night else OLD}


def test_a_program_that_begins_to_print_medians_is_no_change() -> None:
    store = weeks(**newer_from(CHANGE), means_until=CHANGE)
    for since in (None, START.date()):
        found = find_regressions(store, Question(since=since))
        assert found.changes == ()
        assert found.other_figures == len(store.series())


def test_what_changed_since_a_program_prints_medians_is_found() -> None:
    store = weeks(**newer_from(20), means_until=20, factor=gpu_on_640)
    found = find_regressions(store, Question())
    assert {change.series.case.serial for change in found.changes} == {"P0", "P1"}
    assert all(change.ratio == pytest.approx(1.08, abs=0.02) for change in found.changes)


def test_a_driver_that_slows_all_gpu_cases_of_a_gpu_is_told_in_one_sentence(slowed: Store) -> None:
    found = find_regressions(slowed, Question())

    assert (found.nights, found.series) == (NIGHTS, 16)
    (group,) = found.groups
    night = (START + timedelta(days=CHANGE)).astimezone() - timedelta(hours=12)
    assert group.sentence.startswith(f"cases of GPU Adreno 640 since {night:%Y-%m-%d}: ")
    assert group.sentence.endswith("% slower (4 of 4 series)")
    for change in group.members:
        assert change.ratio == pytest.approx(1.08, abs=0.02)
        assert change.before_us == pytest.approx(
            8_000 if "mobile" in change.series.case.model_name else 16_000, rel=0.02
        )
        (cause,) = change.causes
        assert (cause.name, cause.before, cause.after) == ("GPU driver", "1", "2")
        # The phones' other cases saw the driver too, and didn't move.
        assert (cause.moved, cause.exposed) == (4, 8)


def workspace_of(home: Path, store: Store) -> Workspace:
    """A computer without phones, with a store."""
    return Workspace(settings_in(home), store=store)


def test_metrics_count_the_series_that_changed_and_read_them_again_only_when_something_happened(
    tmp_path: Path, slowed: Store
) -> None:
    store = copied(slowed)
    with workspace_of(tmp_path, store) as workspace:
        farm = FarmNow(workspace, None)

        def lines() -> list[str]:
            changes = gather(store, since=None).news
            return Numbers(workspace, farm, lambda: changes).page().content.decode().splitlines()

        slower, faster = (
            f'benchfarm_changed_series{{direction="{word}",state="not confirmed yet"}}'
            for word in ("slower", "faster")
        )
        up = 'benchfarm_up{source="history"} 1.0'
        assert {f"{slower} 4.0", f"{faster} 0.0", up} <= {*lines()}
        night = (START + timedelta(days=CHANGE)).astimezone() - timedelta(hours=12)
        expected = Annotation(
            annotation_id="a", selection="*", night=night.date(), text="driver", created_at=START
        )
        store.annotate(expected)
        assert f"{slower} 0.0" in lines()


def test_every_list_of_what_is_new_has_the_same_changes(tmp_path: Path) -> None:
    """One that began long ago and went away of late is news, and no alarm."""
    nights = {"P0": range(NIGHTS - 20, NIGHTS - 5), "P1": range(NIGHTS - 9, NIGHTS)}
    store = weeks(factor=lambda case, night: 1.3 if night in nights.get(case.serial, ()) else 1.0)
    told = find_regressions(store, Question()).changes
    assert {change.series.case.serial for change in told} == {"P0", "P1"}
    assert {change.series.case.serial for change in told if change.ended is not None} == {"P0"}
    site = gather(store, since=None)
    recent = recent_changes(site)
    assert {item.series_key for item in recent} == {change.series.key for change in told}
    # What happened last is first, though it began long ago.
    assert ["went away" in item.state for item in recent] == [True] * 4 + [False] * 4
    with workspace_of(tmp_path, store) as workspace:
        farm = FarmNow(workspace, None)
        numbers = Numbers(workspace, farm, lambda: site.news).page().content.decode()
        page = farm_page(farm.read(), recent, workspace.clock.now(), is_part=True)
        fails = {
            serial: find_changes(workspace, Question(selections=(f"serial={serial}",))).fails
            for serial in ("P0", "P1")
        }
    assert fails == {"P0": False, "P1": True}
    told = "in the last 14 nights (more where a series lacks nights), newest first"
    assert f"8 unexpected changes that began or went away {told}" in page
    assert "went away" not in numbers


def test_what_is_new_is_the_same_however_few_nights_the_pages_show(tmp_path: Path) -> None:
    """One phone became slower and was away on the nights that are shown."""
    store = weeks(
        factor=lambda case, night: 1.3 if case.serial in ("P0", "P1") and night >= CHANGE else 1.0,
        is_away=lambda serial, night: serial == "P1" and night >= NIGHTS - 2,
    )
    told = find_regressions(store, Question()).changes
    assert {change.series.case.serial for change in told} == {"P0", "P1"}
    site = gather(store, since=night_of_place(NIGHTS - 2))
    assert all(row.changes == () for row in site.series)
    recent = recent_changes(site)
    assert {item.series_key for item in recent} == {change.series.key for change in told}
    assert {item.label.split("(")[1][:2] for item in recent if not item.page} == {"P1"}
    with workspace_of(tmp_path, store) as workspace:
        farm = FarmNow(workspace, None)
        live = LivePages(workspace, farm, since=f"{night_of_place(NIGHTS - 2)}")
        page = live.page("farm/now")
        numbers = Numbers(workspace, farm, lambda: live.site().news).page()
        assert page is not None
        assert b"8 unexpected changes" in page.content
        links = re.findall(r'href="(series/.*?)"', page.content.decode())
        assert len(links) == 4
        assert all(live.page(link) is not None for link in links)
    slower = 'benchfarm_changed_series{direction="slower",state="not confirmed yet"} 8.0'
    assert slower in numbers.content.decode()


def test_the_farms_page_forgets_changes_that_are_expected_or_whose_campaigns_are_hidden(
    tmp_path: Path, slowed: Store
) -> None:
    store = copied(slowed)
    with workspace_of(tmp_path, store) as workspace:
        pages = LivePages(workspace, FarmNow(workspace, None), since="")

        def content(path: str) -> bytes:
            page = pages.page(path)
            assert page is not None
            return page.content

        def has_changes() -> bool:
            return b"4 unexpected changes" in content("farm/now")

        assert has_changes()
        assert b"<bdi>driver</bdi>" not in content("") == content("")
        night = night_of_place(CHANGE)
        store.annotate(
            Annotation(
                annotation_id="a", selection="*", night=night, text="driver", created_at=START
            )
        )
        assert not has_changes()
        assert b"4 expected</b>: <bdi>driver</bdi>" in content("")
        store.delete_annotation("a")
        assert has_changes()
        for campaign in store.campaigns()[: NIGHTS - CHANGE]:
            store.hide_campaign(campaign.campaign_id)
        assert not has_changes()


def test_a_poll_of_the_farms_page_reads_no_annotations_and_hidden_campaigns_when_nothing_changed(
    tmp_path: Path, slowed: Store
) -> None:
    store = copied(slowed)
    statements: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        statements.append(statement)

    with workspace_of(tmp_path, store) as workspace:
        pages = LivePages(workspace, FarmNow(workspace, None), since="")
        pages.page("farm/now")
        event.listen(Engine, "before_cursor_execute", note)
        try:
            pages.page("farm/now")
        finally:
            event.remove(Engine, "before_cursor_execute", note)
    texts = [" ".join(statement.split()) for statement in statements]
    marks = [text for text in texts if "annotations" in text or text.endswith("is_hidden")]
    assert len(marks) == 1
    assert "annotations.document" not in marks[0]


def test_pages_of_so_many_days_are_those_of_today(tmp_path: Path, steady: Store) -> None:
    store = copied(steady)
    with workspace_of(tmp_path, store) as workspace:
        workspace.clock = clock = ManualClock(START + timedelta(days=NIGHTS))
        pages = LivePages(workspace, FarmNow(workspace, None), since="5d")
        assert len(pages.site().nights) == 5
        clock.advance(2 * 86400)
        # What was gathered a moment ago stays, unless something happened.
        store.hide_campaign(store.campaigns()[-1].campaign_id)
        pages.page("farm/now")
        assert len(pages.site().nights) == 3


def test_pages_show_a_campaign_that_began_when_an_old_one_was_hidden(
    tmp_path: Path, slowed: Store
) -> None:
    store = copied(slowed)
    with workspace_of(tmp_path, store) as workspace:
        farm = FarmNow(workspace, None)
        pages = LivePages(workspace, farm, since=f"{night_of_place(1)}")
        pages.page("farm/now")
        newest, *_, oldest = store.campaigns()
        store.hide_campaign(oldest.campaign_id)
        begun = replace(newest, campaign_id=CampaignId("begun"))
        store.begin_campaign(
            begun, devices=PHONES, models=store.models().values(), builds=store.builds().values()
        )
        pages.page("farm/now")
        assert "begun" in pages.site().by_id


@pytest.mark.parametrize(
    ("outcome", "low", "high", "ratio", "status"),
    [
        ("slower", 1.02, 1.2, 1.1, "confirmed"),
        ("same", 0.99, 1.01, 1.1, "refuted"),
        ("faster", 0.8, 0.9, 1.1, "refuted"),
        # Refuted, too, when an interval that holds the whole change was.
        ("inconclusive", 0.9, 1.3, 1.1, "cannot"),
        ("inconclusive", 0.96, 1.03, 1.1, "refuted"),
        ("inconclusive", 0.9, 1.3, 0.9, "cannot"),
        ("inconclusive", 0.97, 1.04, 0.9, "refuted"),
        ("incomparable", None, None, 1.1, "cannot"),
    ],
)
def test_a_rerun_refutes_what_its_interval_leaves_out(
    outcome: str, low: float | None, high: float | None, ratio: float, status: str
) -> None:
    verdict = ComparisonVerdict(outcome=ComparisonOutcome(outcome), low=low, high=high)
    assert rerun_status(verdict, ratio) is ConfirmationStatus(status)


def test_a_slowdown_is_told_beside_a_later_change_that_is_expected_or_small() -> None:
    def factor(case: Case, night: int) -> float:
        if case.serial != "P0" or case.delegate is not DelegateName.GPU:
            return 1.0
        return (1.2 if night >= 28 else 1.0) * (1.08 if night >= 33 else 1.0)

    store = weeks(factor=factor)
    both = [change.night.day for change in find_regressions(store, Question()).changes]
    assert sorted(both) == [3, 3, 29, 29]
    large = find_regressions(store, Question(threshold=0.1)).changes
    night = large[0].night + timedelta(days=5)
    expected = Annotation(
        annotation_id="a", selection="*", night=night, text="model", created_at=START
    )
    store.annotate(expected)
    open_ones = [change for change in find_regressions(store, Question()).changes if change.counts]
    for changes in (large, open_ones):
        assert [change.night.day for change in changes] == [29, 29]
        assert all(change.ratio == pytest.approx(1.2, abs=0.02) for change in changes)
    (first, second, *_) = gather(store, since=None).series
    assert {first.case.serial, second.case.serial} == {"P0"}
    assert min(first.badness, second.badness) > 0.15


def known(found: Regressions, serial: str = "P") -> list[tuple[str, date, float, float]]:
    """Return what is told of the changes of some phones."""
    return sorted(
        (change.series.key, change.night, change.ratio, change.confidence)
        for change in found.changes
        if change.series.case.serial.startswith(serial) and change.is_news
    )


def test_a_selection_chooses_from_the_answer_of_the_whole_lab() -> None:
    """A step of all series of a young lab is none of four series."""
    store = weeks(nights=14, factor=lambda case, night: 1.05 if night >= 8 else 1.0)
    whole = find_regressions(store, Question())
    assert len(whole.changes) == 16
    one = find_regressions(store, Question(selections=("serial=P0",)))
    assert known(one) == known(whole, "P0")
    assert (one.series, one.nights) == (4, 14)
    assert one.groups[0].sentence.endswith("(4 of 4 series)")


def test_the_nights_of_a_selected_phone_are_those_of_the_lab() -> None:
    store = weeks(
        factor=lambda case, night: 1.1 if case.serial == "P0" and night >= 15 else 1.0,
        is_away=lambda serial, night: serial == "P0" and night >= 20,
    )
    for selections in ((), ("serial=P0",)):
        assert find_regressions(store, Question(selections=selections)).changes == ()


def test_what_is_news_is_the_same_however_many_nights_are_read() -> None:
    store = weeks(nights=104, factor=lambda case, night: 1.03 if night >= 97 else 1.0)
    news = known(find_regressions(store, Question()))
    assert len(news) >= 12
    nights = START.date() + timedelta(days=1)
    assert known(find_regressions(store, Question(since=nights))) == news
    rows = gather(store, since=None).series
    assert (
        sorted(
            (row.key, change.night, change.ratio, change.confidence)
            for row in rows
            for change in row.changes
            if change.is_news
        )
        == news
    )


@pytest.mark.parametrize("nights", [88, 104])
def test_what_passed_between_two_changes_that_last_is_told_of_any_nights(nights: int) -> None:
    steps = ((12, 0, 1.1), (9, 6, 1.3), (3, 0, 1.2))
    store = weeks(
        nights=nights,
        factor=lambda case, night: math.prod(
            step for first, end, step in steps if nights - first <= night < nights - end
        ),
    )
    found = find_regressions(store, Question(since=START.date())).changes
    # Of a noisy series less may be sure.
    assert sum(change.ended is not None for change in found) >= 15
    assert sum(change.is_news for change in found) >= 30


def test_what_has_no_figure_of_late_is_told_and_nothing_at_all_fails(tmp_path: Path) -> None:
    late = NIGHTS - 3
    store = weeks(
        is_away=lambda serial, night: serial == "P0" and night >= late,
        is_rejected=lambda serial, night: (serial == "P1" and night >= late) or serial == "P2",
    )
    with workspace_of(tmp_path, store) as workspace:
        done = find_changes(workspace, Question())
        assert (len(done.regressions.silent), done.regressions.nights, done.fails) == (
            8,
            NIGHTS,
            False,
        )
        assert {series.case.serial for series in done.regressions.silent} == {"P0", "P1"}
        done = find_changes(workspace, Question(selections=("serial=P2",)))
        assert (done.regressions.series, done.fails) == (0, True)
        assert done.nothing.startswith("nothing was checked: no selected series in ")
    # A night of which all was rejected is one without a figure, too.
    store = weeks(is_rejected=lambda serial, night: night >= late)
    assert len(find_regressions(store, Question()).silent) == 16
    assert {row.silent_nights for row in gather(store, since=None).series} == {3}


def test_a_build_that_slows_everything_is_named_with_the_series_that_moved() -> None:
    store = weeks(**newer_from(CHANGE), factor=lambda case, night: 1.05 if night >= CHANGE else 1.0)

    found = find_regressions(store, Question())

    # Another program of the same kind of figures hides nothing.
    assert (len(found.changes), found.other_figures) == (16, 0)
    (group,) = found.groups
    assert len(group.members) == group.series == 16
    assert group.sentence.startswith("all cases since ")
    causes = {cause.name: cause for cause in group.members[0].causes}
    assert (causes["build"].moved, causes["build"].exposed) == (16, 16)
    assert causes["build"].after == f"native@{NEW[:12]}"


def test_nothing_is_found_where_nothing_changed(steady: Store) -> None:
    found = find_regressions(steady, Question())

    assert (found.series, found.groups) == (16, ())


def test_an_expected_change_is_told_as_such_and_an_old_one_only_when_asked_for() -> None:
    store = weeks(factor=lambda case, night: gpu_on_640(case, night + 20))
    begun = night_of_place(CHANGE - 20)
    store.annotate(
        Annotation(
            annotation_id="a",
            selection="gpu=*640",
            night=begun,
            text="driver 502",
            created_at=START,
        )
    )

    assert find_regressions(store, Question()).changes == ()
    found = find_regressions(store, Question(since=begun - timedelta(days=1)))
    assert [change.expected for change in found.changes] == ["driver 502"] * 4


def test_a_confirmation_stays_when_the_estimate_of_its_changes_night_moves() -> None:
    generator = np.random.default_rng(7)
    noise = {
        (facts.serial, place, night): float(np.exp(generator.normal(0, 0.02)))
        for facts in PHONES
        for place in range(4)
        for night in range(NIGHTS)
    }

    def factor(case: Case, night: int) -> float:
        place = 2 * (case.model_name == "resnet.tflite") + (case.delegate == "gpu")
        return noise[case.serial, place, night] * (1.06 if night >= CHANGE else 1.0)

    store = weeks(factor=factor)
    changes = find_regressions(store, Question()).changes
    change = max(changes, key=lambda change: change.latest - change.earliest)
    assert change.latest > change.earliest

    def status_with(night: date, **told: Any) -> ConfirmationStatus:
        marked = copied(store)
        kept = Confirmation(
            series_key=change.series.key, night=night, detail="", at=START + timedelta(days=NIGHTS),
            status=ConfirmationStatus.REFUTED,
        )  # fmt: skip
        marked.confirm(replace(kept, **told))
        found = find_regressions(marked, Question()).changes
        (status,) = {item.status for item in found if item.series.key == change.series.key}
        return status

    day = timedelta(days=1)
    for night in (change.earliest, change.night, change.latest):
        assert status_with(night) is ConfirmationStatus.REFUTED
        assert status_with(night, is_slower=True) is ConfirmationStatus.REFUTED
        assert status_with(night, is_slower=False) is ConfirmationStatus.UNCONFIRMED
        # What was measured before it began is of an earlier one, a blip say, that is seen no more.
        before = START + (change.night - day - START.date())
        assert status_with(night, at=before) is ConfirmationStatus.UNCONFIRMED
    for night in (change.earliest - day, change.latest + day):
        assert status_with(night) is ConfirmationStatus.UNCONFIRMED


def test_the_newest_confirmation_of_a_change_counts(slowed: Store) -> None:
    store = copied(slowed)
    change = find_regressions(store, Question()).changes[0]
    for days, status in enumerate((ConfirmationStatus.CANNOT, ConfirmationStatus.CONFIRMED)):
        store.confirm(
            Confirmation(
                series_key=change.series.key,
                night=change.latest if days else change.earliest,
                status=status,
                detail="",
                at=START + timedelta(days=NIGHTS + days),
            )
        )
    found = find_regressions(store, Question()).changes
    assert [item.status for item in found if item.series.key == change.series.key] == ["confirmed"]


def test_a_build_one_night_off_the_estimate_is_named_and_is_the_side_of_a_rerun() -> None:
    """The first night of a slow build happened to be as fast as those before."""
    store = weeks(**newer_from(CHANGE), factor=lambda case, night: 1.08 if night > CHANGE else 1.0)
    changes = find_regressions(store, Question()).changes
    assert {change.night for change in changes} == {night_of_place(CHANGE + 1)}
    for change in changes:
        assert [(cause.name, cause.moved, cause.exposed) for cause in change.causes] == [
            ("build", 16, 16)
        ]
        assert (change.before.build_sha256, change.after.build_sha256) == (OLD, NEW)


def test_of_a_build_a_night_the_one_of_the_changes_night_is_named() -> None:
    builds = [BuildSha(content_key(f"build {night}")) for night in range(NIGHTS)]
    store = weeks(build=builds.__getitem__, factor=gpu_on_640)
    for change in find_regressions(store, Question()).changes:
        place = (change.night - night_of_place(0)).days
        (build,) = [cause for cause in change.causes if cause.name == "build"]
        assert build.after == f"native@{builds[place][:12]}"
        # Old and new of a rerun have every build between them that may be why.
        last = (
            (change.earliest - night_of_place(0)).days - 1,
            (change.latest - night_of_place(0)).days,
        )
        sides = change.before.build_sha256, change.after.build_sha256
        assert sides == tuple(builds[place] for place in last)


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        ("abc", True),
        ("delegate=GPU", True),
        ("delegate=gpu,model=mobile*", True),
        ("model=mobilenet", True),
        ("model=mobilenet.tflite", True),
        ("model=mobile", False),
        ("phone=pixel [4]*", True),
        ("delegate=cpu", False),
        ("b", False),
    ],
)
def test_selections_take_keys_and_words(selection: str, expected: bool) -> None:
    words = {"delegate": "gpu", "model": "MobileNet.tflite", "phone": "Pixel [4] XL"}
    assert fits(selection, "abcdef", words) is expected


def test_moments_are_spans_or_dates(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    with Workspace(settings, store=MemoryStore()) as workspace:
        assert parse_night("2026-03-09", workspace, "--since") == date(2026, 3, 9)
        spans = {parse_night(text, workspace, "--since") for text in ("2w", "14d", "14 d", "2 W")}
        assert len(spans) == 1
        for text in ("soon", "2026-13-09", "9999999d"):
            with pytest.raises(UsageError, match=f"--since '{text}' isn't a date"):
                parse_night(text, workspace, "--since")


def compared(store: Store, case: Case, night: int, *codes: str) -> None:
    """Store that a series' outputs were compared with the reference on a night."""
    campaign = sorted(item.campaign_id for item in store.campaigns())[night]
    findings = tuple(Finding(code=code, severity=Severity.ERROR, message="") for code in codes)
    verdict = QualityVerdict(
        quality=Quality.REJECTED if codes else Quality.TRUSTED, findings=findings
    )
    parity = {"run_pass": Pass.PARITY, "report": None, "verdict": verdict}
    assert store.append_run(run(case, campaign_id=campaign, started_at=START, **parity))


def test_outputs_that_turned_wrong_are_told_until_they_are_right_again(steady: Store) -> None:
    store = copied(steady)
    wrong, mended, nothing = list(store.series().values())[:3]
    for night in range(0, NIGHTS, 3):
        compared(store, wrong, night, *(["wrong-outputs"] if night >= CHANGE else []))
        compared(store, mended, night, *(["outputs-drift"] if 9 <= night < CHANGE else []))
        compared(store, nothing, night, "parity-degenerate")

    def told(found) -> list[tuple[str, str, str, int, bool]]:
        return [
            (
                item.series.key,
                str(item.before),
                str(item.after),
                (item.night - START.date()).days,
                item.is_worse,
            )
            for item in found.outputs
        ]

    first = (wrong.series_key, "same", "wrong", CHANGE, True)
    last = (mended.series_key, "drift", "same", CHANGE, False)
    assert told(find_regressions(store, Question())) == [first, last]
    assert told(find_regressions(store, Question(since=START.date()))) == [
        (mended.series_key, "same", "drift", 9, True),
        first,
        last,
    ]
    (found,) = find_regressions(store, Question(selections=(wrong.series_key,))).outputs
    assert (found.last_before, found.expected) == (found.night - timedelta(days=3), "")


def test_a_selection_that_no_series_fits_is_refused_and_told_what_there_is(steady: Store) -> None:
    for selection in ("delegate=gppu", "model=mobilnet*,delegate=gpu", "feedc0de"):
        with pytest.raises(UsageError, match="no series fits") as caught:
            find_regressions(steady, Question(selections=("delegate=gpu", selection)))
        assert "model=resnet.tflite" in caught.value.hint
        assert find_regressions(MemoryStore(), Question(selections=(selection,))).changes == ()


def test_a_series_that_begins_while_the_store_is_read_is_described_like_the_others(
    slowed: Store,
) -> None:
    class Growing(MemoryStore):
        is_read = False

        def points(self, **chosen: Any) -> Points:
            self.is_read = True
            return super().points(**chosen)

        def series(self, *keys: Any) -> Any:
            return super().series(*keys) if self.is_read else {}

    found = find_regressions(copied(slowed, Growing()), Question())
    assert found.groups
    assert found.groups[0].members[0].series.facts.kind_title == "Google Pixel 4"
