"""Small .tflite files, written with the published schema: real structure, a few hundred bytes of
weights."""

from __future__ import annotations

from collections.abc import Callable

import flatbuffers
from ai_edge_litert import schema_py_generated as schema

OPS = schema.BuiltinOperator
TYPES = schema.TensorType


class TinyModel:
    """A model being built, subgraph by subgraph."""

    def __init__(self) -> None:
        self.model = schema.ModelT()
        self.model.version = 3
        self.model.buffers = [schema.BufferT()]
        self.model.operatorCodes = []
        self.model.subgraphs = []
        self.model.signatureDefs = []
        self.subgraph("main")

    def subgraph(self, name: str) -> None:
        graph = schema.SubGraphT()
        graph.name = name
        graph.tensors, graph.operators, graph.inputs, graph.outputs = [], [], [], []
        self.model.subgraphs.append(graph)

    @property
    def graph(self):
        return self.model.subgraphs[-1]

    def tensor(
        self, name: str, shape: list[int], kind: int = TYPES.FLOAT32, data: bytes = b""
    ) -> int:
        tensor = schema.TensorT()
        tensor.name, tensor.shape, tensor.type, tensor.buffer = name, shape, kind, 0
        if data:
            buffer = schema.BufferT()
            buffer.data = list(data)
            self.model.buffers.append(buffer)
            tensor.buffer = len(self.model.buffers) - 1
        self.graph.tensors.append(tensor)
        return len(self.graph.tensors) - 1

    def weights(self, name: str, shape: list[int], kind: int = TYPES.FLOAT32) -> int:
        size = 4 if kind in {TYPES.FLOAT32, TYPES.INT32} else 1
        for n in shape:
            size *= n
        return self.tensor(name, shape, kind, bytes(i % 7 for i in range(size)))

    def op(
        self,
        code: int,
        inputs: list[int],
        outputs: list[int],
        *,
        custom: str = "",
        options: object = None,
    ) -> None:
        codes = self.model.operatorCodes
        index = next(
            (
                i
                for i, c in enumerate(codes)
                if c.builtinCode == code and (c.customCode or b"") == custom.encode()
            ),
            None,
        )
        if index is None:
            entry = schema.OperatorCodeT()
            entry.builtinCode, entry.deprecatedBuiltinCode, entry.version = code, min(code, 127), 1
            entry.customCode = custom.encode() or None
            codes.append(entry)
            index = len(codes) - 1
        operator = schema.OperatorT()
        operator.opcodeIndex, operator.inputs, operator.outputs = index, inputs, outputs
        if options is not None:
            operator.builtinOptions = options
            operator.builtinOptionsType = getattr(
                schema.BuiltinOptions, type(options).__name__.removesuffix("T")
            )
        self.graph.operators.append(operator)

    def signature(self, key: str, subgraph: int = 0) -> None:
        entry = schema.SignatureDefT()
        entry.signatureKey, entry.subgraphIndex, entry.inputs, entry.outputs = (
            key.encode(),
            subgraph,
            [],
            [],
        )
        self.model.signatureDefs.append(entry)

    def ends(self, inputs: list[int], outputs: list[int]) -> None:
        self.graph.inputs, self.graph.outputs = inputs, outputs

    def pack(self) -> bytes:
        builder = flatbuffers.Builder(1024)
        builder.Finish(self.model.Pack(builder), file_identifier=b"TFL3")
        return bytes(builder.Output())


