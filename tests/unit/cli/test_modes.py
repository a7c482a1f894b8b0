"""An option that means nothing in the way a command is used is refused: nobody takes it for heard."""

import pytest
from typer.main import get_command

from orchestrator.cli.declared.comparing import OF_STORED, OF_TURNS
from orchestrator.cli.frame import app
from tests.samples.command import Cli
from tests.samples.places import MODELS, REPO

MODEL = str(min(MODELS.glob("*.tflite")))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("compare", "a", "b", "--model", MODEL), "--model means nothing without --ab"),
        (("compare", "a", "b", "-s", "SERIAL"), "--device means nothing without --ab"),
        (("compare", "--ab", "build:a", "build:b", "--threshold", "2%"), "--threshold means nothing with --ab"),
        (("compare", "a", "b", "--campaign", "c"), "--campaign is for --by"),
        (("tune", "--campaign", "a", "--alike", "5%"), "--alike means nothing with --campaign"),
        (("run", str(REPO / "examples" / "plan.yaml"), "--campaign", "a"), "--campaign goes with --resume"),
    ],
)
def test_it_is_named(words: tuple[str, ...], said: str, tmp_path) -> None:
    assert said in Cli(home=tmp_path)(*words).ended_with(2).stderr


def test_every_option_of_compare_counts_with_ab_or_without() -> None:
    options = {item.name for item in get_command(app).commands["compare"].params}
    assert options - OF_STORED - OF_TURNS == {"sides", "form", "out", "fail_on", "ab", "as_json"}
    assert not OF_STORED & OF_TURNS
