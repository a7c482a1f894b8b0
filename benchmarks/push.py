"""How fast a file is pushed by benchfarm, against ``adb push`` through the same server to the same
phone.

Both send the same bytes to the same virtual phone, in turns. The figures are those of the way
through loopback, not of a phone's USB. ``adb push`` is given with its process start (as a script
would call it) and with its own measure of the transfer alone ("... MB/s"), so that neither side is
flattered.

    python benchmarks/push.py [MEGABYTES [ROUNDS]]
"""

from __future__ import annotations

import os
import re
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchfarm_virtual.control import start_phones, stop_phones
from benchfarm_virtual.spec import PhoneSpec
from orchestrator.devices.adb_server import PrivateAdbServer, find_adb
from orchestrator.devices.link import PhoneLink

TARGET = "/data/local/tmp/pushed"


def main(megabytes: int = 200, rounds: int = 7) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = folder / "source"
        source.write_bytes(secrets.token_bytes(megabytes * 1_000_000))
        environ = {**os.environ, "HOME": name}
        binary = find_adb()
        server = PrivateAdbServer(folder / "adb", setting=str(binary), environ=environ, usb=False)
        server.revive()
        try:
            lab = start_phones(
                folder / "lab",
                phones=[PhoneSpec(profile="pixel-3", serial="PUSH")],
                adb_keys=[folder / ".android" / "adbkey.pub"],
            )
            address = lab.phones[0].address
            server.connect_tcp(address)
            link = PhoneLink(server, address)
            ours_s: list[float] = []
            command_s: list[float] = []
            transfer_s: list[float] = []
            for _ in range(rounds):
                begun_s = time.perf_counter()
                link.push(source, TARGET)
                ours_s.append(time.perf_counter() - begun_s)
                begun_s = time.perf_counter()
                shown = subprocess.run(
                    [binary, "-L", server.address.spec, "-s", address, "push", source, TARGET],
                    check=True, capture_output=True, text=True, env=environ,
                )  # fmt: skip
                command_s.append(time.perf_counter() - begun_s)
                told = re.search(r"\((\d+) bytes in ([\d.]+)s\)", shown.stdout + shown.stderr)
                if told is not None:
                    transfer_s.append(float(told[2]))
        finally:
            stop_phones(folder / "lab")
            server.stop()
    ours, command = statistics.median(ours_s), statistics.median(command_s)
    print(f"{megabytes} MB, {rounds} rounds in turns, virtual phone on loopback; medians")
    print(f"benchfarm          {megabytes / ours:8.0f} MB/s  {ours:.3f} s")
    print(f"adb push           {megabytes / command:8.0f} MB/s  {command:.3f} s  (whole command)")
    if transfer_s:
        transfer = statistics.median(transfer_s)
        print(
            f"adb push           {megabytes / transfer:8.0f} MB/s  {transfer:.3f} s  (transfer alone, as it says)"
        )
        print(f"benchfarm reaches {transfer / ours:.2f}x of the transfer alone")
    print(f"benchfarm reaches {command / ours:.2f}x of the whole command")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
