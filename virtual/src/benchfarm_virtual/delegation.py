"""Which operators each delegate takes, and how a graph is cut up for them.

Operator support follows the public documentation of the delegates; the order of execution is cut as
TensorFlow Lite cuts it: nodes of one kind are gathered as long as all they read is there, so that
partitions are as few as possible.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from benchfarm_virtual.graph import Operator, Subgraph
from benchfarm_virtual.profiles import AcceleratorSpec

XNNPACK: Final = "TfLiteXNNPackDelegate"
GPU: Final = "TfLiteGpuDelegateV2"
NNAPI: Final = "TfLiteNnapiDelegate"
HEXAGON: Final = "TfLiteHexagonDelegate"
NPU: Final = "DispatchDelegate"
FLEX: Final = "TfLiteFlexDelegate"


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_FLOAT_OPS: Final = _names(
    """ABS ADD AVERAGE_POOL_2D BATCH_MATMUL CEIL CONCATENATION CONV_2D DEPTH_TO_SPACE DEPTHWISE_CONV_2D DEQUANTIZE DIV
    ELU EXP EXPAND_DIMS FLOOR FULLY_CONNECTED GELU HARD_SWISH LEAKY_RELU LOG LOGISTIC MAXIMUM MAX_POOL_2D MEAN MINIMUM
    MUL
    NEG PAD PRELU QUANTIZE RELU RELU6 RELU_N1_TO_1 RESHAPE RESIZE_BILINEAR ROUND RSQRT SIN SLICE SOFTMAX SPACE_TO_DEPTH
    SPLIT SQRT SQUARE SQUARED_DIFFERENCE STRIDED_SLICE SUB SUM TANH TRANSPOSE TRANSPOSE_CONV"""
)
_INT8_OPS: Final = _FLOAT_OPS - _names(
    """ABS BATCH_MATMUL CEIL DIV EXP FLOOR GELU HARD_SWISH LOG MINIMUM NEG PRELU RELU_N1_TO_1 ROUND RSQRT SIN SOFTMAX
    SQRT SQUARE SQUARED_DIFFERENCE STRIDED_SLICE SUM"""
)
_GPU_OPS: Final = _names(
    """ADD AVERAGE_POOL_2D BATCH_MATMUL CAST CONCATENATION CONV_2D COS CUMSUM DEPTH_TO_SPACE DEPTHWISE_CONV_2D
    DEQUANTIZE DIV ELU EQUAL EXP FLOOR FLOOR_DIV FLOOR_MOD FULLY_CONNECTED GATHER GELU GREATER GREATER_EQUAL HARD_SWISH
    LEAKY_RELU
    LESS LESS_EQUAL LOG LOGICAL_AND LOGISTIC LSTM MAXIMUM MAX_POOL_2D MEAN MINIMUM MIRROR_PAD MUL NEG NOT_EQUAL ONE_HOT
    PACK PAD POW PRELU QUANTIZE REDUCE_MAX REDUCE_MIN REDUCE_PROD RELU RELU6 RELU_N1_TO_1 RESHAPE RESIZE_BILINEAR
    RESIZE_NEAREST_NEIGHBOR RSQRT SELECT SELECT_V2 SIGN SIN SLICE SOFTMAX SPACE_TO_DEPTH SPLIT SPLIT_V SQRT SQUARE
    SQUARED_DIFFERENCE STRIDED_SLICE SUB SUM TANH TILE TRANSPOSE TRANSPOSE_CONV UNPACK"""
)
_NNAPI_OPS: Final = _names(
    """ABS ADD ARG_MAX ARG_MIN AVERAGE_POOL_2D CONCATENATION CONV_2D DEPTH_TO_SPACE DEPTHWISE_CONV_2D DEQUANTIZE DIV ELU
    EXP FLOOR FULLY_CONNECTED GATHER HARD_SWISH L2_NORMALIZATION LOCAL_RESPONSE_NORMALIZATION LOG LOGISTIC MAXIMUM
    MAX_POOL_2D MEAN MINIMUM MUL NEG PAD PRELU QUANTIZE RELU RELU6 RELU_N1_TO_1 RESHAPE RESIZE_BILINEAR
    RESIZE_NEAREST_NEIGHBOR RSQRT SIN SLICE SOFTMAX SPACE_TO_DEPTH SPLIT SQRT SQUEEZE STRIDED_SLICE SUB TANH TOPK_V2
    TRANSPOSE TRANSPOSE_CONV"""
)
_HEXAGON_OPS: Final = _names(
    """ADD ARG_MAX ARG_MIN AVERAGE_POOL_2D CONCATENATION CONV_2D DEPTH_TO_SPACE DEPTHWISE_CONV_2D FULLY_CONNECTED
    HARD_SWISH L2_NORMALIZATION LOGISTIC MAXIMUM MAX_POOL_2D MEAN MINIMUM MIRROR_PAD MUL NEG PACK PAD QUANTIZE RELU
    RELU6
    RELU_N1_TO_1 RESHAPE RESIZE_BILINEAR RESIZE_NEAREST_NEIGHBOR SLICE SOFTMAX SPACE_TO_DEPTH SPLIT SQUARED_DIFFERENCE
    STRIDED_SLICE SUB TANH TRANSPOSE TRANSPOSE_CONV"""
)
#: XNNPACK takes them where weights or shape are in the model.
_WITH_CONSTANT: Final = _names("CONV_2D DEPTHWISE_CONV_2D TRANSPOSE_CONV RESHAPE")
_FLOAT_TYPES: Final = frozenset({"FLOAT32", "FLOAT16"})
_QUANTIZED_TYPES: Final = frozenset({"INT8", "UINT8"})


def data_type(subgraph: Subgraph, operator: Operator) -> str:
    """Return the type that an operator computes in: that of its first input, or of its output for
    DEQUANTIZE.
    """
    tensors = subgraph.operator_inputs(operator) or subgraph.operator_outputs(operator)
    return tensors[0].type_name if tensors else "FLOAT32"


def xnnpack_takes(subgraph: Subgraph, operator: Operator) -> bool:
    """Whether the XNNPACK delegate takes an operator."""
    if operator.name in _WITH_CONSTANT and len(operator.inputs) > 1:
        second = subgraph.tensor(operator.inputs[1])
        if second is None or not second.constant:
            return False
    kind = data_type(subgraph, operator)
    if kind in _QUANTIZED_TYPES:
        return operator.name in _INT8_OPS
    return kind in _FLOAT_TYPES and operator.name in _FLOAT_OPS


def gpu_objection(subgraph: Subgraph, operator: Operator, *, quantized: bool) -> str | None:
    """Return why the GPU delegate doesn't take an operator, in its words; None when it does."""
    if operator.name not in _GPU_OPS:
        return "Operation is not supported."
    computed = [
        t for t in subgraph.operator_inputs(operator) if not t.constant
    ] + subgraph.operator_outputs(operator)
    allowed = _FLOAT_TYPES | (_QUANTIZED_TYPES if quantized else frozenset())
    if any(t.type_name not in allowed or len(t.shape) > 4 for t in computed):
        return "OP is supported, but tensor type/shape isn't compatible."
    return None


