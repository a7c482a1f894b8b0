"""pm and ``cmd package``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchfarm_virtual.commands.invocation import Invocation
from benchfarm_virtual.commands.registry import command
from benchfarm_virtual.contract import ByteSource
from benchfarm_virtual.faults import FaultKind
from benchfarm_virtual.packages import InstalledPackage, InstallRefusedError

_CHUNK_BYTES = 1 << 18


@command("pm")
def pm(call: Invocation) -> int:
    """The package manager."""
    return package_command(call, call.args)


def package_command(call: Invocation, args: Sequence[str]) -> int:
    """Do what ``pm args`` and ``cmd package args`` do."""
    name, *rest = args or ("",)
    if call.system.props.get("sys.boot_completed", "1") != "1":
        call.error("cmd: Can't find service: package")
        return 20
    match name:
        case "path":
            return _path(call, rest)
        case "install":
            return _install(call, rest)
        case "uninstall":
            return _uninstall(call, rest)
    call.error(f"Unknown command: {name}")
    return 255


def _path(call: Invocation, args: Sequence[str]) -> int:
    found = call.system.packages.get(args[-1] if args else "")
    if found is None:
        return 1
    call.out.line(f"package:{found.apk_path}")
    return 0


def _limited(call: Invocation, source: ByteSource, size_bytes: int) -> Iterator[bytes]:
    left = size_bytes
    while left > 0 and (piece := source.read(min(left, _CHUNK_BYTES))):
        left -= len(piece)
        yield piece
        call.check_alive()


def _install(call: Invocation, args: Sequence[str]) -> int:
    """Install what is streamed: ``install [OPTIONS] -S SIZE``, over what is there."""
    size = args[args.index("-S") + 1] if "-S" in args[:-1] else ""
    if not size.isdigit():
        call.error("Error: must either specify a package size or an APK file")
        return 1
    source = _limited(call, call.stdin, int(size))
    try:
        refused = call.system.faults.active(FaultKind.INSTALL_REFUSED)
        if refused is not None:
            for _ in source:
                pass
            raise InstallRefusedError(refused.text("text"))
        package = call.system.packages.install(source, int(size))
    except InstallRefusedError as exc:
        call.error(f"Failure [{exc}]") if _to_stderr(call) else call.out.line(f"Failure [{exc}]")
        return 1
    _installed(call, package)
    return 0


def _to_stderr(call: Invocation) -> bool:
    """Before Android 8 pm was a Java program and wrote failures to stderr."""
    return call.system.props.sdk < 26


def _installed(call: Invocation, package: InstalledPackage) -> None:
    call.system.activities.force_stop(package.info.package, reason="installPackageLI")
    call.system.activities.log(
        "PackageManager", f"Update package {package.info.package} code path to {package.code_path}"
    )
    call.out.line("Success")


def _uninstall(call: Invocation, args: Sequence[str]) -> int:
    name = args[-1] if args else ""
    call.system.activities.force_stop(name, reason="uninstall pkg")
    if call.system.packages.uninstall(name):
        call.out.line("Success")
        return 0
    call.out.line("Failure [not installed for 0]")
    return 1


def dump_package(call: Invocation, name: str) -> int:
    """Print what ``dumpsys package NAME`` does."""
    found = call.system.packages.get(name)
    if found is None:
        call.out.line(f"Unable to find package: {name}" if name else "")
        return 0
    info = found.info
    flags = "DEBUGGABLE HAS_CODE" if info.debuggable else "HAS_CODE"
    call.out.line(
        f"Packages:\n  Package [{name}]:\n    userId={found.uid}\n    codePath={found.code_path}\n"
        f"    primaryCpuAbi={found.primary_abi or 'null'}\n"
        f"    versionCode={info.version_code} minSdk={info.min_sdk} targetSdk=31\n    versionName={info.version_name}\n"
        f"    flags=[ {flags} ALLOW_CLEAR_USER_DATA ALLOW_BACKUP ]\n    privateFlags=[ ALLOW_AUDIO_PLAYBACK_CAPTURE ]"
    )
    return 0
