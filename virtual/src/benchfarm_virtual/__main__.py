"""``python -m benchfarm_virtual serve``: a lab of virtual phones, in the foreground."""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from benchfarm_virtual.errors import LabError, UsageError
from benchfarm_virtual.lab import LabSettings
from benchfarm_virtual.serving import ServeOptions, serve
from benchfarm_virtual.shares import serve_share
from benchfarm_virtual.spec import PhoneSpec


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code; what went wrong is one line on stderr."""
    parser = argparse.ArgumentParser(prog="python -m benchfarm_virtual", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    every = argparse.ArgumentParser(add_help=False)
    every.add_argument(
        "--state-dir", type=Path, required=True, help="folder for lab.json and the log"
    )
    every.add_argument(
        "--adb-key",
        type=Path,
        action="append",
        default=[],
        help="adbkey.pub of an adb server that gets in; repeatable",
    )
    every.add_argument(
        "--time-factor", type=float, default=1.0, help="phone seconds in one real second"
    )
    every.add_argument("--seed", type=int, default=1, help="where the phones' noise comes from")
    command = commands.add_parser(
        "serve", parents=[every], help="run virtual phones on 127.0.0.1 until SIGTERM"
    )
    command.add_argument(
        "--phone",
        action="append",
        default=[],
        metavar="PROFILE[:SERIAL]|JSON",
        help="a phone; may be repeated",
    )
    command.add_argument(
        "--processes",
        type=int,
        default=0,
        metavar="N",
        help="run the phones in so many processes; 0: as suits them",
    )
    command.add_argument(
        "--exit-with-parent", type=int, default=0, metavar="PID", help="end when this process has"
    )
    command.add_argument(
        "--idle", type=float, default=0.0, help="end after so many seconds without a connection"
    )
    commands.add_parser(
        "share", parents=[every], help="run phones for a lab; only the lab itself starts this"
    )
    given = parser.parse_args(arguments)
    logging.basicConfig(
        level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    settings = LabSettings(
        state_dir=given.state_dir.absolute(),
        adb_keys=given.adb_key,
        time_factor=given.time_factor,
        seed=given.seed,
    )
    try:
        if given.command == "share":
            serve_share(settings)
        else:
            phones = [parse_phone(text, number) for number, text in enumerate(given.phone, start=1)]
            serve(
                ServeOptions(
                    settings=settings,
                    phones=phones,
                    processes=given.processes,
                    parent_pid=given.exit_with_parent,
                    idle_s=given.idle,
                )
            )
    except LabError as error:
        sys.stderr.write(f"{error}\n" + (f"{error.hint}\n" if error.hint else ""))
        return error.exit_code
    return 0


def parse_phone(text: str, number: int) -> PhoneSpec:
    """Read ``pixel-3``, ``pixel-3:SERIAL`` or a JSON object.

    Raise UsageError when it is none of them.
    """
    if text.startswith("{"):
        try:
            return PhoneSpec.from_json(json.loads(text))
        except ValueError as fault:
            raise UsageError(f"--phone: no JSON: {fault}") from None
    profile, _, serial = text.partition(":")
    return PhoneSpec(profile=profile, serial=serial or f"VIRTUAL{number:04d}")


if __name__ == "__main__":
    sys.exit(main())
