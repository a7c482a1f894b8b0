"""Commands as forks of one process that has imported what they import, which costs each of them
most of its start.

A parent is started by the first command of a test run with its folders of packages
(``PYTHONPATH``), serves all pytest workers that ask for it, and ends with the last of them. A fork
has the order's arguments, environment, folder and standard streams, a session of its own (on its standard
input, if that is a terminal), Python's own signal handlers, and nothing else open.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import fcntl
import functools
import gc
import hashlib
import importlib
import json
import os
import pkgutil
import selectors
import signal
import socket
import subprocess
import sys
import termios
import threading
import time
from pathlib import Path
from typing import Any

#: Else numpy and pyarrow start a thread when they are imported, and a process with threads can't be
#: forked.
WITHOUT_THREADS = {"OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
#: Python reads these once, at its start.
READ_AT_START = ("PYTHON", "LC_", "LANG", "LD_")
#: Of these, folders of packages may differ: each such list has a parent of its own.
PACKAGES = "PYTHONPATH"
LARGEST_ORDER = 1 << 20
#: What a parent tells a worker that it takes orders from.
READY = b"ready"


def forkable(environ: dict[str, str]) -> bool:
    """Say whether a fork of a parent runs as a process of its own does with this environment."""

    def at_start(values: dict[str, str]) -> dict[str, str]:
        return {
            name: value
            for name, value in values.items()
            if name.startswith(READ_AT_START) and name != PACKAGES
        }

    return sys.platform == "linux" and at_start(environ) == at_start(
        {**os.environ, "PYTHONUNBUFFERED": "1"}
    )


class Forked(subprocess.Popen[str]):
    """A command in a fork, used as any process is; the parent tells of its end by a pipe of its
    own.
    """

    def _execute_child(self, args: Any, executable: Any, *given: Any) -> None:
        cwd, env, handles = given[3], given[4], given[8:14]
        p2cread, _, _, c2pwrite, _, errwrite = handles
        standard = [
            own if own != -1 else number for number, own in enumerate((p2cread, c2pwrite, errwrite))
        ]
        read, write = os.pipe()
        self._ended = os.fdopen(read, "rb", buffering=0)
        order = {
            "argv": [os.fspath(word) for word in args],
            "cwd": os.fspath(cwd or Path.cwd()),
            "env": env,
        }
        orders = parent(env.get(PACKAGES, ""))
        socket.send_fds(orders, [json.dumps(order).encode()], [*standard, write])
        os.close(write)
        self.pid = int(self._told())
        self._child_created = True
        self._close_pipe_fds(*handles)  # type: ignore[attr-defined]

    def _told(self) -> bytes:
        line = b""
        while not line.endswith(b"\n"):
            part = self._ended.read(1)
            assert part, "the parent of commands has ended"
            line += part
        return line

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        with selectors.DefaultSelector() as waiting:
            waiting.register(self._ended, selectors.EVENT_READ)
            if wait_flags and not waiting.select(0):
                return 0, 0
        with self._ended:
            return self.pid, int(self._told())

    def _internal_poll(self, _deadstate: int | None = None, **_: Any) -> int | None:
        if self.returncode is None and self._waitpid_lock.acquire(blocking=False):  # type: ignore[attr-defined]
            try:
                pid, status = self._try_wait(os.WNOHANG) if self.returncode is None else (0, 0)
                if pid:
                    self._handle_exitstatus(status)  # type: ignore[attr-defined]
            finally:
                self._waitpid_lock.release()  # type: ignore[attr-defined]
        return self.returncode


_processes: list[subprocess.Popen[bytes]] = []


@functools.cache
def parent(packages: str) -> socket.socket:
    """Return where a parent with folders of packages beside its own takes this worker's orders.

    Whoever has the parent's name first starts it; a name without a parent is one that is ending.
    """
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
    name = f"\0benchfarm-tests-{run}-{hashlib.sha256(packages.encode()).hexdigest()[:16]}"
    while True:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as workers:
            is_first = has_taken(name, workers)
            if is_first:
                start_parent(workers, packages)
        orders = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with contextlib.suppress(ConnectionError):
            orders.connect(name)
            if orders.recv(len(READY)):
                return orders
        orders.close()
        assert not is_first, "the parent of commands has ended"


def has_taken(name: str, workers: socket.socket) -> bool:
    try:
        workers.bind(name)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        return False
    workers.listen()
    return True


def start_parent(workers: socket.socket, packages: str) -> None:
    environ = {**os.environ, **WITHOUT_THREADS, "PYTHONUNBUFFERED": "1", PACKAGES: packages}
    process = subprocess.Popen(
        [sys.executable, "-c", f"from tests.samples.warm import main; main({workers.fileno()})"],
        env={name: value for name, value in environ.items() if value}, cwd=Path(__file__).parents[2],
        pass_fds=[workers.fileno()], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    _processes.append(process)


def import_all() -> None:
    """Import what commands do, also those that they import only when they need them."""
    import orchestrator

    for module in pkgutil.walk_packages(orchestrator.__path__, "orchestrator."):
        importlib.import_module(module.name)
        threads = os.listdir("/proc/self/task")  # noqa: PTH208
        assert len(threads) == 1, f"{module.name} starts a thread when it is imported"
    from orchestrator import documents
    from orchestrator.cli.commands import ROOT
    from orchestrator.installation import data_folder
    from orchestrator.reading import profile
    from orchestrator.records import build_spec, campaign, case, device, plan, run, verdict
    from orchestrator.store import runs
    from orchestrator.tables import html

    # What nearly all commands make of these when they read a plan, open a store, read an output and
    # write a report.
    for kind in (campaign.Campaign, campaign.Status, campaign.Terms, case.Build, case.Case, case.Model,
                 case.SkippedCase, device.DeviceFacts, device.DeviceState, run.RunRecord, run.ToolReport,
                 runs._document_kind(), verdict.QualityVerdict):  # fmt: skip
        documents.adapter_of(kind)
    for kind in (plan.Plan, build_spec.BuildSpec, device.DeviceProfile):
        documents.plain_adapter_of(kind)
    profile._messages()
    # And of the words of a command line.
    ROOT.load()
    commands: list[Any] = [ROOT]
    for command in commands:
        commands += getattr(command, "commands", {}).values()
        for parameter in command.params:
            parameter.get_runtime_param()
    for path in (data_folder("reports") / "templates").glob("*.j2"):
        html.template(path.name)
    # And of virtual phones and models.
    for name in ("ai_edge_litert.schema_py_generated", "benchfarm_virtual.control", "benchfarm_virtual.faults",
                 "benchfarm_virtual.samples", "benchfarm_virtual.programs.process"):  # fmt: skip
        importlib.import_module(name)


def next_order(workers: socket.socket) -> dict[str, Any] | None:
    """Fork for each order and return it in the fork; return nothing in the parent once the last
    worker is gone.
    """
    left = 0
    with workers, selectors.DefaultSelector() as waiting:
        waiting.register(workers, selectors.EVENT_READ)
        while True:
            for key, _ in waiting.select():
                if key.fileobj is workers:
                    orders, _ = workers.accept()
                    waiting.register(orders, selectors.EVENT_READ)
                    left += 1
                    # It may be gone already.
                    with contextlib.suppress(BrokenPipeError):
                        orders.send(READY)
                    continue
                if not isinstance(key.fileobj, socket.socket):
                    waiting.unregister(key.fileobj)
                    pid, telling = key.data
                    tell(telling, os.waitpid(pid, 0)[1])
                    os.close(telling)
                    os.close(key.fd)
                    continue
                text, given, _, _ = socket.recv_fds(key.fileobj, LARGEST_ORDER, 4)
                if not text:
                    waiting.unregister(key.fileobj)
                    key.fileobj.close()
                    left -= 1
                    if not left:
                        return None
                    continue
                *standard, telling = given
                pid = os.fork()
                if pid == 0:
                    for number, own in enumerate(standard):
                        os.dup2(own, number)
                    order: dict[str, Any] = json.loads(text)
                    return order
                tell(telling, pid)
                for own in standard:
                    os.close(own)
                waiting.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, telling))


def tell(telling: int, number: int) -> None:
    # Whoever gave the order may be gone.
    with contextlib.suppress(BrokenPipeError):
        os.write(telling, f"{number}\n".encode())


def become(order: dict[str, Any]) -> None:
    """Be the command's process instead of the parent's fork."""
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.setsid()
    if os.isatty(0):
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["env"])
    time.tzset()
    sys.argv = order["argv"]
    sys.path[0] = str(Path(sys.argv[0]).parent)


def main(workers: int) -> None:
    """Be the parent, or a fork of it."""
    import_all()
    gc.collect()
    gc.freeze()
    order = next_order(socket.socket(fileno=workers))
    if order is not None:
        become(order)
        from orchestrator.cli import main as command

        try:
            command()
        except SystemExit as ended:
            # As at any end; only taking apart what was imported is left out, which costs as much
            # again.
            threading._shutdown()  # type: ignore[attr-defined]
            atexit._run_exitfuncs()
            os._exit(int(ended.code or 0))
