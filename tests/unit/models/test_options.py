"""The places of operators' options, held against the runtime's own schema."""

import flatbuffers
import pytest
from ai_edge_litert import schema_py_generated as schema

from orchestrator.models.flatbuffer import FlatBuffer
from orchestrator.models.graph import OPTIONS, operator_name, read_graph

#: Our names of fields -> the schema's.
FIELDS = {
    "activation": "fusedActivationFunction", "stride_w": "strideW", "stride_h": "strideH", "beta": "beta",
    "dilation_w": "dilationWFactor", "dilation_h": "dilationHFactor", "depth_multiplier": "depthMultiplier",
    "filter_width": "filterWidth", "filter_height": "filterHeight", "block_size": "blockSize",
    "weights_format": "weightsFormat", "keep_num_dims": "keepNumDims", "kernel_type": "kernelType",
    "align_corners": "alignCorners", "half_pixel_centers": "halfPixelCenters", "keep_dims": "keepDims",
    "ellipsis_mask": "ellipsisMask", "new_axis_mask": "newAxisMask", "shrink_axis_mask": "shrinkAxisMask",
    "num_splits": "numSplits", "mode": "mode", "adj_x": "adjX", "adj_y": "adjY",
    "axis": "axis", "lsh_type": "type",
}  # fmt: skip
TABLES = {
    "ADD": "AddOptions", "AVERAGE_POOL_2D": "Pool2DOptions", "CONCATENATION": "ConcatenationOptions",
    "CONV_2D": "Conv2DOptions", "DEPTHWISE_CONV_2D": "DepthwiseConv2DOptions", "DEPTH_TO_SPACE": "DepthToSpaceOptions",
    "FULLY_CONNECTED": "FullyConnectedOptions", "L2_NORMALIZATION": "L2NormOptions", "L2_POOL_2D": "Pool2DOptions",
    "LSTM": "LSTMOptions", "MAX_POOL_2D": "Pool2DOptions", "MUL": "MulOptions",
    "RESIZE_BILINEAR": "ResizeBilinearOptions", "SOFTMAX": "SoftmaxOptions", "SPACE_TO_DEPTH": "SpaceToDepthOptions",
    "MEAN": "ReducerOptions", "SUB": "SubOptions", "DIV": "DivOptions", "STRIDED_SLICE": "StridedSliceOptions",
    "SPLIT": "SplitOptions", "TRANSPOSE_CONV": "TransposeConvOptions", "SUM": "ReducerOptions",
    "REDUCE_MAX": "ReducerOptions", "RESIZE_NEAREST_NEIGHBOR": "ResizeNearestNeighborOptions",
    "MIRROR_PAD": "MirrorPadOptions", "BATCH_MATMUL": "BatchMatMulOptions",
    "PACK": "PackOptions", "UNPACK": "UnpackOptions", "LSH_PROJECTION": "LSHProjectionOptions",
}  # fmt: skip
NAMES = {number: name for name, number in vars(schema.BuiltinOperator).items() if isinstance(number, int)}


def written(path, code: int, options, version: int = 1):
    """Write a model of one operator through the schema's object interface and return how we read that operator."""
    model, subgraph, tensor, operator = schema.ModelT(), schema.SubGraphT(), schema.TensorT(), schema.OperatorT()
    kind = schema.OperatorCodeT()
    kind.builtinCode, kind.deprecatedBuiltinCode, kind.version = code, min(code, 127), version
    tensor.shape, operator.inputs, operator.outputs = [1], [0], [0]
    if options is not None:
        operator.builtinOptions = options
        operator.builtinOptionsType = getattr(schema.BuiltinOptions, type(options).__name__.removesuffix("T"))
    subgraph.tensors, subgraph.operators, subgraph.inputs, subgraph.outputs = [tensor], [operator], [0], [0]
    model.version, model.operatorCodes, model.subgraphs = 3, [kind], [subgraph]
    model.buffers = [schema.BufferT()]
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
    path.write_bytes(bytes(builder.Output()))
    with path.open("rb") as stream:
        return read_graph(FlatBuffer(stream.fileno(), path.stat().st_size)).subgraphs[0].operators[0]


@pytest.mark.parametrize("code", OPTIONS, ids=lambda code: NAMES[code])
def test_options_are_read_from_where_the_schema_has_them(code, tmp_path):
    options = getattr(schema, f"{TABLES[NAMES[code]]}T")()
    values = {}
    for number, name in enumerate(OPTIONS[code]):
        layout = OPTIONS[code][name][1]
        is_boolean = isinstance(getattr(options, FIELDS[name]), bool)
        values[name] = 0.5 if layout == "<f" else 1 if is_boolean else number + 2
        setattr(options, FIELDS[name], True if is_boolean else values[name])
    operator = written(tmp_path / "m.tflite", code, options, version=7)
    assert operator.options == values
    assert (operator_name(operator), operator.version) == (NAMES[code], 7)


@pytest.mark.parametrize("code", OPTIONS, ids=lambda code: NAMES[code])
def test_absent_fields_have_the_schemas_defaults(code, tmp_path):
    options = getattr(schema, f"{TABLES[NAMES[code]]}T")()
    defaults = {name: getattr(options, FIELDS[name]) for name in OPTIONS[code]}
    assert written(tmp_path / "m.tflite", code, options).options == defaults
