"""Commands about files: ls, stat, df, dd, and those that make, move, change and remove files."""

from __future__ import annotations

import errno
import re
import stat as modes
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

from benchfarm_virtual.commands.invocation import (
    Invocation,
    Options,
    command,
    need_args,
    read_options,
)
from benchfarm_virtual.contract import FileStat, PhoneFileError


def local_time(seconds: float) -> datetime:
    """Return a time in the phone's time zone, which is UTC."""
    return datetime.fromtimestamp(seconds, UTC)


@command("ls")
def ls(call: Invocation) -> int:
    """List names, one a line."""
    options = read_options(call, "1aAd")
    paths = options.args or ["."]
    files: list[str] = []
    folders: list[str] = []
    for path in paths:
        try:
            found = _look(call, path, follow="d" not in options)
        except PhoneFileError as exc:
            call.complain(f"{path}: {exc}")
            call.failed = True
            continue
        (folders if modes.S_ISDIR(found.mode) and "d" not in options else files).append(path)
    for path in files:
        call.out.line(path)
    for place, path in enumerate(folders):
        if len(paths) > 1:
            call.out.line(f"{'' if place == 0 and not files else chr(10)}{path}:")
        _folder(call, options, path)
    return 1 if call.failed else 0


def _look(call: Invocation, path: str, *, follow: bool) -> FileStat:
    """Return what a path is; a link that leads nowhere is itself."""
    try:
        return call.system.files.stat(call.path(path), follow=follow, uid=call.uid)
    except PhoneFileError:
        if not follow:
            raise
        return call.system.files.stat(call.path(path), follow=False, uid=call.uid)


def _folder(call: Invocation, options: Options, path: str) -> None:
    try:
        names = list(call.system.files.list(call.path(path), uid=call.uid))
    except PhoneFileError as exc:
        call.complain(f"{path}: {exc}")
        call.failed = True
        return
    if "a" in options:
        names = [".", "..", *names]
    elif "A" not in options:
        names = [name for name in names if not name.startswith(".")]
    for name in names:
        call.out.line(name)


@command("stat")
def stat(call: Invocation) -> int:
    """Print what -c asks for of each file."""
    options = read_options(call, "L", "c")
    need_args(call, options, 1)
    if "c" not in options:
        call.fail("-c FORMAT is all that a virtual phone knows")
    for path in options.args:
        try:
            found = call.system.files.stat(call.path(path), follow="L" in options, uid=call.uid)
        except PhoneFileError as exc:
            call.complain(f"'{path}': {exc}")
            call.failed = True
            continue
        call.out.line(_stat_text(call, options.last("c"), path, found))
    return 1 if call.failed else 0


def _stat_text(call: Invocation, form: str, path: str, found: FileStat) -> str:
    moment = local_time(found.mtime_s)
    values = {
        "%": "%",
        "s": found.size_bytes,
        "Y": found.mtime_s,
        "a": f"{found.mode & 0o7777:o}",
        "n": path,
        "y": moment.strftime("%Y-%m-%d %H:%M:%S.000000000 +0000"),
    }
    for letter in re.findall(r"%(.)", form):
        if letter not in values:
            call.fail(f"a virtual phone knows no %{letter} here")
    return re.sub(r"%(.)", lambda match: str(values[match[1]]), form)


def tree(call: Invocation, path: str) -> Iterator[tuple[str, FileStat]]:
    """Return a path and all below it, folders after what is in them.

    Complain about what can't be read.
    """
    try:
        found = call.system.files.stat(call.path(path), follow=False, uid=call.uid)
        names: Sequence[str] = (
            call.system.files.list(call.path(path), uid=call.uid)
            if modes.S_ISDIR(found.mode)
            else ()
        )
    except PhoneFileError as exc:
        call.complain(f"{path}: {exc}")
        call.failed = True
        return
    for name in names:
        yield from tree(call, f"{path.rstrip('/')}/{name}")
    yield path, found


