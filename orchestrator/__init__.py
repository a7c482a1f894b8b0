"""benchfarm: measure TensorFlow Lite (LiteRT) models on real phones, and know what each number is worth."""

__version__ = "0.1.0"
