"""A message to a webhook: a chat's, a ticket system's, one's own."""

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
#: How long a connection or an answer is waited for.
_ANSWER_S: Final = 10.0


def send(
    receiver: Receiver,
    message: Message,
    *,
    answer_s: float = _ANSWER_S,
    pause_s: float = _PAUSE_S,
) -> str:
    """Send a message in up to three tries; return why it wasn't delivered, empty when it was.

    Each try waits up to ``answer_s`` for an answer; the pause before it grows by ``pause_s``.
    """
    reason, again = "", True
    for number in range(_TRIES):
        if again:
            time.sleep(pause_s * number)
            reason, again = receiver.deliver(message, answer_s)
    return f"the message to {receiver.name} wasn't delivered: {reason}" if reason else ""


def secret_in(file: Path, option: str) -> str:
    """Return the word that a file holds; raises UsageError."""
    try:
        return file.read_text("utf-8").strip()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it isn't text"
        raise UsageError(f"{option} {file}: {reason}") from error


def receiver_of(text: str, settings: Settings) -> Receiver:
    """Return where the messages of ``--notify`` go; raises UsageError.

    ``text`` is an address, or ``@FILE`` with one in it; its scheme says which notifier's it is.
    """
    address = secret_in(Path(text[1:]), "--notify") if text.startswith("@") else text
    scheme, known = address.partition(":")[0].lower(), plugins("notifiers")
    try:
        if scheme not in known:
            raise ValueError(f"it is no address of {', '.join(known)}")
        return load(known[scheme], Notifier).receiver(address, settings)
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
        # A webhook that has moved is a fault: what was meant for one address goes to no other.
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