def _cnn(kind: int, *, dynamic: bool, quantized_io: bool = False) -> bytes:
    m = TinyModel()
    name = "serving_default_keras_tensor_4:0" if dynamic else "serving_default_keras_tensor:0"
    image = m.tensor(name, [1, 128, 128, 3], TYPES.UINT8 if quantized_io else kind)
    x = image
    if quantized_io:
        x = m.tensor("quantized", [1, 128, 128, 3], kind)
        m.op(OPS.QUANTIZE, [image], [x])
    filters, bias = m.weights("filters", [8, 3, 3, 3], kind), m.weights("bias", [8], TYPES.INT32)
    y = m.tensor("net/conv1/relu", [1, 64, 64, 8], kind)
    m.op(OPS.CONV_2D, [x, filters, bias], [y], options=schema.Conv2DOptionsT())
    depth = m.weights("depth", [1, 3, 3, 8], kind)
    z = m.tensor("net/dw1/relu, relu", [1, 64, 64, 8], kind)
    m.op(OPS.DEPTHWISE_CONV_2D, [y, depth, bias], [z], options=schema.DepthwiseConv2DOptionsT())
    axes = m.tensor("axes", [2], TYPES.INT32, bytes(8))
    mean = m.tensor("net/pool/mean", [1, 8], kind)
    m.op(OPS.MEAN, [z, axes], [mean], options=schema.ReducerOptionsT())
    dense = m.weights("dense", [10, 8], kind)
    logits = m.tensor("net/dense", [1, 10], kind)
    m.op(OPS.FULLY_CONNECTED, [mean, dense, -1], [logits], options=schema.FullyConnectedOptionsT())
    if dynamic:
        shape, size = m.tensor("shape", [2], TYPES.INT32), m.tensor("size", [], TYPES.INT32)
        one = m.tensor("one", [1], TYPES.INT32, bytes(4))
        m.op(OPS.SHAPE, [logits], [shape])
        m.op(
            OPS.STRIDED_SLICE, [shape, one, one, one], [size], options=schema.StridedSliceOptionsT()
        )
        wanted = m.tensor("wanted", [2], TYPES.INT32)
        m.op(OPS.PACK, [size, one], [wanted], options=schema.PackOptionsT())
        reshaped = m.tensor("reshaped", [1, 10], kind)
        m.op(OPS.RESHAPE, [logits, wanted], [reshaped])
        logits = reshaped
    out = m.tensor("StatefulPartitionedCall:0", [1, 10], kind)
    m.op(OPS.SOFTMAX, [logits], [out], options=schema.SoftmaxOptionsT())
    m.ends([image], [out])
    m.signature("serving_default")
    return m.pack()


def tiny_cnn() -> bytes:
    """CONV_2D, MEAN, FULLY_CONNECTED, SOFTMAX, with the tensors of the recorded tiny model."""
    m = TinyModel()
    image = m.tensor("serving_default_keras_tensor:0", [1, 16, 16, 3])
    dense = m.weights("functional_1/dense_1/MatMul", [10, 8])
    axes = m.tensor("functional_1/global_average_pooling2d/axes", [2], TYPES.INT32, bytes(8))
    bias = m.weights("arith.constant", [8])
    filters = m.weights("functional_1/conv2d_1/convolution", [8, 3, 3, 3])
    x = m.tensor("functional_1/conv2d_1/Relu;functional_1", [1, 14, 14, 8])
    m.op(OPS.CONV_2D, [image, filters, bias], [x], options=schema.Conv2DOptionsT())
    mean = m.tensor("functional_1/global_average_pooling2d/Mean", [1, 8])
    m.op(OPS.MEAN, [x, axes], [mean], options=schema.ReducerOptionsT())
    logits = m.tensor("functional_1/dense_1/MatMul;bias", [1, 10])
    m.op(OPS.FULLY_CONNECTED, [mean, dense, -1], [logits], options=schema.FullyConnectedOptionsT())
    out = m.tensor("StatefulPartitionedCall_1:0", [1, 10])
    m.op(OPS.SOFTMAX, [logits], [out], options=schema.SoftmaxOptionsT())
    m.ends([image], [out])
    m.signature("serving_default")
    return m.pack()


