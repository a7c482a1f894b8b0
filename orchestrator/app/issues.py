"""A run as a text for an issue tracker."""

from __future__ import annotations

from orchestrator import __version__
from orchestrator.bootstrap import Farm, this_computer
from orchestrator.records.run import RunRecord


def issue_of(farm: Farm, run: RunRecord) -> str:
    """Return a run as a text for an issue tracker; nothing that names a person, a computer or a phone is in it."""
    from orchestrator.report.issue import Reported, issue_text

    store, case = farm.store, run.case
    campaign = store.campaign(run.campaign_id)
    environ = farm.settings.environ
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
