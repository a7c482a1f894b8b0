"""What every store does, whatever it is made of."""

from __future__ import annotations

import dataclasses
import enum
import itertools
import json
import math
import threading
import types
import typing
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta, timezone

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.errors import StoreError
from orchestrator.records.campaign import CampaignStatus, Invocation
from orchestrator.records.case import CampaignId, CaseKey, ModelSha, Pass, RunId, Serial
from orchestrator.records.history import Confirmation, ConfirmationStatus
from orchestrator.records.run import Attachment, Outcome, RunRecord
from orchestrator.records.verdict import Finding, Quality, QualityVerdict, Severity
from orchestrator.store.opening import Store
from tests.samples.stores import START, Samples

# Every character that a Python text can hold, with NUL and lone surrogates.
TEXTS = st.text(alphabet=st.characters(exclude_categories=()), max_size=12)
MOMENTS = st.datetimes(
    min_value=datetime(1970, 1, 2),  # noqa: DTZ001 (the zone is drawn)
    max_value=datetime(2200, 1, 1),  # noqa: DTZ001
    timezones=st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=30))]),
)


def values_of(hint: typing.Any) -> st.SearchStrategy[typing.Any]:
    """Return all values that a field of this type may have."""
    while isinstance(hint, typing.NewType):
        hint = hint.__supertype__
    arguments = typing.get_args(hint)
    kind = typing.get_origin(hint) or hint
    plain = {
        str: TEXTS,
        int: st.integers(-(2**63) + 1, 2**63 - 1),
        float: st.floats(-(2.0**63), 2.0**63),
        bool: st.booleans(),
        bytes: st.binary(max_size=300),
        datetime: MOMENTS,
        types.NoneType: st.none(),
    }
    if kind in plain:
        return plain[kind]
    if kind in (types.UnionType, typing.Union):
        return st.one_of(*map(values_of, arguments))
    if kind is tuple:
        if arguments[1:] == (...,):
            return st.lists(values_of(arguments[0]), max_size=3).map(tuple)
        return st.tuples(*map(values_of, arguments))
    if kind is Mapping:
        return st.dictionaries(values_of(arguments[0]), values_of(arguments[1]), max_size=3)
    if issubclass(kind, enum.Enum):
        return st.sampled_from(kind)
    assert dataclasses.is_dataclass(kind), f"no values known for {hint}"
    hints = typing.get_type_hints(kind)
    return st.builds(
        kind, **{item.name: values_of(hints[item.name]) for item in dataclasses.fields(kind)}
    )


@given(drawn=values_of(RunRecord))
@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_any_run_comes_back_equal(store: Store, samples, drawn: RunRecord) -> None:
    campaign = samples.campaign(f"night-{next(UNIQUE)}", invocations=(), skipped=())
    samples.begin(store, campaign)
    case = dataclasses.replace(
        drawn.case,
        serial=samples.phone.serial,
        model_sha256=samples.model.sha256,
        build_sha256=samples.build.sha256,
        threads=abs(drawn.case.threads) % 64,
        **{
            name: 1.5
            for name in ("min_secs", "max_secs", "warmup_min_secs")
            if not math.isfinite(getattr(drawn.case, name))
        },
    )
    run = dataclasses.replace(
        drawn,
        run_id=RunId(f"{drawn.run_id}{next(UNIQUE)}"),
        campaign_id=campaign.campaign_id,
        case=case,
        invocation=abs(drawn.invocation) % 2**31,
        is_virtual=False,
        duration_s=float(drawn.duration_s) if math.isfinite(drawn.duration_s) else 1.0,
        exit_code=None if drawn.exit_code is None else drawn.exit_code % 2**32,
    )

    assert store.append_run(run)

    assert list(store.runs(campaign_ids=[campaign.campaign_id], with_attachments=True)) == [run]
    (read,) = store.runs(campaign_ids=[campaign.campaign_id])
    assert read == dataclasses.replace(run, attachments=())
    assert read.case.case_key == case.case_key
    assert json.dumps(read.case.to_row()) == json.dumps(case.to_row())
    assert store.attachments(run.run_id) == run.attachments


UNIQUE = itertools.count()


