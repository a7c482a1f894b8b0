"""How many throttled runs the judgement catches, and how many calm ones it accuses, on virtual
phones of known truth.

Every run goes through a real adb server, with the phone sped up; half of them meet a fault (clocks
held down before or during the run, a phone that overheats, other work on the fastest cores). See
tests/samples/known_truth.py.

    python benchmarks/detection.py [RUNS [SPEED]]
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from benchfarm_virtual.phones import VirtualPhones
from orchestrator.devices.adb_server import PrivateAdbServer
from orchestrator.devices.phone import AdbDevice

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.samples.known_truth import Tally, WatchedPhone


def main(runs: int = 240, speed: float = 12.0) -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        environ = {**os.environ, "HOME": name}
        server = PrivateAdbServer(folder / "adb", setting="", environ=environ, usb=False)
        server.revive()
        totals: dict[str, Tally] = {}
        try:
            keys = list(folder.rglob("adbkey.pub"))
            with VirtualPhones(adb_public_keys=keys, time_factor=speed) as lab:
                for number, profile in enumerate(("pixel-3", "pixel-7", "galaxy-s23")):
                    phone = lab.add(profile)
                    server.connect_tcp(phone.address)
                    files = folder / profile
                    files.mkdir()
                    watched = WatchedPhone(phone, AdbDevice(server, phone.address), files)
                    for code, tally in watched.measure(runs // 3, seed=number).items():
                        total = totals.setdefault(code, Tally())
                        total.counts += tally.counts
                        total.wrong += tally.wrong
                        for line in tally.wrong:
                            print(f"wrong about {code}: {profile} {line}", flush=True)
                    print(profile, {code: str(tally) for code, tally in totals.items()}, flush=True)
        finally:
            server.stop()
    for code, tally in totals.items():
        print(f"{code}: {tally}")


if __name__ == "__main__":
    main(*(kind(word) for kind, word in zip((int, float), sys.argv[1:], strict=False)))
