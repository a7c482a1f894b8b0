"""Builds the sample models with TensorFlow: a small MobileNet in float32, and its int8 twin from the same weights.

The network has MobileNet v1's shape (Howard et al., arXiv 1704.04861) at a quarter of its width: a strided convolution,
thirteen pairs of depthwise and pointwise convolutions with ReLU6, average pooling, a classifier, softmax. Each layer
passes its input on, stirred by weights that are random from a seed; what batch normalisation would do is folded in,
layer by layer, from the pictures of ``texture``; and the classifier is fitted in closed form to name a picture's
direction and fineness. So outputs depend on inputs (a network of plain random weights answers nearly the same to
everything, which would hide a broken delegate) without an hour of training.

They are computed, not collected, so that a sample model can be built and checked anywhere from a seed.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from orchestrator.errors import ModelError

SIZE_PX: Final = 256
DIRECTIONS: Final = 8
FINENESSES: Final = 8
CLASSES: Final = DIRECTIONS * FINENESSES

#: Waves across a picture, coarsest and finest; finer ones would be lost in the first stride of 2.
_WAVES_MIN: Final = 4.0
_WAVES_MAX: Final = 24.0


def pictures(labels: NDArray[Any], seed: int) -> NDArray[np.float32]:
    """Return one picture per label, ``[n, 256, 256, 3]`` float32 in -1...1.

    A label is ``direction * 8 + fineness``; phase, colour, contrast and noise come from the seed.
    """
    rng = np.random.default_rng(seed)
    count = len(labels)
    angle = np.pi * (labels // FINENESSES) / DIRECTIONS
    fineness = (labels % FINENESSES) / (FINENESSES - 1)
    waves = _WAVES_MIN * (_WAVES_MAX / _WAVES_MIN) ** fineness
    grid = np.linspace(0.0, 2.0 * np.pi, SIZE_PX, endpoint=False)
    along = np.cos(angle)[:, None, None] * grid[None, None, :] + np.sin(angle)[:, None, None] * grid[None, :, None]
    phase = rng.uniform(0.0, 2.0 * np.pi, size=(count, 1, 1))
    wave = np.cos(along * waves[:, None, None] + phase)
    colour = rng.uniform(0.5, 1.0, size=(count, 1, 1, 3))
    noise = rng.normal(0.0, 0.15, size=(count, SIZE_PX, SIZE_PX, 3))
    return np.clip(wave[..., None] * colour + noise, -1.0, 1.0).astype(np.float32)


def labels_in_turn(per_class: int) -> NDArray[np.int64]:
    """Return every label ``per_class`` times."""
    return np.tile(np.arange(CLASSES), per_class)


# ruff: noqa: ANN401 - TensorFlow, its tensors and its decorators carry no types


#: The seed of everything that is drawn.
SEED: Final = 20
FLOAT_NAME: Final = "texturenet_0.25_256_float.tflite"
INT8_NAME: Final = "texturenet_0.25_256_int8.tflite"
MANIFEST_NAME: Final = "manifest.json"
#: How a person builds the files again; written into the manifest.
BUILD_COMMAND: Final = "benchfarm model samples --build DIR"

#: Output channels and stride of each depthwise-pointwise pair (MobileNet v1's channels, divided by four).
_PAIRS: Final = (
    (16, 1), (32, 2), (32, 1), (64, 2), (64, 1), (128, 2), (128, 1), (128, 1), (128, 1), (128, 1), (128, 1),
    (256, 2), (256, 1),
)  # fmt: skip
_STEM_CHANNELS: Final = 8
_CALIBRATION_PER_CLASS: Final = 2
_FIT_PER_CLASS: Final = 12
#: How much random stirring a depthwise and a pointwise kernel add to passing their input on. More of it drowns what
#: the pictures say on its way through 27 layers: plain random kernels named 7 % of pictures right, these about 90 %.
_STIR_DEPTHWISE: Final = 0.15
_STIR_POINTWISE: Final = 0.3
#: Spread of the logits of the right class; softmax then gives clear but not saturated answers.
_LOGIT_SCALE: Final = 12.0

Weights = dict[str, NDArray[np.float32]]


def build_samples(folder: Path) -> list[Path]:
    """Build both sample models and their manifest into a folder; return the models' paths, float32 first.

    Takes about half a minute and imports TensorFlow. Files are replaced only once all of them are built.
    """
    import tensorflow as tf

    folder.mkdir(parents=True, exist_ok=True)
    weights = _fitted_weights(tf)
    contents = {FLOAT_NAME: _convert(tf, weights, as_int8=False), INT8_NAME: _convert(tf, weights, as_int8=True)}
    manifest = {
        "command": BUILD_COMMAND,
        "seed": SEED,
        "tensorflow": tf.__version__,
        "models": {
            name: {"sha256": hashlib.sha256(content).hexdigest(), "size_bytes": len(content)}
            for name, content in contents.items()
        },
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    (folder / MANIFEST_NAME).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    return [folder / name for name in contents]


def sample_models(folder: Path | None = None) -> tuple[Path, ...]:
    """Return the sample models in a folder (by default those that come with benchfarm), float32 first.

    Raises:
        ModelError: a file is missing or isn't the one that the manifest names (a damaged installation).
    """
    folder = folder or Path(str(resources.files("orchestrator.models"))) / "samples"
    try:
        manifest = json.loads((folder / MANIFEST_NAME).read_text(encoding="utf-8"))
        expected = {name: str(entry["sha256"]) for name, entry in manifest["models"].items()}
        for name, sha256 in expected.items():
            if hashlib.sha256((folder / name).read_bytes()).hexdigest() != sha256:
                raise ModelError(f"{folder / name} isn't the sample model that was shipped", hint=_REPAIR_HINT)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(f"the sample models in {folder} can't be read: {error}", hint=_REPAIR_HINT) from error
    return tuple(folder / name for name in expected)


_REPAIR_HINT: Final = f"install benchfarm again, or build the models: {BUILD_COMMAND}"


def _fitted_weights(tf: Any) -> Weights:
    """Draw the weights, fold the normalisation into them, and fit the classifier."""
    rng = np.random.default_rng(SEED)
    weights: Weights = {}
    calibration = pictures(labels_in_turn(_CALIBRATION_PER_CLASS), SEED + 1)

    x = tf.constant(calibration)
    for name, shape, depthwise, stride in _layers():
        kernel = _drawn_kernel(rng, shape)
        result = np.asarray(_convolve(tf, x, kernel, depthwise, stride))
        # Each channel comes to mean 0.5 and spread 1 over the pictures: in the middle of what ReLU6 lets through.
        scale = 1.0 / np.maximum(result.std(axis=(0, 1, 2)), 1e-3)
        per_channel = scale[:, None] if depthwise else scale  # depthwise kernels are [3, 3, channels, 1]
        weights[name] = (kernel * per_channel).astype(np.float32)
        weights[f"{name}/bias"] = (0.5 - result.mean(axis=(0, 1, 2)) * scale).astype(np.float32)
        x = _layer(tf, x, weights, name, depthwise, stride)

    labels = labels_in_turn(_FIT_PER_CLASS)
    batches = np.array_split(pictures(labels, SEED + 2), _FIT_PER_CLASS)
    features = np.concatenate([np.asarray(_features(tf, tf.constant(batch), weights)) for batch in batches])
    weights["classifier"], weights["classifier/bias"] = _fit(features, labels)
    return weights


def _drawn_kernel(rng: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Draw a kernel ``[height, width, in, out]`` that passes its input on, stirred a little."""
    height, _, channels, out = shape
    kernel = rng.normal(size=shape)
    if out == 1:
        kernel *= _STIR_DEPTHWISE
        kernel[1, 1] += 1.0
    elif height == 1:
        kernel *= _STIR_POINTWISE / np.sqrt(channels)
        for channel in range(max(channels, out)):
            kernel[0, 0, channel % channels, channel % out] += 1.0
    return kernel.astype(np.float32)


