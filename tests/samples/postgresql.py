"""PostgreSQL servers of the tests' own, which listen on a socket only and are gone at the end."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import missing


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """A PostgreSQL server, reached through a socket in a folder of its own."""

    programs: Path
    folder: Path
    #: As whom it runs, which isn't root; None: as who runs the tests.
    user: str | None
    #: Whether what it was told outlives a power cut.
    is_durable: bool

    def run(self, program: str, *arguments: str) -> None:
        """Run one of PostgreSQL's programs as the server's user; what it says is shown when it
        fails.
        """
        ended = subprocess.run(
            [str(self.programs / program), *arguments],
            user=self.user, group=self.user, extra_groups=None if self.user is None else [], cwd=self.folder,
            env={"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC", "PGHOST": str(self.folder), "PGUSER": "benchfarm"},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120,
            check=False,
        )  # fmt: skip
        assert ended.returncode == 0, (
            f"{program} {' '.join(arguments)} ended with {ended.returncode}:\n{ended.stdout}"
        )

    def url(self, database: str = "postgres") -> str:
        """Return the URL of a database of this server."""
        return f"postgresql://benchfarm@/{database}?host={self.folder}"

    def create(self, template: str = "template1") -> str:
        """Create a database as a copy of another one; return its name."""
        name = f"test_{uuid.uuid4().hex}"
        self.run("createdb", "-T", template, name)
        return name

    def start(self) -> None:
        settings = (
            f"-c listen_addresses= -c unix_socket_directories={self.folder} -c shared_buffers=16MB"
        )
        settings += "" if self.is_durable else " -c fsync=off"
        log = str(self.folder / "log")
        self.run(
            "pg_ctl",
            "-D",
            str(self.folder / "data"),
            "-l",
            log,
            "-w",
            "-t",
            "60",
            "-o",
            settings,
            "start",
        )

    def stop(self, mode: str = "immediate") -> None:
        self.run("pg_ctl", "-D", str(self.folder / "data"), "-m", mode, "-w", "stop")


@contextmanager
def private_cluster(*, is_durable: bool = False) -> Iterator[Cluster]:
    """Start a server; skips the test, or fails it where CI is set, when PostgreSQL isn't installed."""
    programs = _programs_folder()
    if programs is None:
        missing("PostgreSQL's initdb isn't installed; on Debian: apt-get install postgresql")
    users = {entry.pw_name for entry in pwd.getpwall()}
    # The server refuses to run as root. A socket's path may have some 100 bytes, too few for
    # pytest's own folders.
    user = ("postgres" if "postgres" in users else "nobody") if os.geteuid() == 0 else None
    folder = Path(tempfile.mkdtemp(prefix="benchfarm-pg-"))
    if user is not None:
        shutil.chown(folder, user)
    cluster = Cluster(programs=programs, folder=folder, user=user, is_durable=is_durable)
    try:
        cluster.run(
            "initdb",
            "-D",
            str(folder / "data"),
            "-U",
            "benchfarm",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--no-sync",
        )
        cluster.start()
        try:
            yield cluster
        finally:
            cluster.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _programs_folder() -> Path | None:
    """Return where initdb and pg_ctl are: Debian keeps them off the PATH, one folder for each
    version."""
    found = shutil.which("pg_ctl")
    folders = [Path(found).resolve().parent] if found else []
    folders += sorted(
        Path("/usr/lib/postgresql").glob("*/bin"),
        key=lambda path: float(path.parent.name),
        reverse=True,
    )
    return next((folder for folder in folders if (folder / "initdb").exists()), None)