def test_a_campaign_comes_back_whole_and_what_it_refers_to_without_the_paths_of_this_host(
    reopen: Callable[[], Store], samples
) -> None:
    first = reopen()
    campaign = samples.begin(first)
    for number in (2, 0, 1):
        first.append_run(samples.run(number, run_pass=list(Pass)[number]))
    store = reopen()

    read = store.campaign(campaign.campaign_id)

    assert read == campaign
    assert [item.case.case_key for item in read.invocations] == [
        item.case.case_key for item in campaign.invocations
    ]
    assert store.devices() == {
        facts.serial: facts for facts in (samples.phone, samples.virtual_phone)
    }
    assert store.models() == {samples.model.sha256: dataclasses.replace(samples.model, path=None)}
    assert store.builds() == {samples.build.sha256: dataclasses.replace(samples.build, path=None)}
    assert [run.invocation for run in store.runs()] == [2, 0, 1]
    key = samples.case().case_key
    assert {run.key for run in store.runs(campaign_ids=[campaign.campaign_id])} == {
        (key, list(Pass)[number], number) for number in range(3)
    }
    finished_at = datetime(2026, 3, 2, 4, tzinfo=timezone(timedelta(hours=2)))
    store.set_status(campaign.campaign_id, CampaignStatus.FINISHED, finished_at)
    ended = dataclasses.replace(campaign, status=CampaignStatus.FINISHED, finished_at=finished_at)
    assert store.campaign(campaign.campaign_id) == ended


def test_what_is_not_there_is_nothing_to_read_and_an_error_to_change(store: Store, samples) -> None:
    nowhere = CampaignId("nowhere")
    assert store.campaign(nowhere) is None
    assert list(store.runs(campaign_ids=[nowhere])) == []
    assert store.attachments(RunId("nowhere")) == ()
    for change in (
        lambda: store.set_status(nowhere, CampaignStatus.FINISHED, None),
        lambda: store.append_run(samples.run(campaign_id=nowhere)),
        lambda: store.replace_reading(samples.run(run_id=RunId("nowhere"))),
    ):
        with pytest.raises(StoreError, match="nowhere"):
            change()


def test_progress_counts_what_is_stored_and_what_is_planned(store: Store, samples) -> None:
    assert store.progress() == {}
    first = samples.begin(store)
    second = samples.begin(store, samples.campaign("night-2"))
    for number in range(2):
        store.append_run(samples.run(run_id=f"r{number}", invocation=number))
    assert store.progress() == {
        first.campaign_id: (2, len(first.invocations), 0, False),
        second.campaign_id: (0, len(second.invocations), 0, False),
    }


def test_open_campaigns_are_listed_and_counted_alone_and_no_more_than_asked_for(
    store: Store, samples
) -> None:
    assert store.campaign_count() == 0
    start = samples.campaign().created_at
    for hours, campaign_id in enumerate(("ended", "stopped", "runs")):
        samples.begin(
            store, samples.campaign(campaign_id, created_at=start + timedelta(hours=hours))
        )
    store.set_status(CampaignId("ended"), CampaignStatus.FINISHED, start + timedelta(hours=1))
    store.set_status(CampaignId("stopped"), CampaignStatus.INTERRUPTED, start + timedelta(hours=2))

    assert [item.campaign_id for item in store.campaigns(only_open=True)] == ["runs", "stopped"]
    assert [item.campaign_id for item in store.campaigns(limit=1)] == ["runs"]
    samples.begin(store, samples.campaign("same moment", created_at=start + timedelta(hours=2)))
    listed = store.campaigns()
    assert [item.campaign_id for item in listed] == ["same moment", "runs", "stopped", "ended"]
    assert all(item.invocations == () and item.skipped == () for item in listed)
    store.remove_campaign(CampaignId("same moment"))
    assert store.campaigns(only_open=True, limit=1)[0] == store.campaigns()[0]
    assert set(store.progress(only_open=True)) == {"runs", "stopped"}
    assert store.campaign_count() == 3


def test_what_was_stored_last_is_newest_whatever_a_clock_said(store: Store, samples) -> None:
    start = samples.campaign().created_at
    updated = dataclasses.replace(samples.phone, os_version="14")
    for campaign_id, facts, days in (
        ("a", samples.phone, 0),
        ("ahead", samples.phone, 365),
        ("b", updated, 2),
    ):
        campaign = samples.campaign(
            campaign_id, created_at=start + timedelta(days=days), invocations=()
        )
        store.begin_campaign(campaign, devices=[facts], models=[], builds=[])

    assert store.devices() == {samples.phone.serial: updated}
    assert [item.campaign_id for item in store.campaigns()] == ["b", "ahead", "a"]


