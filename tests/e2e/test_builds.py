"""``benchfarm build`` from outside, against a web server on loopback that stands for a mirror."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchfarm_virtual.samples import benchmark_elf
from tests.e2e.conftest import Lab
from tests.samples.command import Cli, Done
from tests.samples.places import MODELS
from tests.unit.artifacts.file_server import FileServer, file_server
from tests.unit.artifacts.sample_files import elf

MODEL = MODELS / "texturenet_0.25_256_float.tflite"
PLACE = "/files.example/latest"


@pytest.fixture
def server() -> Iterator[FileServer]:
    with file_server() as running:
        yield running


@pytest.fixture
def declared(cli: Cli) -> Cli:
    """The command with builds of the user's own."""
    folder = cli.home / "builds"
    folder.mkdir(parents=True)
    (folder / "prog.yaml").write_text(
        "name: prog\ntitle: T\ntool: native\nprogram: prog\nabis:\n"
        "  arm64-v8a: {url: 'https://files.example/latest/prog'}\n"
        "  x86: {recipe: [bazel build //x:prog, cp bazel-bin/x/prog .]}\n"
    )
    return cli


def program(version: str) -> bytes:
    return benchmark_elf(version=version)


def test_fetching_changes_keeping_and_going_back(declared: Cli, server: FileServer) -> None:
    def fetch(*words: str) -> Done:
        return declared(
            "build fetch prog --abi arm64-v8a", *words, BENCHFARM_MIRROR=server.url
        ).ok()

    def publish(version: int) -> None:
        date = f"Fri, {19 + version} Nov 2026 10:00:00 GMT"
        server.put(f"{PLACE}/prog", program(str(version)), last_modified=date)

    publish(1)
    first = fetch()
    assert "(latest 2026-11-20)" in first.stdout
    assert "is here and in use" in first.stdout
    assert "prog: " in first.stderr
    assert "(100 %)" in first.stderr
    listed = declared.json("build list")
    (old,) = [item for item in listed if item["release_id"]]
    publish(2)
    changed = fetch().stdout
    assert "CHANGED" in changed
    assert f"build use prog@{old['release_id']}' switches back" in changed
    publish(3)
    assert fetch("--json").json["fetched"][0]["previous"]["tag"] == "latest 2026-11-21"
    listed = declared.json("build list --all")
    assert {item["tag"]: item["in_use_for"] for item in listed if item["release_id"]} == {
        "latest 2026-11-20": [], "latest 2026-11-21": [], "latest 2026-11-22": ["arm64-v8a"],
    }  # fmt: skip
    declared("build use", f"prog@{old['release_id']}").ok()
    table = declared("build list --all").ok().stdout
    states = [
        line.split("  ")[-1].strip()
        for line in table.splitlines()
        if line.startswith("prog ") and "latest" in line
    ]
    assert sorted(states) == ["kept", "kept", "only for virtual phones, by name"]


def test_recipe_is_shown_with_its_commands(declared: Cli) -> None:
    done = declared("build fetch prog --abi x86")
    assert done.exit_code == 4
    assert (
        "  bazel build //x:prog\n  cp bazel-bin/x/prog .\n  benchfarm build add FILE --name prog"
        in done.stdout
    )


def test_one_failure_among_several_has_its_line_and_the_others_are_fetched(
    declared: Cli, server: FileServer
) -> None:
    (declared.home / "builds" / "gone.yaml").write_text(
        "name: gone\ntitle: T\ntool: native\nprogram: gone\nabis: {arm64-v8a: {url: 'https://files.example/gone'}}\n"
    )
    server.put(f"{PLACE}/prog", program("1"))
    mirror = {"BENCHFARM_MIRROR": server.url}
    done = declared("build fetch gone prog --abi arm64-v8a --json", **mirror)
    assert done.exit_code == 4
    assert [item["name"] for item in done.json["fetched"]] == ["prog"]
    (problem,) = done.json["problems"]
    assert (problem["name"], problem["code"]) == ("gone", "not-there")
    alone = declared("build fetch gone", **mirror)
    assert alone.exit_code == 4
    assert "files.example/gone isn't there (HTTP 404)" in alone.stderr


