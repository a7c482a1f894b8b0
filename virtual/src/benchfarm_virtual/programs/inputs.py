"""The input flags of benchmark_model: names, shapes, value ranges and value files, and the checks
on them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchfarm_virtual.contract import PhoneFileError
from benchfarm_virtual.graph import Subgraph
from benchfarm_virtual.programs.process import read_whole

if TYPE_CHECKING:
    from benchfarm_virtual.programs.benchmark import BenchmarkRun
    from benchfarm_virtual.programs.interpreter import Interpreter


@dataclass(frozen=True, slots=True, kw_only=True)
class InputLayer:
    """One input as the flags describe it."""

    name: str
    shape: tuple[int, ...]
    #: The file with its values, "" for random ones.
    value_file: str = ""


def parse_layers(run: BenchmarkRun) -> list[InputLayer]:
    """Return what the input flags say; end the run with the program's words for what they get
    wrong.
    """
    names_text, shapes_text = (
        run.parameters.text("input_layer"),
        run.parameters.text("input_layer_shape"),
    )
    names = names_text.split(",") if names_text else []
    shapes = shapes_text.split(":") if shapes_text else []
    if len(names) != len(shapes):
        run.fail(
            f"The number of items in --input_layer_shape ({shapes_text}, with {len(shapes)} items) must match "
            f"the number of items in --input_layer ({names_text}, with {len(names)} items). For example "
            "--input_layer=input1,input2 --input_layer_shape=1,224,224,4:1,20"
        )
    files = _value_files(run)
    layers = []
    for name, shape_text in zip(names, shapes, strict=True):
        if not re.fullmatch(r"\s*[+-]?\d+(\s*,\s*[+-]?\d+)*", shape_text):
            run.abort(f"Incorrect size string specified: {shape_text}")
        shape = tuple(int(part) for part in shape_text.split(","))
        if -1 in shape:
            run.fail(
                "Any unknown sizes in the shapes (-1's) must be replaced with the size you want to benchmark with."
            )
        layers.append(InputLayer(name=name, shape=shape, value_file=files.get(name, "")))
    _check_ranges(run)
    return layers


def _value_files(run: BenchmarkRun) -> dict[str, str]:
    text = run.parameters.text("input_layer_value_files")
    files = {}
    for item in text.split(",") if text else []:
        # The first single ':' divides; '::' stands for a ':' in the name.
        match = re.match(r"((?:[^:]|::)*):(?!:)(.*)", item)
        if match is None:
            run.fail(f"Wrong input value file item specified: {item}")
        files[match.group(1).replace("::", ":")] = match.group(2)
    return files


def _check_ranges(run: BenchmarkRun) -> None:
    text = run.parameters.text("input_layer_value_range")
    for item in text.split(":") if text else []:
        if not re.fullmatch(r"[^,]+,[+-]?\d+,[+-]?\d+", item):
            run.fail(f"Wrong input value range item specified: {item}")


def input_scale(run: BenchmarkRun, subgraph: Subgraph, layers: list[InputLayer]) -> float:
    """Return how much larger the first input becomes by its flag; warn of names, fail on a wrong
    rank.
    """
    scale = 1.0
    for index, layer in enumerate(layers):
        if index >= len(subgraph.inputs):
            break
        tensor = subgraph.tensors[subgraph.inputs[index]]
        if tensor.name != layer.name:
            run.say.warn(f"Tensor # {index} is named {tensor.name} but flags call it {layer.name}")
        if len(tensor.shape) != len(layer.shape):
            run.fail(f"Input tensor #{index} should have {len(tensor.shape)} dimensions!")
        elements = 1.0
        for size in layer.shape:
            elements *= max(0, size)
        if index == 0:
            scale = elements / max(1, tensor.elements)
    return scale


def fits(subgraph: Subgraph, layers: list[InputLayer]) -> bool:
    """Whether convolutions still fit inputs that were resized: their last dimension may not change."""
    if not any(operator.name == "CONV_2D" for operator in subgraph.operators):
        return True
    pairs = zip(layers, subgraph.inputs, strict=False)
    return all(
        layer.shape[-1:] == subgraph.tensors[index].shape[-1:]
        for layer, index in pairs
        if len(layer.shape) == 4
    )


def check_value_files(
    run: BenchmarkRun, interpreter: Interpreter, layers: list[InputLayer]
) -> None:
    """Read the files with input values; abort as the program does when one is missing or has
    another size.
    """
    for index, layer in enumerate(layers):
        if not layer.value_file or index >= len(interpreter.subgraph.inputs):
            continue
        tensor = interpreter.subgraph.tensors[interpreter.subgraph.inputs[index]]
        try:
            content = read_whole(run.process, layer.value_file)
        except PhoneFileError:
            run.abort(f"Failed to read the input_layer_value_file:{layer.value_file}")
        if tensor.element_bytes is None:
            interpreter.input_values.append(content)
            continue
        elements = 1.0
        for size in layer.shape:
            elements *= max(0, size)
        expected = int(elements * tensor.element_bytes)
        if len(content) != expected:
            run.abort(
                f"The size of {layer.value_file} is {len(content)} bytes. It should be {expected} bytes."
            )
        interpreter.input_values.append(content)
