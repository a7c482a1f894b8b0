"""A share is typed the same way wherever one is asked for."""

import pytest

from orchestrator.cli.result import share_of
from orchestrator.errors import UsageError
from tests.samples.command import Cli
from tests.samples.places import MODELS


@pytest.mark.parametrize("text", ["2%", "2 %", " 2 percent ", "2", "2.0"])
def test_a_percentage_is_a_hundredth(text: str) -> None:
    assert share_of(text, "--threshold", most=0.5) == 0.02


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("0.02", "may be meant as a percentage or as a share"),
        (".5", "may be meant as"),
        ("0%", "isn't between 0.01% and 50%"),
        ("60%", "isn't between 0.01% and 50%"),
        ("-1%", "isn't between"),
        ("nan", "isn't a percentage"),
        ("often", "--threshold: 'often' isn't a percentage"),
    ],
)
def test_what_is_no_share_is_refused(text: str, word: str) -> None:
    with pytest.raises(UsageError, match=word):
        share_of(text, "--threshold", most=0.5)


def test_what_may_be_meant_either_way_is_asked_for_again_in_both() -> None:
    with pytest.raises(UsageError) as raised:
        share_of("0.05", "--detect", most=0.5)
    assert "--detect: 0.05 may be meant as a percentage or as a share; write 0.05% or 5%" in str(raised.value)
    assert share_of("0.05%", "--detect", most=0.5) == pytest.approx(0.0005)


@pytest.mark.parametrize(
    "words",
    [
        ("compare", "--threshold"),
        ("compare", "--level"),
        ("ab", "build:a", "build:b", "-m", "m.tflite", "--detect"),
        ("bisect", "--good", "a@1a2b3c", "--bad", "a@4d5e6f", "-m", "m.tflite", "--detect"),
        ("history", "changes", "--threshold"),
        ("tune", str(min(MODELS.glob("*.tflite"))), "--alike"),
        ("tune", str(min(MODELS.glob("*.tflite"))), "--budget"),
        ("bench", str(min(MODELS.glob("*.tflite"))), "--precision"),
    ],
    ids=lambda words: f"{words[0]} {words[-1]}",
)
def test_every_command_takes_it_so(words: tuple[str, ...], tmp_path) -> None:
    refused = Cli(home=tmp_path)(*words, "0.03").ended_with(2)
    assert f"{words[-1]}: 0.03 may be meant as a percentage or as a share; write 0.03% or 3%" in refused.stderr
