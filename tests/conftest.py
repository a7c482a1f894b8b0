"""What tests of several areas share: private adb servers, and virtual phones that let them in."""

from __future__ import annotations

import base64
import gc
import gzip
import importlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Generator, Iterator, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

import psutil
import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from benchfarm_virtual.phones import VirtualPhones
    from tests.samples.real_phone import RealPhone

pytest_plugins = ["tests.samples.stores"]

DEBIAN_ADB = Path("/usr/bin/adb")
PORTS_TRIED = 5
#: Several times what all tests leave behind.
ENOUGH_BYTES = 8 << 30
#: Here tests wait for real servers and browsers, which a busy machine may starve past every
#: deadline.
AGAINST_SERVERS = (
    "tests/android",
    "tests/browser",
    "tests/contract",
    "tests/e2e",
    "tests/integration",
    "virtual/tests/wire",
)

#: Of tests elsewhere, those that ask for one of these wait for the same.
OF_SERVERS = {"lab_of", "make_cli", "cli"}
#: A module of tests that has one of these names starts processes: it is no part of ``make
#: test-fast``.
STARTS_PROCESSES = {
    "Cli",
    "Shell",
    "c_compiler",
    "multiprocessing",
    "private_cluster",
    "subprocess",
}

# As where CI is set: what passed does so again, however slow this computer is.
# --hypothesis-profile=default varies.
settings.load_profile("ci")
# What is compiled once isn't compiled again by each of a thousand processes, as some environments
# have it.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# Which night a run belongs to is told by the local date: that is the same one for everybody's
# tests.
os.environ["TZ"] = "UTC"
time.tzset()
# A background shell ignores SIGINT for its jobs, nohup SIGHUP: processes that tests start would
# inherit that.
for ignored in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM):
    if signal.getsignal(ignored) is signal.SIG_IGN:
        signal.signal(
            ignored, signal.default_int_handler if ignored is signal.SIGINT else signal.SIG_DFL
        )
signal.pthread_sigmask(signal.SIG_SETMASK, ())


def pytest_addoption(parser: pytest.Parser) -> None:
    """Say over which phones the device contract runs: ``make test``, ``make test-android``, ``make
    test-phone``."""
    group = parser.getgroup("phones")
    group.addoption("--phone", choices=("virtual", "real", "cable"), default="virtual")
    group.addoption("--serial", default="", help="of the phone on a cable")
    group.addoption("--destructive", action="store_true", help="reboot the phone on a cable, too")


@pytest.fixture(autouse=True, scope="session")
def _own_standard_input() -> Iterator[None]:
    """Give tests a standard input that has ended: the terminal or pipe of whoever started them
    isn't theirs."""
    with Path(os.devnull).open() as nothing:
        kept = os.dup(0)
        os.dup2(nothing.fileno(), 0)
        yield
        os.dup2(kept, 0)
        os.close(kept)


