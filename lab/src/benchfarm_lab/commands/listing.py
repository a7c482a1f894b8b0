"""What is there: ls, stat, du, df, readlink, realpath, basename, dirname, file."""

from __future__ import annotations

import re
import stat as modes
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from benchfarm_lab.commands.invocation import Invocation
from benchfarm_lab.commands.options import Options, need_args, read_options
from benchfarm_lab.commands.registry import command
from benchfarm_lab.contract import FileStat, PhoneFileError
from benchfarm_lab.processes import user_name


def mode_text(mode: int) -> str:
    """Return permissions as ``ls -l`` shows them."""
    return modes.filemode(mode)


def human_size(size: float) -> str:
    """Return a size as toybox abbreviates it (powers of 1024)."""
    for unit in ("", "K", "M", "G", "T"):
        if size < 1024 or unit == "T":
            return f"{size:.1f}{unit}" if size < 10 and unit else f"{size:.0f}{unit}"
        size /= 1024
    return f"{size:.0f}"


def local_time(seconds: float) -> datetime:
    """Return a time in the phone's time zone, which is UTC."""
    return datetime.fromtimestamp(seconds, UTC)


@command("ls", "dir")
def ls(call: Invocation) -> int:
    """List folders."""
    options = read_options(call, "1aAdFghHiklLmnopqrRsStuUxZNC", long={"color": "C", "full-time": "T"})
    paths = options.args or ["."]
    files: list[tuple[str, FileStat]] = []
    folders: list[str] = []
    for path in paths:
        found = _look(
            call, path, follow=("l" not in options and "d" not in options and "L" not in options) or "H" in options
        )
        if found is None:
            continue
        if modes.S_ISDIR(found.mode) and "d" not in options:
            folders.append(path)
        else:
            files.append((path, found))
    _show(call, options, files, total=False)
    several = len(paths) > 1 or "R" in options
    for place, path in enumerate(folders):
        _folder(call, options, path, headed=several, first=place == 0 and not files)
    return 1 if call.failed else 0


def _look(call: Invocation, path: str, *, follow: bool) -> FileStat | None:
    try:
        return call.system.files.stat(call.path(path), follow=follow, uid=call.uid)
    except PhoneFileError as exc:
        if follow:
            return _look(call, path, follow=False)
        call.complain(f"{path}: {exc}")
        call.failed = True
        return None


def _folder(call: Invocation, options: Options, path: str, *, headed: bool, first: bool) -> None:
    if headed:
        call.out.line(f"{'' if first else chr(10)}{path}:")
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
    rows: list[tuple[str, FileStat]] = []
    for name in names:
        try:
            rows.append(
                (name, call.system.files.stat(f"{call.path(path)}/{name}", follow="L" in options, uid=call.uid))
            )
        except PhoneFileError as exc:
            call.complain(f"{path}/{name}: {exc}")
            call.failed = True
    _show(call, options, rows, total="l" in options or "s" in options, base=path)
    if "R" in options:
        for name, found in rows:
            if modes.S_ISDIR(found.mode) and name not in {".", ".."}:
                _folder(call, options, f"{path.rstrip('/')}/{name}", headed=True, first=False)


def _show(call: Invocation, options: Options, rows: list[tuple[str, FileStat]], *, total: bool, base: str = "") -> None:
    if "S" in options:
        rows = sorted(rows, key=lambda row: -row[1].size_bytes)
    elif "t" in options:
        rows = sorted(rows, key=lambda row: -row[1].mtime_s)
    if "r" in options:
        rows = rows[::-1]
    if total:
        call.out.line(f"total {sum(_blocks(found) for _, found in rows)}")
    texts = [_long_row(call, options, name, found, base) if "l" in options else [name] for name, found in rows]
    widths = [max((len(row[k]) for row in texts), default=0) for k in range(len(texts[0]))] if texts else []
    for (name, found), cells in zip(rows, texts, strict=True):
        lead = (f"{found.inode} " if "i" in options else "") + (f"{_blocks(found):>4} " if "s" in options else "")
        tail = _suffix(found) if "F" in options or ("p" in options and modes.S_ISDIR(found.mode)) else ""
        if "l" in options:
            left = [cells[0], cells[1].rjust(widths[1]), cells[2].ljust(widths[2]), cells[3].ljust(widths[3]),
                    cells[4].rjust(widths[4]), *cells[5:]]  # fmt: skip
            call.out.line(lead + " ".join(left) + tail)
        else:
            call.out.line(f"{lead}{name}{tail}")


