"""What programs and APKs say about themselves, sound and hostile."""

import io
import struct
import zipfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchfarm_virtual.samples import (
    benchmark_apk,
    benchmark_elf,
    write_benchmark_elf,
)
from orchestrator.artifacts.executables import (
    inspect_apk,
    inspect_elf,
    inspect_elf_bytes,
    inspect_program,
)
from orchestrator.errors import ArtifactError
from tests.unit.artifacts.sample_files import elf


def elf_with_notes(
    notes: list[tuple[bytes, int, bytes]], *, interpreter: bytes = b"", machine: int = 183
) -> bytes:
    """Return a small 64-bit executable with these notes (owner, type, content) and this
    interpreter."""
    body = b""
    for owner, kind, content in notes:
        body += struct.pack("<III", len(owner), len(content), kind)
        body += owner.ljust((len(owner) + 3) // 4 * 4, b"\0") + content.ljust(
            (len(content) + 3) // 4 * 4, b"\0"
        )
    at = 64 + 2 * 56
    header = b"\x7fELF\x02\x01\x01" + bytes(9)
    header += struct.pack(
        "<HHIQQQIHHHHHH", 3, machine, 1, 0, 64, 0, 0, 64, 56, 2 if interpreter else 1, 0, 0, 0
    )
    segments = struct.pack("<IIQQQQQQ", 4, 4, at, at, at, len(body), len(body), 4)
    place = at + len(body)
    size = len(interpreter) + 1
    segments += struct.pack("<IIQQQQQQ", 3, 4, place, place, place, size, size, 1)
    return header + segments + body + interpreter + b"\0"


@pytest.mark.parametrize("abi", ["arm64-v8a", "armeabi-v7a", "x86_64", "x86"])
def test_a_fake_binary_is_known_by_its_mark_with_its_abi(tmp_path, abi):
    facts = inspect_elf(write_benchmark_elf(tmp_path / "b", abi=abi))
    assert (facts.abis, facts.is_program, facts.is_fake) == ((abi,), True, True)
    assert "libc.so" in facts.needed


def test_android_program_tells_the_api_level_and_the_id_of_its_build():
    content = elf_with_notes(
        [
            (b"Android\0", 1, struct.pack("<I", 26) + b"r25\0".ljust(64, b"\0")),
            (b"GNU\0", 3, bytes.fromhex("abcd12")),
        ],
        interpreter=b"/system/bin/linker64",
    )
    facts = inspect_elf_bytes(content, "x")
    assert (facts.abis, facts.min_sdk, facts.version, facts.is_program) == (
        ("arm64-v8a",),
        26,
        "abcd12",
        True,
    )
    assert not facts.is_fake


def test_program_of_a_linux_computer_is_told_from_androids():
    facts = inspect_elf_bytes(elf_with_notes([], interpreter=b"/lib/ld-linux-aarch64.so.1"), "x")
    assert facts.abis == ("linux-aarch64",)
    assert inspect_elf_bytes(
        elf_with_notes([], interpreter=b"/system/bin/linker64", machine=62), "x"
    ).abis == ("x86_64",)
    own = inspect_elf(Path("/proc/self/exe").resolve())
    assert own.abis[0].startswith("linux-")
    assert own.is_program


@pytest.mark.parametrize(("machine", "abi"), [(183, "linux-aarch64"), (62, "linux-x86_64")])
def test_a_static_program_of_a_linux_computer_isnt_androids(machine, abi):
    linux = (b"GNU\0", 1, struct.pack("<IIII", 0, 3, 2, 0))
    assert inspect_elf_bytes(elf_with_notes([linux], machine=machine), "x").abis == (abi,)
    android = (b"Android\0", 1, struct.pack("<I", 26))
    assert (
        not inspect_elf_bytes(elf_with_notes([android], machine=machine), "x")
        .abis[0]
        .startswith("linux-")
    )


