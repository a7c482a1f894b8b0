"""A notifier: a file that messages are added to."""

import json
from pathlib import Path
from urllib.parse import unquote, urlsplit

from orchestrator.plugins import Notifier, Receiver


def receiver(address, settings):
    """Return a file that messages are added to; raises ValueError for an address without one."""
    path = Path(unquote(urlsplit(address).path))
    if not path.name:
        raise ValueError("it names no file")

    def deliver(message, answer_s):
        try:
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"text": message.text}) + "\n")
        except OSError as error:
            return str(error.strerror), False
        return "", False

    return Receiver(name=path.name, deliver=deliver)


FILE = Notifier(receiver=receiver)
