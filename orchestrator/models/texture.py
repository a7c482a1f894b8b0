"""The pictures that the sample models tell apart: gratings of one direction and one fineness, over noise.

They are computed, not collected, so that a sample model can be built and checked anywhere from a seed.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

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