def test_a_campaign_that_was_just_stored_by_another_command_is_refused_with_what_to_do(
    store: Store, samples
) -> None:
    campaign = samples.campaign(invocations=())
    store.begin_campaign(campaign, devices=[samples.phone], models=[], builds=[])
    with pytest.raises(StoreError) as refused:
        store.begin_campaign(campaign, devices=[samples.phone], models=[], builds=[])
    assert "run this one again" in refused.value.hint


def test_a_campaign_that_refers_to_something_unknown_is_refused_whole(
    store: Store, samples
) -> None:
    with pytest.raises(StoreError) as refused:
        store.begin_campaign(
            samples.campaign(), devices=[samples.virtual_phone], models=[], builds=[samples.build]
        )

    assert samples.phone.serial in str(refused.value)
    assert samples.model.sha256 in str(refused.value)
    assert store.campaigns() == []
    assert store.devices() == {}
    assert store.builds() == {}
    planned = samples.campaign().invocations[0]
    with pytest.raises(StoreError):
        samples.begin(store, samples.campaign(invocations=(planned, planned)))
    campaign = samples.begin(store)
    with pytest.raises(StoreError, match=campaign.campaign_id):
        samples.begin(store, dataclasses.replace(campaign, name="another", invocations=()))
    assert store.campaign(campaign.campaign_id) == campaign
    for changes in ({"serial": Serial("unknown-phone")}, {"model_sha256": ModelSha("cc" * 32)}):
        with pytest.raises(StoreError, match=next(iter(changes.values()))):
            store.append_run(samples.run(case=samples.case(**changes)))
    assert list(store.runs()) == []


def test_a_run_is_stored_once(store: Store, samples) -> None:
    samples.begin(store)
    run = samples.run()
    again = dataclasses.replace(run, run_id=RunId("second try"), reason="another", attachments=())

    assert store.append_run(run) is True
    assert store.append_run(run) is False
    assert store.append_run(again) is False
    # Of several together, those that aren't there are kept.
    others = [samples.run(number) for number in (2, 3)]
    assert store.append_runs([others[0], again, others[1]]) == [True, False, True]
    assert store.append_runs(others) == [False, False]
    with pytest.raises(StoreError, match=str(run.run_id)):
        store.append_run(samples.run(1, run_id=run.run_id))

    assert list(store.runs(with_attachments=True)) == [run, *others]


@pytest.mark.parametrize("marked", [True, False])
def test_a_mark_other_than_the_one_of_the_device_is_refused(store: Store, samples, marked) -> None:
    samples.begin(store)
    phone = samples.phone if marked else samples.virtual_phone
    run = samples.run(case=samples.case(serial=phone.serial), is_virtual=marked)

    with pytest.raises(StoreError, match=phone.serial):
        store.append_run(run)

    assert list(store.runs()) == []
    assert store.append_run(dataclasses.replace(run, is_virtual=not marked))
    assert [read.is_virtual for read in store.runs()] == [not marked]


def test_a_virtual_phone_cannot_take_the_serial_of_a_real_one(store: Store, samples) -> None:
    samples.begin(store)
    disguised = dataclasses.replace(samples.virtual_phone, is_virtual=False)

    with pytest.raises(StoreError, match=samples.virtual_phone.serial):
        store.begin_campaign(
            samples.campaign("b", invocations=()), devices=[disguised], models=[], builds=[]
        )

    assert store.devices()[samples.virtual_phone.serial].is_virtual


