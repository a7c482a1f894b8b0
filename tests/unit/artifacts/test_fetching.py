"""Fetching declared builds: first sight, changes, going back, and nothing kept of what isn't right."""

import dataclasses
import shutil

import pytest

from benchfarm_virtual.samples import benchmark_elf
from orchestrator.artifacts.fetch import Downloader, fetch_build
from orchestrator.artifacts.library import BuildLibrary
from orchestrator.errors import ArtifactError, DownloadError
from orchestrator.records.build_spec import BuildSource, BuildSpec, Expected, LibrarySpec
from orchestrator.records.case import Serial, ToolName
from tests.samples.records import facts_of
from tests.unit.artifacts.sample_files import app_bytes, elf, real


def binary(version: str, abi: str = "arm64-v8a") -> bytes:
    return real(benchmark_elf(abi=abi, version=version))


class Shop:
    """A server with one program, its declaration, and the library that it is fetched into."""

    def __init__(self, server, folder, *, path: str = "latest", **changes) -> None:
        self.server = server
        self.folder = folder
        self.spec = BuildSpec(
            name="prog", title="T", tool=ToolName.NATIVE, program="benchmark_model", abi="arm64-v8a", default=True,
            abis={"arm64-v8a": BuildSource(url=f"{server.url}/{path}/prog")},
        )  # fmt: skip
        self.spec = dataclasses.replace(self.spec, **changes)
        self.library = BuildLibrary(folder / "cache", [self.spec])

    def serve(self, content: bytes, path: str = "/latest/prog", **options) -> None:
        self.server.put(path, content, last_modified="Fri, 20 Nov 2026 10:00:00 GMT", **options)

    def fetch(self, **options):
        downloader = Downloader(self.folder / "downloads")
        return fetch_build(self.library, downloader, self.spec, **options)

    def resolved(self) -> str:
        return self.library.resolve(ToolName.NATIVE, "arm64-v8a").sha256


@pytest.fixture
def shop(server, tmp_path):
    return Shop(server, tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"<html>sign in</html>", "neither an ELF program nor an APK"),
        (binary("1")[:300], "damaged ELF file"),
        (binary("1", abi="armeabi-v7a"), "it is built for armeabi-v7a, not for arm64-v8a"),
        (app_bytes(), "it is an APK"),
        (
            elf(is_program=True, needed=("libmissing.so",)),
            r"needs libmissing\.so, which no phone has",
        ),
    ],
)
def test_what_is_not_the_declared_program_is_refused_and_nothing_kept(shop, content, message):
    shop.serve(content)
    with pytest.raises(ArtifactError, match=message):
        shop.fetch()
    assert_nothing_kept(shop)


def assert_nothing_kept(shop) -> None:
    assert shop.library.archive.all() == []
    assert list((shop.folder / "downloads").iterdir()) == []


def test_content_against_a_pin_is_refused_and_the_pinned_one_stays(server, tmp_path):
    shop = Shop(server, tmp_path)
    shop.serve(binary("1"))
    pinned = shop.fetch().release.program.sha256
    source = dataclasses.replace(shop.spec.source, sha256=(pinned,))
    shop.spec = dataclasses.replace(shop.spec, abis={"arm64-v8a": source})
    shop.library = BuildLibrary(tmp_path / "cache", [shop.spec])
    shop.serve(binary("2"))
    with pytest.raises(ArtifactError, match=f"its sha256 is .*, pinned is {pinned}"):
        shop.fetch()
    assert shop.resolved() == pinned
    assert len(shop.library.archive.all()) == 1


def with_libraries(server, folder, version: str = "2.1.0") -> Shop:
    libraries = {"libLiteRt.so": LibrarySpec(), "libextra.so": LibrarySpec(optional=True)}
    shop = Shop(server, folder, path=version, libraries=libraries)
    shop.serve(binary(version), f"/{version}/prog")
    shop.serve(elf(mark=f"LiteRt{version}"), f"/{version}/libLiteRt.so")
    return shop


def test_libraries_come_with_the_program_as_one_release(server, tmp_path):
    shop = with_libraries(server, tmp_path)
    got = shop.fetch()
    assert got.release.tag == "2.1.0"
    assert got.absent == ("libextra.so",)
    found = shop.library.resolve(ToolName.NATIVE, "arm64-v8a")
    assert found.path.name == "benchmark_model"
    assert [item.name for item in found.companions] == ["libLiteRt.so"]
    assert shop.fetch().previous is None
    # Only a library changed: that is another release too, with the same program.
    shop.serve(elf(mark="LiteRtOther"), "/2.1.0/libLiteRt.so")
    changed = shop.fetch()
    assert changed.release.program == got.release.program
    older = shop.library.resolve(
        ToolName.NATIVE, "arm64-v8a", name_or_path=f"prog@{got.release.release_id}"
    )
    assert older.companions == found.companions
    assert shop.library.resolve(ToolName.NATIVE, "arm64-v8a").companions != found.companions


def test_needed_library_that_is_not_there_leaves_nothing(server, tmp_path):
    shop = with_libraries(server, tmp_path)
    del server.files["/2.1.0/libLiteRt.so"]
    with pytest.raises(DownloadError, match=r"libLiteRt\.so isn't there \(HTTP 404\)"):
        shop.fetch()
    assert_nothing_kept(shop)


