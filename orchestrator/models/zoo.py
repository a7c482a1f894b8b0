"""The sample models that come with benchfarm."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from typing import Final

from orchestrator.errors import ModelError
from orchestrator.files import sha256_of

_SAMPLES: Final = "samples"
_MANIFEST: Final = "manifest.json"


def sample_models(folder: Path | None = None) -> tuple[Path, ...]:
    """Return the sample models in a folder (by default those that come with benchfarm), float32
    first.

    Raises:
        ModelError: a file is missing or isn't the one that the manifest names (a damaged
            installation).
    """
    folder = folder or _data() / _SAMPLES
    hint = "install benchfarm again"
    try:
        manifest = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
        expected = {name: str(entry["sha256"]) for name, entry in manifest["models"].items()}
        for name, sha256 in expected.items():
            if sha256_of(folder / name) != sha256:
                raise ModelError(
                    f"{folder / name} isn't the sample model that was shipped", hint=hint
                )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(
            f"the sample models in {folder} can't be read: {error}", hint=hint
        ) from error
    return tuple(folder / name for name in expected)


def _data() -> Path:
    return Path(str(resources.files("orchestrator.models")))
