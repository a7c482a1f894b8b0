"""Builds .tflite files with TensorFlow: variants, batches and sizes of one network, each
reproducible from its recipe.

TensorFlow runs in a process of its own (``models.conversion``): it takes seconds to import, prints
a lot, and its converter and calibrator are native code that may abort. Each file is placed as soon
as it is made: what ends the process loses only those that it hadn't built yet. The networks are
Keras applications, and small ones of its own for quick tries.
"""

# ruff: noqa: ANN401 - Keras carries no types
from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from orchestrator.errors import HostStorageError, ModelError, UsageError
from orchestrator.files import write_file
from orchestrator.installation import require_packages
from orchestrator.processes import child_environment

VARIANTS: Final = ("float32", "float16", "dynamic-range", "int8", "int16x8")
#: The entry that a SavedModel has unless its maker named others.
DEFAULT_SIGNATURE: Final = "serving_default"
#: Characters of a process's last output that are shown.
_TEXT_SHOWN: Final = 600
#: Lines of TensorFlow's log that say nothing of why it ended.
_NOISE: Final = re.compile(
    r"^(?:[EWI]\d{4} |\d{4}-\d\d-\d\d |WARNING: All log|INFO: |W\d+|To enable the following|.*Warning: "
    r"|.*warnings\.warn|fully_quantize|\s|Captures:|$)"
)


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
    #: .npy (one input) or .npz (by input name) with samples in the first dimension; empty for
    #: random ones.
    representative: str = ""
    seed: int = 0
    #: Lets TensorFlow's own operators stay in the model, which then needs the Flex delegate.
    flex: bool = False
    #: Entry of a SavedModel.
    signature: str = DEFAULT_SIGNATURE

    @property
    def is_named(self) -> bool:
        """Whether the source is one of benchfarm's names."""
        return self.source in NAMES

    def name(self, size: int | None, batch: int | None, variant: str) -> str:
        """Return what the file of one variant is called, without its ending."""
        parts = [self.source if self.is_named else Path(self.source).stem]
        parts += (
            [re.sub(r"[^\w.-]+", "-", self.signature)]
            if self.signature != DEFAULT_SIGNATURE
            else []
        )
        parts += [str(size)] if size is not None else []
        parts += [f"b{batch}"] if batch not in {None, 1} else []
        return "_".join([*parts, variant])

    @property
    def names(self) -> list[str]:
        """All files that it asks for."""
        return [
            self.name(size, batch, variant)
            for size in self.sizes or (None,)
            for batch in self.batches or (None,)
            for variant in self.variants
        ]


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
    """One file that couldn't be built."""

    name: str
    reason: str
    hint: str


#: A file that was built, or why it wasn't.
Outcome = BuiltModel | FailedBuild


def build_models(
    orders: Sequence[BuildOrder], folder: Path, *, environ: Mapping[str, str]
) -> Iterator[tuple[BuildOrder, Outcome]]:
    """Build the files of some orders into a folder.

    Yield each as soon as it is placed or abandoned.

    Files that are there are replaced, each once it is whole.

    Raises:
        UsageError: an order can't be, for example because of a name that isn't known; before
            anything is built.
        MissingPackageError: TensorFlow isn't installed.
        ModelError: TensorFlow can't be started; the message has its last words.
        HostStorageError: no space left.
    """
    for order in orders:
        _check(order)
    _check_names(orders)
    require_packages("building models", "tensorflow", "keras")
    return _build(orders, folder, environ)


def _build(
    orders: Sequence[BuildOrder], folder: Path, environ: Mapping[str, str]
) -> Iterator[tuple[BuildOrder, Outcome]]:
    """Let a process build the files; what it hasn't built when it dies counts as failed."""
    lacking = [(number, name) for number, order in enumerate(orders) for name in order.names]
    count = len(lacking)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(
            prefix="benchfarm-build-", ignore_cleanup_errors=True
        ) as name:
            work = Path(name)
            (work / "orders.json").write_text(
                json.dumps([[asdict(order) for order in orders], lacking]), "utf-8"
            )
            with _building(work, environ) as (process, lines):
                for line in lines:
                    told = json.loads(line)
                    outcome = _outcome(told, folder)
                    lacking.remove((told["order"], outcome.name))
                    yield orders[told["order"]], outcome
                code = process.wait()
            if lacking:
                reason, hint = _last_words(work / "log", code)
                if len(lacking) == count:
                    raise ModelError(reason, hint=hint)
                for number, lost in lacking:
                    yield orders[number], FailedBuild(name=lost, reason=reason, hint=hint)
    except OSError as error:
        raise HostStorageError(
            f"the models can't be written to {folder}: {error.strerror}"
        ) from error


