"""An option that means nothing in the way a command is used is refused: nobody takes it for heard."""

import pytest

from tests.samples.command import Cli
from tests.samples.places import MODELS, REPO

MODEL = str(min(MODELS.glob("*.tflite")))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("compare", "a", "b", "--campaign", "c"), "--campaign is for --by"),
        (("tune", "--campaign", "a", "--alike", "5%"), "--alike means nothing with --campaign"),
        (("run", str(REPO / "examples" / "plan.yaml"), "--campaign", "a"), "--campaign goes with --resume"),
    ],
)
def test_it_is_named(words: tuple[str, ...], said: str, tmp_path) -> None:
    assert said in Cli(home=tmp_path)(*words).ended_with(2).stderr
