"""What is installed from a wheel has everything that the program needs."""

import subprocess
import sys
import zipfile
from pathlib import Path

from tests.samples.places import REPO

LAB = REPO / "lab" / "src"


def built(source: Path, folder: Path) -> zipfile.ZipFile:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder],
        cwd=source,
        check=True,
        capture_output=True,
    )
    (wheel,) = folder.glob("*.whl")
    return zipfile.ZipFile(wheel)


def test_the_wheel_holds_code_data_and_the_command(tmp_path: Path) -> None:
    with built(REPO, tmp_path) as archive:
        names = set(archive.namelist())
        entry_points = next(name for name in names if name.endswith("entry_points.txt"))
        assert "benchfarm = orchestrator.cli:main" in archive.read(entry_points).decode()
    for folder, pattern in (
        ("apk_builds", "*.yaml"),
        ("device_profiles", "*.yaml"),
        ("reports/templates", "*"),
        ("reports/published", "*"),
        ("docs", "concepts.md"),
        ("docs", "findings.md"),
        ("docs", "failures.md"),
    ):
        for path in (REPO / folder).glob(pattern):
            if path.is_file():
                assert f"orchestrator/_data/{folder}/{path.name}" in names
    for path in (REPO / "orchestrator").rglob("*"):
        if path.is_file() and path.suffix in {".py", ".sh", ".typed", ".tflite", ".yaml", ".json"}:
            assert path.relative_to(REPO).as_posix() in names
    assert not any("reports/out" in name or name.startswith(("tests/", "lab/", "benchfarm_lab/")) for name in names)


def test_the_wheel_of_the_lab_holds_its_code_and_profiles_and_nothing_else(tmp_path: Path) -> None:
    with built(REPO / "lab", tmp_path) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert "benchfarm_lab/profiles/pixel-3.yaml" in names
    assert names == {
        path.relative_to(LAB).as_posix()
        for path in LAB.rglob("*")
        if path.is_file() and path.suffix in {".py", ".typed", ".yaml"}
    }


def test_without_the_lab_its_commands_say_what_to_install(tmp_path: Path) -> None:
    code = "import sys; sys.modules['benchfarm_lab'] = None; from orchestrator.cli import main; main()"
    for words in (["lab", "up"], ["lab", "list"], ["quickstart"]):
        done = subprocess.run(
            [sys.executable, "-c", code, "--home", tmp_path / "home", *words],
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stdout) == (2, "")
        assert "benchfarm-lab" in done.stderr
        assert "pip install 'benchfarm[lab]'" in done.stderr
        assert "Traceback" not in done.stderr
