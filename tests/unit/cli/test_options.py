"""What is typed is understood alike on every command, and what means nothing there is refused."""

from pathlib import Path

import pytest

from orchestrator.app.pairing import KINDS
from orchestrator.app.requests import LEAST_DIFFERENCE
from orchestrator.cli.commands import share_of
from orchestrator.config.plan import builds_of
from orchestrator.errors import UsageError
from tests.samples.command import Cli
from tests.samples.extensions import needs_extension
from tests.samples.places import MODELS
from tests.samples.sample_lab import small_lab, stored

MODEL, OTHER = map(str, sorted(MODELS.glob("*.tflite")))
#: Words of commands and formats that an extension brings.
BROUGHT = {"bundle": "interop", "history": "history"}
EITHER_WAY = "0.03 may be a percentage or a ratio; write 0.03% or 3%"


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(home=tmp_path / "home")


REFUSED: list[tuple[str, str]] = [
    ("compare a b --campaign c", "--campaign needs --by"),
    ("compare old.tflite new.tflite", "benchfarm ab model:old.tflite model:new.tflite"),
    ("report --legend", "--legend explains a table of text, and this is html"),
    ("report --legend --out r.csv", "add --format text"),
    # A file's name says its format.
    ("report --out r.xml", "r.xml: this command writes html, text, markdown"),
    ("report --format html --out r.csv", "r.csv: the ending is of the format csv"),
    ("export --format bundle --out e.csv", "e.csv: the ending is of the format csv"),
    ("compare --format junit --out c.md", "c.md: the ending is of the format markdown"),
    ("history changes --out c.html", "c.html: this command writes text, markdown, json, not html"),
    (
        "report --out r.bogus",
        "r.bogus: this command writes html, text, markdown, csv, json, not .bogus",
    ),
    ("results log newest --issue -a stdout", "leave out --attachment"),
    ("status --every 1", "--every means nothing without --watch"),
    ("bench model.tflite --out b.csv", "b.csv: this command writes html, not csv"),
    # Before anything is imported for it.
    (f"import {MODEL} --out no-such/r.html", "no-such/r.html: there is no folder no-such"),
    ("report --format pdf", "there is no format 'pdf'"),
    ("compare --by modell", "did you mean 'model'?"),
    # A percentage says that it is one.
    ("compare --threshold 0.03", f"--threshold: {EITHER_WAY}"),
    ("ab build:a build:b -m m.tflite --detect 0.03", f"--detect: {EITHER_WAY}"),
    ("history changes --threshold 0.03", f"--threshold: {EITHER_WAY}"),
    (f"bench {MODEL} --precision 0.03", f"--precision: {EITHER_WAY}"),
]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        pytest.param(
            words,
            told,
            marks=[needs_extension(owner) for word, owner in BROUGHT.items() if word in words],
        )
        for words, told in REFUSED
    ],
)
def test_what_means_nothing_is_refused(cli: Cli, words: str, told: str) -> None:
    assert told in cli(words).ended_with(2).stderr
    assert "--out" not in words or not Path(words.rsplit(maxsplit=1)[-1]).exists()


def test_the_ending_of_the_file_says_the_format(cli: Cli, tmp_path: Path) -> None:
    begins = {
        "t.html": "<!doctype html>",
        "t.md": "19 cases",
        "t.csv": "campaign_id,",
        "t.json": "{",
    }
    stored(tmp_path / "home", small_lab())
    for name, start in begins.items():
        path = tmp_path / name
        assert cli("report --out", path).ok().stdout == f"{path}\n"
        assert path.read_text().lstrip().startswith(start), name


