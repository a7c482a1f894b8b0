"""The process with TensorFlow: converts one order's networks to .tflite files.

It reads the order from ``order.json`` in its folder, and reports each file's outcome in
``done.jsonl``, a line of JSON each (``models.building``).
"""

# ruff: noqa: ANN401 - TensorFlow, its tensors and its decorators carry no types
from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from orchestrator.extensions.models.building import BuildOrder, make_network
from orchestrator.files import sha256_of

#: Variants whose conversion measures the range of activations on data.
_CALIBRATED: Final = frozenset({"int8", "int16x8"})
#: Random inputs that activations' ranges are measured on when none are given.
_RANDOM_SAMPLES: Final = 16
_TEXT_SHOWN: Final = 600
#: TensorFlow's messages where a model needs operators of its own.
_NEEDS_FLEX: Final = ("SELECT_TF_OPS", "Select TF ops", "needs TF ops", "op is neither")


def convert(work: Path) -> None:
    """Build what ``order.json`` in a folder asks for, and report each file in ``done.jsonl``."""
    order = BuildOrder(**json.loads((work / "order.json").read_text(encoding="utf-8")))
    with (work / "done.jsonl").open("a", encoding="utf-8", buffering=1) as done:
        for outcome in _build_files(order, work):
            done.write(json.dumps(outcome) + "\n")


def _failure_entry(error: Exception, order: BuildOrder) -> dict[str, str]:
    text = f"{type(error).__name__}: {' '.join(str(error).split())}"
    needs_flex = not order.flex and any(words in text for words in _NEEDS_FLEX)
    hint = "give --flex to leave TensorFlow's own operators in" if needs_flex else ""
    return {"error": text[:_TEXT_SHOWN] + ("..." if len(text) > _TEXT_SHOWN else ""), "hint": hint}


def _build_files(order: BuildOrder, work: Path) -> Iterator[dict[str, Any]]:
    import keras
    import tensorflow as tf

    for size in order.sizes or (None,):
        for batch in order.batches:
            saved = work / f"saved_{size}_{batch}"
            specs: dict[str, Any] = {}
            error: Exception | None = None
            try:
                keras.utils.set_random_seed(order.seed)
                entry, specs = _entry(tf, keras, order, size, batch)
                _save(tf, entry, specs, saved)
            except Exception as raised:  # noqa: BLE001 - a size that can't be is no reason to lose the others
                error = raised
            for variant in order.variants:
                name = order.name(size, batch, variant)
                try:
                    if error is not None:
                        raise error
                    converter = tf.lite.TFLiteConverter.from_saved_model(str(saved))
                    _configure(tf, converter, order, variant, specs)
                    (work / f"{name}.out").write_bytes(bytes(converter.convert()))
                except Exception as raised:  # noqa: BLE001 - nor is a variant
                    yield {"name": name, **_failure_entry(raised, order)}
                else:
                    versions = {"tensorflow": tf.__version__, "keras": keras.__version__}
                    recipe = _recipe(order, size, batch, variant, versions)
                    yield {"name": name, "file": str(work / f"{name}.out"), "build": recipe}


def _entry(
    tf: Any, keras: Any, order: BuildOrder, size: int | None, batch: int
) -> tuple[Callable[..., Any], dict[str, Any]]:
    """Return the network as a function of named inputs, and the inputs' specs with fixed shapes."""
    path = Path(order.source)
    if not order.is_named and path.is_dir():
        loaded = tf.saved_model.load(str(path))
        function = loaded.signatures["serving_default"]
        signature = {
            name: (spec.shape, spec.dtype)
            for name, spec in function.structured_input_signature[1].items()
        }

        def entry(**inputs: Any) -> Any:
            assert loaded is not None, (
                "it owns the function's variables, and goes with its last user"
            )
            return function(**inputs)

    else:
        model = (
            make_network(keras, order.source, size)
            if order.is_named
            else keras.models.load_model(order.source, compile=False)
        )
        signature = {
            tensor.name.split(":")[0]: (tensor.shape, tensor.dtype) for tensor in model.inputs
        }
        names = list(signature)
        outputs = model.output_names if hasattr(model, "output_names") else []

        def entry(**inputs: Any) -> Any:
            values = [inputs[name] for name in names]
            results = model(values if len(values) > 1 else values[0], training=False)
            if isinstance(results, Mapping):
                return dict(results)
            many = list(results) if isinstance(results, (list, tuple)) else [results]
            output_names = (
                outputs
                if len(outputs) == len(many)
                else [f"output_{number}" for number in range(len(many))]
            )
            return dict(zip(output_names, many, strict=True))

    shapes = fixed_shapes(
        {name: list(shape) for name, (shape, _) in signature.items()}, size, batch, order
    )
    specs = {
        name: tf.TensorSpec(shapes[name], dtype, name=name)
        for name, (_, dtype) in signature.items()
    }
    return entry, specs