@command("df")
def df(call: Invocation) -> int:
    """Say how full the phone is."""
    options = read_options(call, "k")
    storage = call.system.storage
    rows = [
        ("/dev/root", 2 << 30, (2 << 30) - (4 << 20), "/"),
        ("tmpfs", 1 << 30, 1 << 20, "/dev"),
        ("/dev/block/dm-4", storage.total_bytes, storage.used_bytes, "/data"),
        ("/dev/fuse", storage.total_bytes, storage.used_bytes, "/storage/emulated"),
    ]
    if options.args:
        wanted = []
        for path in options.args:
            try:
                real = call.system.files.real_path(call.path(path), uid=call.uid)
                call.system.files.stat(real, uid=call.uid)
            except PhoneFileError as exc:
                call.complain(f"'{path}': {exc}")
                call.failed = True
                continue
            wanted.append(
                max(
                    (row for row in rows if f"{real}/".startswith(row[3].rstrip("/") + "/")),
                    key=lambda row: len(row[3]),
                )
            )
        rows = wanted
    call.out.line(
        f"{'Filesystem':<16}{'1K-blocks':>10} {'Used':>9} {'Available':>9} Use% Mounted on"
    )
    for name, total, used, mount in rows:
        share = -(-used * 100 // total)
        call.out.line(
            f"{name:<16}{total >> 10:>10} {used >> 10:>9} {(total - used) >> 10:>9} {share:>3}% {mount}"
        )
    return 1 if call.failed else 0


#: Of the memory's bandwidth, what one core gets by filling it.
_SHARE: Final = 0.3


@command("dd")
def dd(call: Invocation) -> int:
    """Fill a block of memory again and again: ``dd if=/dev/zero of=/dev/null bs=BYTES count=N``."""
    given = dict(arg.partition("=")[::2] for arg in call.args)
    if given.get("if") != "/dev/zero" or given.get("of") != "/dev/null":
        call.error("a virtual phone copies /dev/zero to /dev/null only")
        return 1
    try:
        size = int(given.get("bs", "512")) * int(given["count"])
    except (KeyError, ValueError):
        call.error("bs and count must be whole numbers")
        return 1
    hardware = call.system.hardware
    work = hardware.begin_spin(call.process.pid, memory_share=_SHARE)
    try:
        call.system.time.sleep(
            size / (_SHARE * hardware.profile.cpu.memory_gbps * 1e9), call.process.killed
        )
    finally:
        hardware.end_work(work)
    return 0


def _is_folder(call: Invocation, path: str) -> bool:
    try:
        return modes.S_ISDIR(call.system.files.stat(call.path(path), uid=call.uid).mode)
    except PhoneFileError:
        return False


def _trouble(call: Invocation, text: str) -> None:
    call.complain(text)
    call.failed = True


@command("mkdir")
def mkdir(call: Invocation) -> int:
    """Create folders; -p those above too."""
    options = read_options(call, "p", "m")
    need_args(call, options, 1)
    mode = 0o777 & ~call.process.umask
    for path in options.args:
        try:
            if "p" in options:
                call.system.files.make_folders(call.path(path), mode=mode, uid=call.uid)
            else:
                call.system.files.make_folder(call.path(path), mode=mode, uid=call.uid)
            if "m" in options:
                call.system.files.change_mode(
                    call.path(path), int(options.last("m"), 8), uid=call.uid
                )
        except PhoneFileError as exc:
            _trouble(call, f"'{path}': {exc}")
    return 1 if call.failed else 0


@command("rmdir")
def rmdir(call: Invocation) -> int:
    """Remove empty folders."""
    options = read_options(call, "")
    need_args(call, options, 1)
    for path in options.args:
        try:
            found = call.system.files.stat(call.path(path), follow=False, uid=call.uid)
            if not modes.S_ISDIR(found.mode):
                raise PhoneFileError(errno.ENOTDIR, "Not a directory")
            call.system.files.remove(call.path(path), uid=call.uid)
        except PhoneFileError as exc:
            _trouble(call, f"{path}: {exc}")
    return 1 if call.failed else 0


@command("rm")
def rm(call: Invocation) -> int:
    """Remove files; -r folders with all in them, -f without complaint about what isn't there."""
    options = read_options(call, "fRr")
    if not options.args and "f" not in options:
        call.fail('Needs 1 argument (see "rm --help")')
    for path in options.args:
        if path.rstrip("/") in {"", ".", ".."} or path.rstrip("/").endswith(("/.", "/..")):
            _trouble(call, f"bad path {path}" if path else "'': No such file or directory")
            continue
        try:
            found = call.system.files.stat(call.path(path), follow=False, uid=call.uid)
        except PhoneFileError as exc:
            if "f" not in options or exc.errno not in {errno.ENOENT, errno.ENOTDIR}:
                _trouble(call, f"{path}: {exc}")
            continue
        if modes.S_ISDIR(found.mode) and not {"r", "R"} & options.flags:
            _trouble(call, f"{path}: Is a directory")
            continue
        for inner, _ in tree(call, path.rstrip("/") or "/"):
            try:
                call.system.files.remove(call.path(inner), uid=call.uid)
            except PhoneFileError as exc:
                _trouble(call, f"{inner}: {exc}")
    return 1 if call.failed else 0


def _targets(call: Invocation, options: Options) -> list[tuple[str, str]]:
    """Return pairs of source and target."""
    need_args(call, options, 1)
    need_args(call, options, 2)
    *sources, target = options.args
    if _is_folder(call, target):
        return [
            (source, f"{target.rstrip('/')}/{source.rstrip('/').rsplit('/', 1)[-1]}")
            for source in sources
        ]
    if len(sources) > 1:
        call.fail(f"'{target}' not directory")
    return [(sources[0], target)]


@command("mv")
def mv(call: Invocation) -> int:
    """Move files within a file system."""
    options = read_options(call, "f")
    for source, target in _targets(call, options):
        try:
            call.system.files.rename(call.path(source), call.path(target), uid=call.uid)
        except PhoneFileError as exc:
            _trouble(call, f"bad '{source}': {exc}")
    return 1 if call.failed else 0


@command("chmod")
def chmod(call: Invocation) -> int:
    """Change permissions."""
    if len(call.args) < 2:
        call.fail('Needs 2 arguments (see "chmod --help")')
    text, *paths = call.args
    if not re.fullmatch(r"[0-7]{1,4}", text):
        call.fail(f"bad mode '{text}'")
    for path in paths:
        try:
            call.system.files.stat(call.path(path), uid=call.uid)
            call.system.files.change_mode(call.path(path), int(text, 8), uid=call.uid)
        except PhoneFileError as exc:
            _trouble(
                call,
                f"chmod '{path}' to {text}: {exc}"
                if exc.errno == errno.EPERM
                else f"{path}: {exc}",
            )
    return 1 if call.failed else 0


@command("touch")
def touch(call: Invocation) -> int:
    """Set modification times, creating what isn't there; ``-d @SECONDS``."""
    options = read_options(call, "c", "d")
    need_args(call, options, 1)
    moment = call.system.time.wall_s()
    if "d" in options:
        match = re.fullmatch(r"@(\d+(?:\.\d+)?)", options.last("d"))
        if match is None:
            call.fail(f"bad date '{options.last('d')}'")
        moment = float(match[1])
    for path in options.args:
        try:
            call.system.files.touch(
                call.path(path), moment, create="c" not in options, uid=call.uid
            )
        except PhoneFileError as exc:
            if not ("c" in options and exc.errno == errno.ENOENT):
                _trouble(call, f"'{path}': {exc}")
    return 1 if call.failed else 0


@command("sync")
def sync(call: Invocation) -> int:
    """Nothing is held back here."""
    return 0