@pytest.mark.parametrize("text", ["2%", " 2 % ", "2", "2.0"])
def test_a_percentage_is_a_hundredth(text: str) -> None:
    assert share_of(text, "--threshold", least=LEAST_DIFFERENCE, most=0.5) == 0.02
    assert share_of("0.05%", "--detect", least=LEAST_DIFFERENCE, most=0.5) == pytest.approx(0.0005)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("0%", "isn't between 0.01% and 50%"),
        ("60%", "isn't between 0.01% and 50%"),
        ("-1%", "isn't between"),
        ("nan", "isn't a percentage"),
    ],
)
def test_what_is_no_share_is_refused(text: str, word: str) -> None:
    with pytest.raises(UsageError, match=word):
        share_of(text, "--threshold", least=LEAST_DIFFERENCE, most=0.5)


@pytest.mark.parametrize(
    ("texts", "tools", "expected"),
    [
        ((), (), {}),
        (("prog",), (), {"native": "prog"}),
        (("prog",), ("apk",), {"apk": "prog"}),
        (("native=prog@12ab",), (), {"native": "prog@12ab"}),
        (("native=./a=b",), ("native",), {"native": "./a=b"}),
        (("./a=b/prog",), ("native",), {"native": "./a=b/prog"}),
        (("native=x", "apk=y"), ("native", "apk"), {"native": "x", "apk": "y"}),
        (("native=x", "x"), (), {"native": "x"}),
        (("prog",), ("native", "apk"), "'prog' doesn't say which of native, apk it is for"),
        (("native=x", "native=y"), (), "names two programs for native: x and y"),
        (("native=x",), ("apk",), "is for native, and --tool says apk"),
    ],
)
def test_a_build_is_that_of_its_tool(
    texts: tuple[str, ...], tools: tuple[str, ...], expected: dict[str, str] | str
) -> None:
    if isinstance(expected, str):
        with pytest.raises(UsageError, match=expected):
            builds_of(texts, tools)
    else:
        assert builds_of(texts, tools) == expected


SIDES = {
    "build": ("build:benchmark_model", "build:benchmark_model_plus_flex"),
    "model": (f"model:{MODEL}", f"model:{OTHER}"),
    "flags": ("flags:use_caching=true", "flags:use_caching=false"),
    "delegate": ("delegate:gpu", "delegate:xnnpack"),
    "threads": ("threads:1", "threads:4"),
    "tool": ("tool:native", "tool:apk"),
    "mode": ("mode:shell", "mode:top-app"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_side_is_understood_before_a_phone_is_looked_for(cli: Cli, kind: str) -> None:
    model = () if kind == "model" else ("-m", MODEL)
    done = cli("ab -s NOT-THERE", *SIDES[kind], *model)
    assert "no adb server answers" in done.ended_with(3).stderr


def test_the_adb_server_is_shown_or_stopped_and_nothing_else(cli: Cli) -> None:
    assert cli("adb").ok().stdout == cli("adb status").ok().stdout
    assert "stop" in cli("adb start").ended_with(2).stderr


def test_a_format_may_be_named_by_the_ending_of_its_files(cli: Cli) -> None:
    table = cli("build list --format md").ok().stdout
    assert "\n| ---" in table
    assert table == cli("build list --format markdown").stdout


def test_a_key_that_completes_prints_no_error_into_a_line_with_an_unknown_word(cli: Cli) -> None:
    done = cli(
        "", COMP_WORDS="benchfarm tabel ", COMP_CWORD="2", _BENCHFARM_COMPLETE="complete_bash"
    )
    assert (done.exit_code, done.stderr) == (0, "")


def test_help_names_an_argument_alike_in_its_usage_and_its_list(cli: Cli) -> None:
    help_text = cli("bench -h").ok().stdout
    assert help_text.startswith("Usage: benchfarm bench [OPTIONS] MODELS...\n")
    assert "  MODELS...  " in help_text
    # All of them is what this command does by default.
    help_text = cli("results reparse -h").ok().stdout
    assert help_text.startswith("Usage: benchfarm results reparse [OPTIONS] [CAMPAIGNS...]\n")
    assert "(default: all campaigns)" in " ".join(help_text.split())
