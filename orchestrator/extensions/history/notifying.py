"""Messages to a webhook: of a chat, a ticket system, or a program of the user."""

from __future__ import annotations

import json
import time
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from orchestrator.errors import UsageError
from orchestrator.plugins import Message, Notifier, Receiver, Settings, load, plugins

_TRIES: Final = 3
_PAUSE_S: Final = 2.0
#: Timeout for a connection and for an answer, seconds.
_ANSWER_S: Final = 10.0


def send(
    receiver: Receiver,
    message: Message,
    *,
    answer_s: float = _ANSWER_S,
    pause_s: float = _PAUSE_S,
) -> str:
    """Send a message in up to three tries; return the error, or empty when it was delivered.

    Each try waits up to ``answer_s`` for an answer; the pause before it grows by ``pause_s``.
    """
    reason, again = "", True
    for number in range(_TRIES):
        if again:
            time.sleep(pause_s * number)
            reason, again = receiver.deliver(message, answer_s)
    return f"the message to {receiver.name} wasn't delivered: {reason}" if reason else ""


def secret_in(file: Path, option: str) -> str:
    """Return a file's text without surrounding white space; raises UsageError."""
    try:
        return file.read_text("utf-8").strip()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it isn't text"
        raise UsageError(f"{option} {file}: {reason}") from error


def find_receiver(text: str, settings: Settings) -> Receiver:
    """Return the receiver of ``--notify``'s messages; raises UsageError.

    ``text`` is an address, or ``@FILE`` with one in it; its scheme selects the notifier.
    """
    address = secret_in(Path(text[1:]), "--notify") if text.startswith("@") else text
    scheme, notifiers = address.partition(":")[0].lower(), plugins("notifiers")
    try:
        if scheme not in notifiers:
            raise ValueError(f"it is no address of {', '.join(notifiers)}")
        return load(notifiers[scheme], Notifier).receiver(address, settings)
    except ValueError as error:
        # Without the address, which is a secret.
        hint = "https://..., or @FILE with such an address in that file"
        raise UsageError(f"--notify can't be used: {error}", hint=hint) from error


def _webhook(address: str, settings: Settings) -> Receiver:
    parts = urlsplit(address)
    if not parts.hostname or parts.port == 0:
        raise ValueError("it isn't the URL of a webhook")
    # The address of a webhook is a secret: only its host is shown.
    return Receiver(name=parts.netloc.rpartition("@")[2], deliver=partial(_post, address))


WEBHOOK = Notifier(receiver=_webhook)


def _post(address: str, message: Message, answer_s: float) -> tuple[str, bool]:
    import requests

    body = json.dumps({"text": message.text, "report": message.content}, allow_nan=False)
    try:
        # No redirects: a message for one address must not go to another.
        answer = requests.post(
            address,
            data=body.encode(),
            headers={"Content-Type": "application/json", "User-Agent": "benchfarm"},
            timeout=answer_s,
            allow_redirects=False,
            stream=True,
        )
    except requests.exceptions.RequestException as error:
        # Its text names the whole address.
        return f"it can't be reached ({type(error).__name__})", True
    with answer:
        status = answer.status_code
    if 200 <= status < 300:
        return "", False
    return f"it answered {status}", status >= 500 or status == 429