@contextlib.contextmanager
def _building(
    work: Path, environ: Mapping[str, str]
) -> Iterator[tuple[subprocess.Popen[bytes], Iterator[str]]]:
    """Start the process; yield it and the lines that it reports.

    It ends with this block and with this process.
    """
    code = "import sys; from orchestrator.extensions.models.conversion import serve; serve(sys.argv[1], int(sys.argv[2]))"
    quiet = child_environment(
        environ, TF_CPP_MIN_LOG_LEVEL="2", CUDA_VISIBLE_DEVICES="-1", KERAS_BACKEND="tensorflow"
    )
    hearing, telling = os.pipe()
    with (work / "log").open("wb") as log, os.fdopen(hearing, encoding="utf-8") as lines:
        try:
            process = subprocess.Popen(
                [sys.executable, "-X", "faulthandler", "-c", code, str(work), str(telling)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=quiet,
                pass_fds=(telling,),
            )
        finally:
            os.close(telling)
        try:
            yield process, lines
        finally:
            process.kill()
            process.wait()
            assert process.stdin is not None
            process.stdin.close()


def _last_words(log: Path, code: int) -> tuple[str, str]:
    """Return how the process ended and what it said, and what to do."""
    text = log.read_text(encoding="utf-8", errors="replace")
    if "No space left on device" in text:
        return (
            "no space is left where temporary files go",
            f"free some in {tempfile.gettempdir()}, or set TMPDIR",
        )
    how = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
    # The interpreter's own last words: the innermost line of Python that was being run.
    place = re.search(r'Current thread [^\n]*\n +File "([^"]+)", line \d+ in (\w+)', text)
    where = f" in {Path(place[1]).name}, {place[2]}" if place else ""
    before = text.partition("Fatal Python error")[0]
    said = " ".join(line.strip() for line in before.splitlines() if not _NOISE.match(line))[
        -_TEXT_SHOWN:
    ]
    hint = "a fault of TensorFlow's; other variants and versions of it may go" if code < 0 else ""
    return f"the process with TensorFlow {how}{where}" + (
        f"; its last words: {said}" if said else ""
    ), hint


def _check(order: BuildOrder) -> None:
    for variant in order.variants:
        if variant not in VARIANTS:
            raise UsageError(f"{variant!r} is no variant", hint=f"choose of {', '.join(VARIANTS)}")
    if any(number < 1 for number in (*order.batches, *order.sizes)):
        raise UsageError("batches and sizes are counted from 1")
    path = Path(order.source)
    if not order.is_named and not path.exists():
        raise UsageError(
            f"{order.source!r} is neither a network's name nor a SavedModel folder nor a Keras file",
            hint=f"names: {', '.join(NAMES)}",
        )
    if not order.is_named and path.is_dir():
        _check_saved_model(order, path)
    if order.weights == "imagenet" and order.source not in APPLICATIONS:
        raise UsageError(
            "imagenet weights are for Keras applications",
            hint=f"choose of {', '.join(APPLICATIONS)}",
        )
    for what, given in (("weights", order.weights), ("representative data", order.representative)):
        if given and given not in {"random", "imagenet"} and not Path(given).is_file():
            raise UsageError(f"there is no file {given!r} of {what}")


def _check_saved_model(order: BuildOrder, folder: Path) -> None:
    if not any((folder / name).is_file() for name in ("saved_model.pb", "saved_model.pbtxt")):
        raise UsageError(
            f"the folder {order.source!r} holds no saved_model.pb, so it is no SavedModel",
            hint="name the folder that model.export() or tf.saved_model.save() wrote",
        )
    if order.weights != "random":
        raise UsageError(
            "a SavedModel has its weights in it; --weights is for named networks and Keras files",
            hint="leave --weights away",
        )


def _check_names(orders: Sequence[BuildOrder]) -> None:
    """Raise where two orders would write the same file: the second would silently replace the
    first.
    """
    counts = Counter(name for order in orders for name in order.names)
    twice = next((name for name, count in counts.items() if count > 1), None)
    if twice is not None:
        sources = [order.source for order in orders if twice in order.names]
        raise UsageError(
            f"{' and '.join(sources)} would both be written to {twice}.tflite",
            hint="build them one by one, each with an --out of its own, or rename one",
        )


def _outcome(told: Mapping[str, Any], folder: Path) -> Outcome:
    """Return what became of a file; a finished one is moved to where it belongs."""
    name = str(told["name"])
    if "file" not in told:
        return FailedBuild(name=name, reason=str(told["error"]), hint=str(told["hint"]))
    made, path = Path(told["file"]), folder / f"{name}.tflite"
    content = made.read_bytes()
    write_file(path, content)
    made.unlink()
    return BuiltModel(
        name=name,
        path=path,
        sha256=hashlib.sha256(content).hexdigest(),
        size_bytes=len(content),
        build={str(key): str(value) for key, value in told["build"].items()},
    )


#: Name -> class in ``keras.applications`` and the picture size that it was made for.
APPLICATIONS: Final[Mapping[str, tuple[str, int]]] = {
    "mobilenet_v1": ("MobileNet", 224),
    "mobilenet_v2": ("MobileNetV2", 224),
    "mobilenet_v3_small": ("MobileNetV3Small", 224),
    "mobilenet_v3_large": ("MobileNetV3Large", 224),
    "efficientnet_b0": ("EfficientNetB0", 224),
    "efficientnet_b3": ("EfficientNetB3", 300),
    "efficientnet_v2_b0": ("EfficientNetV2B0", 224),
    "nasnet_mobile": ("NASNetMobile", 224),
    "densenet121": ("DenseNet121", 224),
    "resnet50": ("ResNet50", 224),
    "resnet50_v2": ("ResNet50V2", 224),
    "inception_v3": ("InceptionV3", 299),
    "inception_resnet_v2": ("InceptionResNetV2", 299),
    "xception": ("Xception", 299),
    "vgg16": ("VGG16", 224),
}


def _tiny_cnn(keras: Any, size_px: int) -> Any:
    layers = keras.layers
    inlet = keras.Input((size_px, size_px, 3), name="image")
    x = layers.Conv2D(8, 3, strides=2, padding="same", activation="relu6")(inlet)
    x = layers.DepthwiseConv2D(3, padding="same", activation="relu6")(x)
    # Weights of at least 1,024 elements: the converter leaves smaller ones as they are in
    # dynamic-range models.
    x = layers.Conv2D(160, 1, activation="relu6")(x)
    x = layers.GlobalAveragePooling2D()(x)
    return keras.Model(
        inlet, layers.Dense(10, activation="softmax", name="probabilities")(x), name="tiny_cnn"
    )


def _tiny_residual(keras: Any, size_px: int) -> Any:
    layers = keras.layers
    inlet = keras.Input((size_px, size_px, 3), name="image")
    x = layers.Conv2D(8, 3, strides=2, padding="same", activation="relu")(inlet)
    y = layers.Conv2D(8, 3, padding="same")(x)
    x = layers.Activation("relu")(layers.Add()([x, y]))
    x = layers.Conv2DTranspose(3, 3, strides=2, padding="same")(x)
    return keras.Model(inlet, layers.Activation("sigmoid", name="picture")(x), name="tiny_residual")


def _tiny_mlp(keras: Any, width: int) -> Any:
    layers = keras.layers
    inlet = keras.Input((width,), name="features")
    x = layers.Dense(64, activation="relu")(inlet)
    return keras.Model(inlet, layers.Dense(10, name="scores")(x), name="tiny_mlp")


def _tiny_attention(keras: Any, length: int) -> Any:
    layers = keras.layers
    inlet = keras.Input((length, 32), name="tokens")
    x = layers.MultiHeadAttention(2, 16)(inlet, inlet)
    x = layers.LayerNormalization()(layers.Add()([inlet, x]))
    return keras.Model(
        inlet, layers.Dense(32, activation="gelu", name="states")(x), name="tiny_attention"
    )


#: Name -> what makes it, and the size of its input: pixels, features, or tokens.
SMALL: Final[Mapping[str, tuple[Callable[[Any, int], Any], int]]] = {
    "tiny_cnn": (_tiny_cnn, 32),
    "tiny_residual": (_tiny_residual, 32),
    "tiny_mlp": (_tiny_mlp, 64),
    "tiny_attention": (_tiny_attention, 16),
}
NAMES: Final = (*SMALL, *APPLICATIONS)


def make_network(keras: Any, name: str, size: int | None, weights: str) -> Any:
    """Return a Keras model by one of :data:`NAMES`.

    Args:
        keras: The module.
        name: Which one.
        size: Pixels of a side (features, tokens); the usual size when None.
        weights: ``random``, ``imagenet`` (Keras downloads them), or a weights file of the same
            network.
    """
    if name in SMALL:
        make, usual = SMALL[name]
        model = make(keras, size or usual)
    else:
        class_name, usual = APPLICATIONS[name]
        side = size or usual
        given = "imagenet" if weights == "imagenet" else None
        # The classifier's size is that of ImageNet; only without a top could trained weights take
        # any picture size.
        model = getattr(keras.applications, class_name)(weights=given, input_shape=(side, side, 3))
    if weights not in {"random", "imagenet"}:
        model.load_weights(weights)
    return model
