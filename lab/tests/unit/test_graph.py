"""The model reader: what it finds, and that no damaged file gets past it or brings it down."""

from __future__ import annotations

import random

import pytest

from benchfarm_lab.graph import OPERATOR_NAMES, MalformedModelError, read_graph


def test_operator_names_are_those_of_the_published_schema():
    from ai_edge_litert import schema_py_generated as schema

    published = {v: k for k, v in vars(schema.BuiltinOperator).items() if not k.startswith("_")}
    assert dict(enumerate(OPERATOR_NAMES)) == published


def test_tensor_types_are_those_of_the_published_schema():
    from ai_edge_litert import schema_py_generated as schema

    from benchfarm_lab.graph import TENSOR_TYPES

    published = {v: k for k, v in vars(schema.TensorType).items() if not k.startswith("_")}
    assert {number: name for number, (name, _) in enumerate(TENSOR_TYPES)} == published


def test_reader_finds_operators_tensors_and_signatures(models):
    graph = read_graph(models.BY_NAME["tiny_cnn_float.tflite"]())
    main = graph.subgraphs[0]
    assert [op.name for op in main.operators] == ["CONV_2D", "MEAN", "FULLY_CONNECTED", "SOFTMAX"]
    assert main.tensors[main.inputs[0]].shape == (1, 16, 16, 3)
    assert main.tensors[main.inputs[0]].type_name == "FLOAT32"
    assert main.tensors[4].constant
    assert main.tensors[4].size_bytes == 8 * 3 * 3 * 3 * 4
    assert [s.key for s in graph.signatures] == ["serving_default"]


def test_multiply_adds_follow_from_shapes(models):
    main = read_graph(models.BY_NAME["tiny_cnn_float.tflite"]()).subgraphs[0]
    conv, mean, dense, softmax = (main.macs(op) for op in main.operators)
    assert conv == 14 * 14 * 8 * 3 * 3 * 3
    assert mean == 14 * 14 * 8
    assert dense == 10 * 8
    assert softmax == 10


def test_subgraphs_of_a_loop_are_found(models):
    graph = read_graph(models.BY_NAME["while_loop.tflite"]())
    assert [s.name for s in graph.subgraphs] == ["main", "while_cond", "while_body"]
    assert graph.subgraphs[0].operators[0].subgraphs == (1, 2)


def test_custom_operators_have_their_own_names(models):
    operator = read_graph(models.BY_NAME["multi_add_flex.bin"]()).subgraphs[0].operators[0]
    assert operator.custom
    assert operator.name == "FlexAddV2"


def test_the_same_bytes_give_the_same_graph_object(models):
    content = models.BY_NAME["partial_xnnpack.tflite"]()
    assert read_graph(content) is read_graph(bytes(content))


@pytest.mark.parametrize("name", ["tiny_cnn_float.tflite", "while_loop.tflite", "multi_signature.tflite"])
def test_every_truncation_is_refused_and_none_escapes(models, name):
    whole = models.BY_NAME[name]()
    read_graph(whole)
    refused = 0
    for length in range(0, len(whole) - 1, 3):
        try:
            read_graph(whole[:length])
        except MalformedModelError:
            refused += 1
    assert refused == len(range(0, len(whole) - 1, 3))


def test_flipped_bytes_are_read_or_refused_but_never_escape(models):
    chooser = random.Random(7)
    whole = models.BY_NAME["partial_xnnpack.tflite"]()
    outcomes = {"read": 0, "refused": 0}
    for _ in range(1500):
        damaged = bytearray(whole)
        for _ in range(chooser.randint(1, 4)):
            damaged[chooser.randrange(len(damaged))] = chooser.randrange(256)
        try:
            graph = read_graph(bytes(damaged))
            for subgraph in graph.subgraphs:
                for operator in subgraph.operators:
                    assert subgraph.macs(operator) >= 0
            outcomes["read"] += 1
        except MalformedModelError:
            outcomes["refused"] += 1
    assert min(outcomes.values()) > 100


@pytest.mark.parametrize(
    "content", [b"", b"TFL3", b"\0\0\0\0TFL3", b"\xff" * 64, b"\x08\0\0\0TFL3" + b"\xff" * 64, b"PK\3\4" * 40]
)
def test_other_files_are_refused(content):
    with pytest.raises(MalformedModelError):
        read_graph(content)
