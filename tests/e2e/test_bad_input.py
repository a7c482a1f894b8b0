"""What goes wrong before anything runs: one clear line and a documented exit code, never a
traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.conftest import Lab
from tests.samples.command import Cli, Done


def expect(done: Done, exit_code: int, *words: str) -> None:
    assert done.exit_code == exit_code, done.stdout + done.stderr
    for word in words:
        assert word in done.stderr, done.stderr


@pytest.mark.parametrize(
    "words",
    [
        "export --out=-",
        "ab tool:apk tool:native -m {model} -o -",
        "bench {model} -o -",
        "results log -o - RUN",
    ],
)
def test_a_dash_is_no_name_of_a_file(cli: Cli, model: Path, words: str) -> None:
    expect(cli(words.format(model=model)), 2, "--out takes the name of a file, not -")


@pytest.mark.parametrize(
    ("words", "environ", "exit_code", "said"),
    [
        (
            "bench {model}",
            {"BENCHFARM_ADB": "/nowhere/adb", "ANDROID_ADB_SERVER_PORT": ""},
            3,
            ("BENCHFARM_ADB", "/nowhere/adb"),
        ),
        ("bench {model}", {"BENCHFARM_ADB_SERVER": "127.0.0.1:1"}, 3, ("127.0.0.1:1",)),
        ("bench {model} --with-host -d gpuu", {}, 2, ("gpuu", "gpu")),
        ("bench {model} --with-host --flag graph=/x", {}, 2, ("graph",)),
        ("bench {model} --with-host --out=/", {}, 2, ("/: is a folder",)),
        # Of a variable that isn't set: neither ignored nor the newest campaign.
        ("bench {model} --delegate=", {}, 2, ("the value after '--delegate' is empty",)),
        ("bench {model} -t ,", {}, 2, ("the value after '-t' is empty",)),
        ("bench {model} -t 1,", {}, 2, ("--threads: ''",)),
        ("results remove --yes ", {}, 2, ("the value after '--yes' is empty",)),
        ("--home= results list", {}, 2, ("the value after '--home' is empty",)),
        ("--home ~no.user results list", {}, 2, ("~no.user: there is no such user",)),
        ("flags --build ~no.user/program", {}, 2, ("~no.user/program: there is no such user",)),
        ("flags --tool ~no.user/p.yaml", {}, 2, ("~no.user/p.yaml: there is no such user",)),
        ("plan init ~no.user/m.tflite", {}, 2, ("~no.user/m.tflite: there is no such user",)),
        *(
            (f"{words}{'9' * 300}", {}, 2, (": File name too long", "check the path"))
            for words in (
                "bench {model} --parity-inputs ",
                "export -o ",
                "import ",
                "store backup ",
            )
        ),
        ("--store  results list", {}, 2, ("the value after '--store' is empty",)),
        ("run", {}, 2, ("--resume",)),
        ("run --resume gone", {}, 2, ("no campaign",)),
        ("report nosuch", {}, 2, ("nosuch", "benchfarm results list")),
        ("bench {model} --with-host --threads 1 4", {}, 2, ("/4'", "--threads 1,4")),
        (
            "bench {model} --with-host -d nnapi --tool litert",
            {},
            2,
            ("'litert' has no delegate 'nnapi'",),
        ),
    ],
)
def test_what_cannot_be_done_as_asked(
    cli: Cli,
    model: Path,
    words: str,
    environ: dict[str, str],
    exit_code: int,
    said: tuple[str, ...],
) -> None:
    expect(cli(*words.format(model=model).split(" "), **environ), exit_code, *said)


def test_an_unknown_serial_number(lab: Lab, model: Path, tmp_path: Path) -> None:
    expect(
        lab.cli("bench -s NOSUCH", model, BENCHFARM_ADB_SERVER="127.0.0.1:1"),
        3,
        "NOSUCH",
        "benchfarm devices",
        # A lab goes on without it, and the user named it.
        "no adb server answers at 127.0.0.1:1",
    )
    # Also where the store can't tell whether it was ever seen.
    broken = tmp_path / "broken.sqlite"
    broken.write_text("no database")
    restored = lab.cli("--store", broken, "device", "restore", "NOSUCH").ended_with(3)
    assert "NOSUCH: not restored: is not attached" in restored.said


def test_a_model_that_is_none(cli: Cli, tmp_path: Path, model: Path) -> None:
    path = tmp_path / "m.tflite"
    for content in (
        None,
        b"",
        b"not a model at all, but long enough to be looked at",
        model.read_bytes()[:5000],
    ):
        if content is not None:
            path.write_bytes(content)
        expect(cli("bench --with-host", path), 2, str(path))


def test_a_plan_with_five_mistakes_tells_all_five(cli: Cli, tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text(
        "modles: [a.tflite]\nmodels: [b.tflite]\nmatrix: {delegates: [xnpack], threads: [0]}\ninvocations: many\n"
        "settings: {num_runs: 1.5}\n"
    )
    expect(
        cli("run", plan),
        2,
        f"{plan}:1:1: modles: unknown key; did you mean 'models'?",
        f"{plan}:3:22: matrix.delegates[0]: 'xnpack' isn't one of",
        f"{plan}:3:41: matrix.threads[0]: '0' should be",
        f"{plan}:4:1: invocations: 'many' isn't a whole number",
        f"{plan}:5:12: settings.num_runs: '1.5' should be",
    )


def test_text_that_is_no_benchmark_output(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_text("hello\n")
    expect(cli("parse", path), 2, str(path))
    expect(cli("parse", tmp_path / "none.txt"), 2, "none.txt")


#: Commands that are about what is stored.
READERS = (
    "results list",
    "results runs",
    "results log 1a2b3c",
    "report",
    "history changes",
    "history expect",
    "history expect delegate=gpu 2026-03-09 driver-502",
    "compare",
    "table",
    "history site --out {folder}/site",
    "advise",
    "results reparse",
    "status",
    "run --resume",
    "export --out {folder}/bundle.zip",
    "store backup {folder}/copy.sqlite",
    "store prune --older-than 9d --compact",
)


@pytest.mark.parametrize("words", READERS)
def test_a_store_that_was_named_to_be_read_and_is_not_there_is_missed_and_not_made(
    cli: Cli, tmp_path: Path, words: str
) -> None:
    path = tmp_path / "typed" / "wrong.sqlite"
    words = words.format(folder=tmp_path)
    expect(cli(f"--store {path} {words}"), 2, str(path), "there is no store")
    assert not path.parent.exists()


@pytest.mark.parametrize(
    ("words", "exit_code", "said"),
    [
        ("results list", 0, "nothing is stored yet in {store}"),
        ("report", 2, "no campaign in {store}"),
        ("run --resume", 0, "nothing is left to resume in {store}"),
        ("store backup {folder}/copy.sqlite", 2, "nothing is stored yet in {store}"),
        ("doctor", 1, "0 campaigns in {store}"),
        ("history changes", 1, "nothing was checked: no series in {store}"),
    ],
    ids=str,
)
def test_a_home_without_a_store_is_no_fault_says_where_it_was_looked_for_and_stays_without(
    cli: Cli, tmp_path: Path, words: str, exit_code: int, said: str
) -> None:
    path = cli.home / "store.sqlite"
    done = cli(words.format(folder=tmp_path))
    assert said.format(store=path) in " ".join(done.ended_with(exit_code).said.split())
    assert not path.exists()
    assert not (tmp_path / "copy.sqlite").exists()


def test_a_copy_into_a_folder_that_is_not_there_blames_the_copy(cli: Cli, tmp_path: Path) -> None:
    copy = tmp_path / "unmounted" / "copy.sqlite"
    expect(cli("store backup", copy), 2, str(copy), "copy.sqlite: there is no folder")
    assert not copy.parent.exists()


def test_what_goes_without_a_store_makes_none_and_misses_none(
    cli: Cli, tmp_path: Path, model: Path
) -> None:
    path, plan = tmp_path / "later.sqlite", tmp_path / "plan.yaml"
    plan.write_text(f"models: [{model}]\ndevices: {{host: true}}\nmatrix: {{delegates: [cpu]}}\n")
    cli("--store", path, "plan", "show", plan).ok()
    cli("--store", path, "model", "inspect", model).ok()
    cli("--store", path, "device", "restore", "--dry-run").ok()
    assert not path.exists()


def test_doctor_tells_of_a_store_that_is_missed(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "wrong.sqlite"
    said = cli("--store", path, "doctor").ended_with(1).stdout
    assert f"{path}: there is no store" in " ".join(said.split())
    assert not path.exists()


def test_doctor_tells_faults_of_several_lines_in_one(cli: Cli) -> None:
    cli.home.mkdir()
    (cli.home / "devices.yaml").write_text("a: 1\nb: 2\n")
    assert ": 2 faults:; " in cli("doctor").ended_with(1).stdout


def test_a_folder_for_the_store_that_can_not_be_made(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = cli("--store", tmp_path / "file" / "s.sqlite", "results", "list")
    assert done.exit_code == 5, done.stderr


@pytest.mark.parametrize(
    "devices", ["profiles: [pixel-4, pixle-3]", "pools: nightly", "tags: [rooted]"]
)
def test_a_name_in_a_plan_that_no_device_has(
    cli: Cli, model: Path, tmp_path: Path, devices: str
) -> None:
    cli.home.mkdir(exist_ok=True)
    (cli.home / "devices.yaml").write_text("devices: {A: {pools: nightlies, tags: root}}")
    plan = tmp_path / "plan.yaml"
    plan.write_text(f"models: ['{model}']\ndevices: {{{devices}, host: true}}\n")
    meant = {"pro": "pixel-3", "poo": "nightlies", "tag": "root"}[devices[:3]]
    for words in (("plan show", plan), ("run", plan)):
        expect(cli(*words), 2, f"did you mean '{meant}'?")
    assert cli.json("results list") == []


def test_the_traceback_is_shown_when_it_is_asked_for(cli: Cli) -> None:
    process = cli.start("--debug report nosuch")
    assert "Traceback" in process.communicate(timeout=180)[1]
    assert process.returncode == 2


@pytest.mark.parametrize("words", ["report nosuch --json", "devices --nonsense --json"])
def test_errors_come_as_json_too(cli: Cli, words: str) -> None:
    done = cli(words)
    assert done.exit_code == 2
    assert done.json["error"]["exit_code"] == 2
    assert done.stderr


def test_a_place_for_the_report_that_can_not_be_written_is_found_before_anything_runs(
    cli: Cli, model: Path
) -> None:
    expect(cli("bench --with-host --out /proc/nowhere/r.html", model), 2, "/proc/nowhere")
    assert cli.json("results list") == []
    assert cli("bench --with-host", model, "--out", f"{'x' * 300}.html").exit_code == 2


def test_a_moment_that_there_is_none_of(lab: Lab) -> None:
    expect(lab.cli("virtual fault", lab.serial, "cut", "moment=nope"), 2, "nope", "run")
    expect(lab.cli("virtual fault", lab.serial, "cut", "bytes=²"), 2, "bytes")


def test_virtual_phones_alone_are_measured_without_a_server_for_real_ones(
    cli: Cli, model: Path
) -> None:
    cli("virtual up pixel-4").ok()
    try:
        words = "bench -d xnnpack --where virtual --no-check-outputs --min-secs 0.1 -n 1"
        # As where nobody names a server.
        assert cli(words, model, ANDROID_ADB_SERVER_PORT="").exit_code in {0, 1}
        servers = cli.json("adb status", ANDROID_ADB_SERVER_PORT="")["servers"]
        assert [server["for"] for server in servers if server["ours"]] == ["virtual phones"]
    finally:
        cli("virtual down")


def test_a_store_that_is_no_store_is_left_as_it_is(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    path.write_bytes(b"this is not a database" * 100)
    expect(cli("--store", path, "results", "list"), 5, str(path))
    assert path.read_bytes() == b"this is not a database" * 100
