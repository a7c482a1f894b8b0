"""What is installed from a wheel has everything that the program needs."""

import subprocess
import sys
import zipfile
from pathlib import Path

from tests.samples.places import REPO


def test_the_wheel_holds_code_data_and_the_command(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path],
        cwd=REPO,
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        entry_points = next(name for name in names if name.endswith("entry_points.txt"))
        assert "benchfarm = orchestrator.cli:main" in archive.read(entry_points).decode()
    for folder, pattern in (
        ("apk_builds", "*.yaml"),
        ("device_profiles", "*.yaml"),
        ("reports/templates", "*"),
        ("reports/published", "*"),
    ):
        for path in (REPO / folder).glob(pattern):
            if path.is_file():
                assert f"orchestrator/_data/{folder}/{path.name}" in names
    for path in (REPO / "orchestrator").rglob("*"):
        if path.is_file() and path.suffix in {".py", ".sh", ".typed", ".tflite", ".yaml", ".json"}:
            assert path.relative_to(REPO).as_posix() in names
    assert not any("reports/out" in name or name.startswith("tests/") for name in names)