def test_runs_are_filtered_by_campaigns_and_by_cases_together(store: Store, samples) -> None:
    cases = [samples.case(threads=threads) for threads in (1, 2, 3)]
    for campaign_id in "abc":
        samples.begin(store, samples.campaign(campaign_id, invocations=()))
        for case in cases:
            store.append_run(
                samples.run(
                    run_id=RunId(f"{campaign_id}{case.threads}"),
                    campaign_id=CampaignId(campaign_id),
                    case=case,
                )
            )

    def found(campaigns: str, threads: tuple[int, ...]) -> list[str]:
        runs = store.runs(
            campaign_ids=[CampaignId(item) for item in campaigns],
            case_keys=[case.case_key for case in cases if case.threads in threads],
        )
        return [run.run_id for run in runs]

    assert found("ca", ()) == ["a1", "a2", "a3", "c1", "c2", "c3"]
    assert found("", (3, 1)) == ["a1", "a3", "b1", "b3", "c1", "c3"]
    assert found("bbx", (2,)) == ["b2"]
    assert (
        len(list(store.runs(campaign_ids=[CampaignId("a")], serials=[samples.phone.serial]))) == 3
    )
    assert list(store.runs(serials=[samples.virtual_phone.serial])) == []


def test_of_each_case_so_many_runs_are_read_as_are_asked_for_the_last_ones(
    store: Store, samples
) -> None:
    one, two = samples.case(threads=1), samples.case(threads=2)
    samples.begin(store)
    stored = [(one, "1a"), (two, "2a"), (one, "1b"), (one, "1c"), (two, "2b")]
    for number, (case, run_id) in enumerate(stored):
        store.append_run(samples.run(number, run_id=RunId(run_id), case=case))

    def found(count: int, *serials: Serial, run_pass: Pass = Pass.TIMING) -> list[str]:
        return [
            run.run_id for run in store.last_runs(count, serials=serials, run_passes=[run_pass])
        ]

    assert found(2) == ["2a", "1b", "1c", "2b"]
    assert found(9) == ["1a", "2a", "1b", "1c", "2b"]
    assert found(1, samples.phone.serial) == ["1c", "2b"]
    assert found(1, samples.virtual_phone.serial) == found(1, run_pass=Pass.MEMORY) == []


def test_a_filter_may_name_more_cases_than_a_statement_takes(store: Store, samples) -> None:
    samples.begin(store)
    store.append_run(samples.run(0))
    store.append_run(samples.run(1, case=samples.case(threads=1)))
    many = [CaseKey(f"{number:032x}") for number in range(70_000)]
    many.insert(40_000, samples.case().case_key)

    assert [run.invocation for run in store.runs(case_keys=many)] == [0]


def test_the_store_may_be_written_while_runs_are_read(store: Store, samples) -> None:
    samples.begin(store)
    for number in range(3):
        store.append_run(samples.run(number))

    seen = []
    for run in store.runs(with_attachments=True):
        seen.append(run.invocation)
        store.append_run(samples.run(run.invocation + 100))
        store.replace_reading(dataclasses.replace(run, reason="read again"))

    assert seen == [0, 1, 2]
    assert [run.reason for run in store.runs()] == ["read again"] * 3 + [""] * 3


def test_a_reading_is_replaced_and_the_raw_output_stays(store: Store, samples) -> None:
    samples.begin(store)
    run = samples.run()
    store.append_run(run)
    verdict = QualityVerdict(
        quality=Quality.REJECTED,
        findings=(Finding(code="fell-back", severity=Severity.ERROR, message="on the CPU"),),
    )

    for report in (samples.report(9999.0), samples.report(2.0**62), None):
        changed = dataclasses.replace(
            run,
            report=report or samples.report(1.0),
            outcome=Outcome.FAILED,
            reason_code="delegate-failed",
            reason="the GPU refused it",
            verdict=verdict,
        )
        store.replace_reading(changed)
        assert list(store.runs(with_attachments=True)) == [changed]
        assert [item.latency_us for item in store.runs()] == [changed.latency_us]