def _blocks(found: FileStat) -> int:
    """Kibibytes that it takes, in blocks of 4096 bytes."""
    return -(-found.size_bytes // 4096) * 4 if modes.S_ISREG(found.mode) else 4 if modes.S_ISDIR(found.mode) else 0


def _suffix(found: FileStat) -> str:
    if modes.S_ISDIR(found.mode):
        return "/"
    if modes.S_ISLNK(found.mode):
        return "@"
    return "*" if found.mode & 0o111 else ""


def _long_row(call: Invocation, options: Options, name: str, found: FileStat, base: str) -> list[str]:
    owner, group = (str(found.uid), str(found.gid)) if "n" in options else (user_name(found.uid), user_name(found.gid))
    size = human_size(found.size_bytes) if "h" in options else str(found.size_bytes)
    moment = local_time(found.mtime_s)
    shown = moment.strftime("%Y-%m-%d %H:%M:%S.000000000 +0000" if "T" in options else "%Y-%m-%d %H:%M")
    if modes.S_ISLNK(found.mode):
        path = call.path(f"{base}/{name}" if base else name)
        name = f"{name} -> {call.system.files.read_link(path, uid=call.uid)}"
    return [mode_text(found.mode), str(found.nlink), owner, group, size, shown, name]


@command("stat")
def stat(call: Invocation) -> int:
    """Describe files, or print what -c asks for."""
    options = read_options(call, "fLt", "c")
    need_args(call, options, 1)
    for path in options.args:
        if "f" in options:
            _stat_filesystem(call, path, options.last("c"))
            continue
        try:
            found = call.system.files.stat(call.path(path), follow="L" in options, uid=call.uid)
        except PhoneFileError as exc:
            call.complain(f"'{path}': {exc}")
            call.failed = True
            continue
        form = options.last("c") if "c" in options else (
            "  File: %N\n  Size: %s\t Blocks: %b\t IO Blocks: %B\t%F\nDevice: fd02h/64770d\t Inode: %i\t Links: %h\n"
            "Access: (%a/%A)\tUid: (%5u/%8U)\tGid: (%5g/%8G)\nAccess: %x\nModify: %y\nChange: %z"
        )  # fmt: skip
        call.out.line(_stat_text(call, form, path, found))
    return 1 if call.failed else 0


def _stat_text(call: Invocation, form: str, path: str, found: FileStat) -> str:
    moment = local_time(found.mtime_s).strftime("%Y-%m-%d %H:%M:%S.000000000 +0000")
    kind = (
        "directory" if modes.S_ISDIR(found.mode) else "symbolic link" if modes.S_ISLNK(found.mode)
        else "character special file" if modes.S_ISCHR(found.mode)
        else "regular file" if found.size_bytes else "regular empty file"
    )  # fmt: skip
    name = f"'{path}'"
    if modes.S_ISLNK(found.mode):
        name += f" -> '{call.system.files.read_link(call.path(path), uid=call.uid)}'"
    values = {
        "s": found.size_bytes, "Y": found.mtime_s, "X": found.mtime_s, "Z": found.mtime_s,
        "a": f"{found.mode & 0o7777:o}", "A": mode_text(found.mode), "n": path, "N": name,
        "u": found.uid, "g": found.gid, "U": user_name(found.uid),
        "G": user_name(found.gid), "i": found.inode, "h": found.nlink, "F": kind, "f": f"{found.mode:x}",
        "b": _blocks(found) * 2, "B": 512, "o": 4096, "x": moment, "y": moment, "z": moment, "d": 64770, "m": "/data",
    }  # fmt: skip

    def value(match: re.Match[str]) -> str:
        width, letter = match.groups()
        if letter == "%":
            return "%"
        return str(values.get(letter, "?")).rjust(int(width or 0))

    return re.sub(r"%(\d*)(.)", value, form.replace("\\n", "\n"))


def _stat_filesystem(call: Invocation, path: str, form: str) -> None:
    storage = call.system.storage
    values = {"a": storage.free_bytes // 4096, "f": storage.free_bytes // 4096, "b": storage.total_bytes // 4096,
              "S": 4096, "s": 4096, "n": path, "T": "f2fs"}  # fmt: skip
    form = form or '  File: "%n"\n Type: %T\nBlocks: Total: %b\tFree: %f\tAvailable: %a'
    call.out.line(re.sub(r"%(.)", lambda match: str(values.get(match.group(1), "?")), form))


@command("readlink")
def readlink(call: Invocation) -> int:
    """Print where a link leads, or (-f) the path without any."""
    options = read_options(call, "femnq")
    need_args(call, options, 1)
    end = "" if "n" in options else "\n"
    for path in options.args:
        try:
            if {"f", "e", "m"} & options.flags:
                target = call.system.files.real_path(call.path(path), uid=call.uid)
                if "e" in options:
                    call.system.files.stat(target, uid=call.uid)
            else:
                target = call.system.files.read_link(call.path(path), uid=call.uid)
        except PhoneFileError:
            return 1
        call.out.write(f"{target}{end}".encode("utf-8", "surrogateescape"))
    return 0


@command("realpath")
def realpath(call: Invocation) -> int:
    """Print paths without links."""
    for path in call.args:
        try:
            target = call.system.files.real_path(call.path(path), uid=call.uid)
            call.system.files.stat(target, uid=call.uid)
            call.out.line(target)
        except PhoneFileError as exc:
            call.complain(f"{path}: {exc}")
            call.failed = True
    return 1 if call.failed else 0


@command("basename")
def basename(call: Invocation) -> int:
    """Print the last name of a path."""
    options = read_options(call, "a", "s")
    need_args(call, options, 1)
    suffix = options.last("s") or (options.args[1] if len(options.args) > 1 and "a" not in options else "")
    for path in options.args if {"a", "s"} & (options.flags | options.values.keys()) else options.args[:1]:
        name = path.rstrip("/").rsplit("/", 1)[-1] or ("/" if path else "")
        call.out.line(name.removesuffix(suffix) if name != suffix else name)
    return 0


@command("dirname")
def dirname(call: Invocation) -> int:
    """Print a path without its last name."""
    options = read_options(call, "")
    need_args(call, options, 1)
    for path in options.args:
        head, slash, _ = path.rstrip("/").rpartition("/")
        call.out.line(head.rstrip("/") or ("/" if slash or path.startswith("/") else "."))
    return 0


def tree(call: Invocation, path: str) -> Iterator[tuple[str, FileStat]]:
    """Return a path and all below it, folders after what is in them; complain about what can't be read."""
    try:
        found = call.system.files.stat(call.path(path), follow=False, uid=call.uid)
        names: Sequence[str] = (
            call.system.files.list(call.path(path), uid=call.uid) if modes.S_ISDIR(found.mode) else ()
        )
    except PhoneFileError as exc:
        call.complain(f"{path}: {exc}")
        call.failed = True
        return
    for name in names:
        yield from tree(call, f"{path.rstrip('/')}/{name}")
    yield path, found


@command("du")
def du(call: Invocation) -> int:
    """Say how much space files take."""
    options = read_options(call, "ackhHKLlmsxb", "d")
    unit = 1 << 20 if "m" in options else 1 << 10
    grand = 0
    for root in options.args or ["."]:
        sizes: dict[str, int] = {}
        for path, found in tree(call, root):
            size = found.size_bytes if "b" in options else _blocks(found) << 10
            sizes[path] = sizes.get(path, 0) + size
            if path != root:
                above = path.rsplit("/", 1)[0] or "/"
                sizes[above] = sizes.get(above, 0) + sizes[path]
            deep = path.rstrip("/").count("/") - root.rstrip("/").count("/")
            wanted = path == root or ("s" not in options and deep <= int(options.last("d", "999")) and (
                modes.S_ISDIR(found.mode) or "a" in options))  # fmt: skip
            if wanted:
                _du_row(call, options, sizes[path], unit, path)
        grand += sizes.get(root, 0)
    if "c" in options:
        _du_row(call, options, grand, unit, "total")
    return 1 if call.failed else 0


def _du_row(call: Invocation, options: Options, size: int, unit: int, path: str) -> None:
    shown = human_size(size) if "h" in options else str(size if "b" in options else -(-size // unit))
    call.out.line(f"{shown}\t{path}")


@command("df")
def df(call: Invocation) -> int:
    """Say how full the phone is."""
    options = read_options(call, "HPkhia", "t")
    storage = call.system.storage
    rows = [
        ("/dev/root", 2 << 30, (2 << 30) - (4 << 20), "/"), ("tmpfs", 1 << 30, 1 << 20, "/dev"),
        ("/dev/block/dm-4", storage.total_bytes, storage.used_bytes, "/data"),
        ("/dev/fuse", storage.total_bytes, storage.used_bytes, "/storage/emulated"),
    ]  # fmt: skip
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
            wanted.append(max((row for row in rows if f"{real}/".startswith(row[3].rstrip("/") + "/")),
                              key=lambda row: len(row[3])))  # fmt: skip
        rows = wanted
    if "h" in options or "H" in options:
        call.out.line(f"{'Filesystem':<16}{'Size':>5} {'Used':>4} {'Avail':>5} Use% Mounted on")
    else:
        call.out.line(f"{'Filesystem':<16}{'1K-blocks':>10} {'Used':>9} {'Available':>9} Use% Mounted on")
    for name, total, used, mount in rows:
        share = -(-used * 100 // total)
        if "h" in options or "H" in options:
            call.out.line(f"{name:<16}{human_size(total):>5} {human_size(used):>4} {human_size(total - used):>5} "
                          f"{share:>3}% {mount}")  # fmt: skip
        else:
            call.out.line(f"{name:<16}{total >> 10:>10} {used >> 10:>9} {(total - used) >> 10:>9} {share:>3}% {mount}")
    return 1 if call.failed else 0
