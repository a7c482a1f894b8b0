"""The model reader: what it finds."""

from __future__ import annotations

from benchfarm_virtual.graph import read_graph


def test_reader_finds_operators_and_tensors(models):
    graph = read_graph(models.BY_NAME["tiny_cnn_float.tflite"]())
    main = graph.subgraphs[0]
    assert [op.name for op in main.operators] == ["CONV_2D", "MEAN", "FULLY_CONNECTED", "SOFTMAX"]
    assert main.tensors[main.inputs[0]].shape == (1, 16, 16, 3)
    assert main.tensors[main.inputs[0]].type_name == "FLOAT32"
    assert main.tensors[4].constant
    assert main.tensors[4].size_bytes == 8 * 3 * 3 * 3 * 4
