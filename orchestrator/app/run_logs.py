"""One run as text: what ``results log`` shows, the same text read again by ``parse``, and an issue
tracker's text.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final

from orchestrator import __version__
from orchestrator.bootstrap import Workspace, this_computer
from orchestrator.records.run import Attachment, Outcome, RunRecord
from orchestrator.tables.escapes import one_line

if TYPE_CHECKING:
    pass

#: What a log begins with.
LOG_START: Final = "command: "


def log_text(run: RunRecord, shown: tuple[Attachment, ...]) -> str:
    """Return a run's log as text: how it was started, what was asked for, and what it printed."""
    case = run.case
    flags = one_line(shlex.join(f"--{name}={value}" for name, value in case.flags))
    lines = [
        f"{LOG_START}{one_line(run.command)}",
        f"exit code: {run.exit_code}{', stopped at its time limit' if run.outcome is Outcome.TIMED_OUT else ''}",
        f"tool: {case.tool.value}",
        f"delegate asked for: {case.delegate}",
        f"threads: {case.threads}",
        *([f"flags: {flags}"] if flags else []),
    ]
    return "\n".join([*lines, *map(_section, shown)])


def _section(attachment: Attachment) -> str:
    text = attachment.data.decode("utf-8", "replace")
    # What a phone printed must not be able to drive the terminal.
    return "\n".join(
        [f"--- {attachment.name} ({len(attachment.data)} bytes)", *map(one_line, text.splitlines())]
    )


def issue_of(workspace: Workspace, run: RunRecord) -> str:
    """Return a run as a text for an issue tracker; nothing that names a person, a computer or a
    phone is in it.
    """
    from orchestrator.report.issue import Reported, issue_text

    store, case = workspace.store, run.case
    campaign = store.campaign(run.campaign_id)
    environ = workspace.settings.environ
    hosts = [this_computer(), campaign.host if campaign is not None else ""]
    words = [environ.get(name, "") for name in ("USER", "LOGNAME", "HOSTNAME", "HOME")]
    words += [host.partition(" ")[0] for host in hosts]
    # "root" and "host" name nobody.
    private = {word for word in words if word not in {"root", "host", "/root"}}
    return issue_text(
        Reported(
            run=run,
            facts=store.devices().get(case.serial),
            model=store.models().get(case.model_sha256),
            build=store.builds().get(case.build_sha256),
            attachments=store.attachments(run.run_id),
            benchfarm_version=__version__,
            private=sorted({*private, *({str(serial) for serial in store.devices()} - {"host"})}),
        )
    )
