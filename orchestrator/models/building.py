"""Builds .tflite files with TensorFlow: variants, batches and sizes of one network, each reproducible from its recipe.

TensorFlow runs in a process of its own: it takes seconds to import, prints a lot, and a converter that aborts must not
take the command with it. One process builds all files of one order, given and answered as JSON.
"""

# ruff: noqa: ANN401 - TensorFlow, its tensors and its decorators carry no types
from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from orchestrator.errors import HostStorageError, ModelError, UsageError
from orchestrator.models.networks import APPLICATIONS, NAMES, make_network

VARIANTS: Final = ("float32", "float16", "dynamic-range", "int8", "int16x8")
#: Variants whose conversion measures the range of activations on data.
_CALIBRATED: Final = frozenset({"int8", "int16x8"})
#: Random inputs that activations' ranges are measured on when none are given.
_RANDOM_SAMPLES: Final = 16
_TEXT_SHOWN: Final = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildOrder:
    """What to build: every variant of every batch and size."""

    #: A name of ``networks.NAMES``, a SavedModel folder, or a .keras or .h5 file.
    source: str
    variants: tuple[str, ...] = ("float32",)
    #: Empty: the source's own, 1 where it leaves it open.
    batches: tuple[int, ...] = (1,)
    #: Empty: the source's own size.
    sizes: tuple[int, ...] = ()
    weights: str = "random"
    #: .npy (one input) or .npz (by input name) with samples in the first dimension; empty for random ones.
    representative: str = ""
    seed: int = 0
    #: Lets TensorFlow's own operators stay in the model, which then needs the Flex delegate.
    flex: bool = False
    #: Entry of a SavedModel.
    signature: str = "serving_default"

    @property
    def is_named(self) -> bool:
        """Whether the source is one of benchfarm's names."""
        return self.source in NAMES


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltModel:
    """One file that was built."""

    name: str
    path: Path
    sha256: str
    size_bytes: int
    #: Settings and versions: all that is needed to build it again.
    build: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedBuild:
    """One file that TensorFlow refused to build."""

    name: str
    reason: str
    hint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """What became of one order."""

    order: BuildOrder
    models: tuple[BuiltModel, ...]
    failures: tuple[FailedBuild, ...]


def build_models(orders: Sequence[BuildOrder], folder: Path, *, environ: Mapping[str, str]) -> list[Built]:
    """Build the files of some orders into a folder, all in one process; return what became of each order.

    Files that are there are replaced, each once it is whole.

    Raises:
        UsageError: an order can't be, for example because of a name that isn't known.
        ModelError: the process with TensorFlow died; the message has its last words.
        HostStorageError: no space left.
    """
    for order in orders:
        _check(order)
    with tempfile.TemporaryDirectory(prefix="benchfarm-build-") as name:
        work = Path(name)
        (work / "orders.json").write_text(json.dumps([asdict(order) for order in orders]), encoding="utf-8")
        code = "import sys; from orchestrator.models.building import serve; serve(sys.argv[1])"
        with (work / "log").open("wb") as log:
            quiet = {
                **environ,
                "TF_CPP_MIN_LOG_LEVEL": "2",
                "CUDA_VISIBLE_DEVICES": "-1",
                "KERAS_BACKEND": "tensorflow",
            }
            done = subprocess.run(
                [sys.executable, "-c", code, str(work)], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=quiet,
                check=False,
            )  # fmt: skip
        answers = _answers(work, done.returncode)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            return [_built_order(order, answer, folder) for order, answer in zip(orders, answers, strict=True)]
        except OSError as error:
            raise HostStorageError(f"the models can't be written to {folder}: {error.strerror}") from error


def _built_order(order: BuildOrder, answer: Sequence[Mapping[str, Any]], folder: Path) -> Built:
    return Built(
        order=order,
        models=tuple(_placed(entry, folder) for entry in answer if "file" in entry),
        failures=tuple(
            FailedBuild(name=str(entry["name"]), reason=str(entry["error"]), hint=str(entry["hint"]))
            for entry in answer
            if "file" not in entry
        ),
    )


