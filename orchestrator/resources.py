"""Where the data files that come with benchfarm are, in a wheel and in a checkout."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from orchestrator.errors import BenchfarmError

DataFolder = Literal["reports", "apk_builds", "device_profiles", "docs"]


def data_folder(name: DataFolder) -> Path:
    """Return a folder of shipped data.

    An installed wheel holds them in ``orchestrator/_data``; a checkout or an editable install has them at the top of
    the repository. Raises BenchfarmError when neither is there, which means that the installation is damaged.
    """
    package = Path(__file__).resolve().parent
    candidates = (package / "_data" / name, package.parent / name)
    for folder in candidates:
        if folder.is_dir():
            return folder
    raise BenchfarmError(
        f"benchfarm's own folder '{name}' is missing (looked in {' and '.join(map(str, candidates))})",
        hint="The installation is damaged: install benchfarm again.",
    )
