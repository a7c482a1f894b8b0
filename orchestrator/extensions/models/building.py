"""Builds .tflite files with TensorFlow: variants, batches and sizes of one network, each
reproducible from its recipe.

TensorFlow runs in a process of its own (``models.conversion``): it takes seconds to import, prints
a lot, and its converter and calibrator are native code that may abort. Each file is reported as soon
as it is built, so that an abort loses only the files that weren't built yet. The networks are Keras
applications, and small ones of benchfarm's own for quick tries.
"""

# ruff: noqa: ANN401 - Keras carries no types
from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from orchestrator.errors import HostStorageError, UsageError, choices
from orchestrator.files import write_file
from orchestrator.installation import require_packages
from orchestrator.processes import child_environment
from orchestrator.records import frozen

VARIANTS: Final = ("float32", "float16", "dynamic-range", "int8", "int16x8")
#: What the process with TensorFlow has of its own.
TENSORFLOW_ENVIRON: Final = {
    "TF_CPP_MIN_LOG_LEVEL": "2",
    "CUDA_VISIBLE_DEVICES": "-1",
    "KERAS_BACKEND": "tensorflow",
}
#: Characters of a process's last output that are shown.
_TEXT_SHOWN: Final = 600


@frozen
class BuildOrder:
    """An order of models: every variant of every batch and size."""

    #: A name of ``NAMES``, a SavedModel folder, or a .keras or .h5 file.
    source: str
    variants: tuple[str, ...] = ("float32",)
    batches: tuple[int, ...] = (1,)
    #: Empty: the source's own size.
    sizes: tuple[int, ...] = ()
    #: Of random weights and samples.
    seed: int = 0
    #: Lets TensorFlow's own operators stay in the model, which then needs the Flex delegate.
    flex: bool = False

    @property
    def is_named(self) -> bool:
        """Whether the source is one of benchfarm's names."""
        return self.source in NAMES

    def name(self, size: int | None, batch: int, variant: str) -> str:
        """Return the file name of one variant, without its ending."""
        path = Path(self.source)
        # A folder has no ending: ``detector_v1.0`` isn't ``detector_v1.1``.
        parts = [path.stem if path.is_file() else path.name]
        parts += [str(size)] if size is not None else []
        parts += [f"b{batch}"] if batch != 1 else []
        return "_".join([*parts, variant])

    @property
    def names(self) -> list[str]:
        """All files that it asks for."""
        return [
            self.name(size, batch, variant)
            for size in self.sizes or (None,)
            for batch in self.batches
            for variant in self.variants
        ]


@frozen
class BuiltModel:
    """One file that was built."""

    name: str
    path: Path
    sha256: str
    size_bytes: int
    #: Settings and versions: all that is needed to build it again.
    build: Mapping[str, str]


@frozen
class FailedBuild:
    """One file that couldn't be built."""

    name: str
    reason: str
    hint: str = ""


def build_models(
    order: BuildOrder, folder: Path, *, environ: Mapping[str, str]
) -> list[BuiltModel | FailedBuild]:
    """Build the files of an order into a folder, in a process of its own: TensorFlow may end it.

    Files that are there are replaced.

    Raises:
        MissingPackageError: TensorFlow isn't installed.
        HostStorageError: no space left.
    """
    require_packages("building models", "tensorflow", "keras")
    environment = child_environment(environ, **TENSORFLOW_ENVIRON)
    command = [sys.executable, "-m", "orchestrator.extensions.models.conversion"]
    try:
        with tempfile.TemporaryDirectory(prefix="benchfarm-build-") as work:
            log, done = Path(work, "log"), Path(work, "done.jsonl")
            done.touch()
            Path(work, "order.json").write_text(json.dumps(asdict(order)), "utf-8")
            with log.open("wb") as output:
                process = subprocess.run(
                    [*command, work],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    env=environment,
                    check=False,
                )
            outcomes = [_outcome(json.loads(line), folder) for line in done.open(encoding="utf-8")]
            reported = {outcome.name for outcome in outcomes}
            reason = _process_failure(log, process.returncode)
    except OSError as error:
        raise HostStorageError(
            f"the models can't be written to {folder}: {error.strerror}"
        ) from error
    missing = [name for name in order.names if name not in reported]
    return [*outcomes, *(FailedBuild(name=name, reason=reason) for name in missing)]


def _process_failure(log: Path, code: int) -> str:
    """Return a sentence with the process's exit and the end of its output."""
    exit_text = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
    last_output = " ".join(log.read_text(encoding="utf-8", errors="replace").split())[-_TEXT_SHOWN:]
    return f"the process with TensorFlow {exit_text}; its last output: {last_output or 'none'}"


def check_order(order: BuildOrder) -> None:
    """Raise UsageError for an order that can't be built."""
    for variant in order.variants:
        if variant not in VARIANTS:
            raise UsageError(f"{variant!r} is no variant", hint=choices(variant, VARIANTS))
    path = Path(order.source)
    if not order.is_named and not path.exists():
        raise UsageError(
            f"{order.source!r} is neither a network's name nor a SavedModel folder nor a Keras file",
            hint=f"names: {', '.join(NAMES)}",
        )
    if path.is_dir() and not order.is_named and not (path / "saved_model.pb").is_file():
        raise UsageError(
            f"the folder {order.source!r} holds no saved_model.pb, so it is no SavedModel",
            hint="name the folder that model.export() or tf.saved_model.save() wrote",
        )


def _outcome(entry: Mapping[str, Any], folder: Path) -> BuiltModel | FailedBuild:
    """Return the built model of an entry, copied into its folder, or the failure."""
    if "file" not in entry:
        return FailedBuild(name=entry["name"], reason=entry["error"], hint=entry["hint"])
    path, content = folder / f"{entry['name']}.tflite", Path(entry["file"]).read_bytes()
    write_file(path, content, makes_folder=True)
    return BuiltModel(
        name=entry["name"],
        path=path,
        sha256=hashlib.sha256(content).hexdigest(),
        size_bytes=len(content),
        build=entry["build"],
    )


#: Name -> class in ``keras.applications`` and its usual picture size in pixels.
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


def _tiny_attention(keras: Any, length: int) -> Any:
    layers = keras.layers
    inlet = keras.Input((length, 32), name="tokens")
    x = layers.MultiHeadAttention(2, 16)(inlet, inlet)
    x = layers.LayerNormalization()(layers.Add()([inlet, x]))
    return keras.Model(
        inlet, layers.Dense(32, activation="gelu", name="states")(x), name="tiny_attention"
    )


#: Name -> the function that makes it, and the size of its input: pixels or tokens.
SMALL: Final[Mapping[str, tuple[Callable[[Any, int], Any], int]]] = {
    "tiny_cnn": (_tiny_cnn, 32),
    "tiny_attention": (_tiny_attention, 16),
}
NAMES: Final = (*SMALL, *APPLICATIONS)


def make_network(keras: Any, name: str, size: int | None) -> Any:
    """Return a Keras model with random weights by one of :data:`NAMES`; ``size`` is the pixels of a
    side (tokens), the usual size when None.
    """
    if name in SMALL:
        make, usual = SMALL[name]
        return make(keras, size or usual)
    class_name, usual = APPLICATIONS[name]
    side = size or usual
    # The classifier's size is that of ImageNet.
    return getattr(keras.applications, class_name)(weights=None, input_shape=(side, side, 3))