@pytest.fixture(autouse=True, scope="session")
def _nothing_goes_on(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Fail where a program that was started for a folder of the tests is still there after all of
    them."""
    yield
    own = f"{tmp_path_factory.getbasetemp()}/"

    def left() -> list[list[str]]:
        found = psutil.process_iter(["cmdline"])
        return [words for one in found if own in " ".join(words := one.info["cmdline"] or [])]

    poll_until(lambda: not left(), f"the end of {left()}", timeout_s=10.0)


def pytest_configure(config: pytest.Config) -> None:
    """Build what phones of real parts share, once; without them there is nothing to run, which one
    line says.

    Nor is there where another benchfarm is installed than this checkout's: its plugins are known by
    what was installed.
    """
    if config.getoption("--phone") == "virtual":
        keep_in_memory()
    declared = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text("utf-8"))[
        "project"
    ]
    groups = declared["entry-points"]
    installed = {
        group: {
            entry.name: entry.value
            for entry in entry_points(group=group)
            if entry.dist and entry.dist.name == "benchfarm"
        }
        for group in groups
    }
    if installed != groups:
        pytest.exit(
            "the entry points of pyproject.toml aren't those that are installed in "
            f"{sys.prefix}; run: make develop",
            returncode=1,
        )
    if config.getoption("--phone") != "real" or hasattr(config, "workerinput"):
        return
    from tests.samples.real_phone import built_root, why_not

    if reason := why_not():
        pytest.exit(f"skipped: {reason}", returncode=0)
    try:
        built_root()
    except RuntimeError as error:
        pytest.exit(str(error), returncode=1 if os.environ.get("CI") else 0)


def keep_in_memory() -> None:
    """Have temporary folders in memory, where there is plenty: no store and no database waits for a
    disk."""
    memory = Path("/dev/shm")
    if "TMPDIR" in os.environ or not memory.is_dir():
        return
    found = os.statvfs(memory)
    if found.f_bavail * found.f_frsize > ENOUGH_BYTES and not found.f_flag & os.ST_NOEXEC:
        os.environ["TMPDIR"] = str(memory)
        tempfile.tempdir = None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without a look for garbage: nearly all that collecting makes stays, and no later look
    needs to go through it."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out what needs phones of real parts, which only root can have."""
    is_theirs = collection_path == Path(__file__).parent / "android"
    return True if is_theirs and config.getoption("--phone") != "real" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give a failed test against real servers one more try; mark as slow what starts servers or
    processes.
    """
    repo = Path(__file__).parents[1]
    folders = [repo / name for name in AGAINST_SERVERS]
    folders += repo.glob("tests/extensions/*/e2e")
    of_path = {
        path: any(path.is_relative_to(folder) for folder in folders)
        for path in {item.path for item in items}
    }
    for item in items:
        is_against_servers = of_path[item.path]
        is_against_servers |= not OF_SERVERS.isdisjoint(getattr(item, "fixturenames", ()))
        if is_against_servers:
            item.add_marker(pytest.mark.flaky(reruns=1))
        if is_against_servers or not vars(getattr(item, "module", None) or item).keys().isdisjoint(
            STARTS_PROCESSES
        ):
            item.add_marker(pytest.mark.slow)
    # At the end no worker is left alone with a file that takes long: such files of these folders,
    # which would come last, come first.
    slow_files = {item.path for item in items if item.get_closest_marker("slow")}
    late = {path for path in slow_files if {"shells", "unit"} & {*path.parts}}
    items.sort(key=lambda item: (item.path not in slow_files, item.path not in late))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how many first tries failed, and why: such a test, or what it tests, is to be mended."""
    reruns = terminalreporter.stats.get("rerun", [])
    terminalreporter.write_line(f"reruns: {len(reruns)}")
    for report in reruns:
        terminalreporter.write_sep("_", f"first try of {report.nodeid}")
        terminalreporter.write_line(report.longreprtext)


def missing(reason: str) -> NoReturn:
    """Skip the test for what it needs and isn't there; fail it where CI is set, where all of it is
    to be there.

    It is for what ``make test`` installs: tests/system_packages.sh and the packages of the extra
    ``dev``.
    """
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason, allow_module_level=True)


def installed(package: str) -> ModuleType:
    """Import a package of the extra ``dev`` that not everybody has."""
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError:
        missing(f"{package} isn't installed: pip install 'benchfarm[dev]'")


def debian_adb() -> Path:
    if not DEBIAN_ADB.exists():
        missing(f"{DEBIAN_ADB} isn't there; on Debian: apt-get install adb")
    return DEBIAN_ADB


def c_compiler() -> str:
    return shutil.which("cc") or missing(
        "no C compiler is installed; on Debian: apt-get install gcc libc6-dev"
    )


