"""Who and what: id, uname, getprop, which, nproc and the like."""

from __future__ import annotations

from benchfarm_lab.commands.invocation import Invocation
from benchfarm_lab.commands.options import need_args, read_options
from benchfarm_lab.commands.registry import command
from benchfarm_lab.contract import SHELL_UID
from benchfarm_lab.launching import DEFAULT_PATH, find_program
from benchfarm_lab.processes import user_id, user_name
from benchfarm_lab.trees.proc import cpu_count, kernel_release

_SHELL_GROUPS = (
    "1004(input),1007(log),1011(adb),1015(sdcard_rw),1028(sdcard_r),3001(net_bt_admin),3002(net_bt),3003(inet),"
    "3006(net_bw_stats),3009(readproc),3011(uhid)"
)


@command("id")
def id_(call: Invocation) -> int:
    """Say who the user is."""
    options = read_options(call, "ugnGrZ")
    uid = call.uid
    if options.args:
        found = user_id(options.args[0])
        if found is None:
            call.fail(f"not integer: {options.args[0]}")
        uid = found
    name = user_name(uid)
    if "u" in options or "g" in options:
        call.out.line(name if "n" in options else uid)
        return 0
    context = (
        "u:r:su:s0" if uid == 0 else "u:r:shell:s0" if uid == SHELL_UID else "u:r:runas_app:s0:c123,c256,c512,c768"
    )
    groups = f"{uid}({name})" + (f",{_SHELL_GROUPS}" if uid == SHELL_UID else "")
    call.out.line(f"uid={uid}({name}) gid={uid}({name}) groups={groups} context={context}")
    return 0


@command("whoami")
def whoami(call: Invocation) -> int:
    """Print the user's name."""
    call.out.line(user_name(call.uid))
    return 0


@command("uname")
def uname(call: Invocation) -> int:
    """Print the kernel's name, release, machine."""
    options = read_options(call, "asnrvmo")
    wide = call.system.props.get("ro.product.cpu.abilist64", "arm64-v8a")
    fields = {
        "s": "Linux", "n": "localhost", "r": kernel_release(call.system),
        "v": "#0 SMP PREEMPT Mon Aug 2 10:12:18 UTC 2021", "m": "aarch64" if wide else "armv8l",
    }  # fmt: skip
    wanted = [key for key in fields if key in options or "a" in options] or ["s"]
    parts = [fields[key] for key in wanted]
    if "a" in options or "o" in options:
        parts = [*parts, "Toybox" if "a" in options else "Android"] if "a" in options else ["Android"]
    call.out.line(" ".join(parts))
    return 0


@command("nproc")
def nproc(call: Invocation) -> int:
    """Print how many cores the caller may use."""
    options = read_options(call, "", long={"all": "a"})
    count = cpu_count(call.system) if "a" in options else bin(call.process.affinity).count("1")
    call.out.line(count)
    return 0


@command("hostname")
def hostname(call: Invocation) -> int:
    """Print the host's name."""
    call.out.line("localhost")
    return 0


@command("printenv")
def printenv(call: Invocation) -> int:
    """Print variables of the environment."""
    status = 0
    for name in call.args:
        if name in call.env:
            call.out.line(call.env[name])
        else:
            status = 1
    if not call.args:
        for name, value in call.env.items():
            call.out.line(f"{name}={value}")
    return status


@command("which")
def which(call: Invocation) -> int:
    """Print where commands are."""
    options = read_options(call, "a")
    status = 0
    for name in options.args:
        path = find_program(call.system, name, path=call.env.get("PATH", DEFAULT_PATH), cwd=call.cwd, uid=call.uid)
        if path is None or not call.system.files.may(call.path(path), 1, uid=call.uid):
            status = 1
        else:
            call.out.line(path)
    return status


@command("getprop")
def getprop(call: Invocation) -> int:
    """Print a property, or all of them."""
    options = read_options(call, "TZ")
    if options.args:
        value = call.system.props.get(options.args[0], "")
        call.out.line(value or (options.args[1] if len(options.args) > 1 else ""))
        return 0
    for key, value in call.system.props.items():
        call.out.line(f"[{key}]: [{value}]")
    return 0


@command("setprop")
def setprop(call: Invocation) -> int:
    """Set a property."""
    options = read_options(call, "")
    need_args(call, options, 2)
    key, value = options.args[:2]
    if key == "sys.powerctl":
        call.system.on_reboot(value.partition(",")[2])
        return 0
    fault = call.system.props.set_as(call.uid, key, value)
    if fault:
        call.error(fault)
        return 1
    return 0


@command("getenforce")
def getenforce(call: Invocation) -> int:
    """Say whether SELinux refuses or only notes."""
    call.out.line("Enforcing")
    return 0


@command("setenforce")
def setenforce(call: Invocation) -> int:
    """SELinux stays as it is."""
    call.fail("Permission denied")


@command("reboot")
def reboot(call: Invocation) -> int:
    """Restart the phone."""
    if call.uid not in {0, SHELL_UID}:
        call.fail("Operation not permitted")
    call.system.on_reboot(call.args[0] if call.args else "")
    return 0
