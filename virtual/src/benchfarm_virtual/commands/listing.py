"""What is there: ls, stat, df."""

from __future__ import annotations

import re
import stat as modes
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from benchfarm_virtual.commands.invocation import Invocation
from benchfarm_virtual.commands.options import Options, need_args, read_options
from benchfarm_virtual.commands.registry import command
from benchfarm_virtual.contract import FileStat, PhoneFileError
from benchfarm_virtual.processes import user_name


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
        call.out.line(_stat_text(options.last("c"), path, found))
    return 1 if call.failed else 0


def _stat_text(form: str, path: str, found: FileStat) -> str:
    kind = (
        "directory"
        if modes.S_ISDIR(found.mode)
        else "symbolic link"
        if modes.S_ISLNK(found.mode)
        else "character special file"
        if modes.S_ISCHR(found.mode)
        else "regular file"
        if found.size_bytes
        else "regular empty file"
    )
    values = {
        "s": found.size_bytes,
        "Y": found.mtime_s,
        "a": f"{found.mode & 0o7777:o}",
        "A": modes.filemode(found.mode),
        "n": path,
        "u": found.uid,
        "U": user_name(found.uid),
        "F": kind,
        "%": "%",
        "y": local_time(found.mtime_s).strftime("%Y-%m-%d %H:%M:%S.000000000 +0000"),
    }
    return re.sub(r"%(.)", lambda match: str(values.get(match[1], "?")), form)


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
