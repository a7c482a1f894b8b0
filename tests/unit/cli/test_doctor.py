"""What the doctor says of a store, by how its place is written."""

from pathlib import Path

from orchestrator.bootstrap import Farm, Settings
from orchestrator.cli.doctor import _store


def test_a_file_is_a_file_however_its_place_is_written(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    for where in (str(path), f"sqlite:///{path}"):
        with Farm(Settings.from_environment({}, home=tmp_path, store=where)) as farm:
            (found, *_) = _store(farm)
        assert f"0 campaigns in {path}" in found.text
