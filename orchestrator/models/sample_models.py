"""The sample models that come with benchfarm."""

from importlib import resources
from pathlib import Path


def sample_models() -> tuple[Path, ...]:
    """Return the sample models: float32, then its int8 twin."""
    folder = Path(str(resources.files("orchestrator.models") / "samples"))
    return tuple(sorted(folder.glob("*.tflite")))
