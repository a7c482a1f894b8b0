"""The networks that benchfarm can build by name: Keras applications, and small ones of its own for
quick tries.
"""

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
