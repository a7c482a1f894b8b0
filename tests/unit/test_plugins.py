"""What somebody else's distribution adds: examples/plugin, which docs/reference/plugins.md shows.

And the core without its extensions.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.samples.checkout_copy import copy_core, run_in
from tests.samples.command import Cli, Done
from tests.samples.places import MODELS, REPO
from tests.samples.sample_lab import small_lab, stored
from tests.samples.wheels import wheel_of

MODEL = min(MODELS.glob("*float*.tflite"))
EXAMPLE = REPO / "examples" / "plugin"
LOG = (REPO / "tests" / "data" / "native" / "default_float_10_224.txt").read_text("utf-8")


class Installed:
    """benchfarm with the plugin in a folder of packages beside its own, and a home with a stored
    lab.
    """

    def __init__(self, folder: Path) -> None:
        self.site = folder / "packages"
        with zipfile.ZipFile(wheel_of(EXAMPLE, folder / "wheel")) as wheel:
            wheel.extractall(self.site)
        self.home = stored(folder / "home", small_lab())
        self.folder = folder

    def __call__(self, *words: object, code: int | None = 0) -> str:
        # What lists phones starts a server of this home's own.
        environ = {"PYTHONPATH": str(self.site), "ANDROID_ADB_SERVER_PORT": ""}
        done = Cli(home=self.home)(*words, **environ)
        assert code in {None, done.exit_code}, done.said
        return done.said

    def beside(self, *places: Path) -> Callable[..., Done]:
        """Return what runs the command with these before the plugin on Python's path."""
        path = os.pathsep.join(map(str, (*places, self.site)))
        return partial(Cli(home=self.home), PYTHONPATH=path)

    def json(self, *words: object) -> Any:
        return json.loads(self(*words, "--json"))


@pytest.fixture(scope="module")
def benchfarm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    installed = Installed(tmp_path_factory.mktemp("plugins"))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(installed.folder)
        yield installed
        installed("adb", "stop")


def test_a_command_is_in_the_help_and_does_its_work(benchfarm: Installed) -> None:
    assert re.search(r"^  acme +Count the runs of each phone\.$", benchfarm("--help"), re.MULTILINE)
    counts = benchfarm.json("acme")
    assert sum(row["runs"] for row in counts) == len(benchfarm.json("results runs"))
    assert benchfarm.json("acme -s", counts[0]["serial"]) == counts[:1]
    assert "phone" in benchfarm("acme")
    assert benchfarm("acme --format csv").startswith("serial,runs\n")


def test_an_exporter_is_known_by_its_name_and_by_the_ending_of_a_file(benchfarm: Installed) -> None:
    # The help may break the line at the hyphen.
    assert "acme-lines" in "".join(benchfarm("export --help").split())
    benchfarm("export --format acme-lines")
    benchfarm("export --out named.acme-lines")
    lines = (benchfarm.folder / "named.acme-lines").read_text("utf-8")
    assert lines == (benchfarm.folder / "runs.acme-lines").read_text("utf-8")
    assert {"serial", "model", "latency_us", "is_virtual"} == json.loads(
        lines.splitlines()[0]
    ).keys()
    assert "exists already" in benchfarm("export --format acme-lines", code=2)
    assert "the ending is of the format acme-lines" in benchfarm(
        "export -f json -o x.acme-lines", code=2
    )


def test_exporters_may_share_an_ending(benchfarm: Installed, tmp_path: Path) -> None:
    about = tmp_path / "sharing" / "sharing-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: sharing\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(
        "[benchfarm.exporters]\nbare-lines = sharing:LINES\nbare-json = sharing:JSON\n"
    )
    (about.parent / "sharing.py").write_text(
        "from pathlib import Path\n\nfrom orchestrator.plugins import Exporter\n\n"
        "def write(workspace, campaigns, request, out):\n    out.write_text('bare')\n\n"
        "LINES = Exporter(path=Path('bare.acme-lines'), write=write)\n"
        "JSON = Exporter(path=Path('bare.json'), write=write)\n"
    )
    run = benchfarm.beside(about.parent)
    for form, name in {
        "bare-lines": "bare.acme-lines",
        "acme-lines": "acme.acme-lines",
        "bare-json": "bare.json",
        "json": "own.json",
        "": "usual.json",
    }.items():
        out = tmp_path / name
        run("export", *(["--format", form] if form else []), "--out", out).ok()
        assert (out.read_text("utf-8") == "bare") == form.startswith("bare"), form


