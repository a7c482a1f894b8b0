"""Model files, sound and hostile."""

import json
import os
import re
import shutil
import struct
from functools import partial
from pathlib import Path

import flatbuffers
import pytest
from ai_edge_litert import schema_py_generated as schema
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.cli.output import to_json
from orchestrator.errors import ModelError
from orchestrator.extensions.models import cli as models_command
from orchestrator.models.inspect import identify_model, inspect_model, sample_models
from orchestrator.records.model import ModelFacts
from tests.samples.command import Cli

FLOAT, INT8 = sample_models()


def edited(source: Path, target: Path, edit) -> Path:
    """Write a copy of a model, changed through the runtime's own object interface."""
    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(source.read_bytes(), 0))
    edit(model)
    builder = flatbuffers.Builder(1 << 20)
    builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
    target.write_bytes(bytes(builder.Output()))
    return target


@pytest.mark.parametrize("path", [FLOAT, INT8])
def test_facts_agree_with_the_runtimes_own_reader(path):
    facts = inspect_model(path)
    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(path.read_bytes(), 0))
    graph = model.subgraphs[0]
    assert facts.operator_count == len(graph.operators)
    assert [t.name for t in facts.inputs] == [graph.tensors[i].name.decode() for i in graph.inputs]
    assert [list(t.shape) for t in facts.outputs] == [
        list(graph.tensors[i].shape) for i in graph.outputs
    ]
    metadata = {b.buffer for b in model.metadata}
    sizes = {
        i: len(b.data)
        for i, b in enumerate(model.buffers)
        if b.data is not None and i not in metadata
    }
    assert facts.weights_bytes == sum(sizes.values())
    (signature,) = facts.signatures
    assert (signature.key, signature.inputs, signature.outputs) == (
        "serving_default",
        ("image",),
        ("probabilities",),
    )


def test_int8_twin_is_told_from_the_float_model():
    facts = inspect_model(INT8)
    assert (inspect_model(FLOAT).inputs[0].dtype, facts.inputs[0].dtype) == ("float32", "int8")
    assert facts.inputs[0].scale == pytest.approx(2 / 255, rel=1e-3)


def test_custom_and_flex_operators_are_told_apart(tmp_path):
    def edit(model):
        softmax = model.subgraphs[0].operators[-1].opcodeIndex
        for name in ("FlexAddV2", "MyOwnOp"):
            code = schema.OperatorCodeT()
            code.builtinCode = code.deprecatedBuiltinCode = schema.BuiltinOperator.CUSTOM
            code.customCode = name
            model.operatorCodes.append(code)
            operator = schema.OperatorT()
            operator.opcodeIndex = len(model.operatorCodes) - 1
            operator.inputs, operator.outputs = [0], [1]
            model.subgraphs[0].operators.append(operator)
        assert softmax < len(model.operatorCodes)

    facts = inspect_model(edited(FLOAT, tmp_path / "m.tflite", edit))
    assert facts.flex_operators == ("FlexAddV2",)
    assert facts.custom_operators == ("MyOwnOp",)
    assert facts.operators["FlexAddV2"] == 1


def test_model_is_known_by_its_content_and_called_by_its_file_name(tmp_path):
    awkward = tmp_path / "-a b$(id)\n'\"é.tflite"
    shutil.copy(FLOAT, awkward)
    model = identify_model(awkward)
    assert model.name == "-a b$(id)\n'\"é"
    assert model.sha256 == identify_model(FLOAT).sha256
    assert model.size_bytes == FLOAT.stat().st_size
    assert identify_model(awkward, name="mine").name == "mine"


