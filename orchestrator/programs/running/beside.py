"""A phone on which a program's command line is run inside another one, and the files that this one writes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from orchestrator.ports import Device, ProcessResult
from orchestrator.records.identity import RunId


class Enclosing:
    """The device itself, but for its detached runs; what they wrote for us is in ``files`` afterwards."""

    def __init__(self, device: Device, enclose: Callable[[str], str], names: Sequence[str]) -> None:
        """``enclose`` makes the whole command line of a program's own; it writes files of these ``names``."""
        self._device = device
        self._enclose = enclose
        self._names = tuple(names)
        self.files: Mapping[str, bytes] = {}

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - all that a device has
        return getattr(self._device, name)

    def run_detached(
        self,
        command: str,
        *,
        run_id: RunId,
        timeout_s: float,
        files: Sequence[str] = (),
        cancelled: threading.Event | None = None,
    ) -> ProcessResult:
        """See Device.run_detached."""
        result = self._device.run_detached(
            self._enclose(command),
            run_id=run_id,
            timeout_s=timeout_s,
            files=(*files, *self._names),
            cancelled=cancelled,
        )
        found = dict(result.files)
        self.files = {name: found.pop(name) for name in self._names if name in found}
        return replace(result, files=found)

    @property
    def as_device(self) -> Device:
        """Itself, with all that it hands on."""
        return cast("Device", self)