def fixed_shapes(
    shapes: Mapping[str, Sequence[int | None]], size: int | None, batch: int, order: BuildOrder
) -> dict[str, list[int]]:
    """Return the inputs' shapes without dynamic sizes; raises ValueError for impossible ones."""
    if (
        size is not None
        and not order.is_named
        and all(len(shape) != 4 for shape in shapes.values())
    ):
        raise ValueError(f"no input is a picture, so it can't be built for size {size}")
    return {name: _shape(shape, size, batch, order) for name, shape in shapes.items()}


def _shape(
    shape: Sequence[int | None], size: int | None, batch: int, order: BuildOrder
) -> list[int]:
    fixed = list(shape)
    if fixed:
        if fixed[0] not in {None, batch}:
            raise ValueError(f"its batch is fixed at {fixed[0]}, so it can't be built for {batch}")
        fixed[0] = batch
    if size is not None and len(fixed) == 4 and not order.is_named:
        if fixed[1] not in {None, size} or fixed[2] not in {None, size}:
            raise ValueError(
                f"its pictures are fixed at {fixed[1]}x{fixed[2]}, so it can't be built for {size}"
            )
        fixed[1] = fixed[2] = size
    if any(length is None for length in fixed):
        lengths = ["?" if length is None else str(length) for length in fixed]
        hint = "; give --size" if len(fixed) == 4 else ""
        raise ValueError(f"an input's shape is dynamic ({', '.join(lengths)}){hint}")
    return [int(length) for length in fixed if length is not None]


def _save(tf: Any, entry: Callable[..., Any], specs: Mapping[str, Any], folder: Path) -> None:
    """Save the network with its weights as constants: variables would stay variables in the
    converted model.
    """
    from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

    concrete = tf.function(entry).get_concrete_function(**specs)
    frozen = convert_variables_to_constants_v2(concrete)
    order = [tensor.name.split(":")[0] for tensor in frozen.inputs]
    outputs = sorted(concrete.structured_outputs)

    @tf.function(input_signature=[specs[name] for name in order])  # type: ignore[untyped-decorator]
    def network(*inputs: Any) -> dict[str, Any]:
        results = frozen(*inputs)
        return dict(
            zip(outputs, results if isinstance(results, (list, tuple)) else [results], strict=True)
        )

    module = tf.Module()
    module.network = network
    # Nobody trains it; and a gradient of its own that refers to a frozen weight (swish) can't be
    # saved.
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
    signatures = {"serving_default": network.get_concrete_function()}
    tf.saved_model.save(module, str(folder), signatures=signatures, options=options)


def _configure(
    tf: Any, converter: Any, order: BuildOrder, variant: str, specs: Mapping[str, Any]
) -> None:
    sets = tf.lite.OpsSet
    operator_sets = [sets.TFLITE_BUILTINS]
    if variant != "float32":
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if variant == "float16":
        converter.target_spec.supported_types = [tf.float16]
    if variant in _CALIBRATED:
        converter.representative_dataset = lambda: _samples(order, specs)
        wide = variant == "int16x8"
        operator_sets = [
            sets.EXPERIMENTAL_TFLITE_BUILTINS_ACTIVATIONS_INT16_WEIGHTS_INT8
            if wide
            else sets.TFLITE_BUILTINS_INT8
        ]
        if all(spec.dtype == tf.float32 for spec in specs.values()):
            converter.inference_input_type = tf.int16 if wide else tf.int8
            converter.inference_output_type = tf.int16 if wide else tf.int8
    converter.target_spec.supported_ops = [
        *operator_sets,
        *([sets.SELECT_TF_OPS] if order.flex else []),
    ]


def _samples(order: BuildOrder, specs: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    import numpy as np

    rng = np.random.default_rng(order.seed)
    for _ in range(_RANDOM_SAMPLES):
        yield {name: _random(rng, spec) for name, spec in specs.items()}


def _random(rng: Any, spec: Any) -> Any:
    kind = spec.dtype.as_numpy_dtype
    if spec.dtype.is_floating:
        return rng.uniform(-1.0, 1.0, size=spec.shape).astype(kind)
    return rng.integers(0, 2, size=spec.shape).astype(kind)


def _recipe(
    order: BuildOrder, size: int | None, batch: int, variant: str, versions: Mapping[str, str]
) -> dict[str, str]:
    recipe = {
        "source": order.source,
        "variant": variant,
        "weights": "random" if order.is_named else "as in the source",
        "seed": str(order.seed),
        "batch": str(batch),
        **versions,
        "numpy": version("numpy"),
        "python": sys.version.split()[0],
    }
    recipe |= {"size": str(size)} if size is not None else {}
    recipe |= {"flex": "yes"} if order.flex else {}
    if variant in _CALIBRATED:
        recipe["representative"] = f"{_RANDOM_SAMPLES} random inputs"
    if Path(order.source).is_file():
        recipe["source_sha256"] = sha256_of(Path(order.source))
    return recipe


if __name__ == "__main__":
    convert(Path(sys.argv[1]))
