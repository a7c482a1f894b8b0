"""pm and ``cmd package``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchfarm_lab.commands.clock import formatted_time
from benchfarm_lab.commands.invocation import Invocation
from benchfarm_lab.commands.registry import command
from benchfarm_lab.contract import ByteSource, PhoneFileError
from benchfarm_lab.packages import SYSTEM_PACKAGES, InstalledPackage, InstallOptions, InstallRefusedError

_CHUNK_BYTES = 1 << 18
#: Options of pm install that take a value.
_WITH_VALUE = frozenset(
    {
        "-S", "-i", "--user", "--abi", "--instruction-set", "--originating-uri", "--referrer", "-p",
        "--install-location", "--install-reason", "--package-source", "--pkg", "--force-uuid",
    }
)  # fmt: skip


@command("pm")
def pm(call: Invocation) -> int:
    """The package manager."""
    return package_command(call, call.args)


def package_command(call: Invocation, args: Sequence[str]) -> int:
    """Do what ``pm args`` and ``cmd package args`` do."""
    if not args:
        call.out.line("Package manager (package) commands:\n  help\n    Print this help text.")
        return 1
    name, *rest = args
    if call.system.props.get("sys.boot_completed", "1") != "1":
        call.error("cmd: Can't find service: package")
        return 20
    match name:
        case "list":
            return _list(call, rest)
        case "path":
            return _path(call, rest)
        case "dump":
            return dump_package(call, rest[-1] if rest else "")
        case "install" | "install-streaming":
            return _install(call, rest)
        case "install-create":
            number = call.system.packages.create_session(_options(rest)[0])
            call.out.line(f"Success: created install session [{number}]")
            return 0
        case "install-write" | "install-commit" | "install-abandon" | "install-destroy":
            return _session(call, name, rest)
        case "uninstall":
            return _uninstall(call, rest)
        case "clear":
            return _clear(call, rest)
        case "grant" | "revoke":
            return _grant(call, name, rest)
        case "resolve-activity":
            return _resolve(call, rest)
        case "has-feature":
            call.out.line("true")
            return 0
        case "trim-caches" | "compile" | "bg-dexopt-job" | "enable" | "disable-user" | "set-install-location":
            call.out.line("Success" if name in {"compile", "bg-dexopt-job"} else "")
            return 0
        case "get-max-users":
            call.out.line("Maximum supported users: 4")
            return 0
    call.error(f"Unknown command: {name}")
    return 255


def _list(call: Invocation, args: Sequence[str]) -> int:
    kind = args[0] if args else ""
    if kind == "features":
        for feature in ("android.hardware.vulkan.compute", "android.hardware.wifi", "android.software.webview"):
            call.out.line(f"feature:{feature}")
        return 0
    if kind == "users":
        call.out.line("Users:\n\tUserInfo{0:Owner:c13} running")
        return 0
    if kind in {"permissions", "instrumentation", "libraries"}:
        return 0
    if kind not in {"packages", "package"}:
        call.error(f"Error: unknown list type '{kind}'")
        return 255
    flags = {letter for arg in args[1:] if arg.startswith("-") and not arg.startswith("--") for letter in arg[1:]}
    versions = "--show-versioncode" in args
    skip_next = False
    words = []
    for arg in args[1:]:
        if skip_next:
            skip_next = False
        elif arg in {"--user", "--uid"}:
            skip_next = True
        elif not arg.startswith("-"):
            words.append(arg)
    rows: list[tuple[str, str, int, int]] = []
    if "3" not in flags:
        rows += [(name, f"/system/app/{name.rsplit('.', 1)[-1]}/{name.rsplit('.', 1)[-1]}.apk", 30, 10000 + place)
                 for place, name in enumerate(SYSTEM_PACKAGES)]  # fmt: skip
    if "s" not in flags:
        rows += [(p.info.package, p.apk_path, p.info.version_code, p.uid) for p in call.system.packages.all()]
    for name, path, version, uid in sorted(rows):
        if words and not any(word in name for word in words):
            continue
        line = f"package:{path}={name}" if "f" in flags else f"package:{name}"
        call.out.line(line + (f" versionCode:{version}" if versions else "") + (f" uid:{uid}" if "U" in flags else ""))
    return 0


def _path(call: Invocation, args: Sequence[str]) -> int:
    name = args[-1] if args else ""
    found = call.system.packages.get(name)
    if found is not None:
        call.out.line(f"package:{found.apk_path}")
        return 0
    if name in SYSTEM_PACKAGES:
        short = name.rsplit(".", 1)[-1]
        call.out.line(f"package:/system/app/{short}/{short}.apk")
        return 0
    return 1


def _options(args: Sequence[str]) -> tuple[InstallOptions, list[str], dict[str, str]]:
    """Read the options of an installation; return them, the other arguments, and option values."""
    flags: set[str] = set()
    values: dict[str, str] = {}
    rest: list[str] = []
    todo = list(args)
    while todo:
        arg = todo.pop(0)
        name, equals, value = arg.partition("=")
        if name in _WITH_VALUE:
            values[name] = value if equals else todo.pop(0) if todo else ""
        elif arg.startswith("--"):
            flags.add(arg)
        elif arg.startswith("-") and len(arg) > 1:
            flags |= set(arg[1:])
        else:
            rest.append(arg)
    options = InstallOptions(
        # Since Android 8 pm replaces by default; -R is the option that doesn't.
        replace_existing="R" not in flags, allow_downgrade="d" in flags, grant_permissions="g" in flags,
        abi=values.get("--abi", ""),
    )  # fmt: skip
    return options, rest, values


def _limited(call: Invocation, source: ByteSource, size_bytes: int) -> Iterator[bytes]:
    left = size_bytes
    while left > 0 and (piece := source.read(min(left, _CHUNK_BYTES))):
        left -= len(piece)
        yield piece
        call.check_alive()


def _size(call: Invocation, values: dict[str, str]) -> int | None:
    text = values.get("-S", "")
    return int(text) if text.isdigit() else None


def _install(call: Invocation, args: Sequence[str]) -> int:
    options, paths, values = _options(args)
    size = _size(call, values)
    if size is None:
        if not paths or paths == ["-"]:
            call.error("Error: must either specify a package size or an APK file")
            return 1
        path = call.path(paths[0])
        try:
            found = call.system.files.stat(path, uid=call.uid)
            source = call.system.files.open_read(path, uid=call.uid)
        except PhoneFileError as exc:
            call.error(f"Error: Failed to parse APK file: {paths[0]}: {exc}")
            return 1
        return _finish(call, _limited(call, source, found.size_bytes), found.size_bytes, options)
    return _finish(call, _limited(call, call.stdin, size), size, options)


def _finish(call: Invocation, source: Iterator[bytes], size_bytes: int, options: InstallOptions) -> int:
    try:
        package = call.system.packages.install(source, size_bytes, options, now_s=call.system.time.wall_s())
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


def _session(call: Invocation, name: str, args: Sequence[str]) -> int:
    _, rest, values = _options(args)
    number = int(rest[0]) if rest and rest[0].isdigit() else 0
    packages = call.system.packages
    try:
        match name:
            case "install-write":
                path = rest[2] if len(rest) > 2 else "-"
                if path == "-":
                    size = _size(call, values)
                    if size is None:
                        call.error("Error: must specify a APK size")
                        return 1
                    written = packages.write_session(number, _limited(call, call.stdin, size))
                else:
                    source = call.open(path)
                    written = packages.write_session(number, iter(lambda: source.read(_CHUNK_BYTES), b""))
                call.out.line(f"Success: streamed {written} bytes")
            case "install-commit":
                _installed(call, packages.commit_session(number, now_s=call.system.time.wall_s()))
            case _:
                packages.abandon_session(number)
                call.out.line("Success")
    except KeyError:
        call.error(f"Exception occurred while executing '{name}':\n"
                   f"java.lang.SecurityException: Caller has no access to session {number}")  # fmt: skip
        return 255
    except InstallRefusedError as exc:
        call.out.line(f"Failure [{exc}]")
        return 1
    except PhoneFileError as exc:
        call.error(f"Error: failed to write; {exc}")
        return 1
    return 0


def _uninstall(call: Invocation, args: Sequence[str]) -> int:
    keep = "-k" in args
    _, rest, _ = _options([arg for arg in args if arg != "-k"])
    name = rest[0] if rest else ""
    call.system.activities.force_stop(name, reason="uninstall pkg")
    if call.system.packages.uninstall(name, keep_data=keep):
        call.out.line("Success")
        return 0
    code = "not installed for 0" if name not in SYSTEM_PACKAGES else "DELETE_FAILED_INTERNAL_ERROR"
    call.out.line(f"Failure [{code}]")
    return 1


def _clear(call: Invocation, args: Sequence[str]) -> int:
    name = args[-1] if args else ""
    call.system.activities.force_stop(name, reason="clear data")
    done = call.system.packages.clear(name)
    call.out.line("Success" if done else "Failed")
    return 0 if done else 1


def _grant(call: Invocation, name: str, args: Sequence[str]) -> int:
    _, rest, _ = _options(args)
    if len(rest) < 2:
        call.error(f"Error: no {'permission' if rest else 'package'} specified")
        return 1
    try:
        if name == "grant":
            call.system.packages.grant(rest[0], rest[1])
        elif call.system.packages.get(rest[0]) is None:
            raise KeyError(rest[0])
    except KeyError:
        call.error(f"Exception occurred while executing '{name}':\n"
                   f"java.lang.IllegalArgumentException: Unknown package: {rest[0]}")  # fmt: skip
        return 255
    return 0


def _resolve(call: Invocation, args: Sequence[str]) -> int:
    name = args[-1] if args else ""
    found = call.system.packages.get(name)
    if found is None or not found.info.activities:
        call.out.line("No activity found")
        return 0
    call.out.line(
        f"priority=0 preferredOrder=0 match=0x108000 specificIndex=-1 isDefault=true\n{name}/{found.info.activities[0]}"
    )
    return 0


def dump_package(call: Invocation, name: str) -> int:
    """Print what ``dumpsys package NAME`` and ``pm dump NAME`` do."""
    found = call.system.packages.get(name)
    if found is None:
        call.out.line(f"Unable to find package: {name}" if name else "")
        return 0
    info = found.info

    def moment(seconds: float) -> str:
        return formatted_time("%Y-%m-%d %H:%M:%S", seconds)

    flags = " ".join(["[", *(["DEBUGGABLE"] if info.debuggable else []), "HAS_CODE", "ALLOW_CLEAR_USER_DATA", "]"])
    permission = "android.permission.READ_EXTERNAL_STORAGE"
    granted = str(bool({"all", permission} & found.granted)).lower()
    call.out.line(
        "Activity Resolver Table:\n  Non-Data Actions:\n      android.intent.action.MAIN:\n"
        + "".join(f"        {found.uid:x} {name}/{activity}\n" for activity in info.activities)
        + f"\nPackages:\n  Package [{name}] ({found.uid * 2654435761 & 0xFFFFFFF:x}):\n    userId={found.uid}\n"
        f"    pkg=Package{{{found.uid:x} {name}}}\n    codePath={found.code_path}\n    resourcePath={found.code_path}\n"
        f"    legacyNativeLibraryDir={found.code_path}/lib\n    primaryCpuAbi={found.primary_abi or 'null'}\n"
        f"    secondaryCpuAbi=null\n    versionCode={info.version_code} minSdk={info.min_sdk} targetSdk=31\n"
        f"    versionName={info.version_name}\n    flags={flags}\n"
        f"    dataDir={found.data_path.replace('/data/data', '/data/user/0')}\n"
        f"    timeStamp={moment(found.updated_s)}\n    firstInstallTime={moment(found.installed_s)}\n"
        f"    lastUpdateTime={moment(found.updated_s)}\n    requested permissions:\n      {permission}\n"
        f"    User 0: ceDataInode={found.uid} installed=true hidden=false suspended=false stopped=false "
        f"notLaunched=false enabled=0 instant=false virtual=false\n      runtime permissions:\n"
        f"        {permission}: granted={granted}"
    )
    return 0
