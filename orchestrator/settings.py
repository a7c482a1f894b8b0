"""The settings from the environment and the command line; no other module reads the environment."""

from __future__ import annotations

import os
import platform
import socket
from collections.abc import Mapping
from pathlib import Path

from orchestrator.errors import UsageError
from orchestrator.files import expanded
from orchestrator.installation import add_program_place
from orchestrator.records import frozen


@frozen
class Settings:
    """The settings from the environment and the options before the command."""

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
    #: $BENCHFARM_MIRROR: the address of a mirror, below which all fetched addresses are.
    mirror: str = ""
    #: $BENCHFARM_CHECK_OUTPUTS: whether campaigns compare the outputs of new cases by default.
    checks_outputs: bool = True
    #: Whether questions may be asked on a terminal.
    may_ask: bool = True

    @classmethod
    def from_environment(
        cls,
        environ: Mapping[str, str] | None = None,
        *,
        home: Path | None = None,
        store: str | None = None,
    ) -> Settings:
        """Read $BENCHFARM_HOME, _STORE, _ADB, _ADB_SERVER, _MIRROR, _CHECK_OUTPUTS, _LOG, _TOKEN.

        Raises UsageError.
        """
        values = dict(os.environ if environ is None else environ)
        folder = home or (Path(values["BENCHFARM_HOME"]) if values.get("BENCHFARM_HOME") else None)
        if folder is not None:
            folder = expanded(folder).absolute()
            folders = (folder, folder / "cache", folder / "state")
        else:
            import platformdirs

            dirs = platformdirs.PlatformDirs("benchfarm", appauthor=False)
            folders = (
                Path(dirs.user_data_dir),
                Path(dirs.user_cache_dir),
                Path(dirs.user_state_dir),
            )
        add_program_place(folders[0] / "programs")
        return cls(
            data_folder=folders[0],
            cache_folder=folders[1],
            state_folder=folders[2],
            store=store or values.get("BENCHFARM_STORE") or _default_store(folders[0]),
            adb=values.get("BENCHFARM_ADB", ""),
            adb_server=values.get("BENCHFARM_ADB_SERVER", ""),
            environ=values,
            mirror=values.get("BENCHFARM_MIRROR", ""),
            checks_outputs=_is_on(values, "BENCHFARM_CHECK_OUTPUTS"),
        )

    @property
    def folders(self) -> tuple[Path, Path, Path]:
        """All folders that are benchfarm's."""
        return self.data_folder, self.cache_folder, self.state_folder

    @property
    def virtual_folder(self) -> Path:
        """The folder with the state of the virtual phones and their adb server."""
        return self.state_folder / "virtual"

    @property
    def is_default_store(self) -> bool:
        """Whether the store is the default one."""
        return self.store == _default_store(self.data_folder)

    @property
    def store_file(self) -> Path | None:
        """The file of an SQLite store, as it is opened; None for another kind of store.

        Raises UsageError.
        """
        if "://" not in self.store:
            return expanded(Path(self.store)).absolute()
        from orchestrator.store.opening import locate

        place = locate(self.store)
        return place if isinstance(place, Path) else None

    @property
    def store_title(self) -> str:
        """The store for people: without a database's password and parameters."""
        if "://" not in self.store:
            return self.store
        from orchestrator.store.opening import locate, title_of

        try:
            return title_of(locate(self.store))
        except UsageError:
            return "a URL that can't be understood"

    @property
    def log_format(self) -> str:
        """The format of progress without a terminal: ``text`` or ``json`` ($BENCHFARM_LOG).

        Raises UsageError.
        """
        chosen = self.environ.get("BENCHFARM_LOG") or "text"
        if chosen not in {"text", "json"}:
            raise UsageError(f"BENCHFARM_LOG is {chosen!r}, neither text nor json")
        return chosen

    @property
    def token(self) -> str:
        """The token that readers of the served pages need, from $BENCHFARM_TOKEN; empty for none."""
        return self.environ.get("BENCHFARM_TOKEN", "")


def _default_store(data_folder: Path) -> str:
    return str(data_folder / "store.sqlite")


def this_computer() -> str:
    """Return this computer's name in the campaigns that it runs: host name, system and machine."""
    return f"{socket.gethostname()} ({platform.system()} {platform.machine()})"


def _is_on(values: Mapping[str, str], name: str) -> bool:
    """Return whether a variable is on (the default); raises UsageError."""
    chosen = values.get(name) or "on"
    if chosen not in {"on", "off"}:
        raise UsageError(f"{name} is {chosen!r}, neither on nor off")
    return chosen == "on"
