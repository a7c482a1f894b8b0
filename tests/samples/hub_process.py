"""Another process that uses phones of the same hubs: does what it is told on its input, tells what it did."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

from orchestrator.devices.adb import AdbDevice
from orchestrator.devices.address import ServerAddress
from orchestrator.devices.server import AdbServer
from orchestrator.devices.traffic import Lane
from orchestrator.records.plan import PushLimits


def main(port: str, address: str, hub: str, folder: str, source: str) -> None:
    device = AdbDevice(AdbServer(ServerAddress(port=int(port))), address, progress=moved)
    device.take_lane(Lane(Path(folder), hub, lambda: PushLimits(per_host=1)))
    tell("ready")
    for line in sys.stdin:
        if line.strip() == "measure":
            with device.measuring():
                tell("measures")
                sys.stdin.readline()
            tell("measured")
        else:
            data = Path(source).read_bytes()
            device.place(Path(source), kind="models", sha256=hashlib.sha256(data).hexdigest(), name="m")
            tell("placed")


def moved(file: str, sent_bytes: int, size_bytes: int) -> None:
    tell("whole" if sent_bytes >= size_bytes else "sends")


def tell(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
