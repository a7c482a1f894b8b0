"""iPhones as devices like any other, with a process in the place of pymobiledevice3 and folders in
that of phones."""

from __future__ import annotations

import hashlib
import json
import os
import plistlib
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from orchestrator.devices.quiet import UndoJournal
from orchestrator.errors import UsageError
from orchestrator.extensions.iphone.device import IPhoneDevice
from orchestrator.extensions.iphone.usbmux import Usbmux
from orchestrator.ports import HostFile, ListedPhone
from tests.conftest import poll_until
from tests.extensions.iphone import cabled_iphone
from tests.extensions.iphone.cabled_iphone import calls, change, give
from tests.samples.command import Cli, Done
from tests.samples.places import MODELS

UDID = "00008150-000A0"

#: What an owner of the phone has in the app's folder, with a figure of another day.
OLD = {
    "benchmark.done": "0\n",
    "benchmark.log": "INFO: count=50 avg=111",
    "results.pb": "old",
    "notes.txt": "mine",
}
QUICK = ("-n", "1", "--no-reference-check", "--json")

#: Fault of a phone -> how its run with the GPU is to be stored: outcome, code, quality.
TOLD = {
    "none": ("completed", "", "trusted"),
    "no-battery": ("completed", "", "trusted"),
    "only-stderr": ("completed", "", "trusted"),
    "no-accelerator": ("failed", "delegate-fell-back", "rejected"),
    "says-error-ends-well": ("failed", "out-of-memory", "rejected"),
    "jetsam": ("failed", "low-memory-kill", "rejected"),
    "crashes": ("failed", "app-crashed", "rejected"),
    "dies": ("failed", "process-died", "rejected"),
    "bad-result": ("completed", "", "suspect"),
    "disk-full": ("failed", "device-storage", "rejected"),
    "hangs": ("timed-out", "timed-out", "rejected"),
}


def environ(folder: Path) -> dict[str, str]:
    return {
        "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
        "USBMUXD_SOCKET_ADDRESS": "127.0.0.1:9",
    }


@dataclass(frozen=True, kw_only=True)
class Night:
    """A campaign on a phone for each fault, all at once."""

    cli: Cli
    phones: dict[str, Path]
    environ: dict[str, str]
    #: Fault -> its phone's run.
    runs: dict[str, Any]


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory, make_cli: Callable[[Path], Cli]) -> Night:
    folder = tmp_path_factory.mktemp("night")
    phones = {fault: folder / fault for fault in TOLD}
    cabled_iphone.install(folder / "bin", *phones.values())
    for fault, phone in phones.items():
        give(phone, **{fault: -1})
        for name, content in OLD.items():
            (phone / "app" / "Documents" / name).write_text(content)
    model = min(MODELS.glob("*float*.tflite"))
    plan = folder / "plan.yaml"
    plan.write_text(
        f"models: [{json.dumps(str(model))}]\nmatrix: {{delegates: [gpu], threads: 1}}\ninvocations: 1\n"
        "settings: {min_secs: 0.1, max_secs: 0.5}\ntimeout: 15 s\nreference_check: false\n"
    )
    cli, own = make_cli(folder / "home"), environ(folder / "bin")
    campaign = cli("run", plan, "--json", **own).json["campaign_id"]
    stored = cli.json("results runs", campaign)
    of = {
        json.loads((phone / "phone.json").read_text())["udid"]: fault
        for fault, phone in phones.items()
    }
    runs = {of[run["case"]["serial"]]: run for run in stored}
    return Night(cli=cli, phones=phones, environ=own, runs=runs)


@pytest.mark.parametrize("fault", TOLD)
def test_a_run_is_stored_as_what_it_was(night: Night, fault: str) -> None:
    run = night.runs[fault]
    outcome, code, quality = TOLD[fault]
    assert (run["outcome"], run["reason_code"]) == (outcome, code), run["reason"]
    assert run["is_virtual"]
    assert run["verdict"]["quality"] == quality
    if outcome == "completed":
        assert 900 < run["report"]["inference_mean_us"] < 1100
        assert run["report"]["delegate"]["backend"] == "metal"


