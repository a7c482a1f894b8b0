"""The pass ``profile``: the time of each operator, and the model's layers behind a delegate's
kernels.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from orchestrator.delegates import FlagFamily
from orchestrator.errors import ModelError
from orchestrator.models.inspect import inspect_model
from orchestrator.passes.specification import PassSpec
from orchestrator.ports import Device, InvocationRequest, Tool
from orchestrator.records.case import Case, Pass
from orchestrator.records.model import model_ending
from orchestrator.records.run import PROFILE_FILE, OperatorTime, RawOutput, ToolReport
from orchestrator.tables.operators import KERNEL, outer_and_nested

#: The attachment with the model's layers: a line for each, its type and its name.
_LAYERS_FILE: Final = "layers"
#: Kernel names of XNNPACK and the GPU in lower case, and the types of layers that they may run; the
#: first match counts. XNNPACK runs a convolution of 1 x 1 as a fully connected layer.
_KERNEL_LAYERS: Final = (
    ("batched_matmul", ("BATCH_MATMUL",)),
    ("dwconv", ("DEPTHWISE_CONV_2D",)),
    ("depthwise_conv", ("DEPTHWISE_CONV_2D",)),
    ("deconvolution", ("TRANSPOSE_CONV",)),
    ("convolution_transposed", ("TRANSPOSE_CONV",)),
    ("convolution", ("CONV_2D",)),
    ("fully connected", ("CONV_2D", "FULLY_CONNECTED")),
    ("fully_connected", ("FULLY_CONNECTED",)),
    ("batch matrix multiply", ("BATCH_MATMUL",)),
    ("softmax", ("SOFTMAX",)),
    ("global average pooling", ("MEAN", "AVERAGE_POOL_2D")),
    ("average pooling", ("AVERAGE_POOL_2D",)),
    ("max pooling", ("MAX_POOL_2D",)),
    ("pooling_2d", ("AVERAGE_POOL_2D", "MAX_POOL_2D")),
    ("mean", ("MEAN",)),
    ("hard_swish", ("HARD_SWISH",)),
    ("sigmoid", ("LOGISTIC",)),
    ("hardswish", ("HARD_SWISH",)),
    ("resize", ("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR")),
    ("concat", ("CONCATENATION",)),
    ("pad", ("PAD", "PADV2")),
    ("reshape", ("RESHAPE",)),
    ("transpose", ("TRANSPOSE",)),
    ("mul", ("MUL",)),
    ("sub", ("SUB",)),
    ("add", ("ADD",)),
)


def _run_with_layers(tool: Tool, device: Device, request: InvocationRequest) -> RawOutput:
    """Run a program, and keep the names of the model's layers with its output."""
    raw = tool.run(device, request)
    path = request.model_file
    try:
        is_read = model_ending(path) == ".tflite"
        layers = inspect_model(path).layers if path is not None and is_read else ()
    except (ModelError, OSError):
        return raw  # it was read before; the operators' times stand without names
    lines = "".join(f"{kind}\t{' '.join(name.split())}\n" for kind, name in layers).encode()
    return raw.with_data(_LAYERS_FILE, lines) if lines else raw


def read_layers(tool: Tool, report: ToolReport, raw: RawOutput, case: Case) -> ToolReport:
    """Return a report whose kernels name their layers.

    Kernels run in the order of the layers, without those fused into others: a kernel gets the next
    layer of its kind. A kernel of unknown kind, or without such a layer, gets none.
    """
    lines = raw.data(_LAYERS_FILE).decode("utf-8", "replace").splitlines()
    layers = [(kind, name) for kind, _, name in (line.partition("\t") for line in lines)]
    running = outer_and_nested(report.operators)[0] if report.operators and layers else []
    if not any(row.name.startswith(KERNEL) for row in running):
        return report
    layers_by_row = dict(_kernel_layers(running, layers))
    operators = (
        replace(row, layer=layers_by_row[id(row)]) if id(row) in layers_by_row else row
        for row in report.operators
    )
    return replace(report, operators=tuple(operators))


def _kernel_layers(
    rows: Sequence[OperatorTime], layers: Sequence[tuple[str, str]]
) -> Iterator[tuple[int, str]]:
    """Yield the layers of kernels with the ``id()`` of the kernel's row."""
    next_index = 0
    for row in rows:
        is_kernel = row.name.startswith(KERNEL)
        kinds = _layer_types(row.node_type) if is_kernel else (row.node_type,)
        match = next(
            (index for index in range(next_index, len(layers)) if layers[index][0] in kinds), None
        )
        if match is None:
            continue
        next_index = match + 1
        if is_kernel and row.times_called == 1:
            yield id(row), layers[match][1]
        elif is_kernel:
            # Kernels of several partitions with one name are one row, of no single layer.
            return


def _layer_types(node_type: str) -> tuple[str, ...]:
    name = node_type.lower()
    matches = (kinds for word, kinds in _KERNEL_LAYERS if re.search(rf"(?<![a-z]){word}", name))
    return next(matches, ())


PASS = PassSpec(
    name=Pass.PROFILE,
    about="The time of each operator",
    flags={
        FlagFamily.BENCHMARK_MODEL: {
            "enable_op_profiling": "true",
            "op_profiling_output_mode": "proto",
        },
        # With the GPU it also lowers the GPU's priority; a latency never comes from this pass.
        FlagFamily.LITERT: {"use_profiler": "true"},
    },
    files={FlagFamily.BENCHMARK_MODEL: {"op_profiling_output_file": PROFILE_FILE}},
    runner=lambda services: _run_with_layers,
    read=read_layers,
    # Profiles of several campaigns are shown side by side.
    keeps_all_campaigns=True,
)
