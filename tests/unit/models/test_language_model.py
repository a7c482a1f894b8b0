"""Models of other runtimes and bundles of language models: known by how they begin."""

from pathlib import Path

import pytest

from orchestrator.errors import ModelError
from orchestrator.models.inspect import identify_model

TINY = Path(__file__).parents[2] / "data" / "language_model" / "tiny.litertlm"


def test_a_bundle_is_known_by_its_name_and_how_it_begins(tmp_path: Path) -> None:
    assert identify_model(TINY).name == "tiny"
    path = tmp_path / "model.tflite"
    path.write_bytes(TINY.read_bytes())
    with pytest.raises(
        ModelError, match=r"is a language model's bundle.* name end with \.litertlm"
    ):
        identify_model(path)


@pytest.mark.parametrize("ending", ["litertlm", "task", "gguf", "pte", "ort", "param"])
def test_a_file_that_is_not_what_its_ending_says_is_refused(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"model.{ending}"
    path.write_bytes(b"<html>not found</html>")
    with pytest.raises(ModelError, match=rf"is no \.{ending} file"):
        identify_model(path)