def partial() -> bytes:
    """CONV_2D, CUMSUM, CONV_2D, MEAN, TOPK_V2: XNNPACK takes two pieces, the GPU all but the last
    operator."""
    m = TinyModel()
    x = m.tensor("image", [1, 16, 16, 8])
    weights, bias = m.weights("filters", [8, 3, 3, 8]), m.weights("bias", [8], TYPES.INT32)
    axis = m.tensor("axis", [1], TYPES.INT32, bytes(4))
    image, names = x, ["conv_a", "cumsum", "conv_b"]
    for name in names:
        y = m.tensor(name, [1, 16, 16, 8])
        if name == "cumsum":
            m.op(OPS.CUMSUM, [x, axis], [y], options=schema.CumsumOptionsT())
        else:
            m.op(OPS.CONV_2D, [x, weights, bias], [y], options=schema.Conv2DOptionsT())
        x = y
    mean = m.tensor("mean", [1, 8])
    m.op(OPS.MEAN, [x, axis], [mean], options=schema.ReducerOptionsT())
    values, indices = m.tensor("values", [1, 3]), m.tensor("indices", [1, 3], TYPES.INT32)
    m.op(OPS.TOPK_V2, [mean, axis], [values, indices])
    m.ends([image], [values, indices])
    return m.pack()


def adds(custom: str = "") -> bytes:
    """Three ADDs, or one custom operator of a name."""
    m = TinyModel()
    x = m.tensor("x", [1, 8, 8, 3])
    last = x
    for i in range(1 if custom else 3):
        y = m.tensor(f"y{i}", [1, 8, 8, 3])
        m.op(OPS.CUSTOM if custom else OPS.ADD, [last, x], [y], custom=custom)
        last = y
    m.ends([x], [last])
    m.signature("serving_default")
    return m.pack()


def gather() -> bytes:
    """An embedding lookup: GATHER of a constant table."""
    m = TinyModel()
    ids, table = m.tensor("ids", [1, 10], TYPES.INT32), m.weights("table", [50, 8])
    out = m.tensor("embedding", [1, 10, 8])
    m.op(OPS.GATHER, [table, ids], [out], options=schema.GatherOptionsT())
    m.ends([ids], [out])
    return m.pack()


#: Models by the names that the recorded outputs call them by.
def while_loop() -> bytes:
    """A WHILE with its condition and body; no delegate takes the loop itself."""
    m = TinyModel()
    x, out = m.tensor("x", [1, 8]), m.tensor("out", [1, 8])
    options = schema.WhileOptionsT()
    options.condSubgraphIndex, options.bodySubgraphIndex = 1, 2
    m.op(OPS.WHILE, [x], [out], options=options)
    m.ends([x], [out])
    m.subgraph("while_cond")
    a, flag = m.tensor("a", [1], TYPES.INT32), m.tensor("flag", [1], TYPES.BOOL)
    m.op(OPS.LESS, [a, a], [flag])
    m.ends([a], [flag])
    m.subgraph("while_body")
    b, c = m.tensor("b", [1, 8], TYPES.INT32), m.tensor("c", [1, 8], TYPES.INT32)
    m.op(OPS.ADD, [b, b], [c])
    m.ends([b], [c])
    return m.pack()


BY_NAME: dict[str, Callable[[], bytes]] = {
    "mobilenet_v1_0.25_128_float.tflite": lambda: _cnn(TYPES.FLOAT32, dynamic=True),
    "mobilenet_v1_1.0_224_float.tflite": lambda: _cnn(TYPES.FLOAT32, dynamic=True),
    "mobilenet_v1_0.25_128_static_float.tflite": lambda: _cnn(TYPES.FLOAT32, dynamic=False),
    "mobilenet_v1_1.0_224_static_float.tflite": lambda: _cnn(TYPES.FLOAT32, dynamic=False),
    "mobilenet_v1_0.25_128_int8.tflite": lambda: _cnn(TYPES.INT8, dynamic=True),
    "mobilenet_v1_0.25_128_static_uint8io.tflite": lambda: _cnn(
        TYPES.INT8, dynamic=False, quantized_io=True
    ),
    "tiny_cnn_float.tflite": tiny_cnn,
    "partial_xnnpack.tflite": partial,
    "multi_add.bin": adds,
    "custom_sinh.bin": lambda: adds("Sinh"),
    "multi_add_flex.bin": lambda: adds("FlexAddV2"),
    "embedding_gather.tflite": gather,
    "while_loop.tflite": while_loop,
}
