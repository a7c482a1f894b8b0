"""The cache of benchmark programs."""

import multiprocessing
import os
from pathlib import Path

import pytest

from benchfarm_virtual.samples import write_benchmark_elf
from orchestrator.artifacts.library import BuildLibrary
from orchestrator.config.declarations import load_builds
from orchestrator.errors import ArtifactError
from orchestrator.installation import data_folder
from orchestrator.records.case import ToolName
from orchestrator.records.device import DeviceKind
from tests.samples.records import facts_of
from tests.unit.artifacts.sample_files import app, program

PHONE = facts_of("P", sdk=30, abis=("arm64-v8a", "armeabi-v7a"))
VIRTUAL = facts_of("V", is_virtual=True, sdk=30, abis=("arm64-v8a",))
HOST = facts_of("host", kind=DeviceKind.HOST, abis=("x86_64",))


@pytest.fixture
def library(tmp_path):
    return BuildLibrary(tmp_path / "cache", load_builds([data_folder("apk_builds")]))


def test_added_program_is_found_by_tool_name_and_content(library, tmp_path):
    added = library.add(program(tmp_path / "benchmark_model"))
    assert (added.name, added.tool, added.abi, added.is_virtual) == (
        "benchmark_model",
        ToolName.NATIVE,
        "arm64-v8a",
        False,
    )
    assert added.path.read_bytes() == (tmp_path / "benchmark_model").read_bytes()
    assert added.path.stat().st_mode & 0o111
    for name in (
        "",
        "benchmark_model",
        added.sha256,
        added.sha256[:8],
        f"benchmark_model@{added.sha256[:4]}",
    ):
        assert library.resolve(ToolName.NATIVE, "arm64-v8a", name_or_path=name) == added
    assert not [path for path in (tmp_path / "cache").iterdir() if path.name.startswith(".")]


def test_downloaded_file_name_tells_which_declared_build_it_is(library, tmp_path):
    assert (
        library.add(program(tmp_path / "android_aarch64_benchmark_model_plus_flex")).name
        == "benchmark_model_plus_flex"
    )
    assert (
        library.add(app(tmp_path / "android_aarch64_benchmark_model.apk")).name
        == "benchmark_model_apk"
    )
    assert (
        library.add(program(tmp_path / "my tool", version="2"), name="mine").path.name == "my_tool"
    )


def test_missing_build_says_how_to_get_it(library):
    with pytest.raises(
        ArtifactError, match="no build of native for arm64-v8a is on this computer"
    ) as raised:
        library.resolve(ToolName.NATIVE, "arm64-v8a")
    assert raised.value.hint.startswith(
        "benchfarm build fetch benchmark_model --abi arm64-v8a   (from https://"
    )
    with pytest.raises(ArtifactError, match=r"no build 'nothing' .* is on this computer"):
        library.resolve(ToolName.NATIVE, "arm64-v8a", name_or_path="nothing")


def test_build_for_another_abi_is_refused(library, tmp_path):
    library.add(program(tmp_path / "benchmark_model", abi="armeabi-v7a"))
    with pytest.raises(
        ArtifactError, match=r"for arm64-v8a is on this computer .there is native for armeabi-v7a"
    ):
        library.resolve(ToolName.NATIVE, "arm64-v8a")
    with pytest.raises(ArtifactError, match="is built for armeabi-v7a, the device needs arm64-v8a"):
        library.resolve(
            ToolName.NATIVE, "arm64-v8a", name_or_path=str(tmp_path / "benchmark_model")
        )
    # A phone that runs both takes the one that is there.
    assert library.resolve_for(PHONE, ToolName.NATIVE).abi == "armeabi-v7a"


def test_programs_of_android_and_of_linux_are_told_apart(library, tmp_path):
    library.add(program(tmp_path / "benchmark_model", abi="x86_64"))
    own = (
        library.add(Path("/proc/self/exe").resolve(), name="benchmark_model")
        if HOST.abis == ("x86_64",)
        else None
    )
    if own is None or own.abi != "linux-x86_64":
        pytest.skip("this computer isn't an x86-64 one")
    assert library.resolve_for(HOST, ToolName.NATIVE) == own
    emulator = library.resolve(ToolName.NATIVE, "x86_64", kind=DeviceKind.ANDROID)
    assert emulator.abi == "x86_64"


