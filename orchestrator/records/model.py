"""What a .tflite file holds, as far as planning, reports and people ask."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorFacts:
    """An input or output of a model."""

    name: str
    #: The schema's name in lower case: ``float32``, ``int8`` ...
    dtype: str
    shape: tuple[int, ...]
    #: ``shape`` with -1 where the size is known only at run time; equal to ``shape`` when all of it is fixed.
    shape_signature: tuple[int, ...]
    #: Of a tensor quantised as a whole: real value = scale * (stored - zero_point). None when it isn't.
    scale: float | None = None
    zero_point: int | None = None

    @property
    def is_dynamic(self) -> bool:
        """Whether a part of the shape is known only at run time."""
        return -1 in self.shape_signature


@dataclass(frozen=True, slots=True, kw_only=True)
class SignatureFacts:
    """A named entry of a model; the names are those that its author gave."""

    key: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """A model's structure; nothing here is a measurement."""

    size_bytes: int
    schema_version: int
    #: What its maker wrote into it, often the converter's name.
    description: str
    #: Metadata ``min_runtime_version``: the oldest runtime that has all its operators; empty when not told.
    min_runtime_version: str
    inputs: tuple[TensorFacts, ...]
    outputs: tuple[TensorFacts, ...]
    signatures: tuple[SignatureFacts, ...]
    subgraph_count: int
    #: Operator name -> how many of it, over all subgraphs, most frequent first.
    operators: Mapping[str, int] = field(default_factory=dict)
    #: Names of operators outside the builtin set, without flex operators.
    custom_operators: tuple[str, ...] = ()
    #: Names of TensorFlow operators that need the Flex delegate, with their prefix: ``FlexAddV2``.
    flex_operators: tuple[str, ...] = ()
    #: Multiply-adds of convolutions and fully connected layers of the main subgraph, for the shapes that the file
    #: tells; None when a shape that is needed isn't told.
    multiply_adds: int | None = None
    #: Constant data, each buffer counted once.
    weights_bytes: int = 0
    #: ``float32``, ``float16`` (weights stored as such), ``dynamic-range`` (int8 weights, float computation),
    #: ``int8``, ``uint8``, ``int16`` (activations), or ``mixed``; ``none`` for a model without weights.
    precision: str = "none"

    @property
    def operator_count(self) -> int:
        """How many operators all subgraphs have together."""
        return sum(self.operators.values())

    @property
    def is_quantised(self) -> bool:
        """Whether it computes in integers."""
        return self.precision in {"int8", "uint8", "int16"}
