"""Which build is chosen for a device, and what is told of the choice."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.app.choice import BuildChoice
from orchestrator.artifacts.library import BuildLibrary
from orchestrator.errors import ArtifactError
from orchestrator.records.case import Build, Skip, ToolName
from orchestrator.records.plan import Matrix, Plan
from tests.unit.artifacts.sample_files import program
from tests.unit.artifacts.test_library import HOST, PHONE, VIRTUAL


def plan(*tools: ToolName, **builds: str) -> Plan:
    named = {ToolName(tool): name for tool, name in builds.items()}
    return Plan(name="p", models=(), matrix=Matrix(tools=tools), builds=named)


@pytest.fixture
def hints() -> list[str]:
    return []


@pytest.fixture
def library(tmp_path: Path) -> BuildLibrary:
    return BuildLibrary(tmp_path / "cache")


@pytest.fixture
def choice(library: BuildLibrary, tmp_path: Path, hints: list[str]) -> BuildChoice:
    return BuildChoice(lambda: library, tmp_path / "fakes", hint=hints.append)


def test_a_name_that_a_kept_build_and_a_file_have_means_the_build_and_that_is_told(
    choice: BuildChoice,
    library: BuildLibrary,
    hints: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    program(tmp_path / "mine")
    choice.check(plan(native="mine"), [PHONE])
    assert hints == []
    kept = library.add(program(tmp_path / "other", version="2"), name="mine")
    choice.check(plan(native="mine"), [PHONE])
    assert hints == ["mine is the build that is kept under this name; ./mine is the file here"]
    (chosen,) = choice.of(plan(native="mine"), [PHONE]).values()
    assert chosen == kept
    choice.check(plan(native="./mine"), [PHONE])
    assert len(hints) == 1


def test_each_device_has_its_build_or_the_reason_why_it_has_none(
    choice: BuildChoice, library: BuildLibrary, tmp_path: Path
) -> None:
    native = ToolName.NATIVE
    builds = choice.of(plan(native), [PHONE, VIRTUAL, HOST])
    real, fake, host = (builds[facts.serial, native] for facts in (PHONE, VIRTUAL, HOST))
    assert isinstance(real, Skip)
    assert (real.reason_code, real.reason[:19]) == ("no-build", "no build of native ")
    assert isinstance(fake, Build)
    assert fake.is_virtual
    assert isinstance(host, Skip)
    with pytest.raises(ArtifactError, match="no build 'mine'"):
        choice.of(plan(native, native="mine"), [PHONE])
    (missing,) = choice.missing(plan(native), [PHONE])
    choice.assume([missing])
    assert choice.missing(plan(native), [PHONE]) == []
    of_host = choice.of(plan(ToolName.LITERT), [PHONE])[PHONE.serial, ToolName.LITERT]
    assert isinstance(of_host, Skip)
    assert of_host.reason_code == "tool-not-on-device"
