"""Where everything is put together: settings from the environment, adapters from settings. Nothing else does either."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Self

from orchestrator.clock import SystemClock
from orchestrator.errors import ArtifactError, NoDeviceError

if TYPE_CHECKING:
    from orchestrator.ports import Store, Tool
    from orchestrator.records.workload import ToolName


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the environment and the options before the command say."""

    #: Store and reports.
    data_folder: Path
    #: Programs, by content.
    cache_folder: Path
    #: Journals, leases, servers that run.
    state_folder: Path
    #: Path or URL of the store.
    store: str
    #: $BENCHFARM_ADB: the adb program to use.
    adb: str
    #: $BENCHFARM_ADB_SERVER: host:port of the adb server to use.
    adb_server: str
    #: The environment for programs that are started.
    environ: Mapping[str, str]

    @classmethod
    def from_environment(
        cls, environ: Mapping[str, str] | None = None, *, home: Path | None = None, store: str | None = None
    ) -> Settings:
        """Read $BENCHFARM_HOME, $BENCHFARM_STORE, $BENCHFARM_ADB and $BENCHFARM_ADB_SERVER; options win."""
        values = dict(os.environ if environ is None else environ)
        folder = home or (Path(values["BENCHFARM_HOME"]) if values.get("BENCHFARM_HOME") else None)
        if folder is not None:
            folder = folder.expanduser().absolute()
            folders = (folder, folder / "cache", folder / "state")
        else:
            import platformdirs

            dirs = platformdirs.PlatformDirs("benchfarm", appauthor=False)
            folders = (Path(dirs.user_data_dir), Path(dirs.user_cache_dir), Path(dirs.user_state_dir))
        return cls(
            data_folder=folders[0],
            cache_folder=folders[1],
            state_folder=folders[2],
            store=store or values.get("BENCHFARM_STORE") or str(folders[0] / "store.sqlite"),
            adb=values.get("BENCHFARM_ADB", ""),
            adb_server=values.get("BENCHFARM_ADB_SERVER", ""),
            environ=values,
        )