def _check(order: BuildOrder) -> None:
    for variant in order.variants:
        if variant not in VARIANTS:
            raise UsageError(f"{variant!r} is no variant", hint=f"choose of {', '.join(VARIANTS)}")
    if any(number < 1 for number in (*order.batches, *order.sizes)):
        raise UsageError("batches and sizes are counted from 1")
    if not order.is_named and not Path(order.source).exists():
        raise UsageError(
            f"{order.source!r} is neither a network's name nor a SavedModel folder nor a Keras file",
            hint=f"names: {', '.join(NAMES)}",
        )
    if order.weights == "imagenet" and order.source not in APPLICATIONS:
        raise UsageError("imagenet weights are for Keras applications", hint=f"choose of {', '.join(APPLICATIONS)}")
    for what, path in (("weights", order.weights), ("representative data", order.representative)):
        if path and path not in {"random", "imagenet"} and not Path(path).is_file():
            raise UsageError(f"there is no file {path!r} of {what}")


def _answers(work: Path, code: int) -> list[list[dict[str, Any]]]:
    path = work / "answers.json"
    if code == 0 and path.exists():
        return list(json.loads(path.read_text(encoding="utf-8")))
    last = (work / "log").read_text(encoding="utf-8", errors="replace").strip()[-_TEXT_SHOWN:]
    how = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
    raise ModelError(f"the process with TensorFlow {how}; its last words: {last or 'none'}")


def _placed(entry: Mapping[str, Any], folder: Path) -> BuiltModel:
    content = Path(entry["file"]).read_bytes()
    path = folder / f"{entry['name']}.tflite"
    draft = path.with_name(f".{path.name}.part")
    draft.write_bytes(content)
    draft.replace(path)
    return BuiltModel(
        name=str(entry["name"]),
        path=path,
        sha256=hashlib.sha256(content).hexdigest(),
        size_bytes=len(content),
        build={str(key): str(value) for key, value in entry["build"].items()},
    )


# ---- below: in the process with TensorFlow


def serve(folder: str) -> None:
    """Build what ``orders.json`` in a folder asks for; leave the files and ``answers.json`` there."""
    work = Path(folder)
    given: list[dict[str, Any]] = json.loads((work / "orders.json").read_text(encoding="utf-8"))
    answers = []
    for number, values in enumerate(given):
        whole: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in values.items()
        }
        (work / str(number)).mkdir()
        answers.append(list(_built(BuildOrder(**whole), work / str(number))))
    (work / "answers.json").write_text(json.dumps(answers), encoding="utf-8")


def _told(error: Exception, order: BuildOrder) -> dict[str, str]:
    text = f"{type(error).__name__}: {' '.join(str(error).split())}"
    needs_flex = any(mark in text for mark in ("SELECT_TF_OPS", "Select TF ops", "needs TF ops", "op is neither"))
    hint = "give --flex to leave TensorFlow's own operators in" if needs_flex and not order.flex else ""
    return {"error": text[:_TEXT_SHOWN], "hint": hint}


def _built(order: BuildOrder, work: Path) -> Iterator[dict[str, Any]]:
    import keras
    import tensorflow as tf

    for size in order.sizes or (None,):
        for batch in order.batches or (None,):
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
                name = _name(order, size, batch, variant)
                recipe = _recipe(order, size, batch, variant, tf.__version__, keras.__version__)
                try:
                    if error is not None:
                        raise error
                    converter = tf.lite.TFLiteConverter.from_saved_model(str(saved))
                    _set_up(tf, converter, order, variant, specs)
                    (work / f"{name}.out").write_bytes(bytes(converter.convert()))
                except Exception as raised:  # noqa: BLE001 - nor is a variant
                    yield {"name": name, "build": recipe, **_told(raised, order)}
                else:
                    yield {"name": name, "file": str(work / f"{name}.out"), "build": recipe}


