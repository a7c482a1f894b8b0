"""Another process that uses a hub: it measures or pushes there at once, and again for each line on its input."""

from __future__ import annotations

import sys
from pathlib import Path

from orchestrator.devices.traffic import HubTraffic
from orchestrator.records.plan import PushLimits


def main(folder: str, kind: str, hub: str, silent_s: str) -> None:
    traffic = HubTraffic(Path(folder), silent_s=float(silent_s))
    print("begins", flush=True)
    while True:
        with traffic.measuring(hub) if kind == "measure" else traffic.pushing(hub, PushLimits(per_host=1)):
            print("in", flush=True)
            if not sys.stdin.readline():
                return


if __name__ == "__main__":
    main(*sys.argv[1:])
