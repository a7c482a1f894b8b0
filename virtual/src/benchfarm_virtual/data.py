"""Reading the data files of this package."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

#: The one in C where PyYAML was built with it, which is ten times faster.
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_yaml(path: Path) -> Any:  # noqa: ANN401 - whatever the file holds
    """Return the content of a YAML file of this package."""
    return yaml.load(path.read_text(encoding="utf-8"), _LOADER)  # noqa: S506 - a safe one


#: What every phone begins with: settings, the shell's environment, processes, folders.
DEFAULTS: Final[Mapping[str, Any]] = read_yaml(Path(__file__).with_name("defaults.yaml"))