def test_what_the_phone_tells_is_kept_and_the_rest_stays_unknown(night: Night) -> None:
    state = night.runs["none"]["state_before"]
    assert (state["battery_percent"], state["battery_heat_c"], state["plugged"]) == (
        81,
        30.1,
        "usb",
    )
    assert state["thermal_status"] is None
    assert night.runs["no-battery"]["state_before"]["battery_percent"] is None
    # Where standard output is lost, the figures are those of the result's proto and the banner.
    assert night.runs["only-stderr"]["report"]["inference"]["count"] == 100


@pytest.mark.parametrize("fault", TOLD)
def test_what_was_in_the_apps_folder_is_there_again_and_nothing_else(
    night: Night, fault: str
) -> None:
    documents = night.phones[fault] / "app" / "Documents"
    assert {path.name: path.read_text() for path in documents.iterdir()} == OLD
    assert not (night.phones[fault] / "running").exists()


def test_a_phone_is_listed_with_its_system_and_its_owners_name_isnt(night: Night) -> None:
    listed = night.cli("devices", **night.environ).ok().stdout
    assert listed.count("iPhone18,1 (virtual)") == len(TOLD)
    assert "iOS 27.0" in listed
    assert "Someone" not in listed + json.dumps(night.cli.json("devices", **night.environ))


# One phone
# ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Cabled:
    """One phone, and the command that sees it."""

    phone: Path
    run: Callable[..., Done]


@pytest.fixture
def cabled(cli: Cli, tmp_path: Path) -> Cabled:
    cabled_iphone.install(tmp_path / "bin", tmp_path / "phone")
    own = environ(tmp_path / "bin")
    return Cabled(phone=tmp_path / "phone", run=lambda *words, **more: cli(*words, **(own | more)))


def bench(cabled: Cabled, model: Path, *words: object, **more: str) -> Done:
    return cabled.run("bench", model, "-d", "gpu", "-t", "1", *QUICK, *words, **more)


def test_a_phone_whose_cable_is_pulled_in_a_run_measures_again_and_one_that_stays_away_is_left_open(
    cabled: Cabled, model: Path
) -> None:
    give(cabled.phone, unplugged_in_run=1)
    done = bench(cabled, model, "-s", UDID).ok().json
    assert [run["outcome"] for run in done["runs"]] == ["completed"]
    assert sum("launch" in call for call in calls(cabled.phone)) == 2


def test_an_app_that_is_replaced_meanwhile_gives_no_figure_under_the_firsts_name(
    cabled: Cabled, model: Path
) -> None:
    give(cabled.phone, replaced_in_run=1)
    done = cabled.run(
        "bench",
        model,
        "-d",
        "gpu",
        "-t",
        "1",
        "-n",
        "3",
        "--no-reference-check",
        "--json",
        "-s",
        UDID,
    )
    runs = done.json["runs"]
    assert [run["outcome"] for run in runs][:2] == ["completed", "failed"], runs
    assert "was replaced: 0.1.0 (1) is there now" in runs[1]["reason"]
    assert sum("launch" in call for call in calls(cabled.phone)) == 1


@pytest.mark.parametrize(
    ("fault", "says", "step", "exits_with"),
    [
        ("untrusted", "doesn't trust this computer", "lockdown pair", 1),
        ("locked", "is locked", "Auto-Lock", 1),
        ("no-developer-mode", "developer mode is off", "amfi enable-developer-mode", 0),
        ("no-tunnel", "need a tunnel", "remote tunneld", 0),
    ],
)
def test_a_phone_that_isnt_ready_ends_with_what_is_missing_and_no_figure(
    cabled: Cabled, model: Path, fault: str, says: str, step: str, exits_with: int
) -> None:
    """Versions of the program before 11 exit with 0 whatever happened."""
    give(cabled.phone, **{fault: -1})
    change(cabled.phone, exits_with=exits_with)
    done = bench(cabled, model, "-s", UDID)
    assert done.exit_code == (3 if fault == "untrusted" else 1)
    assert says in done.said
    assert step in done.said
    assert '"inference_mean_us": ' not in done.stdout
    assert list((cabled.phone / "app" / "Documents").iterdir()) == []


