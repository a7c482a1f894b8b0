"""A stand-in for pymobiledevice3's program: the same commands, words and streams, with iPhones that
are folders.

Written as a file of its own on the PATH, it is a process like the real one: logging goes to
standard error with time, host and process before each message. Its list says that its iPhones are
virtual, and benchfarm labels their figures so.

A phone's folder holds ``phone.json`` (product, version, app), ``app/Documents`` and, while they
last, ``faults``: a JSON object of fault -> how many more commands or launches it is for (-1: all).
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

# Each of a thousand calls is a process of its own: it imports what that call needs.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, NoReturn

PROGRAM = "pymobiledevice3"
APP = "com.example.LiteRTBenchmark"
PROCESS = 512

#: Fault -> what every command then says; of those for a command, its first words.
_SAYS = {
    "unplugged": ("", "Device is not connected"),
    "untrusted": ("apps", "Device is not paired"),
    "locked": ("developer dvt launch", "Device is password protected. Please unlock and retry"),
    "no-developer-mode": (
        "developer",
        "Developer Mode is disabled. You can try to enable it using: ...",
    ),
    "no-image": (
        "developer",
        "Failed to start service. Possible reasons are:\\n- If you were trying to access ...",
    ),
    "no-tunnel": ("developer", "Unable to connect to Tunneld. You can start one using: ..."),
    "disk-full": ("apps push", "Not enough disk space"),
}


def install(folder: Path, *phones: Path, udid: str = "00008150-000A") -> None:
    """Write the program into ``folder``; its iPhones are ``phones``, numbered after ``udid``."""
    from tests.samples.places import REPO

    folder.mkdir(parents=True, exist_ok=True)
    for number, phone in enumerate(phones):
        (phone / "app" / "Documents").mkdir(parents=True, exist_ok=True)
        about = {
            "udid": f"{udid}{number}", "ProductType": "iPhone18,1", "ProductVersion": "27.0", "BuildVersion": "24A437",
            "app": APP, "path": "/private/var/containers/Bundle/Application/1/B.app", "exits_with": 1,
        }  # fmt: skip
        (phone / "phone.json").write_text(json.dumps(about))
    path = folder / PROGRAM
    # Without what is installed beside Python it starts sooner; it needs nothing of that.
    path.write_text(
        f"#!{sys.executable} -SE\nimport sys\nsys.path[:0] = [{str(REPO)!r}, {str(REPO / 'virtual' / 'src')!r}]\n"
        f"from tests.extensions.iphone.cabled_iphone import main\nmain({[str(phone) for phone in phones]!r}, sys.argv[1:])\n"
    )
    path.chmod(0o755)


def change(phone: Path, **about: Any) -> None:
    """Change what a phone is."""
    (phone / "phone.json").write_text(
        json.dumps(json.loads((phone / "phone.json").read_text()) | about)
    )


def give(phone: Path, **faults: int) -> None:
    """Give a phone faults, and how often each shows."""
    (phone / "faults").write_text(
        json.dumps({name.replace("_", "-"): count for name, count in faults.items()})
    )


def calls(phone: Path) -> list[list[str]]:
    """Return what the program was asked of a phone."""
    path = phone / "calls"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


class Phone:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.about: dict[str, Any] = json.loads((folder / "phone.json").read_text())
        self.documents = folder / "app" / "Documents"

    def has(self, fault: str) -> bool:
        """Whether a fault shows now; it is one less then."""
        path = self.folder / "faults"
        faults = json.loads(path.read_text()) if path.exists() else {}
        left = faults.get(fault, 0)
        if left > 0:
            path.write_text(json.dumps(faults | {fault: left - 1}))
        return left != 0

    @property
    def listed(self) -> dict[str, Any]:
        kept = {
            name: self.about[name] for name in ("ProductType", "ProductVersion", "BuildVersion")
        }
        return kept | {
            "BenchfarmVirtual": True, "ConnectionType": "USB", "DeviceClass": "iPhone",
            "DeviceName": "Someone's iPhone", "Identifier": self.about["udid"],
            "UniqueDeviceID": self.about["udid"],
        }  # fmt: skip

    def fail(self, message: str) -> NoReturn:
        log("ERROR", message.replace("\\n", "\n"))
        raise SystemExit(self.about["exits_with"])

    def at(self, app: str, remote: str) -> Path:
        if app != self.about["app"]:
            self.fail(f"No app with bundle id {app} found")
        path = self.documents / remote.removeprefix("/Documents/")
        assert remote.startswith("/Documents/"), remote
        assert path.parent == self.documents, remote
        return path


def log(level: str, message: str) -> None:
    now = time.strftime("%Y-%m-%d %H:%M:%S")
    print(
        f"{now} host {PROGRAM}.__main__[{os.getpid()}] {level} {message}",
        file=sys.stderr,
        flush=True,
    )


def main(folders: list[str], argv: list[str]) -> None:
    phones = [Phone(Path(folder)) for folder in folders]
    words = list(argv)
    if words[:2] == ["usbmux", "list"]:
        print(
            json.dumps(
                [phone.listed for phone in phones if not phone.has("unplugged")],
                indent=4,
                sort_keys=True,
            )
        )
        return
    place = words.index("--udid")
    udid = words[place + 1]
    del words[place : place + 2]
    found = [phone for phone in phones if phone.about["udid"] == udid]
    if not found:
        phones[0].fail("Device is not connected")
    phone = found[0]
    with (phone.folder / "calls").open("a") as made:
        made.write(json.dumps(words) + "\n")
    for fault, (begins, says) in _SAYS.items():
        if " ".join(words).startswith(begins) and phone.has(fault):
            phone.fail(says)
    answer(
        phone,
        [word for word in words if word != "--documents"],
        is_documents="--documents" in words,
    )


def copy(source: Path | str, to: Path | str) -> None:
    Path(to, *[Path(source).name] if Path(to).is_dir() else []).write_bytes(
        Path(source).read_bytes()
    )


def answer(phone: Phone, words: list[str], *, is_documents: bool) -> None:
    if words[0] == "apps" and words[1] in {"push", "pull", "rm"}:
        assert is_documents, words
    match words:
        case ["apps", "query", app]:
            entry = {
                "CFBundleShortVersionString": "0.1.0", "CFBundleVersion": "1", "CFBundleExecutable": "LiteRTBenchmark",
                "Path": phone.about["path"],
            }  # fmt: skip
            print(json.dumps({app: entry} if app == phone.about["app"] else {}))
        case ["apps", "install", package]:
            copy(package, phone.folder / "app.ipa")
            change(phone.folder, app=Path(package).stem, path=f"/private/{time.time_ns()}/B.app")
            log("INFO", "100% Complete")
            log("INFO", "Installation succeed.")
        case ["apps", "push", app, local, remote]:
            copy(local, phone.at(app, remote))
        case ["apps", "pull", app, remote, local]:
            path = phone.at(app, remote)
            if not path.exists():
                phone.fail(f"File [{remote}] not found during afc operation: STAT")
            copy(path, local)
        case ["apps", "rm", app, remote]:
            path = phone.at(app, remote)
            if not path.exists():
                phone.fail(f"File [{remote}] not found during afc operation: REMOVE_PATH")
            path.unlink()
        case ["developer", "dvt", "launch", command]:
            import shlex

            launch(phone, shlex.split(command))
        case ["developer", "dvt", "is-running-pid", pid]:
            print(json.dumps(pid == str(PROCESS) and (phone.folder / "running").exists()))
        case ["developer", "dvt", "kill", pid]:
            assert pid == str(PROCESS)
            (phone.folder / "running").unlink(missing_ok=True)
        case ["diagnostics", "battery", "single"]:
            told = {
                "CurrentCapacity": 81,
                "Temperature": 3010,
                "InstantAmperage": -412,
                "ExternalConnected": True,
            }
            print(json.dumps({} if phone.has("no-battery") else told))
        case ["mounter", "auto-mount"]:
            log("INFO", "DeveloperDiskImage mounted successfully")
        case ["crash", "pull", "--match", _, out]:
            for path in (phone.folder / "crashes").glob("*.ips"):
                copy(path, out)
        case _:
            print(
                f"Usage: {PROGRAM} [OPTIONS] COMMAND [ARGS]...\nError: no such command",
                file=sys.stderr,
            )
            raise SystemExit(2)


def launch(phone: Phone, words: list[str]) -> None:
    """Start the app as its sources do: away with the old mark, then the run, then the mark."""
    from tests.samples.iphone_output import litert_log

    if words[0] != phone.about["app"]:
        phone.fail(f"No app with bundle id {words[0]} found")
    if phone.has("unplugged-in-run"):
        give(phone.folder, unplugged=2)
    flags = dict(word.removeprefix("--").split("=", 1) for word in words[1:])
    (phone.documents / "benchmark.done").unlink(missing_ok=True)
    (phone.folder / "running").touch()
    print(f"Process launched with pid {PROCESS}", flush=True)
    if phone.has("hangs"):
        (phone.documents / "benchmark.log").write_text("INFO: STARTING!\n")
        return None
    if phone.has("replaced-in-run"):
        change(phone.folder, path="/private/var/containers/Bundle/Application/2/B.app")
    if phone.has("dies"):
        (phone.folder / "running").unlink()
        return None
    if (dies := phone.has("crashes")) or phone.has("jetsam"):
        (phone.documents / "benchmark.log").write_text("INFO: STARTING!\nINFO: Min num runs: [1]\n")
        (phone.folder / "crashes").mkdir(exist_ok=True)
        told = {
            "timestamp": time.strftime("%Y-%m-%d %H:%M:%S.00 +0000", time.gmtime()),
            "bug_type": "298",
        }
        name = "LiteRTBenchmark" if dies else "JetsamEvent"
        (phone.folder / "crashes" / f"{name}-2026-11-01-101010.ips").write_text(
            json.dumps(told) + "\n{}\n"
        )
        (phone.folder / "running").unlink()
        return None
    if not (phone.documents / flags["graph"]).is_file():
        return ended(phone, "ERROR: Could not open model\nERROR: Failed to load model.\n", 1)
    if phone.has("says-error-ends-well"):
        lines = "INFO: STARTING!\nERROR: [benchmark_litert_model.h:346] Run failed: out of memory\n"
        return ended(phone, lines, 0)
    is_gpu = flags["use_gpu"] == "true"
    accelerator = is_gpu and not phone.has("no-accelerator")
    mean_us = 4000.0 + len(calls(phone.folder)) % 7 - 3000 * accelerator
    name = "LITERT_METAL" if accelerator else "TfLiteXNNPackDelegate"
    shown = f"INFO: Replacing 31 out of 31 node(s) with delegate ({name}) node, yielding 1 partitions for subgraph 0.\n"
    if accelerator:
        shown = "INFO: GPU accelerator dylib libLiteRtMetalAccelerator.dylib: loaded\n" + shown
    text = litert_log(
        flags, mean_us=mean_us, delegate_lines=shown, only_stderr=phone.has("only-stderr")
    )
    write_protos(phone.documents, flags, mean_us, name)
    if phone.has("bad-result"):
        (phone.documents / flags["result_file_path"]).write_bytes(b"\xff" * 500)
    return ended(phone, text, 0)


def ended(phone: Phone, text: str, code: int) -> None:
    (phone.documents / "benchmark.log").write_text(text)
    draft = phone.documents / "benchmark.done.tmp"
    draft.write_text(f"{code}\n")
    draft.rename(phone.documents / "benchmark.done")
    (phone.folder / "running").unlink()


def write_protos(folder: Path, flags: Mapping[str, str], mean_us: float, delegate: str) -> None:
    """Write what benchmark_model is asked for: its result, and which node ran where."""
    from benchfarm_virtual.protos import message

    count = max(int(flags["num_runs"]), round(float(flags["min_secs"]) * 1e6 / mean_us))
    # Average, least, most, deviation, median, p5, p95, init, first inference, warm-up.
    times_us = (
        mean_us, mean_us - 90, mean_us + 90, 40.0, mean_us, 3990.0, 4010.0, 23500.0, 5100.0, mean_us,
    )  # fmt: skip
    latency = message({number: us / 1e3 for number, us in enumerate(times_us, start=1)})
    size = (folder / flags["graph"]).stat().st_size
    misc = message({1: size / 1e6, 2: count, 3: 125})
    memory = message({1: 8192, 2: 12288})
    (folder / flags["result_file_path"]).write_bytes(message({2: latency, 3: memory, 4: misc}))
    if path := flags.get("model_runtime_info_output_file"):
        nodes = tuple(range(31))
        operators = [message({1: node, 2: "CONV_2D", 3: "CONV_2D", 9: 31}) for node in nodes]
        taken = message({1: delegate, 2: nodes})
        operators.append(message({1: 31, 2: delegate, 3: delegate, 8: taken}))
        graph = message({1: 0, 3: operators})
        (folder / path).write_bytes(message({1: flags["graph"], 2: graph}))
