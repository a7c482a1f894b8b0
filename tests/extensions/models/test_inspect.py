"""Model files, sound and hostile."""

import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
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
    assert facts.schema_version == model.version
    assert facts.description == model.description.decode()
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


def test_multiply_adds_are_those_of_a_quarter_width_mobilenet():
    # By hand, from the layers' shapes: h*w*out*kh*kw*in (h*w*c*kh*kw for depthwise ones).
    pairs = [
        (16, 1),
        (32, 2),
        (32, 1),
        (64, 2),
        (64, 1),
        (128, 2),
        *[(128, 1)] * 5,
        (256, 2),
        (256, 1),
    ]
    side, channels = 128, 8
    expected = side * side * 8 * 27
    for wider, stride in pairs:
        side //= stride
        expected += side * side * channels * 9 + side * side * channels * wider
        channels = wider
    expected += 256 * 64
    assert inspect_model(FLOAT).multiply_adds == inspect_model(INT8).multiply_adds == expected


@pytest.mark.parametrize(
    ("name", "shape", "inputs"),
    [("CONV_3D", [1, 1, 1, 256, 64], (0, 1)), ("CONV_3D_TRANSPOSE", [1, 1, 1, 64, 256], (2, 1, 0))],
)
def test_convolutions_in_space_count_as_the_product_that_they_are(tmp_path, name, shape, inputs):
    def edit(model):
        graph = model.subgraphs[0]
        layer = next(
            item for item in graph.operators if len(graph.tensors[item.inputs[1]].shape) == 2
        )
        code = model.operatorCodes[layer.opcodeIndex]
        code.builtinCode, code.deprecatedBuiltinCode = getattr(schema.BuiltinOperator, name), 127
        graph.tensors[layer.inputs[1]].shape = shape
        layer.inputs = [layer.inputs[place] for place in inputs]

    facts = inspect_model(edited(FLOAT, tmp_path / "m.tflite", edit))
    assert facts.multiply_adds == inspect_model(FLOAT).multiply_adds


def test_int8_twin_is_told_from_the_float_model():
    assert inspect_model(FLOAT).precision == "float32"
    facts = inspect_model(INT8)
    assert (facts.precision, facts.inputs[0].dtype) == ("int8", "int8")
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
    with pytest.raises(ModelError, match=f"sha256 is {sha256}, not {'0' * 64}"):
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


def test_a_model_larger_than_the_memory_that_it_may_take_is_read_without_holding_it(tmp_path):
    def edit(model):
        weights = max((b for b in model.buffers if b.data is not None), key=lambda b: len(b.data))
        weights.data, weights.offset, weights.size = None, 1 << 20, 250_000_000

    path = edited(FLOAT, tmp_path / "m.tflite", edit)
    with path.open("r+b") as stream:
        stream.truncate((1 << 20) + 250_000_000)
    code = (
        "import sys; from pathlib import Path; from orchestrator.models.inspect import *\n"
        "facts = inspect_model(Path(sys.argv[1])); assert facts.weights_bytes > 250_000_000\n"
        "assert identify_model(Path(sys.argv[1])).size_bytes > 250_000_000\n"
        # Not getrusage: a program that is started inherits the highest figure of whoever started
        # it.
        "print(next(line for line in open('/proc/self/status') if line.startswith('VmHWM')).split()[1])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, path], capture_output=True, text=True, timeout=120, check=True
    )
    assert int(done.stdout) < 150_000  # kB, nearly all of it Python and the schema's names
    with path.open("r+b") as stream:
        stream.truncate((1 << 20) + 200_000_000)
    with pytest.raises(ModelError, match="truncated or damaged"):
        inspect_model(path)


def test_a_large_model_that_cant_be_copied_says_so(tmp_path, monkeypatch):
    path = tmp_path / "large.tflite"
    path.write_bytes(INT8.read_bytes())
    os.truncate(path, 65 << 20)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    with pytest.raises(
        ModelError,
        match=r"a large model is copied to .*none before it is read, which fails: No such",
    ):
        identify_model(path)


def test_metadata_and_parameters_are_told():
    facts, quantised = inspect_model(FLOAT), inspect_model(INT8)
    assert (facts.metadata["min_runtime_version"], facts.min_runtime_version) == (16, "1.6.0")
    assert facts.parameters == quantised.parameters == 226_784


@pytest.mark.parametrize(("name", "bits"), [("INT4", 4), ("UINT4", 4), ("INT2", 2)])
def test_weights_quantised_by_block_count_as_what_they_stand_for(tmp_path, name, bits):
    def edit(model):
        graph = model.subgraphs[0]
        weights = next(tensor for tensor in graph.tensors if list(tensor.shape) == [64, 256])
        weights.type = getattr(schema.TensorType, name)
        model.buffers[weights.buffer].data = [0] * (64 * 256 * bits // 8)
        weights.quantization = schema.QuantizationParametersT()
        weights.quantization.detailsType = schema.QuantizationDetails.BlockwiseQuantization
        weights.quantization.details = schema.BlockwiseQuantizationT()
        weights.quantization.details.blockSize = 32

    plain, facts = inspect_model(FLOAT), inspect_model(edited(FLOAT, tmp_path / "m.tflite", edit))
    assert facts.parameters == plain.parameters
    assert facts.tensors[name.lower()] == 1
    assert facts.weights_bytes == plain.weights_bytes - 64 * 256 * 4 + 64 * 256 * bits // 8


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
    assert re.search(r"parameters +0\.227 million\nmultiply-adds +53\.3 million\n", done.stdout)
    assert models("inspect", INT8, "--json").json["precision"] == "int8"
    (tmp_path / "m.tflite").write_bytes(INT8.read_bytes()[:5000])
    refused = models("inspect", tmp_path / "m.tflite")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "truncated or damaged" in refused.stderr
