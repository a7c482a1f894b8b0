"""Time: date, sleep, uptime."""

from __future__ import annotations

import re

from benchfarm_lab.commands.changes import parse_time
from benchfarm_lab.commands.invocation import Invocation
from benchfarm_lab.commands.listing import local_time
from benchfarm_lab.commands.options import need_args, read_options
from benchfarm_lab.commands.registry import command
from benchfarm_lab.commands.running import seconds
from benchfarm_lab.contract import PhoneFileError


@command("sleep", "usleep")
def sleep(call: Invocation) -> int:
    """Wait for phone time to pass."""
    options = read_options(call, "")
    need_args(call, options, 1)
    if call.name == "usleep":
        call.sleep(seconds(call, options.args[0]) / 1e6)
        return 0
    call.sleep(sum(seconds(call, text) for text in options.args))
    return 0


@command("date")
def date(call: Invocation) -> int:
    """Print the time; ``+format``, ``-d time``, ``-r file``, ``-u``."""
    options = read_options(call, "u", "drDI")
    moment = call.system.time.wall_s()
    if "d" in options:
        parsed = parse_time(options.last("d"))
        if parsed is None:
            call.fail(f"bad date {options.last('d')}")
        moment = parsed
    elif "r" in options:
        try:
            moment = call.system.files.stat(call.path(options.last("r")), uid=call.uid).mtime_s
        except PhoneFileError as exc:
            call.fail(f"{options.last('r')}: {exc}")
    form = next((arg[1:] for arg in options.args if arg.startswith("+")), "%a %b %e %H:%M:%S %Z %Y")
    if any(not arg.startswith("+") for arg in options.args):
        call.fail("cannot set date: Operation not permitted" if call.uid else "bad date")
    call.out.line(formatted_time(form, moment))
    return 0


def formatted_time(form: str, moment: float) -> str:
    """Return a time by strftime's letters, with ``%N`` for nanoseconds."""
    whole = int(moment // 1)
    nanoseconds = int((moment - whole) * 1_000_000_000)
    when = local_time(whole)
    letters = {"s": str(whole), "N": f"{nanoseconds:09d}", "e": f"{when.day:2d}", "Z": "UTC", "z": "+0000",
               "T": when.strftime("%H:%M:%S"), "F": when.strftime("%Y-%m-%d"), "D": when.strftime("%m/%d/%y"),
               "R": when.strftime("%H:%M"), "n": "\n", "t": "\t", "%": "%"}  # fmt: skip

    def letter(match: re.Match[str]) -> str:
        digits, name = match.groups()
        if name == "N" and digits:
            return letters["N"][: int(digits)]
        return letters[name] if name in letters else when.strftime(f"%{name}")

    return re.sub(r"%(\d*)([A-Za-z%])", letter, form)


@command("uptime")
def uptime(call: Invocation) -> int:
    """Say how long the phone is up."""
    options = read_options(call, "sp")
    up_s = call.system.time.uptime_s()
    now_s = call.system.time.wall_s()
    if "s" in options:
        call.out.line(formatted_time("%Y-%m-%d %H:%M:%S", now_s - up_s))
        return 0
    days, rest = divmod(int(up_s), 86400)
    span = (f"{days} day{'s' if days != 1 else ''}, " if days else "") + (
        f"{rest // 3600}:{rest // 60 % 60:02d}" if rest >= 3600 else f"{rest // 60} min")  # fmt: skip
    if "p" in options:
        call.out.line(f"up {span}")
    else:
        call.out.line(f" {formatted_time('%H:%M:%S', now_s)} up {span},  0 users,  load average: 0.42, 0.40, 0.38")
    return 0
