"""Programs and libraries that belong together, and sets that don't."""

import pytest

from orchestrator.artifacts.executables import check_set, inspect_elf_bytes, inspect_program
from orchestrator.artifacts.library import BuildLibrary
from orchestrator.config.declarations import load_builds
from orchestrator.errors import ArtifactError
from orchestrator.files import sha256_of
from orchestrator.installation import data_folder
from orchestrator.records.case import ToolName
from tests.samples.records import facts_of
from tests.unit.artifacts.sample_files import elf, program, write_elf

ARM, DSP = 40, 164
PHONE = facts_of("P", sdk=34, abis=("arm64-v8a",))


def litert_folder(folder, *, release: str = "1"):
    """Write LiteRT's benchmark_model with its runtime and a dispatch library; each release has its
    own bytes.
    """
    beside = ("libLiteRt.so", "liblog.so", "libc.so")
    write_elf(folder / "benchmark_model", is_program=True, needed=beside, mark=f"main{release}")
    write_elf(folder / "libLiteRt.so", needed=("libc.so",), mark=f"r{release}")
    write_elf(
        folder / "libLiteRtDispatch_Qualcomm.so", needed=("libLiteRt.so",), mark=f"d{release}"
    )
    return folder


@pytest.fixture
def library(tmp_path):
    return BuildLibrary(tmp_path / "cache", load_builds([data_folder("apk_builds")]))


def check(main, *libraries):
    check_set(main.name, inspect_program(main), {path.name: path for path in libraries})


def test_program_comes_with_the_declared_libraries_of_its_folder(library, tmp_path):
    folder = litert_folder(tmp_path / "2.1.0")
    added = library.add(folder / "benchmark_model", name="benchmark_litert_model")
    assert [item.name for item in added.companions] == [
        "libLiteRt.so",
        "libLiteRtDispatch_Qualcomm.so",
    ]
    found = library.resolve_for(PHONE, ToolName.LITERT_NATIVE)
    assert found == added
    for item in found.companions:
        assert item.path.read_bytes() == (folder / item.name).read_bytes()
        assert sha256_of(item.path) == item.sha256
    by_path = library.resolve(
        ToolName.LITERT_NATIVE, "arm64-v8a", name_or_path=str(folder / "benchmark_model")
    )
    assert [(item.name, item.sha256) for item in by_path.companions] == [
        (item.name, item.sha256) for item in added.companions
    ]


def test_program_without_a_library_that_it_needs_is_refused(library, tmp_path):
    folder = litert_folder(tmp_path / "f")
    (folder / "libLiteRt.so").unlink()
    with pytest.raises(
        ArtifactError, match=r"benchmark_litert_model needs libLiteRt\.so beside it"
    ):
        library.add(folder / "benchmark_model", name="benchmark_litert_model")
    with pytest.raises(
        ArtifactError, match=r"benchmark_model needs libLiteRt\.so, which no phone has"
    ):
        library.resolve(
            ToolName.LITERT_NATIVE, "arm64-v8a", name_or_path=str(folder / "benchmark_model")
        )
    assert library.archive.all() == []


def test_libraries_of_another_release_are_refused(library, tmp_path):
    old, new = (
        litert_folder(tmp_path / "old", release="1"),
        litert_folder(tmp_path / "new", release="2"),
    )
    library.add(old / "benchmark_model", name="benchmark_litert_model", release="2.1.0")
    library.add(new / "benchmark_model", name="benchmark_litert_model", release="2.2.0")
    mixed = litert_folder(tmp_path / "mixed", release="2")
    (mixed / "libLiteRtDispatch_Qualcomm.so").write_bytes(
        (old / "libLiteRtDispatch_Qualcomm.so").read_bytes()
    )
    message = r"libLiteRtDispatch_Qualcomm\.so is of release 2\.1\.0, benchmark\w+ of 2\.2\.0: they don't belong together"
    with pytest.raises(ArtifactError, match=message):
        library.add(mixed / "benchmark_model", name="benchmark_litert_model")
    with pytest.raises(ArtifactError, match=message):
        library.resolve(
            ToolName.LITERT_NATIVE, "arm64-v8a", name_or_path=str(mixed / "benchmark_model")
        )
    with pytest.raises(ArtifactError, match=message):
        library.add(old / "libLiteRtDispatch_Qualcomm.so", name="benchmark_litert_model")


def test_library_for_another_machine_is_refused(tmp_path):
    main = program(tmp_path / "p")
    other = write_elf(tmp_path / "libx.so", machine=ARM)
    with pytest.raises(ArtifactError, match=r"libx\.so is built for armeabi-v7a, p for arm64-v8a"):
        check(main, other)
    # A signal processor's library goes with any.
    skel = write_elf(tmp_path / "libhexagon_nn_skel.so", machine=DSP)
    assert inspect_elf_bytes(elf(machine=DSP), "x").abis == ("hexagon",)
    check(main, skel)


def test_library_that_needs_one_that_is_not_there_is_refused(tmp_path):
    main = program(tmp_path / "p")
    lacking = write_elf(tmp_path / "libx.so", needed=("libc.so", "libc++_shared.so"))
    with pytest.raises(
        ArtifactError, match=r"libx\.so needs libc\+\+_shared\.so, which no phone has"
    ):
        check(main, lacking)
    check(main, lacking, write_elf(tmp_path / "libc++_shared.so"))
    # What only some vendors' phones have can't be known here.
    check(main, write_elf(tmp_path / "libv.so", needed=("libedgetpu_litert.so",)))


def test_hexagon_libraries_are_added_to_the_program_in_use(library, tmp_path):
    library.add(program(tmp_path / "p" / "benchmark_model"))
    interface = write_elf(tmp_path / "libhexagon_interface.so")
    skel = write_elf(tmp_path / "libhexagon_nn_skel.so", machine=DSP)
    added = library.add(interface, name="benchmark_model", libraries=[skel])
    assert [item.name for item in added.companions] == [
        "libhexagon_interface.so",
        "libhexagon_nn_skel.so",
    ]
    assert library.resolve_for(PHONE, ToolName.NATIVE) == added
    other = write_elf(tmp_path / "libhexagon_nn_skel_v66.so", machine=DSP, mark="v66")
    assert len(library.add(other, name="benchmark_model").companions) == 3


def test_library_alone_needs_a_program_that_it_is_for(library, tmp_path):
    path = write_elf(tmp_path / "libx.so")
    with pytest.raises(ArtifactError, match="a shared library, not a program") as raised:
        library.add(path)
    assert "--name" in raised.value.hint
    with pytest.raises(ArtifactError, match="no program 'benchmark_model' for arm64-v8a to add"):
        library.add(path, name="benchmark_model")


def test_damaged_library_is_told_before_anything_is_pushed(library, tmp_path):
    folder = litert_folder(tmp_path / "f")
    added = library.add(folder / "benchmark_model", name="benchmark_litert_model")
    added.companions[0].path.write_bytes(b"rot")
    with pytest.raises(
        ArtifactError,
        match=r"libLiteRt\.so has changed since it was added",
    ):
        library.resolve_for(PHONE, ToolName.LITERT_NATIVE)
    # As its advice says, with the program or alone.
    for again in ("benchmark_model", "libLiteRt.so"):
        added.companions[0].path.write_bytes(b"rot")
        library.add(folder / again, name="benchmark_litert_model")
        assert library.resolve_for(PHONE, ToolName.LITERT_NATIVE) == added
