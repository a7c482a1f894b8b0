"""Commands about files: ls, stat, df, dd, and those that make, move, change and remove files."""

from __future__ import annotations

import errno
import re
import stat as modes
from datetime import UTC, datetime
from typing import Final

from benchfarm_virtual.commands.invocation import Invocation, command, read_options
from benchfarm_virtual.contract import PhoneFileError


def local_time(seconds: float) -> datetime:
    """Return a time in the phone's time zone, which is UTC."""
    return datetime.fromtimestamp(seconds, UTC)


@command("ls")
def ls(call: Invocation) -> None:
    """List names, one a line: those in folders, below their own if there is more; or with -d the
    paths themselves.
    """
    options = read_options(call, "Ad")
    files: list[str] = []
    folders: list[str] = []

    def sort(path: str) -> None:
        # A link that leads nowhere is itself.
        file_stat = call.files.find(path) if "d" not in options else None
        file_stat = file_stat or call.files.stat(path, follow=False)
        is_listed = "d" not in options and modes.S_ISDIR(file_stat.mode)
        (folders if is_listed else files).append(call.shown)

    def listed(path: str) -> None:
        names = call.files.list(path)
        if has_heads:
            if files or call.shown != folders[0]:
                call.out.line("")
            call.out.line(f"{call.shown}:")
        for name in names:
            if name[0] != "." or "A" in options:
                call.out.line(name)

    call.each(options.args or ["."], sort)
    has_heads = bool(folders) and len(files) + len(folders) > 1
    for name in files:
        call.out.line(name)
    if folders:
        call.each(folders, listed)


@command("stat")
def stat(call: Invocation) -> None:
    """Print the fields of -c of each file."""
    options = read_options(call, "", "c")
    form = options.last("c")

    def print_stat(path: str) -> None:
        file_stat = call.files.stat(path, follow=False)
        values = {
            "s": file_stat.size_bytes,
            "Y": file_stat.mtime_s,
            "y": local_time(file_stat.mtime_s).strftime("%Y-%m-%d %H:%M:%S.000000000 +0000"),
        }
        call.out.line(re.sub(r"%(.)", lambda match: str(values[match[1]]), form))

    call.each(options.args, print_stat)


@command("df")
def df(call: Invocation) -> None:
    """Print the usage of the data partition for each path, wherever it is."""
    storage = call.files.storage
    total, used = storage.total_bytes >> 10, storage.used_bytes >> 10
    call.out.line(
        f"{'Filesystem':<16}{'1K-blocks':>10} {'Used':>9} {'Available':>9} Use% Mounted on"
    )

    def row(path: str) -> None:
        call.files.stat(path)
        call.out.line(
            f"{'/dev/block/dm-4':<16}{total:>10} {used:>9} {total - used:>9} {-(-used * 100 // total):>3}% /data"
        )

    call.each(read_options(call, "k").args or ["/data"], row)


#: Of the memory's bandwidth, what one core gets by filling it.
_SHARE: Final = 0.3


@command("dd")
def dd(call: Invocation) -> int | None:
    """Copy ``count`` blocks of a file to stdout, or fill a block of memory again and again: ``dd
    if=/dev/zero of=/dev/null bs=BYTES count=N``.
    """
    operands = dict(arg.partition("=")[::2] for arg in call.args)
    size = int(operands.get("bs", "512")) * int(operands.get("count", "none"))
    if operands.get("of") != "/dev/null":
        source = call.open(operands.get("if", "-"))
        while size > 0 and (piece := source.read(min(size, 1 << 16))):
            call.out.write(piece)
            size -= len(piece)
        return None
    hardware = call.system.hardware
    # Without its shell, which was killed, it would run on for a tenth of a second.
    shell = call.system.processes.find(call.process.ppid) or call.process
    with hardware.spinning(call.process.pid, shell, memory_share=_SHARE):
        call.system.time.sleep(
            size / (_SHARE * hardware.profile.cpu.memory_gbps * 1e9), call.process.killed
        )
    return 0


@command("mkdir")
def mkdir(call: Invocation) -> None:
    """Create folders; -p those above too."""
    options = read_options(call, "p")
    make = call.files.make_folders if "p" in options else call.files.make_folder
    call.each(options.args, make)


@command("rmdir")
def rmdir(call: Invocation) -> None:
    """Remove empty folders."""
    options = read_options(call, "")

    def removed(path: str) -> None:
        if not modes.S_ISDIR(call.files.stat(path, follow=False).mode):
            raise PhoneFileError(errno.ENOTDIR)
        call.files.remove(path)

    call.each(options.args, removed)


@command("rm")
def rm(call: Invocation) -> None:
    """Remove files; -r folders with all in them, -f without complaint about what isn't there."""
    options = read_options(call, "fr")
    deep, forced = "r" in options, "f" in options
    if not forced:
        call.need(options.args)

    def removed(path: str, label: str) -> bool:
        """Return whether all is removed; a folder that isn't empty has no message of its own."""
        try:
            file_stat = call.files.stat(path, follow=False)
            if modes.S_ISDIR(file_stat.mode):
                if not deep:
                    raise PhoneFileError(errno.EISDIR)
                if forced and not call.files.may(path, 4):
                    call.files.set_mode(path, 0o700)
                readable = call.files.may(path, 4)
                names = call.files.list(path) if readable else ()
                stays = [name for name in names if not removed(f"{path}/{name}", name)]
                if stays:
                    return False
            call.files.remove(path)
        except PhoneFileError as exc:
            if forced and exc.errno == errno.ENOENT:
                return True
            call.complain(f"{label}: {exc}")
            call.failed = True
            return False
        return True

    for path in options.args:
        removed(call.path(path).rstrip("/") or "/", path)


@command("mv")
def mv(call: Invocation) -> None:
    """Give a file or folder another name within a file system, or move it into a folder."""
    *sources, target = read_options(call, "f").args
    place = call.files.find(call.path(target))
    is_folder = place is not None and modes.S_ISDIR(place.mode)

    def move(path: str) -> None:
        name = f"/{path.rstrip('/').rpartition('/')[2]}" if is_folder else ""
        call.files.rename(path.rstrip("/"), call.path(target) + name)

    call.each(sources, move)


@command("chmod")
def chmod(call: Invocation) -> None:
    """Change permissions."""
    text, *paths = call.args
    call.each(paths, lambda path: call.files.set_mode(path, int(text, 8)))


@command("sync")
def sync(call: Invocation) -> None:
    """Nothing is held back here."""