def test_runs_appended_from_many_threads_are_all_kept_once(
    reopen: Callable[[], Store], samples
) -> None:
    stores = [reopen(), reopen()]
    samples.begin(stores[0])
    together = threading.Barrier(6)

    def append(worker: int) -> list[bool]:
        together.wait(timeout=30)
        # Every run is offered by two workers, through the same store and through another one.
        return [
            stores[worker % 2].append_run(samples.run(number))
            for number in range(worker // 2, 30, 3)
        ] + [stores[worker % 2].append_run(samples.run(1000 + worker))]

    with ThreadPoolExecutor(6) as threads:
        answers = list(threads.map(append, range(6)))

    assert sum(sum(answer) for answer in answers) == 36
    assert {run.invocation for run in stores[0].runs()} == {*range(30), *range(1000, 1006)}
    assert len(list(stores[1].runs(with_attachments=True))) == 36


def test_a_closed_store_refuses_any_use(store: Store, samples) -> None:
    samples.begin(store)
    store.close()

    for use in (
        store.campaigns,
        store.devices,
        lambda: list(store.runs()),
        lambda: store.append_run(samples.run()),
    ):
        with pytest.raises(StoreError, match="closed"):
            use()
    store.close()


def test_what_some_runs_left_behind_is_read_together(store: Store, samples) -> None:
    samples.begin(store)
    large = (
        Attachment(name="logcat", data=b"".join(b"%d\n" % n for n in range(30_000))),
        Attachment(name="empty", data=b""),
    )
    small = (
        Attachment(name="stdout", data=b"one\n"),
        Attachment(name="stdout", data=b"another of the same name\n"),
    )
    outputs = [small, large, small, ()]
    runs = [
        samples.run(number, attachments=attachments) for number, attachments in enumerate(outputs)
    ]
    for run in runs:
        store.append_run(run)

    found = dict(store.attachments_of([run.run_id for run in runs]))

    assert found == {run.run_id: run.attachments for run in runs}
    assert list(store.runs(with_attachments=True)) == runs


def test_an_invocation_that_was_unfit_is_open_and_whatever_comes_later_takes_its_place(
    store: Store, samples
) -> None:
    campaign = samples.begin(store)
    unfit = samples.run(
        0,
        run_id=RunId("unfit-1"),
        outcome=Outcome.UNFIT,
        reason_code="battery-hot",
        report=None,
        attachments=(),
    )
    assert store.append_run(unfit)
    assert store.append_run(dataclasses.replace(unfit, run_id=RunId("unfit-2")))
    assert [run.run_id for run in store.runs()] == ["unfit-2"]
    assert store.progress()[campaign.campaign_id][0] == 0
    real = samples.run(0)
    assert store.append_run(real)
    assert not store.append_run(dataclasses.replace(unfit, run_id=RunId("unfit-3")))
    assert [run.run_id for run in store.runs()] == [real.run_id]
    assert store.attachments(real.run_id) == real.attachments
    assert store.progress()[campaign.campaign_id][0] == 1


def test_a_removed_campaign_leaves_nothing_that_only_it_had(store: Store, samples: Samples) -> None:
    own, shared = samples.case(threads=1), samples.case(threads=4)
    for name, cases in (("night-1", (own, shared)), ("night-2", (shared,))):
        planned = tuple(Invocation(case=case, run_pass=Pass.TIMING, number=0) for case in cases)
        samples.begin(store, samples.campaign(name, invocations=planned))
        for case in cases:
            store.append_run(
                samples.run(
                    campaign_id=CampaignId(name), run_id=RunId(f"{name}-{case.threads}"), case=case
                )
            )
        store.set_status(CampaignId(name), CampaignStatus.FINISHED, None)
    for case in (own, shared):
        store.confirm(
            Confirmation(
                series_key=case.series_key,
                night=date(2026, 3, 9),
                status=ConfirmationStatus.CONFIRMED,
                detail="",
                at=START,
            )
        )

    store.remove_campaign(CampaignId("night-1"))

    assert [item.campaign_id for item in store.campaigns()] == ["night-2"]
    assert {run.run_id for run in store.runs()} == {"night-2-4"}
    assert store.series().keys() == {shared.series_key}
    assert [item.series_key for item in store.points().series] == [shared.series_key]
    assert len(store.points().latency_us) == 1
    assert [item.series_key for item in store.confirmations()] == [shared.series_key]
    with pytest.raises(StoreError, match="night-1"):
        store.remove_campaign(CampaignId("night-1"))


def test_a_case_that_another_campaign_only_plans_outlives_the_one_that_ran_it(
    store: Store, samples: Samples
) -> None:
    planned = (Invocation(case=samples.case(), run_pass=Pass.TIMING, number=0),)
    for name in ("night-1", "night-2"):
        samples.begin(store, samples.campaign(name, invocations=planned))
    store.append_run(samples.run(campaign_id=CampaignId("night-1")))
    store.remove_campaign(CampaignId("night-1"))
    found = store.campaign(CampaignId("night-2"))
    assert found is not None
    assert found.invocations == planned