def poll_until(claim: Callable[[], object], what: str, timeout_s: float = 60.0) -> None:
    """Poll a condition; fail the test when it isn't true in time, which is more than a busy machine
    needs.

    What takes long to ask or to come about is asked less often: that would take the time from what
    it waits for.
    """
    begun_s = time.monotonic()
    while True:
        asked_s = time.monotonic()
        if claim():
            return
        now_s = time.monotonic()
        if now_s > begun_s + timeout_s:
            pytest.fail(f"not within {timeout_s:g} s: {what}")
        time.sleep(min(0.5, max(0.01, 4 * (now_s - asked_s), (now_s - begun_s) / 20)))


def process_is_gone(pid: int) -> bool:
    """Say whether a process has ended, taken off by its parent or not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def unused_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


class AdbServer:
    """An adb server of our own: private port, private keys, no discovery of anything."""

    def __init__(self, binary: Path, home: Path) -> None:
        self.binary = binary
        self.home = home
        home.mkdir(parents=True)
        # Phones come over TCP here; looking for others on USB costs adb 36 three seconds.
        self.env = {
            "HOME": str(home), "PATH": os.environ["PATH"], "TMPDIR": str(home), "LC_ALL": "C.UTF-8",
            "ADB_MDNS": "0", "ADB_MDNS_AUTO_CONNECT": "0", "ADB_EMU": "0", "ADB_USB": "0",
        }  # fmt: skip
        self._take_port()
        self._has_run = False
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def public_key(self) -> Path:
        return self.home / ".android" / "adbkey.pub"

    def start(self) -> None:
        """Start it, on another port when somebody took the chosen one in between; one that was
        stopped, on its own.
        """
        for _ in range(PORTS_TRIED):
            self._launch()
            if self._process is not None and self._process.poll() is None:
                self._has_run = True
                return
            if not self._has_run:
                self._take_port()
        pytest.fail(f"{self.binary} doesn't start; see {self.home}/server.log")

    def _launch(self) -> None:
        with (self.home / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [self.binary, "-P", str(self.port), "nodaemon", "server"], env=self.env, stdout=log, stderr=log,
                stdin=subprocess.DEVNULL,
            )  # fmt: skip
        poll_until(self._answers_or_ended, f"{self.binary} listens; see {self.home}/server.log")

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _take_port(self) -> None:
        self.port = unused_port()
        self.env["ANDROID_ADB_SERVER_PORT"] = str(self.port)

    def _answers_or_ended(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            return True
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=5).close()
        except OSError:
            return False
        return self.public_key.exists() and self.public_key.stat().st_size > 0

    def run(
        self, *args: str | Path, stdin: bytes = b"", timeout_s: float = 60.0
    ) -> subprocess.CompletedProcess[bytes]:
        """Run the plain adb command."""
        return subprocess.run(
            [self.binary, *args],
            env=self.env,
            input=stdin,
            capture_output=True,
            timeout=timeout_s,
            check=False,
        )

    def popen(self, *args: str | Path) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [self.binary, *args],
            env=self.env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def states(self) -> dict[str, str]:
        """Return address -> state of all that the server knows."""
        lines = self.run("devices").stdout.decode().splitlines()
        return dict(line.split("\t", 1) for line in lines if "\t" in line)

    def connect(self, address: str, state: str = "device") -> None:
        """Connect, again when the server has given up, and wait for the state."""

        def reached() -> bool:
            known = self.states().get(address)
            if known is None:
                self.run("connect", address)
            return known == state

        poll_until(reached, f"{address} is {state}")


def _bundled_adb() -> Path:
    import adbutils

    return Path(adbutils.__file__).parent / "binaries" / "adb"


@pytest.fixture
def wait_until() -> Callable[..., None]:
    """``wait_until(claim, what, timeout_s)``: poll until the claim is true, fail the test when it
    never is."""
    return poll_until


@pytest.fixture
def free_port() -> Callable[[], int]:
    """``free_port()``: a TCP port on 127.0.0.1 that nobody uses now."""
    return unused_port


def running_server(binary: Path, home: Path) -> Iterator[AdbServer]:
    server = AdbServer(binary, home)
    try:
        server.start()
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def adb_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdbServer]:
    """The adb server that adbutils ships."""
    yield from running_server(_bundled_adb(), tmp_path_factory.mktemp("adb") / "home")


@pytest.fixture(scope="session")
def old_adb_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdbServer]:
    """Debian's adb server, some years older."""
    yield from running_server(debian_adb(), tmp_path_factory.mktemp("old-adb") / "home")


