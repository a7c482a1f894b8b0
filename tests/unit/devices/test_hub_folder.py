"""Where processes of several homes and users find each other's turns, and what nobody can make of it."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.bootstrap import Farm, Settings
from orchestrator.devices.traffic import Lane, hub_folder
from orchestrator.errors import InterruptedByUserError, UsageError
from orchestrator.files import own_temporary


@pytest.fixture
def strict_umask() -> Iterator[None]:
    before = os.umask(0o077)
    yield
    os.umask(before)


def own_folder(runtime: Path) -> Path:
    return runtime / f"benchfarm-{os.getuid()}"


def test_all_homes_of_a_user_have_one_folder_that_is_closed_to_others(tmp_path: Path) -> None:
    folders = {hub_folder("", tmp_path / home, temporary=own_temporary(tmp_path)) for home in ("one", "two")}
    assert folders == {own_folder(tmp_path)}
    assert own_folder(tmp_path).stat().st_mode & 0o777 == 0o700


def test_the_phones_of_two_homes_take_turns(tmp_path: Path) -> None:
    environ = {"BENCHFARM_HUBS": str(tmp_path / "hubs")}
    homes = [Settings.from_environment(environ, home=tmp_path / name) for name in ("one", "two")]
    cancelled = threading.Event()
    cancelled.set()
    with Farm(homes[0]) as one, Farm(homes[1]) as two, Lane(one.hub_folder, "hub").measuring():
        other = Lane(two.hub_folder, "hub", cancelled=cancelled)
        with other.measuring():
            pass
        with pytest.raises(InterruptedByUserError), other.pushing():
            pass


@pytest.mark.parametrize("laid", ["link", "file", "open to others", "no room"])
def test_a_folder_that_others_may_have_laid_there_is_not_used(tmp_path: Path, laid: str) -> None:
    folder = own_folder(tmp_path)
    if laid == "link":
        (tmp_path / "theirs").mkdir(mode=0o700)
        folder.symlink_to(tmp_path / "theirs")
    elif laid == "file":
        folder.touch()
    elif laid == "open to others":
        folder.mkdir()
        folder.chmod(0o770)
    runtime = tmp_path / "missing" if laid == "no room" else tmp_path
    assert hub_folder("", tmp_path / "own", temporary=own_temporary(runtime)) == tmp_path / "own"


def test_a_link_in_the_place_of_a_lock_leads_nowhere(tmp_path: Path) -> None:
    folder, theirs = tmp_path / "hubs", tmp_path / "theirs"
    lane = Lane(folder, "hub")
    with lane.measuring():
        pass
    theirs.write_text("what somebody wrote")
    for path in list(folder.iterdir()):
        path.unlink()
        path.symlink_to(theirs)
    with lane.measuring():
        pass
    assert theirs.read_text() == "what somebody wrote"


@pytest.mark.parametrize(("folder_mode", "file_mode"), [(0o770, 0o660), (0o700, 0o600), (0o755, 0o600)])
def test_the_locks_are_open_to_those_to_whom_the_folder_is(
    tmp_path: Path, strict_umask: None, folder_mode: int, file_mode: int
) -> None:
    folder = tmp_path / "hubs"
    folder.mkdir()
    folder.chmod(folder_mode)
    with Lane(folder, "hub").pushing():
        assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {file_mode}


@pytest.mark.parametrize(("configured", "told"), [("hubs", "must begin with /"), ("/dev/null/hubs", "Not a directory")])
def test_a_folder_that_is_named_and_can_not_be_used_is_told(tmp_path: Path, configured: str, told: str) -> None:
    with pytest.raises(UsageError, match=told) as caught:
        hub_folder(configured, tmp_path / "own")
    assert "BENCHFARM_HUBS" in str(caught.value)
    assert "install -d" in caught.value.hint
