"""Identities. Each is a type of its own, so that a serial number can't be passed where a case key is meant."""

from __future__ import annotations

import hashlib
import json
from typing import NewType

Serial = NewType("Serial", str)
ModelSha = NewType("ModelSha", str)
BuildSha = NewType("BuildSha", str)
CaseKey = NewType("CaseKey", str)
SeriesKey = NewType("SeriesKey", str)
RunId = NewType("RunId", str)
CampaignId = NewType("CampaignId", str)


def content_key(value: object) -> str:
    """Return the sha256 of a value's canonical JSON: equal values, equal keys, on every host and version."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