@pytest.fixture(scope="session")
def real_phone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealPhone]:
    """One phone of real parts that tests share."""
    from tests.samples.real_phone import RealPhone

    with RealPhone(tmp_path_factory.mktemp("real") / "phone") as phone:
        yield phone


@pytest.fixture
def make_lab() -> Iterator[Callable[..., VirtualPhones]]:
    """Make labs of virtual phones in this process: ``make_lab(server, ..., time_factor=1.0)``."""
    from benchfarm_virtual.phones import VirtualPhones

    labs: list[VirtualPhones] = []

    def make(
        *servers: AdbServer, time_factor: float = 10.0, keys: Sequence[Path] = ()
    ) -> VirtualPhones:
        allowed = [server.public_key for server in servers] + list(keys)
        labs.append(VirtualPhones(adb_public_keys=allowed, time_factor=time_factor))
        return labs[-1]

    yield make
    for lab in labs:
        lab.close()


@pytest.fixture
def lab(make_lab: Callable[..., VirtualPhones], adb_server: AdbServer) -> VirtualPhones:
    """A lab that lets ``adb_server`` in."""
    return make_lab(adb_server)


def golden(name: str, made: str) -> None:
    """Compare what was made with tests/golden; ``WRITE_GOLDEN=1`` writes it there instead."""
    path = Path(__file__).parent / "golden" / name
    made = made.rstrip("\n") + "\n"
    if os.environ.get("WRITE_GOLDEN"):
        path.write_text(made, "utf-8")
    assert made == path.read_text("utf-8")


def folds(page: str) -> dict[str, Any]:
    """Return the folded parts of a page by name: tables with their rows, and pictures, as HTML."""
    found = re.findall(r'<script type="text/plain" id="pack-([^"]+)">([^<]*)<', page)
    return {
        name: _unfolded(json.loads(gzip.decompress(base64.b64decode(text)))) for name, text in found
    }


def _unfolded(folded: Any) -> Any:
    if not isinstance(folded, dict) or "rows" not in folded:
        return folded["html"] if isinstance(folded, dict) else folded
    columns = [
        [_cell(*part["pieces"][place]) for place in part["places"]] for part in folded["columns"]
    ]
    rows = []
    for row, (place, *cells) in enumerate(zip(folded["rows"]["places"], *columns, strict=True)):
        made = f"{folded['rows']['pieces'][place]}{''.join(cells)}</tr>"
        link = folded["links"][row] if folded["links"] else "#"
        rows.append(made.replace('href="#"', f'href="{link}"'))
    return folded["html"].replace("</tbody>", "".join(rows) + "</tbody>")


def _cell(html: str, value: str) -> str:
    """Return a cell with its value, where that is a figure and isn't what is shown."""
    is_shown = 'class="n' not in html or not value or f">{value}<" in html
    return html if is_shown else html.replace(">", f' data-value="{value}">', 1)


def golden_texts(name: str, tell: Callable[[str], str]) -> None:
    """Compare what is told of each text of a file of tests/golden with what stands below it."""
    written = []
    for part in (Path(__file__).parent / "golden" / name).read_text("utf-8").split("\n---\n"):
        text = part.rstrip("\n").partition("\n#! ")[0]
        written.append(f"{text}\n#! {tell(text)}")
    golden(name, "\n---\n".join(written))
