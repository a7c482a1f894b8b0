"""Phones that come while a campaign runs: which of them are asked anything, when, and how often they are tried."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from benchfarm_lab.farm import VirtualLab
from benchfarm_lab.faults import parse_fault
from benchfarm_lab.phone import Phone
from orchestrator.app.beginning import begin, identify, new_campaign_id, prepare
from orchestrator.app.joining import PluggedIn
from orchestrator.bootstrap import Farm, Settings
from orchestrator.config.plan import parse_plan
from orchestrator.devices.address import ServerAddress
from orchestrator.devices.server import AdbServer
from orchestrator.engine.events import DeviceNote
from orchestrator.records.identity import Serial
from tests.samples.overheard_adb import Overheard
from tests.samples.places import MODELS


class Bench:
    """A server that is overheard, and phones that come and go."""

    def __init__(self, port: int, lab: VirtualLab, home: Path) -> None:
        self.server = AdbServer(ServerAddress(port=port))
        self.lab = lab
        self.overheard = Overheard(port)
        self.settings = Settings.from_environment(
            {"BENCHFARM_ADB_SERVER": f"127.0.0.1:{self.overheard.port}"}, home=home
        )
        self.said: list[str] = []

    def plug(self, serial: str, profile: str = "pixel-3") -> Phone:
        phone = self.lab.add(profile, serial=serial)
        self.server.connect_tcp(phone.address)
        return phone

    def on_event(self, event: object) -> None:
        """Take down what is said of phones."""
        if isinstance(event, DeviceNote):
            self.said.append(f"{event.serial}: {event.text}")

    def plugged_in(self, farm: Farm, devices: str) -> PluggedIn:
        """Begin a campaign on the phones that are there."""
        (model, *_) = sorted(MODELS.glob("*float*.tflite"))
        text = (
            f"models: ['{model}']\nmatrix: {{delegates: [xnnpack], threads: [1]}}\ndevices: {{{devices}}}\n"
            "invocations: 1\nreference_check: false\n"
        )
        plan = parse_plan(text, folder=model.parent, label="plan")
        models, opened = identify(plan), farm.open_devices(plan.devices)
        beginning = prepare(farm, plan, opened.devices, models, {})
        campaign_id = new_campaign_id(farm.clock.now())
        campaign = begin(farm, plan, opened.devices, beginning, {}, campaign_id=campaign_id, host="here")
        return PluggedIn(farm, campaign, opened, plan=plan, models=models)


@pytest.fixture
def bench(adb_server: Any, make_lab: Callable[..., VirtualLab], tmp_path: Path) -> Iterator[Bench]:
    # What an earlier test left there may come back, or another phone in its place.
    adb_server.run("disconnect")
    bench = Bench(adb_server.port, make_lab(adb_server), tmp_path / "home")
    with bench.overheard:
        yield bench
    for phone in bench.lab.phones.values():
        bench.server.disconnect(phone.address)


def joined(arrivals: PluggedIn, serials: list[str]) -> Callable[[], bool]:
    came: list[str] = []

    def has_come() -> bool:
        came.extend(item.facts.serial for item in arrivals.take())
        return came == serials

    return has_come


def test_phones_that_the_plan_does_not_mean_are_asked_nothing_when_a_campaign_begins(
    bench: Bench, wait_until: Callable[..., None]
) -> None:
    bench.plug("S1")
    others = [bench.plug("S2"), bench.plug("S3", "pixel-4")]
    for devices in ("serials: [S1, S9], any: 2", "where: profile = pixel-3 and serial != S2"):
        with Farm(bench.settings) as farm:
            arrivals = bench.plugged_in(farm, devices)
            bench.overheard.forget()
            with arrivals.listening(bench):
                late = bench.plug("S9")
                wait_until(lambda phone=late: bench.overheard.of(phone.address), "the one that comes is asked", 60.0)
                wait_until(lambda phone=late: len(bench.overheard.of(phone.address)) >= 3, "its facts are too", 60.0)
            assert [bench.overheard.of(phone.address) for phone in others] == [[], []]
        bench.server.disconnect(late.address)
        bench.lab.remove("S9")


def test_a_phone_that_another_command_uses_joins_when_it_is_free_and_is_asked_nothing_before(
    bench: Bench, wait_until: Callable[..., None]
) -> None:
    bench.plug("S1")
    used = bench.plug("S2")
    with Farm(bench.settings) as farm, contextlib.ExitStack() as command:
        command.enter_context(farm.lease.acquire(Serial("S2")))
        arrivals = bench.plugged_in(farm, "where: profile = pixel-3")
        bench.overheard.forget()
        with arrivals.listening(bench):
            late = bench.plug("S3")
            wait_until(joined(arrivals, ["S3"]), f"{late.serial} joins", 60.0)
            assert bench.overheard.of(used.address) == []
            command.close()
            wait_until(joined(arrivals, ["S2"]), "the other one joins", 60.0)


def test_a_phone_whose_link_is_lost_at_the_first_look_joins_at_a_later_one(
    bench: Bench, wait_until: Callable[..., None]
) -> None:
    bench.plug("S1")
    with Farm(bench.settings) as farm:
        arrivals = bench.plugged_in(farm, "where: profile = pixel-3")
        phone = bench.plug("S2")
        # It tells who it is; its facts break off, and so does all that it is asked then.
        cut = phone.faults.add(parse_fault("output-cut", ["moment=shell", "bytes=2000", "times=0"]))
        with arrivals.listening(bench):
            wait_until(lambda: bench.said, "its link is lost", 60.0)
            phone.faults.remove(cut.fault_id)
            wait_until(joined(arrivals, ["S2"]), "it joins", 60.0)
    assert [text.partition(" doesn't join")[0] for text in bench.said] == [f"{phone.address}:"]
