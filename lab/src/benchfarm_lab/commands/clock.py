"""Time: date, sleep."""

from __future__ import annotations

from benchfarm_lab.commands.invocation import Invocation
from benchfarm_lab.commands.listing import local_time
from benchfarm_lab.commands.options import need_args, read_options
from benchfarm_lab.commands.registry import command
from benchfarm_lab.commands.running import seconds


@command("sleep")
def sleep(call: Invocation) -> int:
    """Wait for phone time to pass."""
    options = read_options(call, "")
    need_args(call, options, 1)
    call.sleep(sum(seconds(call, text) for text in options.args))
    return 0


@command("date")
def date(call: Invocation) -> int:
    """Print the time (UTC); ``+format``."""
    options = read_options(call, "u")
    form = next((arg[1:] for arg in options.args if arg.startswith("+")), "%a %b %e %H:%M:%S %Z %Y")
    if any(not arg.startswith("+") for arg in options.args):
        call.fail("cannot set date: Operation not permitted" if call.uid else "bad date")
    call.out.line(local_time(call.system.time.wall_s()).strftime(form))
    return 0
