"""The test delegate of TensorFlow Lite's external delegate example: it takes one kind of operator, and fails on request."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

#: The name in the note of a stand-in library for it.
DUMMY_PROGRAM: Final = "dummy_external_delegate"


@dataclass(frozen=True, slots=True, kw_only=True)
class DummyDelegate:
    """Its options."""

    allowed_builtin_code: int = -1
    error_during_init: bool = False
    error_during_prepare: bool = False
    error_during_invoke: bool = False

    @classmethod
    def from_options(cls, text: str) -> DummyDelegate:
        """Return what ``key:value;key:value`` says; what can't be read is dropped without a word, as the program does."""
        options = dict(part.split(":", 1) for part in text.split(";") if ":" in part)
        try:
            code = int(options.get("allowed_builtin_code", "-1"))
        except ValueError:
            code = -1
        return cls(
            allowed_builtin_code=code, error_during_init=options.get("error_during_init") == "true",
            error_during_prepare=options.get("error_during_prepare") == "true",
            error_during_invoke=options.get("error_during_invoke") == "true",
        )  # fmt: skip

    def settings(self) -> Iterator[tuple[str, int]]:
        """Yield the options as the delegate lists them."""
        yield "allowed_builtin_code", self.allowed_builtin_code
        yield "error_during_init", int(self.error_during_init)
        yield "error_during_prepare", int(self.error_during_prepare)
        yield "error_during_invoke", int(self.error_during_invoke)
