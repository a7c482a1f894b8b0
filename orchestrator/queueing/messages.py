"""What a job in the queue says. Data only: read by hand, every field checked, nothing in it is ever executed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from orchestrator.errors import UsageError
from orchestrator.records.device import HOST_SERIAL
from orchestrator.records.identity import CampaignId, Serial

#: The version of the messages.
PROTOCOL: Final = 1
#: A submission's name is part of campaign ids, and those are part of file names.
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
#: The queue's own names are 128 characters at most.
_LONGEST_SERIAL: Final = 112
#: How the reason begins for which a phone can't be used that its host keeps in quarantine.
IN_QUARANTINE: Final = "in quarantine: "
#: The fields of a message, all of them text.
_FIELDS: Final = ("submission", "serial", "plan", "payload")


def campaign_id_of(submission: str, serial: Serial) -> CampaignId:
    """Return the campaign of a phone's part of a submission."""
    return CampaignId(f"{submission}-{re.sub('[^A-Za-z0-9._-]', '_', serial)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PhoneJob:
    """One plan on one phone."""

    #: All jobs of one ``farm submit``.
    submission: str
    serial: Serial
    #: The plan as a checked JSON document (config/farm_documents.py).
    plan: str
    #: What it names, likewise.
    payload: str = "{}"

    def __post_init__(self) -> None:
        """Raise UsageError for names that can't be used."""
        if not _NAME.fullmatch(self.submission):
            raise UsageError(f"{self.submission!r} can't name a submission", hint="letters, digits, . _ - only")
        # This computer is no phone: what comes with a job is never run on a host.
        if self.serial in {"", HOST_SERIAL} or len(self.serial) > _LONGEST_SERIAL or not self.serial.isprintable():
            raise UsageError(f"{self.serial!r} can't be a serial number")

    @property
    def campaign_id(self) -> CampaignId:
        """The campaign of this job: the same one however often the job is delivered."""
        return campaign_id_of(self.submission, self.serial)

    def to_message(self) -> dict[str, Any]:
        """Return the job as the queue keeps it."""
        return {
            "protocol": PROTOCOL,
            "submission": self.submission,
            "serial": str(self.serial),
            "plan": self.plan,
            "payload": self.payload,
        }


def queue_of(serial: str) -> str:
    """Return the name of a phone's queue, and of the lock that keeps two of its jobs apart."""
    return f"phone:{serial}"


def read_message(message: Mapping[str, Any]) -> PhoneJob:
    """Return what a message says; raises UsageError for one that this version can't read."""
    protocol = message.get("protocol")
    if type(protocol) is not int or protocol != PROTOCOL:
        raise UsageError(
            f"the job is written in version {protocol!r}, this benchfarm reads version {PROTOCOL}",
            hint="install the same benchfarm on every host, then submit again",
        )
    fields = {name: message.get(name) for name in _FIELDS}
    for name, value in fields.items():
        if not isinstance(value, str):
            raise UsageError(f"the job's {name} is {type(value).__name__}, not text")
    return PhoneJob(
        submission=str(fields["submission"]),
        serial=Serial(str(fields["serial"])),
        plan=str(fields["plan"]),
        payload=str(fields["payload"]),
    )