def test_libraries_that_a_person_added_stay_beside_a_newer_program(server, tmp_path):
    by_hand = LibrarySpec(optional=True, url={})
    libraries = {"libi.so": LibrarySpec(optional=True), "libs.so": by_hand}
    shop = Shop(server, tmp_path, libraries=libraries)
    shop.serve(binary("1"))
    shop.serve(elf(mark="i1"), "/latest/libi.so")
    assert [file.name for file in shop.fetch().release.libraries] == ["libi.so"]
    for name, machine in (("libi.so", 183), ("libs.so", 164)):
        (tmp_path / name).write_bytes(elf(machine=machine))
    added = shop.library.add(
        tmp_path / "libi.so", name="prog", libraries=[tmp_path / "libs.so"]
    ).companions
    shop.serve(binary("2"))
    shop.serve(elf(mark="i2"), "/latest/libi.so")
    shop.fetch()
    assert shop.library.resolve(ToolName.NATIVE, "arm64-v8a").companions == added


def test_a_library_that_did_not_change_comes_with_a_newer_program(server, tmp_path):
    shop = Shop(server, tmp_path, libraries={"libi.so": LibrarySpec()})
    for day, version in ((20, "1"), (21, "2")):
        date = f"Fri, {day} Nov 2026 10:00:00 GMT"
        server.put("/latest/prog", binary(version), last_modified=date)
        server.put("/latest/libi.so", elf(mark="same"), last_modified=date)
        assert shop.fetch().release.tag == f"latest 2026-11-{day}"


def test_apk_must_be_debuggable_as_declared(server, tmp_path):
    package = "org.tensorflow.lite.benchmark"
    expected = Expected(package=package, activity=".BenchmarkModelActivity", debuggable=True)
    shop = Shop(server, tmp_path, tool=ToolName.APK, expected=expected)
    shop.serve(app_bytes(debuggable=False))
    with pytest.raises(ArtifactError, match="it isn't debuggable"):
        shop.fetch()
    assert_nothing_kept(shop)
    shop.serve(app_bytes())
    assert shop.fetch().is_new


def test_program_is_never_taken_for_a_phone_of_another_word_size_or_an_older_android(
    server, tmp_path
):
    shop = Shop(server, tmp_path, expected=Expected(min_sdk=30))
    shop.serve(binary("1"))
    sha256 = shop.fetch().release.program.sha256
    kept = shop.library.archive.path(sha256)
    # A 64-bit kernel under a 32-bit userspace: the phone lists 32-bit ABIs only.
    narrow = facts_of("N", sdk=33, abis=("armeabi-v7a", "armeabi"))
    wide = dataclasses.replace(narrow, serial=Serial("W"), abis=("arm64-v8a", "armeabi-v7a"))
    for name in ("", "prog", sha256, f"prog@{sha256[:8]}", str(kept)):
        with pytest.raises(
            ArtifactError, match=r"for armeabi-v7a is on this computer|the device needs armeabi-v7a"
        ):
            shop.library.resolve_for(narrow, ToolName.NATIVE, name_or_path=name)
        assert shop.library.resolve_for(wide, ToolName.NATIVE, name_or_path=name).sha256 == sha256
    old = dataclasses.replace(wide, sdk=29)
    with pytest.raises(ArtifactError, match="prog needs Android API level 30, W has 29"):
        shop.library.resolve_for(old, ToolName.NATIVE)
    # What was written down about a file isn't believed: the file itself is looked at.
    known = kept.parents[1] / "releases" / "prog.json"
    known.write_text(
        known.read_text().replace('"built_for":["arm64-v8a"]', '"built_for":["armeabi-v7a"]')
    )
    with pytest.raises(ArtifactError, match="prog is built for arm64-v8a, N runs armeabi-v7a"):
        shop.library.resolve_for(narrow, ToolName.NATIVE)


def test_damaged_or_lost_program_in_use_is_told_and_not_replaced_by_another(shop):
    shop.serve(binary("1"))
    shop.fetch()
    shop.serve(binary("2"))
    kept = shop.library.archive.path(shop.fetch().release.program.sha256)
    kept.write_bytes(b"rot")
    with pytest.raises(ArtifactError, match="has changed since it was added"):
        shop.resolved()
    shutil.rmtree(kept.parent)
    with pytest.raises(ArtifactError, match="or is missing"):
        shop.resolved()
    assert shop.fetch().previous is None
    assert shop.resolved()


def test_digits_that_fit_no_release_or_several_are_refused(shop):
    with pytest.raises(ArtifactError, match="no release 'prog@1' is on this computer"):
        shop.library.find_release("prog@1")
    shop.serve(binary("1"))
    shop.fetch()
    with pytest.raises(
        ArtifactError, match="no release 'prog' is on this computer; there are prog@"
    ):
        shop.library.find_release("prog")


def test_damaged_history_is_told_with_what_to_do(shop):
    shop.serve(binary("1"))
    shop.fetch()
    path = shop.folder / "cache" / "releases" / "prog.json"
    for text in ("[", '{"releases": [{}]}', "[]"):
        path.write_text(text)
        with pytest.raises(ArtifactError, match=r"prog\.json can't be read") as raised:
            shop.fetch()
        assert "remove it" in raised.value.hint
    path.unlink()
    assert shop.fetch().is_new
