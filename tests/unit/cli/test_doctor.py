"""What the doctor says of a store, by how its place is written, and of what others may reach."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.app.doctor import _access, _store
from orchestrator.bootstrap import Settings, Workspace
from tests.samples.command import Cli


def test_a_file_is_a_file_however_its_place_is_written(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    for where in (str(path), f"sqlite:///{path}"):
        with Workspace(Settings.from_environment({}, home=tmp_path, store=where)) as workspace:
            (found, *_) = _store(workspace)
        assert f"0 campaigns in {path}" in found.text


@pytest.fixture
def reachable() -> Iterator[Path]:
    """Yield a folder that every account can come to; the tests' own can't be entered by others."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def test_what_is_made_is_the_users_alone_and_what_others_reach_is_named(reachable: Path) -> None:
    home = reachable / "home"
    Cli(home=home)("history", "expect", "delegate=gpu", "2026-11-01", "a driver")
    with Workspace(Settings.from_environment({}, home=home)) as workspace:
        _ = workspace.store
        assert [item.level for item in _access(workspace)] == ["ok"]
        home.chmod(0o755)
        (home / "store.sqlite").chmod(0o666)
        found = {item.text: item.next_step for item in _access(workspace)}
    assert found == {
        f"other accounts of this computer may read {home}": f"chmod go-rwx {home}",
        f"other accounts of this computer may change {home}/store.sqlite": f"chmod go-rwx {home}/store.sqlite",
    }
