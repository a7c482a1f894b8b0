"""Fake programs and APKs: well formed for other readers, recognised by the phone."""

from __future__ import annotations

import io

import pytest
from elftools.elf.elffile import ELFFile

from benchfarm_virtual.errors import UsageError
from benchfarm_virtual.profiles import load_profile
from benchfarm_virtual.samples import (
    MACHINES,
    benchmark_elf,
    elf_abi,
    fake_note,
    write_benchmark_elf,
)  # fmt: skip
from benchfarm_virtual.shelf import PROGRAMS, ProgramShelf, program_elf


@pytest.mark.parametrize("abi", sorted(MACHINES))
def test_a_fake_binary_is_an_elf_that_elftools_reads(abi):
    content = benchmark_elf("benchmark_model", abi)
    elf = ELFFile(io.BytesIO(content))
    machine = {
        "arm64-v8a": "EM_AARCH64",
        "armeabi-v7a": "EM_ARM",
        "x86_64": "EM_X86_64",
        "x86": "EM_386",
    }[abi]
    assert elf["e_machine"] == machine
    assert elf.elfclass == (64 if "64" in abi else 32)
    _, dynamic, notes = elf.iter_segments()
    assert "libc.so" in [tag.needed for tag in dynamic.iter_tags("DT_NEEDED")]
    assert [note["n_name"] for note in notes.iter_notes()] == ["benchfarm"]
    assert elf_abi(content[:20]) == abi


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_fake_binary_says_which_program_it_is(program, tmp_path):
    path = write_benchmark_elf(tmp_path / "anything", program, version="7")
    note = fake_note(path.read_bytes())
    assert (note.program, note.version) == (program, "7")
    assert path.stat().st_mode & 0o111


def test_a_program_without_a_fake_binary_is_refused_with_those_that_have_one():
    with pytest.raises(UsageError, match="of 'foo'; there are: benchmark_model, "):
        program_elf("foo", "x86", version="1")


def native(name, head, profile="pixel-3"):
    return ProgramShelf().native(name, head, load_profile(profile).abis)


def test_the_shelf_knows_fake_binaries_and_real_names_but_no_other_files():
    elf = benchmark_elf()
    assert native("renamed", elf) is not None
    plain = elf[:20] + bytes(200)
    for name in ("android_aarch64_benchmark_model", "benchmark_model", "android_aarch64_benchmark_model_plus_flex",
                 "android_aarch64_benchmark_model_performance_options", "benchmark_litert_model"):  # fmt: skip
        assert native(name, plain) is not None
    assert native("busybox", plain) is None
    assert native("benchmark_model", b"#!/system/bin/sh") is None
    assert native("benchmark_model", benchmark_elf(abi="x86_64")) is None


@pytest.mark.parametrize(("profile", "abi", "runs"), [
    ("pixel-8", "armeabi-v7a", False), ("pixel-8", "arm64-v8a", True), ("moto-e5-play", "arm64-v8a", False),
    ("moto-e5-play", "armeabi-v7a", True), ("pixel-3", "armeabi-v7a", True),
])  # fmt: skip
def test_a_phone_runs_programs_of_its_own_abis_only(profile, abi, runs):
    elf = benchmark_elf(abi=abi)
    assert (native("benchmark_model", elf, profile) is not None) is runs
