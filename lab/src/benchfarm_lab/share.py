"""A share of a lab's phones in a process of its own: that process, and the leader's hold on it.

The leader writes a token to the share's standard input and keeps that open: where it ends, the leader has ended, and
so does the share. The share answers with a line that tells the port of its control channel.
"""

from __future__ import annotations

import json
import logging
import secrets
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Final

from benchfarm_lab.asking import ask_control
from benchfarm_lab.control import Answer, ControlServer, PhoneDesk, Request
from benchfarm_lab.errors import DeviceError, DeviceTimeoutError, LinkLostError
from benchfarm_lab.farm import open_lab
from benchfarm_lab.lab_settings import SOURCES, LabSettings
from benchfarm_lab.loop import take_short_turns

#: Less than those who ask the leader have patience for.
_ANSWER_S: Final = 5.0
#: ... and for what changes something, after which it is ended.
_DONE_S: Final = 10.0
_START_S: Final = 25.0
#: So long after it has gone silent a share may be known to have ended.
_NOTICE_S: Final = 1.0
#: What to do about the phones of one that has ended.
AGAIN: Final = "'benchfarm lab add' plugs it in again, 'benchfarm lab remove' forgets it"

_LOG: Final = logging.getLogger(__name__)


class Share:
    """A process that runs some of the lab's phones, as its leader sees it; it starts without phones."""

    def __init__(self, settings: LabSettings, *, lock: int, on_end: Callable[[Share], None]) -> None:
        """Start the process; raise DeviceError when that can't be done.

        It inherits the descriptor ``lock``, so that the folder is locked until it ends, too. ``on_end`` is called in a
        thread of its own when the process has ended, however that came.
        """
        self._token = secrets.token_urlsafe(24)
        self._port = 0
        self._on_end = on_end
        self._ended = threading.Event()
        self._hung = False
        try:
            self._process = subprocess.Popen(
                settings.command("share"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=[lock], cwd=SOURCES
            )
        except OSError as fault:
            raise DeviceError(f"the virtual lab can't start another process: {fault.strerror}") from None
        threading.Thread(target=self._wait_for_end, name=f"share {self.pid}", daemon=True).start()

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    @property
    def ended(self) -> bool:
        """Whether the process is known to have ended."""
        return self._ended.is_set()

    @property
    def ending(self) -> str:
        """How its process ended."""
        if self._hung:
            return f"process {self.pid} of the virtual lab hung and was ended"
        code = self._process.returncode
        how = f"was ended by {signal.Signals(-code).name}" if code is not None and code < 0 else "has ended"
        return f"process {self.pid} of the virtual lab {how}"

    def wait_until_ready(self) -> None:
        """Return when it answers; raise DeviceError when it doesn't come to that."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(self._token.encode() + b"\n")
            self._process.stdin.flush()
            if select.select([self._process.stdout], [], [], _START_S)[0]:
                self._port = int(json.loads(self._process.stdout.readline())["control_port"])
                return
        except (OSError, ValueError):
            pass  # it has ended; its own words are in the log
        self.end()
        raise DeviceError("a process of the virtual lab didn't start; its log says more")

    def ask(self, request: Request) -> Answer:
        """Have it answer a request about its phones; raises what it raises, DeviceError when it has ended or hangs.

        One that doesn't say whether it did what changes something is ended: it might do that at any time later, and
        nobody would know of it.
        """
        who, is_look = f"process {self.pid} of the virtual lab", request.get("request") == "list"
        try:
            timeout_s = _ANSWER_S if is_look else _DONE_S
            return ask_control(self._port, self._token, request, timeout_s=timeout_s, who=who)
        except (DeviceTimeoutError, LinkLostError):
            if not self._ended.wait(_NOTICE_S):
                if is_look:
                    raise
                self._hung = True
                self.end()
            raise DeviceError(f"{self.ending}, and its phones with it", hint=AGAIN) from None

    def release(self) -> None:
        """Tell it to end."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.close()
        except OSError:
            pass  # it has ended already

    def close(self, end_s: float) -> None:
        """Return when it has ended, by force from ``end_s`` of the monotonic clock on."""
        self.release()
        if not self._ended.wait(max(0.0, end_s - time.monotonic())):
            _LOG.warning("process %d of the virtual lab didn't end and was killed", self.pid)
            self.end()

    def end(self) -> None:
        """Kill it, and return when it has ended."""
        self._process.kill()
        self._ended.wait()

    def _wait_for_end(self) -> None:
        self._process.wait()
        self._ended.set()
        self._on_end(self)


def serve_share(settings: LabSettings) -> None:
    """Run phones until standard input ends. Raises what VirtualLab raises."""
    take_short_turns()
    # Ctrl-C reaches all processes of a terminal; the leader ends its shares in order.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _leave)
    token = sys.stdin.readline().strip()
    if not token:
        return  # the leader has ended already
    with open_lab(settings) as lab:
        control = ControlServer(PhoneDesk(lab), token)
        sys.stdout.write(json.dumps({"control_port": control.port}) + "\n")
        sys.stdout.flush()
        sys.stdin.read()


def _leave(*_: object) -> None:
    raise SystemExit(0)