def _fit(features: NDArray[Any], labels: NDArray[Any]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Fit one-hot targets by ridge regression; return kernel ``[channels, classes]`` and bias."""
    mean = features.mean(axis=0)
    centred = (features - mean).astype(np.float64)
    targets = np.eye(CLASSES)[labels] * _LOGIT_SCALE
    ridge = 1e-2 * np.trace(centred.T @ centred) / centred.shape[1]
    kernel = np.linalg.solve(
        centred.T @ centred + ridge * np.eye(centred.shape[1]), centred.T @ (targets - targets.mean(axis=0))
    )
    bias = targets.mean(axis=0) - mean @ kernel
    return kernel.astype(np.float32), bias.astype(np.float32)


def _layers() -> Iterator[tuple[str, tuple[int, ...], bool, int]]:
    """Yield name, kernel shape, whether it is depthwise, and stride of each convolution."""
    yield "stem", (3, 3, 3, _STEM_CHANNELS), False, 2
    channels = _STEM_CHANNELS
    for number, (wider, stride) in enumerate(_PAIRS, start=1):
        yield f"pair{number}/depthwise", (3, 3, channels, 1), True, stride
        yield f"pair{number}/pointwise", (1, 1, channels, wider), False, 1
        channels = wider


def _convolve(tf: Any, x: Any, kernel: Any, depthwise: bool, stride: int) -> Any:
    strides = (1, stride, stride, 1)
    convolution = tf.nn.depthwise_conv2d if depthwise else tf.nn.conv2d
    return convolution(x, kernel, strides=strides, padding="SAME")


def _layer(tf: Any, x: Any, weights: Weights, name: str, depthwise: bool, stride: int) -> Any:
    return tf.nn.relu6(_convolve(tf, x, weights[name], depthwise, stride) + weights[f"{name}/bias"])


def _features(tf: Any, x: Any, weights: Weights) -> Any:
    for name, _, depthwise, stride in _layers():
        x = _layer(tf, x, weights, name, depthwise, stride)
    return tf.reduce_mean(x, axis=(1, 2))


def _convert(tf: Any, weights: Weights, *, as_int8: bool) -> bytes:
    """Return the network as a .tflite file with a fixed batch of 1, so that no operator asks for shapes at run time."""

    class Network(tf.Module):  # type: ignore[misc]
        @tf.function(  # type: ignore[untyped-decorator]
            input_signature=[tf.TensorSpec((1, SIZE_PX, SIZE_PX, 3), tf.float32, name="image")]
        )
        def classify(self, image: Any) -> dict[str, Any]:
            logits = tf.matmul(_features(tf, image, weights), weights["classifier"]) + weights["classifier/bias"]
            return {"probabilities": tf.nn.softmax(logits)}

    network = Network()
    with tempfile.TemporaryDirectory(prefix="benchfarm-zoo-") as folder:
        tf.saved_model.save(network, folder, signatures={"serving_default": network.classify})
        converter = tf.lite.TFLiteConverter.from_saved_model(folder)
        if as_int8:
            samples = pictures(labels_in_turn(_CALIBRATION_PER_CLASS), SEED + 3)
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
            converter.representative_dataset = lambda: ([sample[None]] for sample in samples)
            converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
            converter.inference_input_type = tf.int8
            converter.inference_output_type = tf.int8
        return bytes(converter.convert())