def test_a_static_program_that_may_lie_anywhere_is_a_program():
    library, program = (
        inspect_elf_bytes(elf(machine=62, flags_1=flags), "x") for flags in (0, 0x0800_0001)
    )
    assert (library.is_program, program.is_program) == (False, True)
    assert program.abis == ("linux-x86_64",)


def test_apk_tells_package_activities_versions_and_abis(tmp_path):
    path = tmp_path / "b.apk"
    path.write_bytes(
        benchmark_apk(
            abis=("x86_64", "arm64-v8a"), version_name="2.1", min_sdk=24, debuggable=False
        )
    )
    facts = inspect_apk(path)
    assert (facts.package, facts.abis) == ("org.tensorflow.lite.benchmark", ("arm64-v8a", "x86_64"))
    assert facts.activities == ("org.tensorflow.lite.benchmark.BenchmarkModelActivity",)
    assert (facts.version, facts.min_sdk, facts.debuggable) == ("2.1", 24, False)
    assert facts.is_fake


def zipped(**files: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in files.items():
            archive.writestr(name.replace("__", "."), content)
    return out.getvalue()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "neither an ELF program nor an APK"),
        (b"\x7fELF", "damaged ELF file"),
        (b"\x7fELF" + bytes(60), "damaged ELF file"),
        (benchmark_elf()[:200], "damaged ELF file"),
        (elf_with_notes([], machine=8), "for a machine that no phone has"),
        (elf_with_notes([]), "is a shared library, not a program"),
        (b"PK\x03\x04 not a zip", "is no APK, or a damaged one"),
        (benchmark_apk()[:-30], "is no APK, or a damaged one"),
        (zipped(x=b"y"), "without AndroidManifest.xml, so no APK"),
        (zipped(AndroidManifest__xml=b"<manifest/>"), "begin as binary XML does"),
        (zipped(AndroidManifest__xml=b"\x03\x00\x08\x00\x08\x00\x00\x00"), "names no package"),
        (zipped(AndroidManifest__xml=bytes(4_000_001)), "larger than 4000000 bytes"),
    ],
)
def test_what_is_no_program_is_refused_with_its_reason(tmp_path, content, message):
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(ArtifactError, match=message):
        inspect_program(path)


def test_missing_file_and_folder_are_refused(tmp_path):
    for path in (tmp_path / "none", tmp_path, Path("a\0b")):
        with pytest.raises(ArtifactError, match="can't be read"):
            inspect_program(path)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(data=st.data())
@pytest.mark.parametrize(
    "original", [benchmark_elf(), benchmark_apk(), elf_with_notes([(b"Android\0", 1, b"abcd")])]
)
def test_mutated_program_gives_facts_or_an_artifact_error(tmp_path_factory, original, data):
    content = bytearray(original)
    for _ in range(data.draw(st.integers(1, 8))):
        content[data.draw(st.integers(4, len(content) - 1))] = data.draw(
            st.sampled_from([0, 1, 0x7F, 0x80, 0xFF])
        )
    path = tmp_path_factory.mktemp("fuzz") / "program"
    path.write_bytes(
        content[: data.draw(st.integers(4, len(content)))] if data.draw(st.booleans()) else content
    )
    try:
        assert isinstance(inspect_program(path).abis, tuple)
    except ArtifactError:
        pass


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_mutated_manifest_gives_facts_or_an_artifact_error(tmp_path_factory, data):
    with zipfile.ZipFile(io.BytesIO(benchmark_apk())) as archive:
        content = bytearray(archive.read("AndroidManifest.xml"))
    for _ in range(data.draw(st.integers(1, 6))):
        place = data.draw(st.integers(0, len(content) - 5))
        value = data.draw(st.sampled_from([0, 1, 0x7F, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF]))
        struct.pack_into("<I", content, place, value)
    path = tmp_path_factory.mktemp("fuzz") / "a.apk"
    path.write_bytes(zipped(AndroidManifest__xml=bytes(content)))
    try:
        assert inspect_apk(path).package
    except ArtifactError:
        pass
