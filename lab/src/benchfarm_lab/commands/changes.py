"""Changing files: mkdir, rm, mv, cp, ln, chmod, chown, touch, tee, mktemp, truncate."""

from __future__ import annotations

import errno
import re
import secrets
import stat
from datetime import UTC, datetime

from benchfarm_lab.commands.invocation import Invocation
from benchfarm_lab.commands.listing import tree
from benchfarm_lab.commands.options import Options, need_args, read_options
from benchfarm_lab.commands.registry import command
from benchfarm_lab.contract import FileStat, PhoneFileError
from benchfarm_lab.processes import user_id

_CHUNK_BYTES = 1 << 20


def _found(call: Invocation, path: str, *, follow: bool = True) -> FileStat | None:
    try:
        return call.system.files.stat(call.path(path), follow=follow, uid=call.uid)
    except PhoneFileError:
        return None


def _is_folder(call: Invocation, path: str) -> bool:
    found = _found(call, path)
    return found is not None and stat.S_ISDIR(found.mode)


def _trouble(call: Invocation, text: str) -> None:
    call.complain(text)
    call.failed = True


@command("mkdir")
def mkdir(call: Invocation) -> int:
    """Create folders; -p those above too."""
    options = read_options(call, "pv", "m")
    need_args(call, options, 1)
    mode = 0o777 & ~call.process.umask
    for path in options.args:
        try:
            if "p" in options:
                call.system.files.make_folders(call.path(path), mode=mode, uid=call.uid)
            else:
                call.system.files.make_folder(call.path(path), mode=mode, uid=call.uid)
            if "m" in options:
                call.system.files.change_mode(call.path(path), int(options.last("m"), 8), uid=call.uid)
        except PhoneFileError as exc:
            _trouble(call, f"'{path}': {exc}")
    return 1 if call.failed else 0


@command("rmdir")
def rmdir(call: Invocation) -> int:
    """Remove empty folders."""
    options = read_options(call, "p", long={"ignore-fail-on-non-empty": "i"})
    need_args(call, options, 1)
    for path in options.args:
        try:
            found = call.system.files.stat(call.path(path), follow=False, uid=call.uid)
            if not stat.S_ISDIR(found.mode):
                raise PhoneFileError(errno.ENOTDIR, "Not a directory")
            call.system.files.remove(call.path(path), uid=call.uid)
        except PhoneFileError as exc:
            if not ("i" in options and exc.errno == errno.ENOTEMPTY):
                _trouble(call, f"{path}: {exc}")
    return 1 if call.failed else 0


@command("rm", "unlink")
def rm(call: Invocation) -> int:
    """Remove files; -r folders with all in them, -f without complaint about what isn't there."""
    options = read_options(call, "fiRrv")
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
        if stat.S_ISDIR(found.mode) and not {"r", "R"} & options.flags:
            _trouble(call, f"{path}: Is a directory")
            continue
        for inner, _ in tree(call, path.rstrip("/") or "/"):
            try:
                call.system.files.remove(call.path(inner), uid=call.uid)
                if "v" in options:
                    call.out.line(f"removed '{inner}'")
            except PhoneFileError as exc:
                _trouble(call, f"{inner}: {exc}")
    return 1 if call.failed else 0


def _targets(call: Invocation, options: Options) -> list[tuple[str, str]]:
    """Return pairs of source and target for cp, mv, ln."""
    need_args(call, options, 1)
    need_args(call, options, 2)
    *sources, target = options.args
    if "t" in options:
        sources, target = options.args, options.last("t")
    if _is_folder(call, target) and "T" not in options:
        return [(source, f"{target.rstrip('/')}/{source.rstrip('/').rsplit('/', 1)[-1]}") for source in sources]
    if len(sources) > 1:
        call.fail(f"'{target}' not directory")
    return [(sources[0], target)]


@command("mv")
def mv(call: Invocation) -> int:
    """Move files; between file systems by copying."""
    options = read_options(call, "finvT", "t")
    for source, target in _targets(call, options):
        if "n" in options and _found(call, target) is not None:
            continue
        try:
            call.system.files.rename(call.path(source), call.path(target), uid=call.uid)
        except PhoneFileError as exc:
            if exc.errno != errno.EXDEV:
                _trouble(call, f"bad '{source}': {exc}")
                continue
            _copy(call, source, target, keep=True)
            if not call.failed:
                for inner, _ in tree(call, source):
                    call.system.files.remove(call.path(inner), uid=call.uid)
    return 1 if call.failed else 0


@command("cp", "install")
def cp(call: Invocation) -> int:
    """Copy files; -r folders too, -p with times and modes."""
    options = read_options(call, "aDdfFHiLlnPpRrsTuvx", "tm")
    for source, target in _targets(call, options):
        found = _found(call, source)
        if found is None:
            _trouble(call, f"bad '{source}': No such file or directory")
        elif stat.S_ISDIR(found.mode) and not {"r", "R", "a"} & options.flags:
            _trouble(call, f"Skipped dir '{source}'")
        elif "n" not in options or _found(call, target) is None:
            _copy(call, source, target, keep=bool({"p", "a"} & options.flags))
            if "m" in options and not call.failed:
                call.system.files.change_mode(call.path(target), int(options.last("m"), 8), uid=call.uid)
    return 1 if call.failed else 0