def test_apk_with_several_abis_fits_each_and_another_tools_file_is_refused(library, tmp_path):
    added = library.add(app(tmp_path / "benchmark_model.apk", abis=("arm64-v8a", "armeabi-v7a")))
    assert (added.tool, added.package) == (ToolName.APK, "org.tensorflow.lite.benchmark")
    for abi in ("arm64-v8a", "armeabi-v7a"):
        assert library.resolve(ToolName.APK, abi) == added
    with pytest.raises(ArtifactError, match="is an APK, which isn't what native needs"):
        library.resolve(
            ToolName.NATIVE, "arm64-v8a", name_or_path=str(tmp_path / "benchmark_model.apk")
        )


def test_file_that_is_not_what_its_name_declares_is_refused(tmp_path):
    specs = load_builds([data_folder("apk_builds")])
    library = BuildLibrary(tmp_path / "cache", specs)
    with pytest.raises(ArtifactError, match="its package is 'com_other'"):
        library.add(app(tmp_path / "a.apk", package="com_other"), name="benchmark_model_apk")
    with pytest.raises(ArtifactError, match=r"it has no activity '\.BenchmarkModelActivity'"):
        library.add(app(tmp_path / "b.apk", activity=".Other"), name="benchmark_model_apk")
    with pytest.raises(ArtifactError, match="it is no APK"):
        library.add(program(tmp_path / "c"), name="benchmark_model_apk")
    with pytest.raises(ArtifactError, match="can't be the name of a build"):
        library.add(program(tmp_path / "e"), name="../../x")
    assert library.archive.all() == []


def test_only_pinned_contents_are_taken(tmp_path):
    folder = tmp_path / "specs"
    folder.mkdir()
    good = program(tmp_path / "good")
    sha256 = BuildLibrary(tmp_path / "x").add(good, name="p").sha256
    (folder / "p.yaml").write_text(
        "name: p\ntitle: T\ntool: native\nprogram: p\ndefault: true\n"
        f"abis:\n  arm64-v8a: {{url: https://example.com/p, sha256: {sha256}}}\n"
    )
    library = BuildLibrary(tmp_path / "cache", load_builds([folder]))
    with pytest.raises(ArtifactError, match=f"pinned is {sha256}"):
        library.add(program(tmp_path / "bad", version="2"), name="p")
    assert (
        library.add(good, name="p").sha256
        == library.resolve(ToolName.NATIVE, "arm64-v8a").sha256
        == sha256
    )


def test_each_abi_has_pins_of_its_own(tmp_path):
    folder = tmp_path / "specs"
    folder.mkdir()
    plain = BuildLibrary(tmp_path / "x")
    files = {abi: program(tmp_path / abi / "p", abi=abi) for abi in ("arm64-v8a", "armeabi-v7a")}
    sha256s = {abi: plain.add(path, name="p").sha256 for abi, path in files.items()}
    places = "".join(
        f"  {abi}: {{url: https://example.com/p, sha256: {sha256}}}\n"
        for abi, sha256 in sha256s.items()
    )
    (folder / "p.yaml").write_text(
        f"name: p\ntitle: T\ntool: native\nprogram: p\ndefault: true\nabis:\n{places}"
    )
    library = BuildLibrary(tmp_path / "cache", load_builds([folder]))
    for abi, path in files.items():
        library.add(path, name="p")
        assert library.resolve(ToolName.NATIVE, abi).sha256 == sha256s[abi]


def test_what_looks_like_a_virtual_phones_program_is_bound_by_pins_too(tmp_path):
    folder = tmp_path / "specs"
    folder.mkdir()
    fake = write_benchmark_elf(tmp_path / "fake")
    BuildLibrary(tmp_path / "cache").add(fake, name="p")
    (folder / "p.yaml").write_text(
        "name: p\ntitle: T\ntool: native\nprogram: p\n"
        f"abis:\n  arm64-v8a: {{url: https://example.com/p, sha256: {'a' * 64}}}\n"
    )
    library = BuildLibrary(tmp_path / "cache", load_builds([folder]))
    with pytest.raises(ArtifactError):
        library.resolve(ToolName.NATIVE, "arm64-v8a", name_or_path="p")
    with pytest.raises(ArtifactError, match=r"pinned is a{64}"):
        library.add(fake, name="p")