def test_an_importer_stores_judged_runs(benchfarm: Installed) -> None:
    (benchfarm.folder / "night.acme").write_text(f"acme,PHONE_7,mobilenet\n{LOG}", "utf-8")
    done = benchfarm.json("import night.acme")
    (run,) = done["runs"]
    assert (run["case"]["serial"], run["outcome"]) == ("PHONE_7", "completed")
    (benchfarm.folder / "wrong.acme").write_text("acme,a phone,mobilenet\n", "utf-8")
    assert "wrong.acme:1:" in benchfarm("import wrong.acme", code=2)
    shutil.copy(benchfarm.folder / "night.acme", benchfarm.folder / "folder")
    assert "a log of acme" in benchfarm("import night.acme", benchfarm.site, code=2)


def test_a_notifier_is_found_by_the_scheme_of_an_address(benchfarm: Installed) -> None:
    code = (
        "from orchestrator.extensions.history.notifying import find_receiver, send\n"
        "from orchestrator.plugins import Message, Settings\n"
        "import sys\n"
        "receiver = find_receiver(sys.argv[1], Settings.from_environment())\n"
        "print(send(receiver, Message(content={}, text='2 changes')))\n"
    )
    place = benchfarm.folder / "messages"
    done = subprocess.run(
        [sys.executable, "-c", code, f"file:{place}"], capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONPATH": str(benchfarm.site)},
    )  # fmt: skip
    assert (done.stdout, json.loads(place.read_text("utf-8"))) == ("\n", {"text": "2 changes"})
    told = benchfarm("history changes --notify gopher:x", code=2)
    assert "file, http, https" in told or "http, https, file" in told


def test_a_page_is_written_beside_the_others_which_link_to_it(benchfarm: Installed) -> None:
    benchfarm("history site --out site")
    assert "<li>" in (benchfarm.folder / "site" / "pages" / "acme.html").read_text("utf-8")
    assert (
        '<a href="pages/acme.html">Campaigns by host</a>'
        in (benchfarm.folder / "site" / "index.html").read_text()
    )


def test_a_program_measures_under_its_own_name_and_its_runs_outlive_it(
    benchfarm: Installed,
) -> None:
    words = ("bench -s host --tool acme.sleep -d cpu -t 1 -n 2", MODEL)
    done = benchfarm(*words, "--json", code=None)
    runs = [run for run in benchfarm.json("results runs newest") if run["run_pass"] == "timing"]
    assert {(run["case"]["tool"], run["outcome"]) for run in runs} == {
        ("acme.sleep", "completed")
    }, done
    assert all(run["report"]["inference_mean_us"] > 1000 for run in runs)
    assert "acme.sleep" in benchfarm("report newest --format text")
    without = Cli(home=benchfarm.home)
    assert "acme.sleep" in without("report newest --format text").ok().stdout
    told = without(*words).ended_with(2).said
    assert "'acme.sleep' isn't one of" in told


@pytest.mark.parametrize("loses_folder", [False, True])
def test_a_fault_while_pairs_are_measured_is_told_also_where_their_comparison_can_not_be_written(
    benchfarm: Installed, tmp_path: Path, loses_folder: bool
) -> None:
    module, folder = benchfarm.site / "acme" / "programs.py", tmp_path / "kept"
    text, head = module.read_text("utf-8"), "        command = f"
    folder.mkdir()
    lost = f"Path({str(folder)!r}).rename({f'{folder}-lost'!r}); Path({str(folder)!r}).touch()"
    fault = f"        {lost if loses_folder else ''}\n        raise RuntimeError('it broke')\n"
    module.write_text(text.replace(head, fault + head), "utf-8")
    words = "ab threads:1 threads:2 -s host --tool acme.sleep -d cpu --format json -m"
    out = folder / "pairs.json"
    try:
        told = benchfarm(words, MODEL, "--out", out, code=70)
    finally:
        module.write_text(text, "utf-8")
    assert out.is_file() is not loses_folder
    lines = told.splitlines()
    place = next(number for number, line in enumerate(lines) if line.startswith("campaign: "))
    assert lines[place].split()[1] == benchfarm.json("results list")[0]["campaign_id"]
    assert (
        lines[place + 1] == "benchfarm: error: a fault in benchfarm itself: RuntimeError: it broke"
    )


