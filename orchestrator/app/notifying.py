"""A message to a webhook: a chat's, a ticket system's, one's own."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from orchestrator.errors import UsageError

_TRIES: Final = 3
_PAUSE_S: Final = 2.0
#: For a connection, and for the answer.
_ANSWER_S: Final = 10.0
FORMS: Final = ("json", "text")


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """Where a message goes. An address of a webhook is a secret: only its host is ever shown."""

    address: str

    @property
    def host(self) -> str:
        """What people are told."""
        return urlsplit(self.address).netloc.rpartition("@")[2]

    def send(self, content: object, text: str, *, form: str, sleep: Callable[[float], None] = time.sleep) -> str:
        """Send a message, again when the server or the way to it fails; return why it wasn't taken, empty when it was.

        Args:
            content: plain values; sent as one JSON object with ``text`` in it when ``form`` is ``json``.
            text: for people; sent alone when ``form`` is ``text``.
            form: one of FORMS.
            sleep: waits between two tries, seconds.
        """  # fmt: skip
        import requests

        is_json = form == "json"
        body = json.dumps({"text": text, "report": content}, allow_nan=False) if is_json else text
        media_type = "application/json" if is_json else "text/plain; charset=utf-8"
        reason = ""
        for number in range(_TRIES):
            if number:
                sleep(_PAUSE_S * number)
            try:
                # A webhook that has moved is a fault: what was meant for one address goes to no other.
                answer = requests.post(
                    self.address,
                    data=body.encode(),
                    headers={"Content-Type": media_type, "User-Agent": "benchfarm"},
                    timeout=_ANSWER_S,
                    allow_redirects=False,
                )
            except requests.exceptions.Timeout:
                reason = f"no answer within {_ANSWER_S:g} s"
            except requests.exceptions.RequestException as error:
                # Its text names the whole address.
                reason = f"it can't be reached ({type(error).__name__})"
            else:
                reason = "" if 200 <= answer.status_code < 300 else f"it answered {answer.status_code}"
                if answer.status_code < 500 and answer.status_code != 429:
                    break
        return f"the message to {self.host} wasn't delivered: {reason}" if reason else ""


def webhook_of(text: str, option: str) -> Webhook:
    """Return the webhook that an option names: its URL, or ``@FILE`` with the URL in it; raises UsageError."""
    address = text
    if text.startswith("@"):
        try:
            address = Path(text[1:]).read_text("utf-8").strip()
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "it isn't text"
            raise UsageError(f"{option} {text}: the file can't be read: {reason}") from error
    try:
        parts = urlsplit(address)
        is_web = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_web = False
    if not is_web:
        what = f"{text}: it" if text.startswith("@") else "it"
        raise UsageError(
            f"{option} {what} isn't the URL of a webhook", hint="https://..., or @FILE with the URL in that file"
        )
    return Webhook(address=address)