def _copy(call: Invocation, source: str, target: str, *, keep: bool) -> None:
    files, uid = call.system.files, call.uid
    try:
        found = files.stat(call.path(source), uid=uid)
        if stat.S_ISDIR(found.mode):
            real = files.real_path(call.path(target), uid=uid)
            if f"{real}/".startswith(files.real_path(call.path(source), uid=uid).rstrip("/") + "/"):
                _trouble(call, f"'{target}' is in '{source}'")
                return
            if not _is_folder(call, target):
                files.make_folder(call.path(target), mode=found.mode & 0o777 | 0o700, uid=uid)
            for name in files.list(call.path(source), uid=uid):
                _copy(call, f"{source}/{name}", f"{target}/{name}", keep=keep)
        else:
            reader = files.open_read(call.path(source), uid=uid)
            writer = files.open_write(call.path(target), mode=found.mode & 0o777, uid=uid)
            try:
                while piece := reader.read(_CHUNK_BYTES):
                    writer.write(piece)
                    call.check_alive()
            finally:
                writer.close()
        if keep:
            files.set_times(call.path(target), found.mtime_s)
    except PhoneFileError as exc:
        _trouble(call, f"bad '{source}': {exc}" if exc.errno != errno.ENOSPC else f"write '{target}': {exc}")


@command("ln")
def ln(call: Invocation) -> int:
    """Make symbolic links (-s); hard links aren't allowed here, as on phones."""
    options = read_options(call, "sfnrvT", "t")
    if len(options.args) == 1:
        options.args.append(options.args[0].rstrip("/").rsplit("/", 1)[-1])
    for source, target in _targets(call, options):
        if "s" not in options:
            _trouble(call, f"cannot create hard link from '{source}' to '{target}': Permission denied")
            continue
        try:
            if "f" in options and _found(call, target, follow=False) is not None:
                call.system.files.remove(call.path(target), uid=call.uid)
            call.system.files.link(source, call.path(target), uid=call.uid)
        except PhoneFileError as exc:
            _trouble(call, f"cannot create symbolic link from '{source}' to '{target}': {exc}")
    return 1 if call.failed else 0


def changed_mode(text: str, mode: int) -> int | None:
    """Return a mode after ``755``, ``u+x``, ``go-w,a=r``; None when that can't be read."""
    if re.fullmatch(r"[0-7]{1,4}", text):
        return int(text, 8)
    for clause in text.split(","):
        match = re.fullmatch(r"([ugoa]*)([-+=])([rwxXst]*)", clause)
        if match is None:
            return None
        who, operator, letters = match.groups()
        bits = sum({"r": 4, "w": 2, "x": 1}.get(letter, 0) for letter in set(letters) - {"X"})
        if "X" in letters and (mode & 0o111 or stat.S_ISDIR(mode)):
            bits |= 1
        for person in "ugo" if not who or "a" in who else who:
            shift = {"u": 6, "g": 3, "o": 0}[person]
            if operator == "=":
                mode = mode & ~(7 << shift) | bits << shift
            else:
                mode = mode | bits << shift if operator == "+" else mode & ~(bits << shift)
    return mode & 0o7777


@command("chmod")
def chmod(call: Invocation) -> int:
    """Change permissions."""
    args = list(call.args)
    recursive = any(arg in {"-R", "-Rf", "-fR"} for arg in args)
    args = [arg for arg in args if arg not in {"-R", "-f", "-Rf", "-fR", "-v", "--"}]
    if len(args) < 2:
        call.fail('Needs 2 arguments (see "chmod --help")')
    text, *paths = args
    for path in paths:
        everything = [inner for inner, _ in tree(call, path)] if recursive else [path]
        for inner in everything:
            try:
                mode = changed_mode(text, call.system.files.stat(call.path(inner), uid=call.uid).mode)
                if mode is None:
                    call.fail(f"bad mode '{text}'")
                call.system.files.change_mode(call.path(inner), mode, uid=call.uid)
            except PhoneFileError as exc:
                _trouble(call, f"chmod '{inner}' to {text}: {exc}" if exc.errno == errno.EPERM else f"{inner}: {exc}")
    return 1 if call.failed else 0


@command("chown", "chgrp")
def chown(call: Invocation) -> int:
    """Change owners."""
    options = read_options(call, "fhHLPRv")
    need_args(call, options, 2)
    who, *paths = options.args
    owner, _, group = who.replace(".", ":", 1).partition(":") if call.name == "chown" else ("", ":", who)
    uid, gid = user_id(owner) if owner else None, user_id(group) if group else None
    if (owner and uid is None) or (group and gid is None):
        call.fail(f"no {'user' if owner and uid is None else 'group'} '{owner or group}'")
    for path in paths:
        for inner in [name for name, _ in tree(call, path)] if "R" in options else [path]:
            try:
                call.system.files.change_owner(call.path(inner), uid, gid, uid=call.uid)
            except PhoneFileError as exc:
                _trouble(call, f"'{inner}' to '{who}': {exc}")
    return 1 if call.failed else 0


