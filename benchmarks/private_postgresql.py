"""A private PostgreSQL server for benchmarks, in a folder that may be kept; it listens on a socket
only.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def private_server(folder: Path) -> Iterator[str]:
    """Start the server of a folder, made when it isn't there; yield the URL of its one database,
    stop it at the end.
    """
    user = None
    if os.geteuid() == 0:
        user = "postgres" if "postgres" in {entry.pw_name for entry in pwd.getpwall()} else "nobody"
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    if user is not None:
        shutil.chown(folder, user)
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: path.parent.name)
    programs = folders[-1] if folders else Path(shutil.which("pg_ctl") or "pg_ctl").parent

    def run(program: str, *arguments: str) -> None:
        subprocess.run(
            [str(programs / program), *arguments],
            user=user,
            group=user,
            extra_groups=None if user is None else [],
            cwd=folder,
            env={
                "PATH": os.defpath,
                "LC_ALL": "C",
                "TZ": "UTC",
                "PGHOST": str(folder),
                "PGUSER": "benchfarm",
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            check=True,
        )

    data = str(folder / "data")
    is_new = not Path(data).exists()
    if is_new:
        run("initdb", "-D", data, "-U", "benchfarm", "-A", "trust", "-E", "UTF8", "--no-sync")
    # 128 MB of buffers are PostgreSQL's own default.
    settings = (
        f"-c listen_addresses= -c unix_socket_directories={folder} -c fsync=off -c max_wal_size=4GB"
    )
    run("pg_ctl", "-D", data, "-l", str(folder / "log"), "-w", "-t", "60", "-o", settings, "start")
    try:
        if is_new:
            run("createdb", "year")
        yield f"postgresql://benchfarm@/year?host={folder}"
    finally:
        run("pg_ctl", "-D", data, "-m", "fast", "-w", "stop")
