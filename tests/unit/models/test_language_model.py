"""Bundles of language models: what they hold, and how damaged ones are told."""

import zipfile
from pathlib import Path

import pytest

from orchestrator.errors import ModelError
from orchestrator.models.foreign import inspect_bundle
from orchestrator.models.inspect import identify_model

TINY = Path(__file__).parents[2] / "data" / "language_model" / "tiny.litertlm"


def test_a_bundle_tells_its_sections_context_and_tokenizer() -> None:
    facts = inspect_bundle(TINY)
    assert (facts.form, facts.version, facts.context_tokens, facts.family) == (
        "litertlm",
        "1.7.0",
        256,
        "generic",
    )
    assert (facts.tokenizer, facts.size_bytes) == ("sentencepiece", TINY.stat().st_size)
    assert [(section.kind, section.role) for section in facts.sections] == [
        ("metadata", ""), ("tflite", "tf_lite_prefill_decode"), ("sentencepiece tokenizer", ""),
    ]  # fmt: skip
    assert identify_model(TINY).name == "tiny"


@pytest.mark.parametrize("size", [9, 33, 200, 20_000, 82_000])
def test_a_bundle_that_was_cut_off_is_damaged(tmp_path: Path, size: int) -> None:
    path = tmp_path / "cut.litertlm"
    path.write_bytes(TINY.read_bytes()[:size])
    with pytest.raises(ModelError, match="truncated or damaged"):
        identify_model(path)


def test_a_bundle_under_another_name_is_told_by_its_content(tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(TINY.read_bytes())
    with pytest.raises(ModelError, match="is a language model's bundle") as raised:
        identify_model(path)
    assert raised.value.hint == "name it model.litertlm"


def test_a_task_file_is_a_bundle_and_another_zip_is_none(tmp_path: Path) -> None:
    path = tmp_path / "model.task"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("TF_LITE_PREFILL_DECODE", b"TFL3")
        archive.writestr("TOKENIZER_MODEL", b"x")
        # max_num_tokens 1280 in field 5, family 5 (qwen3) in field 6.
        archive.writestr("METADATA", bytes([5 << 3, 0x80, 0x0A, 6 << 3 | 2, 2, 5 << 3 | 2, 0]))
    facts = inspect_bundle(path)
    assert (facts.form, facts.context_tokens, facts.family, facts.tokenizer) == (
        "task",
        1280,
        "qwen3",
        "sentencepiece",
    )
    other = tmp_path / "app.apk"
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr("classes.dex", b"")
    with pytest.raises(ModelError, match="is no TFLite model: it is a zip archive"):
        identify_model(other)
