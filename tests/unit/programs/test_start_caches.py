"""The stages of a cold start: their flags, the caches on the device, and what a run's output shows
of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.devices.host import HostDevice
from orchestrator.errors import DeviceCommandError
from orchestrator.passes import pass_of
from orchestrator.passes.cold import PASS, START_NOTE, run_start, with_start
from orchestrator.programs import program
from orchestrator.programs.native import NativeTool
from orchestrator.programs.running import benchmark_flags
from orchestrator.records.case import Case, DelegateName, Pass, RunId, ToolName
from orchestrator.records.device import DeviceKind
from orchestrator.records.plan import Plan, PlanTerms, fixed_count
from orchestrator.records.run import StartStage, ToolReport, stage_of
from tests.samples import sample_lab
from tests.samples.phones import host_file
from tests.samples.tools import raw_of, request_of

CASE = sample_lab.case(tool=ToolName.NATIVE, delegate=DelegateName.XNNPACK, threads=1, num_runs=50)


def request(
    case: Case, number: int, *, run_pass: Pass = Pass.COLD, folder: str = "/c", program: str = "/p"
):
    return request_of(
        case, kind=DeviceKind.HOST, run_id=RunId(f"r{number}"), run_pass=run_pass, program_path=program,
        variant=pass_of(run_pass).variant(number, PlanTerms()),
        cache_folder=folder,
    )  # fmt: skip


def flags_of(delegate: str, number: int, **users: str) -> dict[str, str]:
    case = replace(CASE, delegate=DelegateName(delegate), flags=tuple(sorted(users.items())))
    return benchmark_flags(request(case, number), folder="/f")


def caches_in(flags: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in flags.items() if "cache" in name or "serialize" in name}


def test_the_number_of_a_cold_invocation_means_its_stage() -> None:
    stages = [stage_of(number) for number in range(6)]
    assert stages == [StartStage.FIRST_LOAD, StartStage.PROCESS_COLD, StartStage.CACHE_WARM] * 2


def test_each_round_has_each_stage_and_without_a_cache_only_the_cold_process() -> None:
    def numbers(case: Case, rounds: int) -> tuple[int, ...]:
        return tuple(
            PASS.numbers(
                Plan(name="p", models=(), invocations=fixed_count(rounds)), case, program(case.tool)
            )
        )

    assert numbers(CASE, 2) == (0, 1, 2, 3, 4, 5)
    assert numbers(replace(CASE, delegate=DelegateName.CPU), 2) == (1, 4)
    assert numbers(replace(CASE, tool=ToolName.LITERT), 1) == (1,)


@pytest.mark.parametrize("number", [0, 2])
def test_stages_with_a_cache_name_it_as_the_delegate_wants(number: int) -> None:
    assert caches_in(flags_of("xnnpack", number)) == {
        "xnnpack_weight_cache_file_path": "/c/weights.bin"
    }
    serialised = {
        "delegate_serialize_dir": "/c",
        "delegate_serialize_token": CASE.model_sha256[:16],
    }
    assert caches_in(flags_of("gpu", number)) == serialised
    assert caches_in(flags_of("nnapi", number)) == serialised
    assert caches_in(flags_of("cpu", number)) == {}


def test_a_cold_process_has_no_cache_not_even_the_users() -> None:
    assert (
        caches_in(flags_of("gpu", 1, delegate_serialize_dir="/mine", delegate_serialize_token="x"))
        == {}
    )
    assert caches_in(
        flags_of("gpu", 0, delegate_serialize_dir="/mine", delegate_serialize_token="x")
    ) == {
        "delegate_serialize_dir": "/c",
        "delegate_serialize_token": CASE.model_sha256[:16],
    }


PROGRAM = r"""#!/bin/sh
for word in "$@"; do case "$word" in --xnnpack_weight_cache_file_path=*) echo packed > "${word#*=}";; esac; done
"""


@pytest.fixture
def device(tmp_path: Path) -> Iterator[HostDevice]:
    host = HostDevice(tmp_path / "host")
    yield host
    host.close()


def test_caches_are_removed_kept_and_taken_away_by_stage(
    device: HostDevice, tmp_path: Path
) -> None:
    source = tmp_path / "program"
    source.write_text(PROGRAM)
    source.chmod(0o755)
    program = device.place(host_file(source, "p", "programs", is_program=True)).path
    caches = tmp_path / "the caches"
    caches.mkdir()
    (caches / "stale").write_text("left by a crash")
    notes = []
    for number in range(3):
        raw = run_start(
            NativeTool(), device, request(CASE, number, folder=str(caches), program=program)
        )
        assert raw.exit_code == 0, raw.data("stderr")
        notes.append(raw.data(START_NOTE))
        assert caches.exists() == (number < 2)
    assert notes == [
        b"stage=first-load cache_bytes=0\n",
        b"stage=process-cold cache_bytes=-\n",
        b"stage=cache-warm cache_bytes=7\n",
    ]


def test_a_folder_that_cannot_be_emptied_is_an_error_and_no_start(
    device: HostDevice, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DeviceCommandError, match=r"preparing the cache folder .* failed"):
        run_start(NativeTool(), device, request(CASE, 0, folder=str(tmp_path / "file" / "caches")))


def read(note: bytes, stderr: bytes = b"") -> dict[str, float | str]:
    return dict(
        with_start(
            NativeTool(), ToolReport(outcome="ok"), raw_of(start_txt=note, stderr=stderr), CASE
        ).extra
    )


def test_the_line_that_says_that_a_cache_was_used_is_kept() -> None:
    line = b"INFO: Initialized OpenCL-based API from serialized data."
    found = read(
        b"stage=cache-warm cache_bytes=12\n", b"INFO: GPU\n" + line + b"\nINFO: Created 1\n"
    )
    assert found == {
        "start_stage": "cache-warm",
        "cache_bytes_before": 12.0,
        "from_cache": line.decode(),
    }
    # LiteRT tries it, and says the other once it has done it.
    tried = b"INFO: Initializing OpenCL-based API from serialized data.\n"
    done = b"INFO: Initialized InferenceContext from serialized data."
    note = b"stage=process-cold cache_bytes=-\n"
    assert "from_cache" not in read(note, tried)
    assert read(note, tried + done)["from_cache"] == done.decode()
    assert read(b"") == read(b"stage=cache-warm cache_bytes=x\n") == {}
