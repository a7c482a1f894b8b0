"""The light questions over many nights, annotations and confirmations: the same on every store."""

from __future__ import annotations

import dataclasses
from datetime import date, timedelta

from orchestrator.analysis.findings import finding
from orchestrator.records.case import BuildSha, CampaignId, Pass, RunId
from orchestrator.records.history import Annotation, Confirmation, ConfirmationStatus
from orchestrator.records.run import Outcome
from orchestrator.records.verdict import Quality, QualityVerdict
from orchestrator.store.opening import Store
from tests.samples.stores import START

TRUSTED = QualityVerdict(quality=Quality.TRUSTED)


def fill(store: Store, samples, nights: int = 3) -> None:
    """Two series over some nights, with runs that are no point of any."""
    for night in range(nights):
        name = samples.night(store, f"night-{night}", night)
        for number, changes in enumerate(
            (
                {"verdict": TRUSTED},
                {},
                {"case": samples.case(threads=1), "verdict": TRUSTED},
                {"verdict": QualityVerdict(quality=Quality.REJECTED)},
                {"outcome": Outcome.FAILED},
                {"run_pass": Pass.MEMORY},
                {"report": None},
            )
        ):
            report = samples.report(1000.0 * (night + 1) + number)
            run_id = RunId(f"{night}{number:03d}")
            samples.keep(store, name, number, **{"run_id": run_id, "report": report, **changes})


def points(found) -> list[tuple[str, str, float, int]]:
    return sorted(
        (
            found.campaigns[campaign].campaign_id,
            found.series[series].series_key,
            latency_us,
            trusted,
        )
        for series, campaign, latency_us, trusted in zip(
            found.series_at, found.campaign_at, found.latency_us, found.trusted, strict=True
        )
    )


def test_points_are_the_figures_that_count_and_nothing_else(store: Store, samples) -> None:
    fill(store, samples)
    four, one = samples.case().series_key, samples.case(threads=1).series_key

    assert points(store.points()) == sorted(
        point
        for night in range(3)
        for point in (
            (f"night-{night}", four, 1000.0 * (night + 1), 1),
            (f"night-{night}", four, 1000.0 * (night + 1) + 1, 0),
            (f"night-{night}", one, 1000.0 * (night + 1) + 2, 1),
        )
    )


def test_points_can_be_asked_for_by_time_and_series(store: Store, samples) -> None:
    fill(store, samples)
    one = samples.case(threads=1).series_key
    since = START + timedelta(days=1)

    assert points(store.points(since=since, series_keys=[one])) == [
        ("night-1", one, 2002.0, 1),
        ("night-2", one, 3002.0, 1),
    ]
    assert len(store.points(since=since).latency_us) == 6
    assert [item.campaign_id for item in store.points(since=since).campaigns] == [
        "night-1",
        "night-2",
    ]
    assert points(store.points(since=since + timedelta(days=9))) == []


def test_a_series_is_unconfirmed_by_its_newest_figure(store: Store, samples) -> None:
    name, series = samples.night(store, "night", 0), samples.case().series_key
    unknown = QualityVerdict(quality=Quality.TRUSTED, findings=(finding("delegate-unknown"),))
    told = []
    for number, changes in enumerate(
        ({"verdict": unknown}, {"outcome": Outcome.FAILED}, {"verdict": TRUSTED})
    ):
        report = samples.report(1000.0)
        samples.keep(store, name, number, run_id=RunId(f"{number}"), report=report, **changes)
        told.append(store.unconfirmed_series())
    assert told == [{series}, {series}, set()]


def test_points_can_be_asked_for_by_device(store: Store, samples) -> None:
    samples.begin(store)
    phone, virtual = samples.case().serial, samples.virtual_phone.serial
    samples.keep(store, "night-1", 0)
    samples.keep(store, "night-1", 1, case=samples.case(serial=virtual), is_virtual=True)

    for serial in (phone, virtual):
        assert [item.serial for item in store.points(serials=[serial]).series] == [serial]
        assert len(store.points(serials=[serial]).latency_us) == 1
    assert len(store.points(serials=[phone, virtual]).latency_us) == 2


def test_contents_of_points_are_in_the_order_in_which_they_were_first_stored(
    store: Store, samples
) -> None:
    builds = [BuildSha(letter * 64) for letter in "dbac"]
    store.begin_campaign(
        samples.campaign("turns", invocations=(), skipped=()),
        devices=[samples.phone],
        models=[samples.model],
        builds=[dataclasses.replace(samples.build, sha256=sha256) for sha256 in builds],
    )
    for number, sha256 in enumerate([*builds, *builds[::-1]]):
        samples.keep(store, "turns", number, case=samples.case(build_sha256=sha256))
    for found in (store.points(), store.points(series_keys=[samples.case().series_key])):
        measured = [item.build_sha256 for item in found.contents if item.build_sha256 in builds]
        assert measured == builds