@pytest.mark.parametrize(
    ("words", "exit_code", "message"),
    [
        (("fetch", "nothing"), 2, "no build 'nothing' is declared"),
        (("fetch", "prog", "--abi", "mips"), 2, "no build 'prog' is declared for 'mips'"),
        (("use", "prog@12"), 4, "no release 'prog@12' is on this computer"),
    ],
)
def test_what_cannot_be_done_is_one_line_with_its_code(
    declared: Cli, words: tuple[str, ...], exit_code: int, message: str
) -> None:
    done = declared("build", *words)
    assert done.exit_code == exit_code, done.stderr
    assert message in done.stderr


def test_interrupted_download_leaves_nothing_in_the_cache(
    declared: Cli, server: FileServer
) -> None:
    server.put(f"{PLACE}/prog", program("1"), faults=[("hang after", 50)])
    words = ("build fetch prog --abi arm64-v8a",)
    mirror = {"BENCHFARM_MIRROR": server.url}
    running = declared.start(*words, **mirror)
    assert server.hanging.wait(60)
    running.send_signal(signal.SIGINT)
    _, stderr = running.communicate(timeout=180)
    assert running.returncode == 130, stderr
    assert not (declared.home / "cache" / "builds").exists()
    server.released.set()
    declared(*words, **mirror).ok()


def test_a_program_that_shows_nothing_of_a_benchmark_is_refused(cli: Cli, tmp_path: Path) -> None:
    other, benchmark, fake = (
        tmp_path / "other",
        tmp_path / "benchmark",
        tmp_path / "benchmark_model",
    )
    other.write_bytes(elf(machine=62, is_program=True))
    benchmark.write_bytes(elf(machine=62, is_program=True) + b"\0Inference timings in us: Init: \0")
    fake.write_bytes(program("1"))
    for path in (other, Path("/bin/true")):
        assert "is no benchmark program" in cli("build add", path).ended_with(4).said
        assert "is no benchmark program" in cli("build add --name own", path).ended_with(4).said
    assert not [item for item in cli.json("build list") if item["release_id"]]
    for path in (benchmark, fake):
        cli("build add", path).ok()


@pytest.mark.parametrize(
    ("command", "build"),
    [
        (("bench -d xnnpack", MODEL), "nowhere"),
        (("trace", MODEL), "native=nowhere"),
        (("ab delegate:cpu delegate:xnnpack", "-m", MODEL), "nowhere"),
    ],
)
def test_a_build_is_named_alike_on_every_command_that_starts_programs(
    lab: Lab, command: tuple[str | Path, ...], build: str
) -> None:
    done = lab.cli(*command, "-s", lab.serial, "--build", build)
    assert done.exit_code == 4
    assert "no build 'nowhere' for arm64-v8a is on this computer" in done.stderr


def test_a_build_that_no_device_would_run_is_refused(cli: Cli) -> None:
    done = cli("ab build:one build:other -n 2 -s host -m", MODEL).ended_with(2)
    assert "a build is for native, and these devices run litert" in done.said
    done = cli("bench --build apk=nowhere -n 2 -s host", MODEL).ended_with(2)
    assert "a build is for apk, and these devices run litert" in done.said
    done = cli("bench --build apk=nowhere --build litert=nowhere -n 2 -s host", MODEL).ended_with(2)
    assert "a build is for apk, and these devices run litert" in done.said
    # A phone may come, which runs it.
    away = cli("bench --any 2 --with-host --build native=nowhere -n 2 -d xnnpack --json", MODEL)
    assert away.json["lacking"].startswith("the plan asks for 2 phones")
    # That may be for models that are too fast for LiteRT's digits.
    for where in ("-s host", "-s host --with-host"):
        done = cli(f"bench -n 2 {where} --build nowhere", MODEL).ended_with(4)
        assert "no build 'nowhere' for linux-" in done.said


def test_a_build_that_takes_the_place_of_another_of_its_name_says_so(
    cli: Cli, tmp_path: Path
) -> None:
    for version in ("1", "2"):
        (tmp_path / version).write_bytes(program(version))

    def added(version: str) -> str:
        return cli("build add --name mine", tmp_path / version).ok().stdout

    assert "switches back" not in added("1")
    (first,) = [item for item in cli.json("build list") if item["name"] == "mine"]
    address = f"mine@{first['release_id']}"
    assert f"'benchfarm build use {address}' switches back to it" in added("2")
    # Nothing changes where it is in use already.
    assert "switches back" not in added("2")
    cli("build use", address).ok()
    assert "switches back" not in added("1")
    assert "switches back" in added("2")
