"""A pass: how long the phone has been up and idle before a run."""

from dataclasses import replace

from orchestrator.plugins import Figure, Pass, PassSpec

FILE = "uptime.txt"


def runner(services):
    """Make what runs programs in this pass."""

    def run(tool, device, request):
        enclosing = replace(
            request,
            enclosed=lambda command: f"cat /proc/uptime >{FILE}; {command}",
            enclosing_files=(FILE,),
        )
        return tool.run(device, enclosing)

    return run


def read(tool, report, raw, case):
    """Add the seconds that the phone has been up, and those that its cores were idle in all."""
    words = raw.data(FILE).split()
    if len(words) != 2:
        return report
    up_s, idle_s = (float(word) for word in words)
    return replace(report, extra={**report.extra, "acme_up_s": up_s, "acme_idle_s": idle_s})


IDLE = PassSpec(
    name=Pass("acme.idle"),
    about="How long the phone has been up and idle before a run",
    runner=runner,
    read=read,
    figures=(
        Figure(head="up s", value=lambda report: report.extra.get("acme_up_s")),
        Figure(head="idle s", value=lambda report: report.extra.get("acme_idle_s")),
    ),
)
