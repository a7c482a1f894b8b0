"""The units and the container file do what they say: their commands, options, extras and settings
exist."""

import configparser
import json
import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.samples.command import Cli
from tests.samples.places import BENCHFARM, REPO

SERVICES = REPO / "examples" / "services"
UNITS = sorted([*SERVICES.glob("*.service"), *SERVICES.glob("*.timer")])
CONTAINERFILE = (SERVICES / "Containerfile").read_text("utf-8")
PROGRAM = "/opt/benchfarm/bin/benchfarm"


def require_parses(words: list[str], home: Path) -> None:
    """Have the option parser read a whole command line; it shows the help then and runs nothing."""
    assert Cli(home=home)(*words, "--help").ok().stderr == ""


def sections(unit: Path) -> configparser.ConfigParser:
    # A key may come again in a unit; none of ours does, and a parser that is strict says so.
    parser = configparser.ConfigParser(
        interpolation=None, delimiters=("=",), comment_prefixes=("#",)
    )
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(unit.read_text("utf-8"))
    return parser


def instructions() -> list[tuple[str, str]]:
    text = re.sub(r"^\s*#.*\n", "", CONTAINERFILE, flags=re.M).replace("\\\n", " ")
    return [(word, rest) for line in text.splitlines() for word, _, rest in [line.partition(" ")]]


@pytest.mark.parametrize(
    "unit", [unit for unit in UNITS if unit.suffix == ".service"], ids=lambda unit: unit.name
)
def test_what_a_unit_starts_exists(unit: Path, tmp_path: Path) -> None:
    service = sections(unit)["Service"]
    lines = [value for key, value in service.items() if key.startswith("Exec")]
    assert lines
    for line in lines:
        program, *words = shlex.split(line)
        assert program == PROGRAM
        require_parses(words, tmp_path)
    assert service["KillSignal"] == "SIGINT"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd isn't installed")
def test_systemd_takes_the_units(tmp_path: Path) -> None:
    for unit in UNITS:
        (tmp_path / unit.name).write_text(unit.read_text("utf-8").replace(PROGRAM, str(BENCHFARM)))
    checked = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", *sorted(tmp_path.iterdir())],
        capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip
    assert (checked.returncode, checked.stderr) == (0, "")


def test_what_the_container_starts_exists(tmp_path: Path) -> None:
    found = dict(instructions())
    assert json.loads(found["ENTRYPOINT"]) == ["benchfarm"]
    require_parses(json.loads(found["CMD"]), tmp_path)
    # As after an interrupt: the worker puts its phones back.
    assert found["STOPSIGNAL"] == "SIGINT"


def test_the_container_is_built_from_what_the_package_has() -> None:
    project = tomllib.loads((REPO / "pyproject.toml").read_text("utf-8"))["project"]
    runs = " ".join(rest for word, rest in instructions() if word == "RUN")
    (extras,) = re.findall(r"benchfarm-\*\.whl\)\[([a-z,]+)\]", runs)
    assert set(extras.split(",")) <= set(project["optional-dependencies"])
    (version,) = re.findall(r"python:(\d+\.\d+)-slim", CONTAINERFILE)
    (least,) = re.findall(r">=\s*3\.(\d+)", project["requires-python"])
    assert int(version.partition(".")[2]) >= int(least)


def test_the_container_s_user_may_write_its_volume() -> None:
    found = instructions()
    words = [word for word, _ in found]
    volume, user = dict(found)["VOLUME"], dict(found)["USER"]
    runs = " ".join(rest for word, rest in found[: words.index("USER")] if word == "RUN")
    assert f"--owner {user} --group {user} {volume}" in runs
    assert f"BENCHFARM_HOME={volume}" in dict(found)["ENV"]


def test_settings_that_are_given_are_read() -> None:
    known = (REPO / "orchestrator" / "settings.py").read_text("utf-8")
    texts = [CONTAINERFILE, *(unit.read_text("utf-8") for unit in UNITS)]
    for name in set(re.findall(r"BENCHFARM_[A-Z_]+", " ".join(texts))):
        assert f'"{name}"' in known, name
