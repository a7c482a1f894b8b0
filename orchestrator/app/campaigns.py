"""What every new campaign has: an id, its terms as a plan says them, and where its files lie on this computer."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import fields
from datetime import datetime

from orchestrator.records.campaign import Terms
from orchestrator.records.device import DeviceFacts
from orchestrator.records.identity import CampaignId
from orchestrator.records.plan import Plan, PlanTerms
from orchestrator.records.workload import Build, Model


def new_campaign_id(at: datetime) -> CampaignId:
    """Return an id that sorts by its moment and that no other campaign has."""
    return CampaignId(f"{at:%Y%m%d-%H%M%S}-{secrets.token_hex(3)}")


def files_of(models: Iterable[Model], builds: Iterable[Build]) -> dict[str, str]:
    """Return where models, programs and the libraries beside these lie, by sha256."""
    builds = list(builds)
    files = {str(model.sha256): str(model.path) for model in models}
    files |= {str(build.sha256): str(build.path) for build in builds}
    return files | {item.sha256: str(item.path) for build in builds for item in build.companions}


def terms_of(plan: Plan, devices: Iterable[DeviceFacts], files: Mapping[str, str]) -> Terms:
    """Return the terms of a plan's campaign on these devices."""
    return Terms(
        **{item.name: getattr(plan, item.name) for item in fields(PlanTerms)},
        every_thread_count=plan.matrix.every_thread_count,
        parity_inputs=str(plan.parity_inputs) if plan.parity_inputs is not None else "",
        joins=plan.devices.joins and plan.search is None,
        replaces_lost=plan.devices.replaces_lost,
        plan_folder=str(plan.folder) if plan.folder is not None else "",
        files=files,
        fingerprints={facts.serial: facts.fingerprint for facts in devices if facts.fingerprint},
    )