def _entry(
    tf: Any, keras: Any, order: BuildOrder, size: int | None, batch: int | None
) -> tuple[Callable[..., Any], dict[str, Any]]:
    """Return what computes the network from inputs by name, and its inputs with their shapes fixed."""
    path = Path(order.source)
    if not order.is_named and path.is_dir():
        loaded = tf.saved_model.load(str(path))
        if order.signature not in loaded.signatures:
            have = ", ".join(loaded.signatures) or "none"
            raise ValueError(f"the SavedModel has no signature {order.signature!r}, only {have}")
        function = loaded.signatures[order.signature]
        given = {name: (spec.shape, spec.dtype) for name, spec in function.structured_input_signature[1].items()}
        entry = _kept(function, loaded)
    else:
        model = make_network(keras, order.source, size, order.weights) if order.is_named else _loaded(keras, order)
        given = {tensor.name.split(":")[0]: (tensor.shape, tensor.dtype) for tensor in model.inputs}
        names = list(given)
        outputs = model.output_names if hasattr(model, "output_names") else []

        def named(**inputs: Any) -> Any:
            values = [inputs[name] for name in names]
            results = model(values if len(values) > 1 else values[0], training=False)
            if isinstance(results, Mapping):
                return dict(results)
            many = list(results) if isinstance(results, (list, tuple)) else [results]
            called = outputs if len(outputs) == len(many) else [f"output_{number}" for number in range(len(many))]
            return dict(zip(called, many, strict=True))

        entry = named
    specs = {
        name: tf.TensorSpec(_shape(list(shape), size, batch, order), dtype, name=name)
        for name, (shape, dtype) in given.items()
    }
    return entry, specs


def _kept(function: Any, owner: Any) -> Callable[..., Any]:
    """Return a signature's function that keeps alive what owns its variables."""

    def call(**inputs: Any) -> Any:
        assert owner is not None
        return function(**inputs)

    return call


def _loaded(keras: Any, order: BuildOrder) -> Any:
    model = keras.models.load_model(order.source, compile=False)
    if order.weights != "random":
        model.load_weights(order.weights)
    return model


def _shape(shape: Sequence[int | None], size: int | None, batch: int | None, order: BuildOrder) -> list[int]:
    fixed = list(shape)
    if batch is not None and fixed:
        if fixed[0] not in {None, batch}:
            raise ValueError(f"its batch is fixed at {fixed[0]}, so it can't be built for {batch}")
        fixed[0] = batch
    if size is not None and len(fixed) == 4 and not order.is_named:
        if fixed[1] not in {None, size} or fixed[2] not in {None, size}:
            raise ValueError(f"its pictures are fixed at {fixed[1]}x{fixed[2]}, so it can't be built for {size}")
        fixed[1] = fixed[2] = size
    if any(length is None for length in fixed):
        shown = ["?" if length is None else str(length) for length in fixed]
        raise ValueError(f"an input's shape is open ({', '.join(shown)}); give --batch and --size")
    return [int(length) for length in fixed if length is not None]


def _save(tf: Any, entry: Callable[..., Any], specs: Mapping[str, Any], folder: Path) -> None:
    """Save the network with its weights as constants: variables would stay variables in the converted model."""
    from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

    concrete = tf.function(entry).get_concrete_function(**specs)
    frozen = convert_variables_to_constants_v2(concrete)
    order = [tensor.name.split(":")[0] for tensor in frozen.inputs]
    outputs = sorted(concrete.structured_outputs)

    @tf.function(input_signature=[specs[name] for name in order])  # type: ignore[untyped-decorator]
    def network(*inputs: Any) -> dict[str, Any]:
        results = frozen(*inputs)
        return dict(zip(outputs, results if isinstance(results, (list, tuple)) else [results], strict=True))

    module = tf.Module()
    module.network = network
    tf.saved_model.save(module, str(folder), signatures={"serving_default": network.get_concrete_function()})


