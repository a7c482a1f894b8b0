"""The process of virtual phones itself: phones, the state file, the reasons to end, and the control channel: JSON
lines on 127.0.0.1, each with its secret token.

A request is ``{"token": ..., "request": NAME, ...}``, the answer ``{"ok": true, ...}`` or
``{"ok": false, "error": CODE, "message": TEXT, "hint": TEXT}``. Requests:

* ``list``: the phones, with the faults that wait for them
* ``fault`` (``serial``, ``kind``, ``options``: as parse_fault takes them): add a fault
* ``clear`` (``serial``): remove its faults
* ``add`` (``phone``: PhoneSpec's fields), ``remove`` (``serial``), ``stop``
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
import signal
import socketserver
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from benchfarm_virtual.control import STATE_FILE, take_lock
from benchfarm_virtual.errors import UsageError, VirtualError
from benchfarm_virtual.faults import parse_fault
from benchfarm_virtual.link import LOOPBACK
from benchfarm_virtual.phone import Phone
from benchfarm_virtual.phones import VirtualPhones
from benchfarm_virtual.spec import PhoneSpec

_LOOK_AROUND_S: Final = 1.0
_SWITCH_S: Final = 0.001


def serve(state_dir: Path, settings: Mapping[str, Any]) -> None:
    """Serve until it is told to stop, gets SIGTERM or SIGINT, or its parent has ended.

    ``settings``: as start_phones writes them. Raises UsageError when another process uses the folder,
    and what VirtualPhones and PhoneSpec raise.
    """
    # Threads compute in short turns: those that read the links are among them.
    sys.setswitchinterval(_SWITCH_S)
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    take_lock(state_dir)
    try:
        with VirtualPhones(
            adb_public_keys=map(Path, settings["adb_keys"]),
            time_factor=settings["time_factor"],
            seed=settings["seed"],
        ) as phones:
            for spec in settings["phones"]:
                phones.add_spec(PhoneSpec.from_json(spec))
            desk = PhoneDesk(phones, stop=stopping.set)
            token = secrets.token_urlsafe(24)
            about = {
                "pid": os.getpid(),
                "control_port": ControlServer(desk, token).port,
                "token": token,
            }
            writing = threading.Lock()

            def write_state() -> None:
                with writing:
                    _write_state(state_dir, {**about, "phones": desk.phones()})

            desk.changed = write_state
            write_state()
            _wait(settings["parent_pid"], stopping)
    finally:
        (state_dir / STATE_FILE).unlink(missing_ok=True)


def _write_state(state_dir: Path, state: Answer) -> None:
    fresh = state_dir / f"{STATE_FILE}.{os.getpid()}"
    descriptor = os.open(
        fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600
    )  # the token is a secret
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(state, file, indent=1)
    fresh.replace(state_dir / STATE_FILE)


def _wait(parent_pid: int, stopping: threading.Event) -> None:
    """Wait for a stop request, or for the end of the parent process, where it is named."""
    while not stopping.wait(_LOOK_AROUND_S if parent_pid else None):
        if os.getppid() != parent_pid:
            return


_LINE_BYTES: Final = 1 << 20
_SILENCE_S: Final = 30.0

Request = Mapping[str, Any]
Answer = dict[str, Any]


class ControlServer:
    """Takes requests with the token for a desk, in threads of its own."""

    def __init__(self, desk: PhoneDesk, token: str) -> None:
        """Listen on a free port."""
        self._desk = desk
        self._token = token
        control = self

        class Handler(socketserver.StreamRequestHandler):
            timeout = _SILENCE_S

            def handle(self) -> None:
                try:
                    while line := self.rfile.readline(_LINE_BYTES):
                        self.wfile.write(json.dumps(control.answer(line)).encode() + b"\n")
                except OSError:
                    pass  # the other side has gone, or was silent for too long

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True
            allow_reuse_address = True

        self._server = Server((LOOPBACK, 0), Handler)
        self.port: int = self._server.server_address[1]
        threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 60.0}, daemon=True
        ).start()

    def answer(self, line: bytes) -> Answer:
        """Answer one line; a fault of the request is part of the answer."""
        try:
            request = dict(json.loads(line))
            token = str(request.get("token", ""))
            if not hmac.compare_digest(token.encode(), self._token.encode()):
                raise UsageError("the token isn't this process's")
            return {"ok": True, **self._desk.ask(request)}
        except (ValueError, TypeError) as fault:
            error: VirtualError = UsageError(f"that is no request: {fault}")
        except VirtualError as told:
            error = told
        return {"ok": False, "error": error.code, "message": str(error), "hint": error.hint}


class PhoneDesk:
    """Answers requests about the phones of a process; ``stop`` ends it."""

    def __init__(self, phones: VirtualPhones, *, stop: Callable[[], None]) -> None:
        self._phones = phones
        self._stop = stop
        #: Called when phones came or went.
        self.changed: Callable[[], None] = lambda: None

    def ask(self, request: Request) -> Answer:
        """Answer a request.

        Raises UsageError for a wrong one, DeviceError when it can't be done.
        """
        serial, name = str(request.get("serial", "")), request.get("request")
        match name:
            case "list":
                return {"phones": self.phones()}
            case "fault":
                fault = parse_fault(str(request.get("kind", "")), request.get("options", []))
                return {"fault": self._phones.get(serial).faults.add(fault).to_json()}
            case "clear":
                faults = self._phones.get(serial).faults
                number = request.get("fault")
                cleared = faults.clear() if number is None else [faults.remove(int(number))]
                return {"cleared": [fault.to_json() for fault in cleared if fault is not None]}
            case "add":
                phone = self._phones.add_spec(PhoneSpec.from_json(request.get("phone", {})))
                self.changed()
                return {"phone": describe_phone(phone)}
            case "remove":
                self._phones.remove(serial)
                self.changed()
            case "stop":
                self._stop()
            case _:
                raise UsageError(f"there is no request {name!r}")
        return {}

    def phones(self) -> list[Answer]:
        """Return the description of each phone, in the order in which they were added."""
        return [describe_phone(phone) for phone in self._phones.phones.values()]


def describe_phone(phone: Phone) -> Answer:
    """Return a phone's entry in the state file and in ``list``."""
    return {
        "serial": phone.serial,
        "address": phone.address,
        "profile": phone.spec.profile,
        "faults": [fault.to_json() for fault in phone.faults.waiting()],
    }