def test_devices_of_a_source_are_listed_checked_and_measured(benchfarm: Installed) -> None:
    boards = benchfarm.home / "boards"
    assert "there is no folder of boards" in benchfarm("doctor", code=None)
    boards.mkdir()
    (boards / "ACME-1").mkdir()
    try:
        (listed,) = [one for one in benchfarm.json("devices") if one["serial"] == "ACME-1"]
        assert (listed["adb_server"], listed["usable"]) == ("acme", True)
        (checked,) = benchfarm.json("device check -s ACME-1")["phones"]
        assert [check["result"] for check in checked["checks"]] == ["works"]
        words = "bench -s ACME-1 --tool acme.sleep -d cpu -t 1 -n 1"
        done = benchfarm(words, MODEL, code=None)
    finally:
        shutil.rmtree(boards)
    runs = benchfarm.json("results runs newest")
    assert {(run["case"]["serial"], run["outcome"]) for run in runs} == {("ACME-1", "completed")}, (
        done
    )


def test_a_delegate_is_measured_under_its_own_name_and_its_runs_outlive_it(
    benchfarm: Installed,
) -> None:
    """The virtual phone hasn't got it: a run that went on without it is a failure of this delegate."""
    words = ("bench -d acme.npu -n 1 --min-secs 0.1", MODEL)
    benchfarm("virtual up pixel-3")
    try:
        benchfarm(*words, code=1)
        without = Cli(home=benchfarm.home)
        assert "'acme.npu' isn't one of" in without(*words).ended_with(2).said
    finally:
        benchfarm("virtual down")
    (run,) = [run for run in benchfarm.json("results runs newest") if run["run_pass"] == "timing"]
    assert (run["case"]["delegate"], run["outcome"]) == ("acme.npu", "failed")
    assert run["reason_code"] == "delegate-fell-back"
    log = benchfarm("results log", run["run_id"])
    assert "--external_delegate_path=/vendor/lib64/libacme.so" in log
    # The same flag with another value asks for another delegate.
    text = benchfarm.home / "printed.txt"
    for library, asked in (("acme", "acme.npu"), ("other", "external")):
        flag = f"--external_delegate_path=/vendor/lib64/lib{library}.so"
        text.write_text(
            f"$ ./benchmark_model --graph=m.tflite {flag}\nSTARTING!\nLoaded model m.tflite\n"
        )
        told = benchfarm("parse", text, "--json", code=None)
        assert f'"requested": "{asked}"' in told
    for command in (benchfarm, without):
        assert "acme.npu" in str(command("report newest --format text"))


def test_a_plugin_that_is_broken_is_named_and_everything_else_works(benchfarm: Installed) -> None:
    acme = benchfarm.site / "acme"
    (names,) = benchfarm.site.glob("*.dist-info/entry_points.txt")
    kept = {
        path: path.read_text("utf-8") for path in (acme / "exporters.py", acme / "passes.py", names)
    }
    for path in acme / "exporters.py", acme / "passes.py":
        path.write_text("import nothing_of_this_name\n", "utf-8")
    told = "[benchfarm.delegates]\nunprefixed = acme.delegates:NPU\n"
    queues = "[benchfarm.queues]\nacme = acme.exporters:QUEUE\n"
    names.write_text(queues + kept[names].replace("[benchfarm.delegates]\n", told), "utf-8")
    try:
        for name, words in {
            "acme-lines": ("export", "--format", "acme-lines", "--out", "other.acme-lines"),
            "acme.idle": ("bench --pass acme.idle", MODEL),
        }.items():
            told = benchfarm(*words, code=2)
            assert f"'{name}' of benchfarm-acme can't be loaded: ModuleNotFoundError" in told
            assert "pip uninstall benchfarm-acme" in told
            assert "Traceback" not in told
        benchfarm("export --format json --out other.json")
        benchfarm("report --format text")
        assert "a farm of many hosts needs a store" in benchfarm("doctor --farm", code=2)
        told = benchfarm("bench -s none -d gpu", MODEL, code=3)
        assert "none: is not attached" in told
        benchfarm("acme")
        benchfarm("--help")
    finally:
        for path, text in kept.items():
            path.write_text(text, "utf-8")


def test_the_core_works_without_any_extension(tmp_path: Path) -> None:
    """Its commands, where no extension is installed; ``make test-core`` runs its tests there."""
    core, home = tmp_path / "core", stored(tmp_path / "home", small_lab())
    copy_core(core)
    for words in (
        ["report", "--format", "text"],
        ["export", "--format", "csv", "--out", tmp_path / "x.csv"],
    ):
        done = run_in(core, "-m", "benchfarm", "--home", home, *words)
        assert done.returncode == 0, done.stdout + done.stderr
    listed = run_in(core, "-m", "benchfarm", "--help").stdout
    assert "bench " in listed
    assert not re.search(r"^  (history|serve|farm|model) ", listed, re.MULTILINE)