def test_other_content_than_the_one_that_is_meant_is_refused():
    sha256 = identify_model(FLOAT).sha256
    assert identify_model(FLOAT, sha256=sha256.upper()).sha256 == sha256
    with pytest.raises(ModelError, match=f"sha256 is {sha256}, expected was {'0' * 64}"):
        identify_model(FLOAT, sha256="0" * 64)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:1\n", "Git LFS pointer"),
        (b"<!doctype html><title>404</title>", "web page"),
        (b"abcdefghijkl", "lacks the mark TFL3"),
        (b"TFL3", "lacks the mark TFL3"),
        (b"\x1c\x00\x00\x00TFL3", "truncated or damaged"),
        (b"\x00\x00\x00\x00TFL3", "truncated or damaged"),
    ],
)
def test_what_is_no_model_is_refused_with_its_reason(tmp_path, content, message):
    path = tmp_path / "m.tflite"
    path.write_bytes(content)
    for read in (identify_model, inspect_model):
        with pytest.raises(ModelError, match=message):
            read(path)


def test_missing_file_folder_pipe_and_impossible_name_are_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path, message in (
        (tmp_path / "none.tflite", "No such file"),
        (tmp_path, "is a folder"),
        (tmp_path / "pipe", "no regular file"),
        (Path("a\0b"), "null"),
    ):
        with pytest.raises(ModelError, match=message):
            identify_model(path)


def test_every_truncation_is_refused(tmp_path):
    content = INT8.read_bytes()
    path = tmp_path / "m.tflite"
    for length in [*range(8, 200, 7), *range(200, len(content), 9973), len(content) - 1]:
        path.write_bytes(content[:length])
        with pytest.raises(ModelError, match=r"truncated or damaged: .* in the file") as refused:
            identify_model(path)
        assert "unpack" not in str(refused.value)


def assert_facts_or_model_error(path: Path) -> None:
    """Do all that a command does with a model that nobody vouches for."""
    try:
        told: object = inspect_model(path)
        json.loads(to_json(told))
        assert models_command._lines(told)
    except ModelError as error:
        told = error
    assert isinstance(told, ModelFacts) or "truncated or damaged" in str(told)


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_mutated_model_gives_facts_or_a_model_error(tmp_path_factory, data):
    content = bytearray(INT8.read_bytes())
    for _ in range(data.draw(st.integers(1, 12))):
        # Structure is dense at both ends; weights lie in the middle.
        place = data.draw(
            st.one_of(st.integers(8, 4000), st.integers(len(content) - 40_000, len(content) - 5))
        )
        value = data.draw(
            st.sampled_from([0, 1, 0x7F, 0x80, 0xFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 0xFFFFFFF0])
        )
        struct.pack_into("<I", content, place, value)
    if data.draw(st.booleans()):
        del content[data.draw(st.integers(8, len(content))) :]
    path = tmp_path_factory.mktemp("fuzz") / "m.tflite"
    path.write_bytes(content)
    assert_facts_or_model_error(path)


def test_open_shape_is_told_and_scale_that_is_no_number_is_left_out(tmp_path):
    def edit(model):
        tensor = model.subgraphs[0].tensors[model.subgraphs[0].inputs[0]]
        tensor.shapeSignature = [-1, 256, 256, 3]
        tensor.quantization.scale = [float("nan")]

    facts = inspect_model(edited(INT8, tmp_path / "m.tflite", edit))
    assert (facts.inputs[0].shape, facts.inputs[0].shape_signature) == (
        (1, 256, 256, 3),
        (-1, 256, 256, 3),
    )
    assert facts.inputs[0].scale is None
    json.loads(to_json(facts))


@pytest.fixture
def models(tmp_path):
    """``benchfarm model``."""
    return partial(Cli(home=tmp_path / "home"), "model")


def test_inspect_command_shows_operators_and_refuses_what_cannot_be(models, tmp_path):
    done = models("inspect", INT8)
    assert re.search(r"operators +30 in 1 subgraphs", done.stdout)
    assert models("inspect", INT8, "--json").json["inputs"][0]["dtype"] == "int8"
    (tmp_path / "m.tflite").write_bytes(INT8.read_bytes()[:5000])
    refused = models("inspect", tmp_path / "m.tflite")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "truncated or damaged" in refused.stderr
