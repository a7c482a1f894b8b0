"""A stand-in for pymobiledevice3's program: the same commands, words and streams, with an iPhone that is a folder.

Written as a file of its own on the PATH, it is a process like the real one: logging goes to standard error with time,
host and process before each message, and ``launch --stream`` goes on until it is interrupted.
"""

import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path

from tests.samples.places import REPO

PROGRAM = "pymobiledevice3"


def install(folder: Path, phone: Path) -> None:
    """Write the program into ``folder``; its iPhone is ``phone``."""
    folder.mkdir(parents=True, exist_ok=True)
    (phone / "Documents").mkdir(parents=True, exist_ok=True)
    path = folder / PROGRAM
    repo = REPO
    path.write_text(
        f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(repo)!r})\n"
        f"from tests.samples.cabled_iphone import main\nmain({str(phone)!r}, sys.argv[1:])\n"
    )
    path.chmod(0o755)


def log(name: str, level: str, message: str) -> None:
    print(
        f"{time.strftime('%Y-%m-%d %H:%M:%S')} host {name}[{os.getpid()}] {level} {message}",
        file=sys.stderr,
        flush=True,
    )


def main(folder: str, argv: list[str]) -> None:
    phone = Path(folder)
    with (phone / "calls").open("a") as calls:
        calls.write(json.dumps(argv) + "\n")
    words = list(argv)
    udid = ""
    if "--udid" in words:
        place = words.index("--udid")
        udid = words[place + 1]
        del words[place : place + 2]
    known = (phone / "udid").read_text() if (phone / "udid").is_file() else ""
    if not known or (udid and udid != known):
        log(PROGRAM, "ERROR", "Device is not connected")
        raise SystemExit(1)
    match words:
        case ["apps", "install", package]:
            shutil.copy(package, phone / "app.ipa")
        case ["apps", "push", "--documents", _, local, remote] if remote.startswith("/Documents/"):
            shutil.copy(local, phone / remote[1:])
        case ["developer", "dvt", "launch", "--stream", _]:
            launch(phone)
        case ["developer", "dvt", "kill", "512"]:
            pass
        case _:
            print(f"Usage: {PROGRAM} [OPTIONS] COMMAND [ARGS]...\nError: no such command", file=sys.stderr)
            raise SystemExit(2)


def launch(phone: Path) -> None:
    from tests.samples.iphone_output import FULL, console

    print("Process launched with pid 512", flush=True)
    log("pymobiledevice3.services.dvt", "INFO", "channel opened")
    mode = (phone / "mode").read_text() if (phone / "mode").is_file() else ""
    if mode != "waits":
        params = json.loads((phone / "Documents" / "benchmark_params.json").read_text())
        if mode == "stale":
            params["num_threads"] = "7"
        size_bytes = (phone / "Documents" / params["graph"]).stat().st_size
        name = "COREML" if params.get("use_coreml") == "true" else "XNNPACK"
        launches = (phone / "calls").read_text().count('"launch"')
        text = console(
            params,
            size_bytes=size_bytes,
            mean_us=4000.0 + launches,
            delegate_lines=f"INFO: {FULL.format(name=name)}\n",
        )
        for message in text.split("\n"):
            if message.strip():
                log("PID:512", "INFO", message.strip())
    while True:
        signal.pause()