def accelerator_takes(
    subgraph: Subgraph, operator: Operator, device: AcceleratorSpec, *, hexagon: bool
) -> bool:
    """Whether a device behind NNAPI (or the Hexagon delegate) takes an operator."""
    if operator.name not in (_HEXAGON_OPS if hexagon else _NNAPI_OPS):
        return False
    kind = data_type(subgraph, operator)
    if operator.name == "QUANTIZE":
        kind = "INT8"
    if kind in _QUANTIZED_TYPES:
        return device.int8_gmacs > 0
    return kind in _FLOAT_TYPES and device.f32_gmacs > 0 and not hexagon


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanNode:
    """A node that the interpreter knows: an operator of the model, or a delegate's kernel in place
    of several.
    """

    node_id: int
    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    operator: Operator | None = None
    #: The delegate whose kernel it is, and the nodes that it stands for.
    delegate: str = ""
    replaced: tuple[int, ...] = ()


@dataclass(slots=True)
class SubgraphPlan:
    """One subgraph's nodes and the order in which they are executed, changed as delegates are
    applied.
    """

    subgraph: Subgraph
    index: int
    nodes: list[PlanNode] = field(default_factory=list)
    execution: list[int] = field(default_factory=list)
    #: Node -> the delegate kernel that replaced it.
    delegated: dict[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, subgraph: Subgraph, index: int) -> SubgraphPlan:
        """Return the plan of a subgraph before any delegate."""
        nodes = [
            PlanNode(node_id=i, name=op.name, inputs=op.inputs, outputs=op.outputs, operator=op)
            for i, op in enumerate(subgraph.operators)
        ]
        return cls(subgraph, index, nodes, [node.node_id for node in nodes])

    @property
    def fully_delegated(self) -> bool:
        """Whether one delegate's kernel is all that is left."""
        return len(self.execution) == 1 and bool(self.nodes[self.execution[0]].delegate)

    def partitions(self, taken: frozenset[int]) -> list[list[int]]:
        """Return the runs of nodes, alternately taken and not, beginning with the kind of the first
        node.
        """
        if not self.execution:
            return []
        first_taken = self.execution[0] in taken
        ready: dict[int, int] = {}
        runs: list[list[int]] = []
        for node_id in self.execution:
            node = self.nodes[node_id]
            epoch = max((ready.get(i, 0) for i in node.inputs), default=0)
            if (node_id in taken) != (first_taken == (epoch % 2 == 0)):
                epoch += 1
            while len(runs) <= epoch:
                runs.append([])
            runs[epoch].append(node_id)
            for output in node.outputs:
                ready[output] = epoch
        return runs

    def largest(self, taken: frozenset[int], limit: int) -> frozenset[int]:
        """Return the nodes of the ``limit`` largest partitions."""
        runs = [run for run in self.partitions(taken) if run and run[0] in taken]
        chosen = sorted(runs, key=len, reverse=True)[:limit]
        return frozenset(node for run in chosen for node in run)

    def replace(self, delegate: str, taken: frozenset[int]) -> tuple[int, int]:
        """Put a delegate's kernels in the place of the nodes that it takes; return how many
        partitions the runtime counts in its log (runs of nodes of either kind), and kernels.
        """
        runs = [run for run in self.partitions(taken) if run]
        execution: list[int] = []
        used_later = self._consumers()
        before = len(self.nodes)
        for run in runs:
            if run[0] not in taken:
                execution.extend(run)
                continue
            kernel = self._kernel(delegate, run, used_later)
            self.nodes.append(kernel)
            execution.append(kernel.node_id)
            self.delegated.update(dict.fromkeys(run, kernel.node_id))
        self.execution = execution
        return len(runs), len(self.nodes) - before

    def _consumers(self) -> dict[int, set[int]]:
        consumers: dict[int, set[int]] = {}
        for node_id in self.execution:
            for tensor in self.nodes[node_id].inputs:
                consumers.setdefault(tensor, set()).add(node_id)
        return consumers

    def _kernel(
        self, delegate: str, run: Sequence[int], consumers: Mapping[int, set[int]]
    ) -> PlanNode:
        inside = set(run)
        written = {t for node_id in run for t in self.nodes[node_id].outputs}
        read = {t for node_id in run for t in self.nodes[node_id].inputs if t >= 0}
        outputs = {
            t for t in written if t in self.subgraph.outputs or consumers.get(t, set()) - inside
        }
        return PlanNode(
            node_id=len(self.nodes),
            name=delegate,
            inputs=tuple(sorted(read - written)),
            outputs=tuple(sorted(outputs)),
            delegate=delegate,
            replaced=tuple(run),
        )
