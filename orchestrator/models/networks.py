"""The networks that benchfarm can build by name: Keras applications, and small ones of its own for quick tries."""

# ruff: noqa: ANN401 - Keras carries no types
from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

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
    # Weights of at least 1,024 elements: the converter leaves smaller ones as they are in dynamic-range models.
    x = layers.Conv2D(160, 1, activation="relu6")(x)
    x = layers.GlobalAveragePooling2D()(x)
    return keras.Model(inlet, layers.Dense(10, activation="softmax", name="probabilities")(x), name="tiny_cnn")


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
    return keras.Model(inlet, layers.Dense(32, activation="gelu", name="states")(x), name="tiny_attention")


#: The network of the sample models that come with benchfarm, and the seed of its weights.
SAMPLE_NETWORK: Final = "texturenet"
SAMPLE_SEED: Final = 20
DIRECTIONS: Final = 8
FINENESSES: Final = 8
CLASSES: Final = DIRECTIONS * FINENESSES
#: Waves across a picture, coarsest and finest; finer ones would be lost in the first stride of 2.
_WAVES_MIN: Final = 4.0
_WAVES_MAX: Final = 24.0
#: Output channels and stride of each depthwise-pointwise pair (MobileNet v1's channels, divided by four).
_PAIRS: Final = (
    (16, 1), (32, 2), (32, 1), (64, 2), (64, 1), (128, 2), (128, 1), (128, 1), (128, 1), (128, 1), (128, 1),
    (256, 2), (256, 1),
)  # fmt: skip
#: How much random stirring a depthwise and a pointwise kernel add to passing their input on. More of it drowns what
#: the pictures say on its way through 27 layers: plain random kernels named 7 % of pictures right, these about 90 %.
_STIR_DEPTHWISE: Final = 0.15
_STIR_POINTWISE: Final = 0.3
#: Spread of the logits of the right class; softmax then gives clear but not saturated answers.
_LOGIT_SCALE: Final = 12.0


