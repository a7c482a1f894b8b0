"""What is installed from a wheel has everything that the program needs."""

import contextlib
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.conftest import poll_until
from tests.samples.command import Cli
from tests.samples.places import REPO
from tests.samples.wheels import environment, wheel_of

LAB = REPO / "virtual" / "src"
#: Packages that only extras other than the lab bring.
EXTRAS = (
    "fastapi",
    "keras",
    "procrastinate",
    "prometheus_client",
    "psycopg",
    "pyarrow",
    "tensorflow",
    "uvicorn",
)


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """benchfarm's own wheel and the lab's."""
    return [
        wheel_of(source, tmp_path_factory.mktemp("wheel")) for source in (REPO, REPO / "virtual")
    ]


def test_the_wheel_holds_code_data_and_the_command(wheels: list[Path]) -> None:
    with zipfile.ZipFile(wheels[0]) as archive:
        names = set(archive.namelist())
        entry_points = next(name for name in names if name.endswith("entry_points.txt"))
        assert "benchfarm = orchestrator.cli:main" in archive.read(entry_points).decode()
    for folder, pattern in (
        ("apk_builds", "*.yaml"),
        ("device_profiles", "*.yaml"),
        ("reports/templates", "*"),
        ("reports/published", "*"),
        ("docs", "*.md"),
        ("docs/guides", "*.md"),
        ("docs/reference", "*.md"),
        ("docs/start", "*.md"),
    ):
        for path in (REPO / folder).glob(pattern):
            if path.is_file():
                assert f"orchestrator/_data/{folder}/{path.name}" in names
    for path in (REPO / "orchestrator").rglob("*"):
        if path.is_file() and path.suffix in {".py", ".sh", ".typed", ".tflite", ".yaml", ".json"}:
            assert path.relative_to(REPO).as_posix() in names
    assert not any(
        "reports/out" in name or name.startswith(("tests/", "virtual/", "benchfarm_virtual/"))
        for name in names
    )


def test_the_wheel_of_the_lab_holds_its_code_and_profiles_and_nothing_else(
    wheels: list[Path],
) -> None:
    with zipfile.ZipFile(wheels[1]) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert "benchfarm_virtual/profiles/pixel-3.yaml" in names
    assert names == {
        path.relative_to(LAB).as_posix()
        for path in LAB.rglob("*")
        if path.is_file() and path.suffix in {".py", ".typed", ".yaml"}
    }


def test_from_the_wheels_alone_quickstart_shows_the_whole_thing_and_leaves_nothing_running(
    wheels: list[Path], tmp_path: Path
) -> None:
    place = tmp_path / "installed"
    python = environment(place, *wheels, at_start="no_extras")
    (own,) = (place / "lib").glob("python*/site-packages")
    (place / "bin" / "litert-benchmark").symlink_to(
        Path(sys.executable).with_name("litert-benchmark")
    )
    # What only extras bring isn't there.
    lines = (f"import sys; sys.modules[{name!r}] = None\n" for name in EXTRAS)
    (own / "no_extras.py").write_text("".join(lines))
    code = "import benchfarm_virtual, orchestrator; print(benchfarm_virtual.__file__, orchestrator.__file__)"
    found = subprocess.run(
        [python, "-c", code], cwd=tmp_path, check=True, capture_output=True, text=True
    ).stdout.split()
    assert all(name.startswith(str(own)) for name in found)
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path / "home"),
        "ANDROID_ADB_SERVER_PORT": "1",
    }
    done = subprocess.run(
        [place / "bin" / "benchfarm", "--home", tmp_path / "quickstart", "quickstart"],
        cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert done.returncode in {0, 1}, done.stdout + done.stderr
    for word in (
        "Google Pixel 3 (virtual)",
        "Google Pixel 4 (virtual)",
        "litert",
        "come from a model",
    ):
        assert word in " ".join(done.stdout.split()), done.stdout + done.stderr
    (page,) = (tmp_path / "quickstart" / "reports").glob("*.html")
    assert str(page) in done.stdout
    assert str(tmp_path / "quickstart" / "store.sqlite") in done.stdout
    assert "'benchfarm virtual up pixel-3 pixel-4' starts such phones again" in done.stdout
    ours = [python, "-m", "benchfarm", "--home", tmp_path / "parity"]
    model = "import orchestrator.models.inspect as samples; print(samples.sample_models()[0])"
    script = (
        f"m=$({python} -c '{model}') && $BENCHFARM virtual up pixel-3 --speed 60 && "
        "$BENCHFARM bench $m -d xnnpack -n 2 --min-secs 0.1 --pass timing,parity --json; "
        "$BENCHFARM virtual down >&2"
    )
    checked = subprocess.run(
        ["sh", "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=900, check=False,
        env={**environ, "BENCHFARM": " ".join(map(str, ours))},
    )  # fmt: skip
    runs = json.loads(checked.stdout[checked.stdout.index("\n{") :])["runs"]
    assert {(run["run_pass"], run["outcome"]) for run in runs} == {
        ("timing", "completed"),
        ("parity", "completed"),
    }, checked.stderr
    own_store = Cli(home=tmp_path / "quickstart")
    runs = own_store.json("results", "runs")
    assert {run["is_virtual"] for run in runs} == {True, False}
    assert {(run["outcome"], run["reason_code"]) for run in runs} <= {
        ("completed", ""),
        ("skipped", "threads-unused"),
    }
    assert {run["case"]["delegate"] for run in runs if run["outcome"] == "skipped"} <= {"gpu"}
    # Nothing is left running; what was told to end may take a moment for it.
    assert [server for server in own_store.json("adb", "status")["servers"] if server["ours"]] == []
    assert own_store.json("virtual", "list")["phones"] == []
    poll_until(
        lambda: not [line for line in command_lines() if str(tmp_path) in line], "all has ended"
    )


def command_lines() -> list[str]:
    """Return what runs on this computer now."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        # A process may end while it is looked at.
        with contextlib.suppress(OSError):
            found.append(path.read_bytes().decode("utf-8", "replace"))
    return found


def test_readme_and_the_install_page_say_the_same() -> None:
    readme, page = (
        (REPO / name).read_text("utf-8") for name in ("README.md", "docs/start/install.md")
    )
    words = readme.partition("## Try it without a phone\n")[2].partition(
        "`benchfarm quickstart` starts"
    )[0]
    assert "pip install --find-links dist 'benchfarm[virtual]'" in words
    assert "uvx --find-links dist --from 'benchfarm[virtual]' benchfarm quickstart" in words
    assert words.strip() in page