def test_a_missing_developer_image_is_mounted_once(cabled: Cabled, model: Path) -> None:
    give(cabled.phone, no_image=1)
    done = bench(cabled, model, "-s", UDID).ok().json
    assert [run["outcome"] for run in done["runs"]] == ["completed"]
    assert ["mounter", "auto-mount"] in calls(cabled.phone)


def test_an_ipa_is_installed_once_and_known_by_its_content(
    cabled: Cabled, model: Path, tmp_path: Path
) -> None:
    package = tmp_path / "org.example.Bench.ipa"
    with zipfile.ZipFile(package, "w") as archive:
        told = {"CFBundleIdentifier": "org.example.Bench", "CFBundleShortVersionString": "0.2"}
        archive.writestr("Payload/B.app/Info.plist", plistlib.dumps(told))
    first = bench(cabled, model, "-s", UDID, "--build", f"litert-ios={package}").ok().json
    again = bench(cabled, model, "-s", UDID, "--build", f"litert-ios={package}").ok().json
    builds = {run["case"]["build_sha256"] for done in (first, again) for run in done["runs"]}
    assert builds == {hashlib.sha256(package.read_bytes()).hexdigest()}
    assert sum(call[:2] == ["apps", "install"] for call in calls(cabled.phone)) == 1
    package.write_bytes(b"no app")
    assert (
        "is no .ipa"
        in bench(cabled, model, "-s", UDID, "--build", f"litert-ios={package}").ended_with(4).said
    )


def test_without_the_app_the_next_step_is_told(cabled: Cabled, model: Path) -> None:
    done = bench(cabled, model, "-s", UDID, BENCHFARM_IPHONE_APP="org.example.Other")
    assert done.exit_code != 0
    assert "org.example.Other isn't on the phone" in done.said


def test_what_a_killed_process_left_on_the_phone_is_restored(
    cabled: Cabled, cli: Cli, model: Path, tmp_path: Path
) -> None:
    documents = cabled.phone / "app" / "Documents"
    (documents / "benchmark.log").write_text("mine")
    give(cabled.phone, hangs=-1)
    words = ("bench", model, "-d", "gpu", "-t", "1", *QUICK, "-s", UDID)
    process = cli.start(*words, **environ(tmp_path / "bin"))
    poll_until((cabled.phone / "running").exists, "the app runs", 60.0)
    process.kill()
    process.wait()
    assert len(list(documents.iterdir())) > 1
    assert "left changed" in cabled.run("doctor").said
    cabled.run("device", "restore", UDID).ok()
    assert {path.name: path.read_text() for path in documents.iterdir()} == {
        "benchmark.log": "mine"
    }


def test_a_check_names_what_works_and_the_next_step_of_what_doesnt(cabled: Cabled) -> None:
    assert cabled.run("device", "check", "-s", UDID).ok().stdout.count("fails") == 0
    give(cabled.phone, no_developer_mode=-1)
    done = cabled.run("device", "check", "-s", UDID).ended_with(3)
    assert "amfi enable-developer-mode" in done.stdout


def test_the_doctor_names_the_program_that_iphones_need(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    done = cli("doctor", PATH=str(tmp_path / "empty"), USBMUXD_SOCKET_ADDRESS="127.0.0.1:9")
    assert "benchfarm[ios]" in done.said


def test_a_file_that_can_not_be_read_is_told_by_its_name(tmp_path: Path) -> None:
    device = IPhoneDevice(
        Usbmux([], {}),
        ListedPhone(address=UDID, serial=UDID, state="device"),
        app="org.example.App",
        journal=UndoJournal(tmp_path / "journals"),
        folder=tmp_path / "kept",
    )
    file = HostFile(source=tmp_path, kind="models", sha256="0" * 64, name="model.tflite")
    with pytest.raises(UsageError, match="can't be read: Is a directory"):
        device.place(file)