def pictures(per_class: int, seed: int, size_px: int = 256) -> tuple[Any, Any]:
    """Return pictures ``[n, size, size, 3]`` float32 in -1...1 of waves, every class ``per_class`` times; and labels.

    A label is ``direction * 8 + fineness``; phase, colour, contrast and noise come from the seed.
    """
    import numpy as np

    labels = np.tile(np.arange(CLASSES), per_class)
    rng = np.random.default_rng(seed)
    count = len(labels)
    angle = np.pi * (labels // FINENESSES) / DIRECTIONS
    fineness = (labels % FINENESSES) / (FINENESSES - 1)
    waves = _WAVES_MIN * (_WAVES_MAX / _WAVES_MIN) ** fineness
    grid = np.linspace(0.0, 2.0 * np.pi, size_px, endpoint=False)
    along = np.cos(angle)[:, None, None] * grid[None, None, :] + np.sin(angle)[:, None, None] * grid[None, :, None]
    wave = np.cos(along * waves[:, None, None] + rng.uniform(0.0, 2.0 * np.pi, size=(count, 1, 1)))
    colour = rng.uniform(0.5, 1.0, size=(count, 1, 1, 3))
    noise = rng.normal(0.0, 0.15, size=(count, size_px, size_px, 3))
    return np.clip(wave[..., None] * colour + noise, -1.0, 1.0).astype(np.float32), labels


def _texturenet(keras: Any, size_px: int) -> Any:
    """Return the network of the sample models, whose outputs depend on their inputs without an hour of training.

    It has MobileNet v1's shape (Howard et al., arXiv 1704.04861) at a quarter of its width. Each layer passes its input
    on, stirred by random weights, and what batch normalisation would do is folded in from pictures of waves; the
    classifier is fitted in closed form to name a picture's direction and fineness. A network of plain random weights
    answers nearly the same to everything, which would hide a broken delegate.
    """
    import numpy as np

    rng = np.random.default_rng(SAMPLE_SEED)
    layers = keras.layers
    x = inlet = keras.Input((size_px, size_px, 3), name="image")
    given, _ = pictures(2, SAMPLE_SEED + 1, size_px)
    plan = [layers.Conv2D(8, 3, strides=2, padding="same", activation="relu6")]
    for channels, stride in _PAIRS:
        plan.append(layers.DepthwiseConv2D(3, strides=stride, padding="same", activation="relu6"))
        plan.append(layers.Conv2D(channels, 1, activation="relu6"))
    for layer in plan:
        x = layer(x)
        kernel = _drawn_kernel(rng, layer.get_weights()[0].shape)
        layer.activation = keras.activations.linear
        layer.set_weights([kernel, layer.get_weights()[1]])
        result = np.asarray(layer(given))
        layer.activation = keras.activations.relu6
        # Each channel comes to mean 0.5 and spread 1 over the pictures: in the middle of what ReLU6 lets through.
        scale = 1.0 / np.maximum(result.std(axis=(0, 1, 2)), 1e-3)
        # A depthwise kernel is [3, 3, channels, 1].
        kernel = kernel * (scale[:, None] if kernel.shape[-1] == 1 else scale)
        layer.set_weights([kernel, 0.5 - result.mean(axis=(0, 1, 2)) * scale])
        given = np.asarray(layer(given))
    x = layers.GlobalAveragePooling2D()(x)
    shown, labels = pictures(12, SAMPLE_SEED + 2, size_px)
    features = keras.Model(inlet, x).predict(shown, batch_size=CLASSES, verbose=0).astype(np.float64)
    # One-hot targets by ridge regression.
    mean, targets = features.mean(axis=0), np.eye(CLASSES)[labels] * _LOGIT_SCALE
    centred = features - mean
    ridge = 1e-2 * np.trace(centred.T @ centred) / centred.shape[1] * np.eye(centred.shape[1])
    kernel = np.linalg.solve(centred.T @ centred + ridge, centred.T @ (targets - targets.mean(axis=0)))
    classifier = layers.Dense(CLASSES, activation="softmax", name="probabilities")
    x = classifier(x)
    classifier.set_weights([kernel, targets.mean(axis=0) - mean @ kernel])
    return keras.Model(inlet, x, name="texturenet")


def _drawn_kernel(rng: Any, shape: tuple[int, ...]) -> Any:
    """Draw a kernel ``[height, width, in, out]`` that passes its input on, stirred a little; the first is random."""
    height, _, channels, out = shape
    kernel = rng.normal(size=shape)
    if out == 1:
        kernel *= _STIR_DEPTHWISE
        kernel[1, 1] += 1.0
    elif height == 1:
        kernel *= _STIR_POINTWISE / channels**0.5
        for channel in range(max(channels, out)):
            kernel[0, 0, channel % channels, channel % out] += 1.0
    return kernel


#: Name -> what makes it, and the size of its input: pixels, features, or tokens.
SMALL: Final[Mapping[str, tuple[Callable[[Any, int], Any], int]]] = {
    "tiny_cnn": (_tiny_cnn, 32),
    "tiny_residual": (_tiny_residual, 32),
    "tiny_mlp": (_tiny_mlp, 64),
    "tiny_attention": (_tiny_attention, 16),
    SAMPLE_NETWORK: (_texturenet, 256),
}
NAMES: Final = (*SMALL, *APPLICATIONS)


def make_network(keras: Any, name: str, size: int | None, weights: str) -> Any:
    """Return a Keras model by one of :data:`NAMES`.

    Args:
        keras: The module.
        name: Which one.
        size: Pixels of a side (features, tokens); the usual size when None.
        weights: ``random``, ``imagenet`` (Keras downloads them), or a weights file of the same network.
    """
    if name in SMALL:
        make, usual = SMALL[name]
        model = make(keras, size or usual)
    else:
        class_name, usual = APPLICATIONS[name]
        side = size or usual
        given = "imagenet" if weights == "imagenet" else None
        # The classifier's size is that of ImageNet; only without a top could trained weights take any picture size.
        model = getattr(keras.applications, class_name)(weights=given, input_shape=(side, side, 3))
    if weights not in {"random", "imagenet"}:
        model.load_weights(weights)
    return model