def test_readings_are_others_once_anything_else_is_read_from_a_run(store: Store, samples) -> None:
    fill(store, samples, nights=2)
    names = [CampaignId("night-0"), CampaignId("night-1")]
    before = store.readings(names)
    assert set(before) == set(names)
    assert store.readings(names) == before
    assert store.readings([CampaignId("unknown")]) == {}

    as_read = dataclasses.replace(store.run(RunId("0000")), report=samples.report(1000.0))
    changes = (
        {"report": dataclasses.replace(samples.report(1000.0), overall_memory_mib=4321.0)},
        {"outcome": Outcome.FAILED, "reason_code": "oom"},
        {"verdict": QualityVerdict(quality=Quality.TRUSTED, findings=(finding("outputs-drift"),))},
    )
    store.replace_reading(as_read)
    seen = [store.readings(names)[names[0]]]
    for change in changes:
        store.replace_reading(dataclasses.replace(as_read, **change))
        seen.append(store.readings(names)[names[0]])
    assert len(set(seen)) == len(seen)
    store.replace_reading(as_read)
    assert store.readings(names) == {names[0]: seen[0], names[1]: before[names[1]]}


def test_marks_are_nights_without_figure_and_comparisons_of_series_that_did_not_agree(
    store: Store, samples
) -> None:
    fill(store, samples, nights=2)
    last = CampaignId("night-1")

    codes = ("outputs-drift", "wrong-outputs")
    differ = QualityVerdict(quality=Quality.SUSPECT, findings=tuple(map(finding, codes)))
    for number, changes in enumerate(
        ({}, {"verdict": differ}, {"case": samples.case(threads=1)}), start=20
    ):
        samples.keep(store, last, number, run_pass=Pass.PARITY, **{"verdict": TRUSTED, **changes})

    def told(**question) -> list[tuple[str, tuple[str, ...]]]:
        return sorted((mark.campaign_id, mark.findings) for mark in store.marks(**question))

    assert told() == [(last, ()), (last, codes)]
    assert told(series_keys=[samples.case(threads=1).series_key]) == []


def test_a_series_continues_under_another_build(store: Store, samples) -> None:
    fill(store, samples, nights=1)
    newer = dataclasses.replace(samples.build, sha256=BuildSha("cc" * 32))
    campaign = samples.campaign("later", invocations=(), skipped=())
    store.begin_campaign(campaign, devices=[samples.phone], models=[], builds=[newer])
    case = samples.case(build_sha256=newer.sha256)
    samples.keep(store, "later", case=case)

    found = store.points(series_keys=[case.series_key])

    assert {found.contents[place].build_sha256 for place in found.contents_at} == {
        samples.build.sha256,
        newer.sha256,
    }
    assert store.series()[case.series_key] == case
    assert set(store.series()) == {case.series_key, samples.case(threads=1).series_key}


def test_runs_are_found_by_the_beginning_of_their_id(store: Store, samples) -> None:
    fill(store, samples)

    assert store.run_ids("0002") == ["0002"]
    assert store.run_ids("1") == ["1000", "1001", "1002", "1003"]
    assert store.run_ids("%") == store.run_ids("_") == store.run_ids("nowhere") == []
    run = store.run(RunId("1002"))
    assert run == next(item for item in store.runs() if item.run_id == "1002")
    assert store.run(RunId("nowhere")) is None


def test_what_a_device_was_is_kept_from_when_it_changed(store: Store, samples) -> None:
    for night, driver in enumerate(["V@490", "V@490", "V@502", "V@490"]):
        facts = dataclasses.replace(samples.phone, gpu_driver=driver, boot_id=f"boot {night}")
        created = START + timedelta(days=night)
        campaign = samples.campaign(f"n{night}", created_at=created, invocations=(), skipped=())
        store.begin_campaign(campaign, devices=[facts], models=[], builds=[])

    seen = store.sightings()[samples.phone.serial]

    assert [(item.at, item.facts["GPU driver"]) for item in seen] == [
        (START, "V@490"),
        (START + timedelta(days=2), "V@502"),
        (START + timedelta(days=3), "V@490"),
    ]


def test_annotations_are_kept_until_they_are_deleted(store: Store, samples) -> None:
    later, earlier = (
        Annotation(
            annotation_id=name,
            selection="delegate=gpu \x00",
            night=date(2026, 3, day),
            text="new driver 'é'\x00",
            created_at=START,
        )
        for name, day in (("a1", 9), ("a2", 3))
    )
    store.annotate(later)
    store.annotate(earlier)

    assert list(store.annotations()) == [earlier, later]
    assert store.delete_annotation("a2")
    assert not store.delete_annotation("a2")
    assert list(store.annotations()) == [later]


def test_a_change_has_one_confirmation_the_newest(store: Store, samples) -> None:
    first = Confirmation(
        series_key=samples.case().series_key,
        night=date(2026, 3, 9),
        status=ConfirmationStatus.CANNOT,
        detail="phone away",
        at=START,
    )
    second = dataclasses.replace(first, status=ConfirmationStatus.CONFIRMED, ratio=1.05, detail="")
    store.confirm(first)
    store.confirm(second)

    assert list(store.confirmations()) == [second]