def test_newest_of_two_builds_of_one_name_is_taken_and_the_older_by_its_digits(library, tmp_path):
    older = library.add(program(tmp_path / "benchmark_model", version="1"))
    newer = library.add(program(tmp_path / "benchmark_model", version="2"))
    assert library.resolve(ToolName.NATIVE, "arm64-v8a") == newer
    assert (
        library.resolve(
            ToolName.NATIVE, "arm64-v8a", name_or_path=f"benchmark_model@{older.sha256[:10]}"
        )
        == older
    )


def test_a_fake_binary_is_only_used_when_named_and_never_on_a_real_phone(library, tmp_path):
    fake = library.add(write_benchmark_elf(tmp_path / "benchmark_model"))
    assert fake.is_virtual
    with pytest.raises(ArtifactError, match="no build of native"):
        library.resolve_for(VIRTUAL, ToolName.NATIVE)
    assert library.resolve_for(VIRTUAL, ToolName.NATIVE, name_or_path="benchmark_model") == fake
    path = str(tmp_path / "benchmark_model")
    assert library.resolve_for(VIRTUAL, ToolName.NATIVE, name_or_path=path).sha256 == fake.sha256
    for name in ("benchmark_model", path):
        with pytest.raises(
            ArtifactError, match="a fake binary that only a virtual phone runs, not P"
        ):
            library.resolve_for(PHONE, ToolName.NATIVE, name_or_path=name)


def test_program_for_a_newer_android_is_refused(library, tmp_path):
    library.add(app(tmp_path / "benchmark_model.apk", min_sdk=33))
    with pytest.raises(ArtifactError, match="needs Android API level 33, P has 30"):
        library.resolve_for(PHONE, ToolName.APK)


def add_in_another_process(cache: Path, path: Path) -> None:
    BuildLibrary(cache).add(path, name="same")


def test_processes_that_add_the_same_program_at_once_all_succeed(tmp_path):
    path = program(tmp_path / "p")
    context = multiprocessing.get_context("fork")
    workers = [
        context.Process(target=add_in_another_process, args=(tmp_path / "cache", path))
        for _ in range(6)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(timeout=60)
    assert [worker.exitcode for worker in workers] == [0] * 6
    build = BuildLibrary(tmp_path / "cache").resolve(ToolName.NATIVE, "arm64-v8a")
    assert build.path.read_bytes() == path.read_bytes()


def test_a_program_is_read_once_for_all_phones_and_again_when_it_was_written(library, tmp_path):
    kept = library.add(program(tmp_path / "benchmark_model")).path
    assert library.resolve_for(PHONE, ToolName.NATIVE).path == kept
    before = kept.stat()
    kept.chmod(0o755)
    content = bytearray(kept.read_bytes())
    content[-1] ^= 1
    kept.write_bytes(content)
    # As if nobody had written it: it isn't read again then.
    os.utime(kept, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert library.resolve_for(PHONE, ToolName.NATIVE).path == kept
    # The file system's clock may tick too seldom for the present time to be another one.
    os.utime(kept, ns=(before.st_atime_ns, before.st_mtime_ns + 10**9))
    with pytest.raises(ArtifactError, match="has changed since it was added"):
        library.resolve_for(PHONE, ToolName.NATIVE)


def test_a_cache_that_cannot_be_written_is_told_with_the_reason(tmp_path):
    path = program(tmp_path / "benchmark_model")
    (tmp_path / "taken").touch()
    with pytest.raises(
        ArtifactError, match=r"can't be copied to .*: (File exists|Not a directory)"
    ):
        BuildLibrary(tmp_path / "taken" / "cache").add(path)


def test_what_is_known_of_a_build_can_be_read_by_others(library, tmp_path):
    library.add(program(tmp_path / "benchmark_model"))
    (known,) = (tmp_path / "cache" / "releases").glob("*.json")
    assert known.stat().st_mode == (tmp_path / "benchmark_model").stat().st_mode
