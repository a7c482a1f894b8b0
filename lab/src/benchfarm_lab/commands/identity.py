"""Who and what: id, getprop, setprop, reboot."""

from __future__ import annotations

from benchfarm_lab.commands.invocation import Invocation
from benchfarm_lab.commands.options import need_args, read_options
from benchfarm_lab.commands.registry import command
from benchfarm_lab.contract import SHELL_UID
from benchfarm_lab.processes import user_name

_SHELL_GROUPS = (
    "1004(input),1007(log),1011(adb),1015(sdcard_rw),1028(sdcard_r),3001(net_bt_admin),3002(net_bt),3003(inet),"
    "3006(net_bw_stats),3009(readproc),3011(uhid)"
)


@command("id")
def id_(call: Invocation) -> int:
    """Say who the user is."""
    options = read_options(call, "u")
    uid, name = call.uid, user_name(call.uid)
    if "u" in options:
        call.out.line(uid)
        return 0
    context = (
        "u:r:su:s0" if uid == 0 else "u:r:shell:s0" if uid == SHELL_UID else "u:r:runas_app:s0:c123,c256,c512,c768"
    )
    groups = f"{uid}({name})" + (f",{_SHELL_GROUPS}" if uid == SHELL_UID else "")
    call.out.line(f"uid={uid}({name}) gid={uid}({name}) groups={groups} context={context}")
    return 0


@command("getprop")
def getprop(call: Invocation) -> int:
    """Print a property, or all of them."""
    if call.args:
        call.out.line(call.system.props.get(call.args[0], "") or (call.args[1] if len(call.args) > 1 else ""))
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


@command("reboot")
def reboot(call: Invocation) -> int:
    """Restart the phone."""
    if call.uid not in {0, SHELL_UID}:
        call.fail("Operation not permitted")
    call.system.on_reboot(call.args[0] if call.args else "")
    return 0
