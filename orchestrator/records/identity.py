"""Identities.

Each is a type of its own, so that a serial number can't be passed where a case key is meant.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import NewType

Serial = NewType("Serial", str)
ModelSha = NewType("ModelSha", str)
BuildSha = NewType("BuildSha", str)
CaseKey = NewType("CaseKey", str)
SeriesKey = NewType("SeriesKey", str)
RunId = NewType("RunId", str)
CampaignId = NewType("CampaignId", str)


def content_key(value: object) -> str:
    """Return the sha256 of a value's canonical JSON: equal values, equal keys, on every host and
    version.
    """
    text = json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
    )
    return hashlib.sha256(text.encode()).hexdigest()


def campaign_id_of(submission: str, serial: Serial) -> CampaignId:
    """Return the campaign of a phone's part of a farm's submission, another for each two of them.

    Behind the last ``_`` is the serial number, in which no ``_`` is left.
    """
    escaped = re.sub("[^A-Za-z0-9.-]", lambda found: f"~{ord(found[0]):x}~", serial)
    return CampaignId(f"{submission}_{escaped}")
