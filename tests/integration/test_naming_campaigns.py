"""Which campaigns a word means: one, or all phones of a farm's submission; the same on every store."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest
from sqlalchemy import Engine, event

from orchestrator.app.stored import find_campaigns
from orchestrator.errors import UsageError
from orchestrator.records.campaign import Invocation
from orchestrator.records.case import CampaignId, Pass, Serial, campaign_id_of
from orchestrator.store.opening import Store
from tests.samples.records import facts_of
from tests.samples.stores import START

#: The first is the beginning of the second, and adb's name for the third isn't an id's as it is.
PHONES = ("PIXEL-3", "PIXEL-3-2", "10.0.0.1:5555")
NAMES = ("PIXEL-3", "PIXEL-3-2", "10.0.0.1~3a~5555")


def ids_of(store: Store, word: str) -> list[str]:
    """Return the ids of the campaigns that a word means."""
    return [item.campaign_id for item in find_campaigns(store, word)]


@pytest.fixture
def farm(store: Store, samples) -> Store:
    """Two nights of three phones, one of another plan before them, one campaign of this host
    between them."""
    phones = [facts_of(serial, is_virtual=True) for serial in PHONES]
    nights = [
        *((f"other_{name}", "other", [serial]) for name, serial in zip(NAMES, PHONES, strict=True)),
        *((f"n1_{name}", "nightly", [serial]) for name, serial in zip(NAMES, PHONES, strict=True)),
        ("20261122-010000-abcdef", "by hand", PHONES),
        *((f"n10_{name}", "nightly", [serial]) for name, serial in zip(NAMES, PHONES, strict=True)),
    ]
    for hour, (campaign_id, name, serials) in enumerate(nights):
        invocations = tuple(
            Invocation(case=samples.case(serial=Serial(serial)), run_pass=Pass.TIMING, number=0)
            for serial in serials
        )
        created = START + timedelta(hours=hour)
        campaign = samples.campaign(
            campaign_id, name=name, created_at=created, invocations=invocations, skipped=()
        )
        store.begin_campaign(
            campaign, devices=phones, models=[samples.model], builds=[samples.build]
        )
    return store


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("", [f"n10_{name}" for name in sorted(NAMES)]),
        ("newest", [f"n10_{name}" for name in sorted(NAMES)]),
        ("previous", [f"n1_{name}" for name in sorted(NAMES)]),
        ("n1", [f"n1_{name}" for name in sorted(NAMES)]),
        ("n1_PIXEL-3", ["n1_PIXEL-3"]),
        ("n1_PIXEL-3-", ["n1_PIXEL-3-2"]),
        ("20261122", ["20261122-010000-abcdef"]),
        ("by hand", ["20261122-010000-abcdef"]),
        ("nightly", [f"n10_{name}" for name in sorted(NAMES)]),
    ],
)
def test_a_word_means_a_campaign_or_a_whole_submission(
    farm: Store, word: str, meant: Sequence[str]
) -> None:
    assert ids_of(farm, word) == meant


def test_a_submission_is_asked_for_once_however_many_devices_are_stored(farm: Store) -> None:
    statements: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        statements.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        campaigns = farm.submission("n1")
    finally:
        event.remove(Engine, "before_cursor_execute", note)
    assert campaigns == sorted(campaign_id_of("n1", Serial(serial)) for serial in PHONES)
    assert sum(statement.startswith("SELECT") for statement in statements) == 1, statements


def test_a_word_that_fits_several_campaigns_that_are_no_submission_is_refused(farm: Store) -> None:
    with pytest.raises(UsageError, match="'n' fits"):
        find_campaigns(farm, "n")
    with pytest.raises(UsageError, match="no campaign 'n2'"):
        find_campaigns(farm, "n2")


def test_a_name_means_its_newest_campaign_unless_it_begins_an_id(store: Store, samples) -> None:
    for campaign_id, name in (("a1", "plan"), ("a2", "plan"), ("b1", "a2"), ("c1", "a")):
        samples.begin(store, samples.campaign(campaign_id, name=name))
    assert ids_of(store, "plan") == ["a2"]
    assert ids_of(store, "a2") == ["a2"]
    # Two ids begin so, which says nothing.
    assert ids_of(store, "a") == ["c1"]


def test_a_name_means_a_hidden_campaign_where_it_has_no_other(store: Store, samples) -> None:
    for campaign_id, name in (("a1", "plan"), ("a2", "plan"), ("b1", "alone")):
        samples.begin(store, samples.campaign(campaign_id, name=name))
    for hidden in ("a2", "b1"):
        store.hide_campaign(CampaignId(hidden))
    assert [item.campaign_id for item in find_campaigns(store, "plan")] == ["a1"]
    assert [item.campaign_id for item in find_campaigns(store, "alone")] == ["b1"]


def test_the_previous_campaign_is_one_that_has_a_case_in_common(store: Store, samples) -> None:
    models = {
        "a": ("first", "bench"),
        "b": ("other", "bench"),
        "c": ("first", "renamed"),
        "d": ("first", "bench"),
    }
    for hour, (campaign_id, (model_name, name)) in enumerate(models.items()):
        case = samples.case(model_name=model_name)
        planned = (Invocation(case=case, run_pass=Pass.TIMING, number=0),)
        samples.night(store, campaign_id, hour / 24, name=name, invocations=planned)
    assert ids_of(store, "previous") == ["a"]
    store.remove_campaign(CampaignId("a"))
    assert ids_of(store, "previous") == ["c"]
    store.hide_campaign(CampaignId("d"))
    assert ids_of(store, "newest") == ["c"]
    assert ids_of(store, "d") == ["d"]
