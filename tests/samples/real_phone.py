"""Phones of real parts for tests: Android's adbd, mksh and toybox on this computer, which takes
root."""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Final

PARTS: Final = Path(__file__).resolve().parents[1] / "android"
#: CAP_SYS_ADMIN's bit, without which nobody makes namespaces and mounts.
_SYS_ADMIN: Final = 1 << 21
_SHELL_UID: Final = 2000
_PROPERTIES: Final = {
    "ro.product.manufacturer": "Google",
    "ro.product.model": "Phone of real parts",
    "ro.product.device": "realparts",
    "ro.product.cpu.abi": "x86_64",
    "ro.product.cpu.abilist": "x86_64",
    "ro.build.version.sdk": "34",
    "ro.build.version.release": "14",
    "ro.build.fingerprint": "google/realparts/realparts:14/TEST/1:user/release-keys",
    "ro.soc.manufacturer": "Qualcomm",
    "ro.soc.model": "SM8150",
    "sys.boot_completed": "1",
    "persist.traced.enable": "1",
}
_SETTINGS: Final = {
    "global/airplane_mode_on": "0",
    "global/animator_duration_scale": "1.0",
    "global/transition_animation_scale": "1.0",
    "global/window_animation_scale": "1.0",
    "global/stay_on_while_plugged_in": "0",
    "global/wifi_on": "1",
    "global/mobile_data": "1",
    "secure/android_id": "1a2b3c4d5e6f7788",
    "system/screen_off_timeout": "60000",
}
_STATE: Final = {"wakefulness": "Awake", "doze_deep": "1", "doze_light": "1"}
_CPUFREQ: Final = "devices/system/cpu/cpufreq/policy0"
_SYS: Final = {
    "devices/system/cpu/possible": "0-{last}",
    f"{_CPUFREQ}/related_cpus": "{cpus}",
    f"{_CPUFREQ}/cpuinfo_min_freq": "300000",
    f"{_CPUFREQ}/cpuinfo_max_freq": "2841600",
    f"{_CPUFREQ}/scaling_min_freq": "300000",
    f"{_CPUFREQ}/scaling_max_freq": "2841600",
    f"{_CPUFREQ}/scaling_cur_freq": "1785600",
    f"{_CPUFREQ}/scaling_governor": "schedutil",
    f"{_CPUFREQ}/stats/time_in_state": "300000 81234\n1785600 23456\n2841600 3456",
    "class/thermal/thermal_zone0/type": "cpu-0-0-usr",
    "class/thermal/thermal_zone0/temp": "38200",
    "class/thermal/thermal_zone1/type": "battery",
    "class/thermal/thermal_zone1/temp": "26500",
}


def why_not() -> str:
    """Return why this computer can't have such phones, empty when it can."""
    if sys.platform != "linux":
        return "phones of real parts need Linux"
    effective = next(
        int(line.split()[1], 16)
        for line in Path("/proc/self/status").read_text().splitlines()
        if line[:6] == "CapEff"
    )
    if os.geteuid() != 0 or not effective & _SYS_ADMIN:
        return "phones of real parts need root with CAP_SYS_ADMIN (in a container: --privileged)"
    lacking = [name for name in ("apt-get", "dpkg-deb", "unshare") if shutil.which(name) is None]
    return f"phones of real parts need {', '.join(lacking)}, which Debian has" if lacking else ""


def built_root() -> Path:
    """Return the file tree that all phones share; it is built once per computer, for each version
    of its script.

    Raises RuntimeError with what the script said.
    """
    script = PARTS / "build.sh"
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "benchfarm-tests"
    cache.mkdir(parents=True, exist_ok=True)
    root = cache / f"android-{hashlib.sha256(script.read_bytes()).hexdigest()[:12]}"
    if not root.is_dir():
        built = subprocess.run(
            ["sh", script, root], capture_output=True, text=True, timeout=900, check=False
        )
        if built.returncode != 0:
            said = (built.stderr or built.stdout).strip()[-1500:]
            raise RuntimeError(f"the phone of real parts can't be built: {said}")
    return root


class RealPhone:
    """One phone, in namespaces of its own; a context manager that ends all of it."""

    def __init__(self, folder: Path, *, serial: str = "REALPARTS1") -> None:
        self.folder, self.serial = folder, serial
        self._root = built_root()
        self._furnish()
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen()
            self.address = f"127.0.0.1:{listener.getsockname()[1]}"
            words = (sys.executable, PARTS / "phone.py", self._root, folder, str(listener.fileno()))
            self._process = subprocess.Popen(
                ["unshare", "--net", "--mount", "--kill-child=SIGKILL", *words], pass_fds=[listener.fileno()],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            )  # fmt: skip

    def __enter__(self) -> RealPhone:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)

    def order(self, what: str) -> None:
        """Have it cut, kill-adbd, hang, resume or reboot, and wait until that is done."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(what, file=self._process.stdin, flush=True)
        assert self._process.stdout.readline() == "done\n", (
            f"{what} failed; see {self.folder}/adbd.log"
        )

    def take_away(self, tool: str) -> None:
        """Remove a command from it."""
        (self.folder / "bin" / tool).unlink()

    def put(self, tool: str, script: str) -> None:
        """Put a shell script in the place of a command; the one before is at /system/tools, if it
        is Android's own.
        """
        path = self.folder / "bin" / tool
        path.unlink(missing_ok=True)
        path.write_text(f"#!/system/bin/sh\n{script}\n")
        path.chmod(0o755)

    def warn(self, text: str) -> None:
        """Have each of Android's own tools begin with a line on its standard error."""
        for path in list((self.folder / "bin").iterdir()):
            if path.is_symlink() and path.name != "sh":
                self.put(path.name, f'echo {text!r} >&2\nexec {path.readlink()} "$@"')

    def name(self, serial: str) -> None:
        """Give it another serial number."""
        (self.folder / "state/props/ro.serialno").write_text(f"{serial}\n")

    def calls(self, name: str) -> list[list[str]]:
        """Return the arguments of each call of am, pm, run-as or settings, as they arrived."""
        words = (self.folder / "state/calls").read_bytes().decode().split("\0")[:-1]
        found = []
        while words:
            count = int(words[1])
            if words[0] == name:
                found.append(words[2 : 2 + count])
            words = words[2 + count :]
        return found

    def _furnish(self) -> None:
        """Lay out what is the phone's own: commands, properties, settings and constants of /sys."""
        for name in ("mount", "data", "bin", "sys", "state"):
            (self.folder / name).mkdir(parents=True)
        for tool in (self._root / "system/tools").iterdir():
            (self.folder / "bin" / tool.name).symlink_to(f"/system/tools/{tool.name}")
        for program in (PARTS / "bin").iterdir():
            shutil.copy(program, self.folder / "bin" / program.name)
        properties = {**_PROPERTIES, "ro.serialno": self.serial}
        state = {
            **{f"props/{name}": text for name, text in properties.items()},
            **{f"settings/{name}": text for name, text in _SETTINGS.items()},
            **_STATE,
        }
        cpus = range(os.cpu_count() or 1)
        values = {"last": str(cpus[-1]), "cpus": " ".join(map(str, cpus))}
        for name, text in {
            **{f"state/{name}": text for name, text in state.items()},
            **{f"sys/{name}": text.format(**values) for name, text in _SYS.items()},
        }.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{text}\n")
        (self.folder / "state/calls").touch()
        (self.folder / "state/log").touch()
        for path in [self.folder / "state", *(self.folder / "state").rglob("*")]:
            os.chown(path, _SHELL_UID, _SHELL_UID)
