"""Changing files: mkdir, rmdir, rm, mv, chmod, touch, sync."""

from __future__ import annotations

import errno
import re
import stat

from benchfarm_virtual.commands.invocation import Invocation
from benchfarm_virtual.commands.listing import tree
from benchfarm_virtual.commands.options import Options, need_args, read_options
from benchfarm_virtual.commands.registry import command
from benchfarm_virtual.contract import PhoneFileError


def _is_folder(call: Invocation, path: str) -> bool:
    try:
        return stat.S_ISDIR(call.system.files.stat(call.path(path), uid=call.uid).mode)
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
            if not stat.S_ISDIR(found.mode):
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
        if stat.S_ISDIR(found.mode) and not {"r", "R"} & options.flags:
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