def _set_up(tf: Any, converter: Any, order: BuildOrder, variant: str, specs: Mapping[str, Any]) -> None:
    sets = tf.lite.OpsSet
    wanted = [sets.TFLITE_BUILTINS]
    if variant != "float32":
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if variant == "float16":
        converter.target_spec.supported_types = [tf.float16]
    if variant in _CALIBRATED:
        converter.representative_dataset = lambda: _samples(order, specs)
        wide = variant == "int16x8"
        wanted = [
            sets.EXPERIMENTAL_TFLITE_BUILTINS_ACTIVATIONS_INT16_WEIGHTS_INT8 if wide else sets.TFLITE_BUILTINS_INT8
        ]
        if all(spec.dtype == tf.float32 for spec in specs.values()):
            converter.inference_input_type = tf.int16 if wide else tf.int8
            converter.inference_output_type = tf.int16 if wide else tf.int8
    converter.target_spec.supported_ops = [*wanted, *([sets.SELECT_TF_OPS] if order.flex else [])]


def _samples(order: BuildOrder, specs: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    import numpy as np

    if order.representative:
        loaded = np.load(order.representative, allow_pickle=False)
        arrays = dict(loaded.items()) if hasattr(loaded, "items") else {next(iter(specs)): loaded}
        if set(arrays) != set(specs):
            raise ValueError(f"the representative data is of {sorted(arrays)}, the inputs are {sorted(specs)}")
        for name, array in arrays.items():
            if len(array) == 0 or list(array.shape[1:]) != list(specs[name].shape[1:]):
                raise ValueError(
                    f"the data of {name!r} has shape {array.shape}, needed is [n, *{specs[name].shape[1:]}]"
                )
        for number in range(min(len(array) for array in arrays.values())):
            yield {
                name: np.repeat(array[number : number + 1], specs[name].shape[0], axis=0).astype(
                    specs[name].dtype.as_numpy_dtype
                )
                for name, array in arrays.items()
            }
        return
    rng = np.random.default_rng(order.seed)
    for _ in range(_RANDOM_SAMPLES):
        yield {name: _random(rng, spec) for name, spec in specs.items()}


def _random(rng: Any, spec: Any) -> Any:
    kind = spec.dtype.as_numpy_dtype
    if spec.dtype.is_floating:
        return rng.uniform(-1.0, 1.0, size=spec.shape).astype(kind)
    return rng.integers(0, 2, size=spec.shape).astype(kind)


def _name(order: BuildOrder, size: int | None, batch: int | None, variant: str) -> str:
    parts = [order.source if order.is_named else Path(order.source).stem]
    parts += [str(size)] if size is not None else []
    parts += [f"b{batch}"] if batch not in {None, 1} else []
    return "_".join([*parts, variant])


def _recipe(
    order: BuildOrder, size: int | None, batch: int | None, variant: str, tensorflow: str, keras: str
) -> dict[str, str]:
    recipe = {
        "source": order.source,
        "variant": variant,
        "weights": order.weights if order.is_named else "as in the source",
        "seed": str(order.seed),
        "tensorflow": tensorflow,
        "keras": keras,
        "python": sys.version.split()[0],
    }
    recipe |= {"batch": str(batch)} if batch is not None else {}
    recipe |= {"size": str(size)} if size is not None else {}
    recipe |= {"flex": "yes"} if order.flex else {}
    if variant in _CALIBRATED:
        recipe["representative"] = order.representative or f"{_RANDOM_SAMPLES} random inputs"
    files = {"source": order.source, "weights": order.weights, "representative": order.representative}
    for what, path in files.items():
        if path and Path(path).is_file():
            recipe[f"{what}_sha256"] = hashlib.sha256(Path(path).read_bytes()).hexdigest()
    if not order.is_named and Path(order.source).is_dir():
        recipe["source_sha256"] = _folder_sha256(Path(order.source))
    return recipe


def _folder_sha256(folder: Path) -> str:
    """Return one hash of a folder's files and their names; a SavedModel's fingerprint tells each save apart."""
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        digest.update(str(path.relative_to(folder)).encode() + b"\0")
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()
