"""The facts of a .tflite file that planning and reports need; and the measuring of language models,
by tokens of a prompt and of an answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Final

from orchestrator.records import frozen


@frozen
class TensorFacts:
    """An input or output of a model."""

    name: str
    #: The schema's name in lower case: ``float32``, ``int8`` ...
    dtype: str
    shape: tuple[int, ...]
    #: ``shape`` with -1 where the size is known only at run time; equal to ``shape`` when all of it
    #: is fixed.
    shape_signature: tuple[int, ...]
    #: Of a tensor quantised as a whole: real value = scale * (stored - zero_point). None when it
    #: isn't.
    scale: float | None = None
    zero_point: int | None = None


@frozen
class SignatureFacts:
    """A named entry of a model; the names are those that its author gave."""

    key: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@frozen
class ModelFacts:
    """A model's structure; nothing here is a measurement."""

    size_bytes: int
    schema_version: int
    #: Its author's description, often the converter's name.
    description: str
    #: The oldest runtime that has all its operators, as its metadata says; empty when unknown.
    min_runtime_version: str
    inputs: tuple[TensorFacts, ...]
    outputs: tuple[TensorFacts, ...]
    signatures: tuple[SignatureFacts, ...]
    subgraph_count: int
    #: Operator name -> how many of it, over all subgraphs, most frequent first.
    operators: Mapping[str, int] = field(default_factory=dict)
    #: Type and name of each operator of the main subgraph, in the order in which they run.
    layers: tuple[tuple[str, str], ...] = ()
    #: Names of operators outside the builtin set, without flex operators.
    custom_operators: tuple[str, ...] = ()
    #: Names of TensorFlow operators that need the Flex delegate, with their prefix: ``FlexAddV2``.
    flex_operators: tuple[str, ...] = ()
    #: Name and size in bytes of each piece of metadata.
    metadata: Mapping[str, int] = field(default_factory=dict)
    #: Tensors of all subgraphs by their type, most frequent first.
    tensors: Mapping[str, int] = field(default_factory=dict)
    #: Weights: elements of constants that are real numbers or stand for some; each buffer counted
    #: once.
    parameters: int = 0
    #: Multiply-adds of convolutions and fully connected layers of the main subgraph, for the shapes
    #: in the file; None when a shape that is needed is missing.
    multiply_adds: int | None = None
    #: Constant data, each buffer counted once.
    weights_bytes: int = 0
    #: ``float32``, ``float16`` (weights stored as such), ``dynamic-range`` (int8 weights, float
    #: computation), ``int8``, ``uint8``, ``int16`` (activations), or ``mixed``; ``none`` for a
    #: model without weights.
    precision: str = "none"

    @property
    def operator_count(self) -> int:
        """The number of operators of all subgraphs together."""
        return sum(self.operators.values())


#: The default numbers of tokens, as in the published leaderboard.
TOKENS: Final[Mapping[str, str]] = {
    "decode_tokens": "256",
    "max_num_tokens": "1280",
    "prefill_tokens": "1024",
}
#: The flag by which the two cases of a process differ, and its values.
FIGURE: Final = "figure"
PHASES: Final = ("prefill", "decode")
#: The flag that chooses one of a model's functions.
SIGNATURE: Final = "signature_to_run_for"
#: The only one of most models, by a converter's or LiteRT's name, which runs where none is chosen.
USUAL_SIGNATURES: Final = frozenset({"", "serving_default", "<placeholder signature>"})


def chosen_signature(name: str) -> str:
    """Return the signature that a run chose, empty where it is the usual one."""
    return "" if name in USUAL_SIGNATURES else name


#: Further flags: how often a phone's process repeats, and whether compiled parts are kept.
REPETITIONS: Final = "num_iterations"
CACHE: Final = "cache"
#: Suffixes of language models' bundles.
BUNDLES: Final = (".litertlm", ".task")


def is_language_model(path: Path | None) -> bool:
    """Whether a file's name is that of a language model's bundle; no other model's ends so."""
    return path is not None and path.suffix in BUNDLES


#: Suffixes of other runtimes' models, which only declared programs run; their files may name more.
FOREIGN: Final = {".gguf", ".pte", ".param", ".mnn", ".onnx", ".ort"}


def is_foreign(path: Path | None) -> bool:
    """Whether a file's name is of another runtime's model, which only a declared program may run."""
    return path is not None and path.suffix in FOREIGN


def model_ending(path: Path | None) -> str:
    """Return the suffix of a model's file, which decides its program; ``.tflite`` for an unknown one."""
    return (
        path.suffix
        if path is not None and (is_language_model(path) or is_foreign(path))
        else ".tflite"
    )


def is_model_file(path: Path) -> bool:
    """Whether a file name ends like a model's, for any program."""
    return path.suffix == model_ending(path)


def model_name(file: Path) -> str:
    """Return a model's name from its file name, for any program."""
    return file.stem if is_model_file(file) else file.name


def asked_tokens(flags: Mapping[str, str]) -> dict[str, int]:
    """Return the numbers of tokens in a case's flags, by the flags' names."""
    texts = {name: flags.get(name, "") for name in TOKENS}
    return {name: int(text) for name, text in texts.items() if text.isdecimal() and len(text) < 10}


def phase_of(flags: Mapping[str, str]) -> str:
    """Return a case's phase: which of a process's two figures it is."""
    return PHASES[0] if flags.get(FIGURE) == PHASES[0] else PHASES[1]


def worded(flags: Mapping[str, str]) -> str:
    """Return a case's flags for people: ``decode 256 after 1024, context 1280, per token``."""
    prompt, answer = flags.get("prefill_tokens", "?"), flags.get("decode_tokens", "?")
    is_prefill = phase_of(flags) == PHASES[0]
    phase = f"prefill {prompt}" if is_prefill else f"decode {answer} after {prompt}"
    shown_flags = {FIGURE, *TOKENS}
    other_flags = "".join(
        f", {name}={value}" for name, value in flags.items() if name not in shown_flags
    )
    return f"{phase}, context {flags.get('max_num_tokens', '?')}{other_flags}, per token"
