"""Each key of a plan changes something that can be seen, and a new key is one line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from orchestrator.analysis.rounds import decide
from orchestrator.app.preparing import terms_of, wants_reference_check
from orchestrator.clock import Deadline
from orchestrator.devices.probes import unfit_reasons, wait_until_fit
from orchestrator.devices.quiet import steps_for
from orchestrator.documents import dump_document, load_document
from orchestrator.passes import plan_keys
from orchestrator.planning.expansion import Expansion, Stock, expand
from orchestrator.planning.selection import choose, tools_for
from orchestrator.planning.time_budget import case_costs_s
from orchestrator.records.campaign import Terms
from orchestrator.records.case import Model, ModelSha, Serial
from orchestrator.records.device import DeviceState, Labels
from orchestrator.records.plan import Plan, PlanTerms, keys_of
from tests.samples.extensions import needs_extension
from tests.samples.places import REPO
from tests.samples.plan_files import read_plan
from tests.unit.devices.test_cooling import Phone
from tests.unit.engine.test_case_runner import NOW, Rig
from tests.unit.test_planning import COMPUTER, NATIVE, PHONE

ROOTED = replace(PHONE, is_rooted=True, profile="pixel-8")
PHONES = (ROOTED, replace(ROOTED, serial=Serial("PHONE2"), profile="pixel-9"), COMPUTER)
LABELS = {PHONES[1].serial: Labels(pools=("nightly",), tags=("new",))}
WARM = DeviceState(at=NOW, battery_percent=15, battery_heat_c=42.0, thermal_status=1)


def expanded(plan: Plan) -> Expansion:
    models = [
        Model(name=item.name, sha256=ModelSha(item.name * 64), size_bytes=1) for item in plan.models
    ]
    builds = {
        (PHONE.serial, tool): replace(NATIVE, tool=tool) for tool in tools_for(plan, PHONE.kind)
    }
    return expand(plan, [PHONE], models, Stock(builds=builds))


def planned(plan: Plan) -> object:
    """Return the cases, skips and invocations that ``plan show`` counts, in the order in which they
    are run."""
    found = expanded(plan)
    return found.cases, found.skipped, found.invocations


def estimated(plan: Plan) -> object:
    return expanded(plan).estimate_s(plan)


def devices(plan: Plan) -> object:
    found = choose(plan.devices, PHONES if plan.devices.host else PHONES[:2], LABELS)
    return found.chosen, found.lacking


def steps(plan: Plan) -> object:
    return [(step.name, step.apply) for step in steps_for(plan.quiet, ROOTED, over_network=False)]


def reasons(plan: Plan) -> object:
    return [item.text for item in unfit_reasons(WARM, plan.limits, {})]


def waited_s(plan: Plan) -> object:
    phone = Phone(lambda s: 45.0 - s / 40)
    judge = partial(unfit_reasons, limits=plan.limits, zone_limits={})
    deadline = Deadline(plan.limits.wait, phone.clock)
    wait_until_fit(phone.state, judge, deadline, on_wait=lambda reason: None)
    return phone.clock.monotonic_s()


def stops_after(plan: Plan) -> object:
    assert plan.stopping is not None
    return decide([1000.0 + 60 * (number % 3) for number in range(12)], plan.stopping)


def campaign_of(plan: Plan) -> Rig:
    rig = Rig()
    rig.campaign = replace(rig.campaign, terms=replace(terms_of(plan, [], {}), stopping=None))
    return rig


def measured(plan: Plan) -> tuple[list[float], float]:
    """Return what the program may take each time, and how long a small campaign took."""
    rig = campaign_of(plan)
    rig.measure()
    return [item.timeout_s for item in rig.asked], rig.clock.monotonic_s()


def costs_s(plan: Plan) -> object:
    """Return what a budget reckons for each case."""
    return case_costs_s(expanded(plan).invocations[PHONE.serial], {}, plan)


@dataclass
class LostOnce(Rig):
    """A phone whose connection is lost; who gets it back is told whether it may reboot it."""

    told_rescuer: list[object] = field(default_factory=list)

    def _rescue(self, *arguments: object, **others: object) -> bool:
        self.told_rescuer.append(others["may_reboot"])
        return False


def rescued(plan: Plan) -> object:
    rig = LostOnce(end=lambda request: "lost")
    rig.campaign = replace(rig.campaign, terms=replace(terms_of(plan, [], {}), stopping=None))
    rig.measure()
    assert rig.told_rescuer
    return rig.told_rescuer


Effect = Callable[[Plan], object]
#: Key -> what is written of it, what else the plan says before and after, and what differs.
EFFECTS: dict[str, tuple[object, dict[str, Any], Effect]] = {
    "name": ("other", {}, lambda plan: plan.name),
    "models": ("b.tflite", {}, planned),
    "matrix.delegates": ("gpu", {}, planned),
    "matrix.threads": ([1, 2], {}, planned),
    "matrix.every_thread_count": (
        True,
        {"matrix": {"delegates": "gpu", "threads": [1, 2]}},
        estimated,
    ),
    "matrix.tools": ("apk", {}, planned),
    "matrix.flags": ({"allow_fp16": "true"}, {}, planned),
    "matrix.modes": ("top-app", {}, planned),
    "devices.profiles": ("pixel-9", {}, devices),
    "devices.pools": ("nightly", {}, devices),
    "devices.tags": ("new", {}, devices),
    "devices.where": ("profile = pixel-8", {}, devices),
    "devices.host": (True, {}, devices),
    "devices.one_of_each": ("soc", {}, devices),
    "devices.any": (1, {}, devices),
    "settings.num_runs": (7, {}, planned),
    "settings.min_secs": (2, {}, planned),
    "settings.max_secs": (99, {}, planned),
    "settings.warmup_runs": (9, {}, planned),
    "settings.warmup_min_secs": ("3 s", {}, planned),
    "settings.affinity": ("all", {}, planned),
    "limits.battery_min": ("10 %", {}, reasons),
    "limits.battery_heat_max": ("43 C", {}, reasons),
    "limits.thermal_status_max": ("light", {}, reasons),
    "limits.wait": ("1 min", {}, waited_s),
    "passes": ("memory", {}, planned),
    "invocations": (2, {}, planned),
    "precision": ("20 %", {}, stops_after),
    "budget": ("1 s", {}, estimated),
    "sustained": ("20 min", {"passes": ["timing", "sustained"]}, estimated),
    "contention": (["cpu=1"], {"passes": ["timing", "contention"]}, planned),
    "reference_check": (True, {}, lambda plan: wants_reference_check(plan, expanded(plan))),
    "reboot": (True, {}, rescued),
    "quiet.screen": ("off", {}, steps),
    **{
        f"quiet.{key}": (True, {}, steps)
        for key in (
            "airplane",
            "no_doze",
            "animations_off",
            "sync_off",
            "pin_clocks",
            "pin_gpu",
        )
    },
    "quiet.fixed_performance": (True, {}, steps),
    "order": ("sequential", {"matrix": {"threads": [1, 2]}, "invocations": 2}, planned),
    "seed": (5, {"matrix": {"threads": [1, 2, 3, 4]}, "invocations": 3}, planned),
    "timeout": ("7 min", {}, measured),
}
#: Keys whose effect takes programs and files, or is an estimate only: the test that shows it.
SHOWN_BY = {
    "matrix.every_thread_count": (
        "unit/engine/test_thread_counts.py",
        "test_who_asks_for_every_thread_count_gets_it",
    ),
    "budget": (
        "e2e/test_budgets.py",
        "test_a_budget_that_is_too_small_measures_the_plans_first_cases_and_says_what_it_left_out",
    ),
    "sustained": (
        "e2e/test_certainty.py",
        "test_a_cut_sustained_measurement_is_begun_again_and_shown_beside_whole_ones",
    ),
    "devices.serials": (
        "integration/test_opening_phones.py",
        "test_a_phone_that_another_command_uses_is_left_out_and_its_facts_are_not_asked_for",
    ),
    "builds": (
        "extensions/runtimes/test_declared_programs.py",
        "test_a_file_of_ones_own_measures_on_this_computer",
    ),
    "check_outputs": (
        "e2e/test_parity.py",
        "test_outputs_of_what_is_new_are_compared_once_and_found_again",
    ),
    "parity_inputs": (
        "e2e/test_parity.py",
        "test_given_inputs_are_used_and_must_have_the_right_size",
    ),
}
#: Keys that say how an estimate is made, and take no time themselves.
TIMELESS = {"budget", "matrix.every_thread_count"}
KEYS = {".".join(key.at) for key in keys_of(Plan)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("a.tflite", "b.tflite"):
        (tmp_path / name).write_bytes(name.encode())
    return tmp_path


@needs_extension("runtimes")
def test_every_key_has_an_effect_or_a_test_that_shows_it() -> None:
    missing = KEYS - EFFECTS.keys() - SHOWN_BY.keys()
    assert not missing, f"EFFECTS of this file lacks what runs the code of {sorted(missing)}"
    assert EFFECTS.keys() | SHOWN_BY.keys() == KEYS
    only_estimated = {key for key, (_, _, effect) in EFFECTS.items() if effect is estimated}
    assert only_estimated <= SHOWN_BY.keys(), (
        "an estimate does nothing by itself: SHOWN_BY names the test of what the engine does"
    )
    for path, name in SHOWN_BY.values():
        assert f"def {name}(" in (REPO / "tests" / path).read_text("utf-8")


@pytest.mark.parametrize(
    "key",
    [
        pytest.param(key, marks=needs_extension("contention") if key == "contention" else ())
        for key in EFFECTS
    ],
)
def test_a_changed_key_changes_what_is_done(key: str, folder: Path) -> None:
    effect = EFFECTS[key][2]
    before, after = without_and_with(key, folder)
    assert effect(before) == effect(before)
    assert effect(before) != effect(after)


def without_and_with(key: str, folder: Path) -> tuple[Plan, Plan]:
    value, others, _ = EFFECTS[key]
    written = {"models": "a.tflite", "matrix": {"threads": 4}} | others

    def read(**keys: object) -> Plan:
        return read_plan(yaml.safe_dump(written | keys), folder)

    section, _, name = key.rpartition(".")
    inner = {name: value} if not section else {section: {**written.get(section, {}), name: value}}
    return read(), read(**inner)


@pytest.mark.parametrize(
    "key", [key for key, entry in EFFECTS.items() if entry[2] in (estimated, measured)]
)
def test_what_takes_time_is_estimated_and_part_of_the_budget(key: str, folder: Path) -> None:
    before, after = without_and_with(key, folder)
    takes_time = EFFECTS[key][2] is estimated or measured(before)[1] != measured(after)[1]
    if takes_time and key not in TIMELESS:
        where = "planning/time_budget.py: estimate, which plans, budgets and the engine ask"
        assert estimated(before) != estimated(after), where
        assert costs_s(before) != costs_s(after), where


@needs_extension("contention")
def test_a_campaign_keeps_what_its_plan_says_of_the_work(folder: Path) -> None:
    written: dict[str, Any] = {"models": "a.tflite", "builds": {"native": "mine"}}
    written |= {
        "limits": {"wait": "9 s"},
        "quiet": {"airplane": True},
        "passes": ["sustained", "contention"],
    }
    written |= {
        item.name: EFFECTS[item.name][0] for item in fields(PlanTerms) if item.name in EFFECTS
    }
    plan = replace(read_plan(yaml.safe_dump(written), folder), until=NOW)
    terms = terms_of(plan, [], {})
    for item in fields(PlanTerms):
        assert getattr(plan, item.name) != getattr(Plan(models=()), item.name), item.name
        assert getattr(terms, item.name) == getattr(plan, item.name)
    assert load_document(Terms, dump_document(terms), where="here") == terms


def test_bench_takes_every_key_that_has_an_option() -> None:
    from orchestrator.cli.commands import ROOT

    names = {item.name for item in ROOT.get_command(None, "bench").params}
    further = {"out", "wait", "legend", "as_json"}
    assert names == further | {name for name, key in plan_keys().items() if key.key.option}