def test_the_runs_of_a_case_before_a_campaign_are_the_last_that_were_stored_before_its_first(
    store: Store, samples
) -> None:
    fill(store, samples)
    case_key = samples.case().case_key

    def found(name: str, limit: int) -> list[str]:
        runs = store.earlier_runs(case_key, CampaignId(name), limit=limit)
        assert not any(run.attachments for run in runs)
        assert [run for run in store.runs(case_keys=[case_key]) if run in runs] == list(runs)
        return [run.run_id for run in runs]

    assert found("night-1", 100) == ["0000", "0001", "0003", "0004", "0005", "0006"]
    assert found("night-2", 3) == ["1004", "1005", "1006"]
    assert found("night-0", 3) == []
    # It has measured something else only.
    samples.keep(store, samples.night(store, "late"), case=samples.case(threads=1))
    assert found("late", 2) == ["2005", "2006"]
    # What it stored before is no history of its own, whatever others stored since.
    samples.keep(store, "night-0", 9, run_id=RunId("again"))
    assert found("night-2", 3) == ["1004", "1005", "1006"]
    assert found("late", 1) == ["again"]


def test_the_last_runs_of_a_series_are_those_that_took_time_newest_first(
    store: Store, samples
) -> None:
    fill(store, samples, nights=12)
    late = samples.night(store, "late")
    for number, (outcome, duration_s) in enumerate(
        ((Outcome.SKIPPED, 0.0), (Outcome.UNFIT, 0.0), (Outcome.TIMED_OUT, 99.0))
    ):
        samples.keep(store, late, number, outcome=outcome, duration_s=duration_s)
    # A new build is another case of the same series.
    newer = samples.case(build_sha256=BuildSha("cc" * 32))
    build = dataclasses.replace(samples.build, sha256=newer.build_sha256)
    store.begin_campaign(
        samples.campaign("new-build", invocations=(), skipped=()),
        devices=[samples.phone],
        models=[],
        builds=[build],
    )
    samples.keep(store, late, 3, case=newer, duration_s=7.0)
    series_key, other = samples.case().series_key, samples.case(threads=1).series_key
    assert newer.series_key == series_key
    found = store.recent_runs([series_key, other, samples.case(threads=2).series_key])
    assert set(found) == {series_key, other}
    assert [(run.duration_s, run.run_pass) for run in found[series_key][:4]] == [
        (7.0, Pass.TIMING),
        (99.0, Pass.TIMING),
        (4.2, Pass.TIMING),
        (4.2, Pass.MEMORY),
    ]
    # Each began 1 s after the one before it on its phone, which may be of the other series.
    pauses_s = [run.pause_s for run in (*found[series_key][2:], *found[other])]
    assert {round(pause_s, 1) for pause_s in pauses_s if pause_s is not None} == {1 - 4.2}
    # 74 took time.
    assert (len(found[series_key]), len(found[other])) == (64, 12)


def test_points_are_in_the_order_in_which_their_runs_were_stored(store: Store, samples) -> None:
    name = samples.night(store, "night-0")
    latencies_us = [3000.0, 1000.0, 2000.0, 1500.0]
    for number, latency_us in enumerate(latencies_us):
        samples.keep(store, name, number, report=samples.report(latency_us))
    assert list(store.points().latency_us) == latencies_us
    assert list(store.points(series_keys=[samples.case().series_key]).latency_us) == latencies_us


def test_the_mark_of_the_history_changes_with_campaigns_annotations_and_confirmations(
    store: Store, samples
) -> None:
    note = Annotation(
        annotation_id="a", selection="*", night=date(2026, 3, 9), text="driver", created_at=START
    )
    confirmed = Confirmation(
        series_key="s",
        night=date(2026, 3, 9),
        status=ConfirmationStatus.CANNOT,
        detail="phone away",
        at=START,
    )
    first, second = (samples.night(store, f"night-{night}", night) for night in range(2))

    def hide_two_others() -> None:
        for campaign, is_hidden in ((first, False), (fourth, False), (second, True), (third, True)):
            store.hide_campaign(campaign, is_hidden=is_hidden)

    steps = (
        hide_two_others,
        lambda: samples.night(store, "night-2", 2),
        lambda: store.hide_campaign(first),
        lambda: store.hide_campaign(second, is_hidden=False),
        lambda: store.hide_campaign(first, is_hidden=False),
        lambda: store.annotate(note),
        lambda: (store.delete_annotation("a"), store.annotate(note)),
        lambda: store.delete_annotation("a"),
        lambda: store.confirm(confirmed),
        lambda: store.confirm(dataclasses.replace(confirmed, detail="phone busy")),
    )
    third, fourth = (samples.night(store, f"night-{night}", night) for night in (3, 4))
    store.hide_campaign(first)
    store.hide_campaign(fourth)
    marks = [store.history_mark()]
    for step in steps:
        step()
        assert store.history_mark() not in marks[-1:]
        marks.append(store.history_mark())
        assert store.history_mark() == marks[-1]