@command("chcon", "restorecon")
def relabel(call: Invocation) -> int:
    """SELinux labels aren't kept."""
    read_options(call, "hRvDFnrk")
    return 0


@command("touch")
def touch(call: Invocation) -> int:
    """Set modification times, creating what isn't there."""
    options = read_options(call, "acmh", "tdr")
    need_args(call, options, 1)
    moment: float | None = call.system.time.wall_s()
    if "t" in options:
        moment = _compact_time(call, options.last("t"))
    elif "d" in options:
        moment = parse_time(options.last("d"))
        if moment is None:
            call.fail(f"bad date '{options.last('d')}'")
    elif "r" in options:
        moment = call.system.files.stat(call.path(options.last("r")), uid=call.uid).mtime_s
    for path in options.args:
        try:
            call.system.files.touch(call.path(path), moment, create="c" not in options, uid=call.uid)
        except PhoneFileError as exc:
            if not ("c" in options and exc.errno == errno.ENOENT):
                _trouble(call, f"'{path}': {exc}")
    return 1 if call.failed else 0


def _compact_time(call: Invocation, text: str) -> float:
    """Read ``[[CC]YY]MMDDhhmm[.ss]``."""
    digits, _, second = text.partition(".")
    year = {8: str(datetime.now(UTC).year), 10: f"20{digits[:2]}", 12: digits[:4]}.get(len(digits))
    try:
        if year is None:
            raise ValueError(text)
        return datetime.strptime(f"{year}{digits[-8:]}{second or '00'}+0000", "%Y%m%d%H%M%S%z").timestamp()
    except ValueError:
        call.fail(f"bad date '{text}'")


def parse_time(text: str) -> float | None:
    """Read ``@seconds``, ``YYYY-MM-DD hh:mm[:ss][.frac]`` (UTC); None when it is something else."""
    if re.fullmatch(r"@\d+(\.\d+)?", text):
        return float(text[1:])
    text = re.sub(r"(\.\d{6})\d+", r"\1", text.strip().removesuffix("Z").replace("T", " "))
    for form in ("%Y-%m-%d %H:%M:%S.%f", "%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M", "%Y-%m-%d"):
        try:
            return datetime.strptime(text, form).replace(tzinfo=UTC).timestamp()
        except ValueError:
            continue
    return None


@command("tee")
def tee(call: Invocation) -> int:
    """Copy stdin to stdout and into files."""
    options = read_options(call, "ai")
    writers = []
    for path in options.args:
        try:
            writers.append(call.system.files.open_write(call.path(path), append="a" in options, uid=call.uid))
        except PhoneFileError as exc:
            _trouble(call, f"{path}: {exc}")
    try:
        for piece in call.chunks(call.stdin):
            call.out.write(piece)
            call.out.flush()
            for writer in writers:
                writer.write(piece)
    finally:
        for writer in writers:
            writer.close()
    return 1 if call.failed else 0


@command("mktemp")
def mktemp(call: Invocation) -> int:
    """Create a new file or folder (-d) with a name of its own."""
    options = read_options(call, "dqtu", "p")
    template = options.args[0] if options.args else "tmp.XXXXXXXXXX"
    folder = options.last("p") or ("" if "/" in template or (options.args and "t" not in options) else
                                   call.env.get("TMPDIR", "/data/local/tmp"))  # fmt: skip
    letters = len(template) - len(template.rstrip("X"))
    if letters < 2:
        call.fail("bad template")
    name = template[:-letters] + secrets.token_hex(letters)[:letters]
    path = f"{folder}/{name}" if folder else name
    if "u" not in options:
        if "d" in options:
            call.system.files.make_folder(call.path(path), mode=0o700, uid=call.uid)
        else:
            call.system.files.open_write(call.path(path), mode=0o600, uid=call.uid).close()
    call.out.line(path)
    return 0


@command("truncate", "fallocate")
def truncate(call: Invocation) -> int:
    """Set a file's size (-s bytes; K, M, G) by writing it anew."""
    options = read_options(call, "c", "sl")
    need_args(call, options, 1)
    match = re.fullmatch(r"(\d+)([kKMG]?)", options.last("s") or options.last("l"))
    if match is None:
        call.fail("bad size")
    size = int(match.group(1)) << {"": 0, "k": 10, "K": 10, "M": 20, "G": 30}[match.group(2)]
    for path in options.args:
        kept = call.open(path).read(size) if _found(call, path) is not None else b""
        writer = call.system.files.open_write(call.path(path), uid=call.uid)
        try:
            writer.write(kept)
            left = size - len(kept)
            while left > 0:
                piece = min(left, _CHUNK_BYTES)
                writer.write(bytes(piece))
                left -= piece
        finally:
            writer.close()
    return 0


@command("sync", "fsync")
def sync(call: Invocation) -> int:
    """Nothing is held back here."""
    return 0
