"""Delegates from libraries: the test delegate of TensorFlow Lite's external delegate example, and
stable ones.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from benchfarm_virtual.contract import PhoneFileError
from benchfarm_virtual.elf import note_of
from benchfarm_virtual.programs.delegate_steps import (
    Delegate,
    not_prepared,
    operators_of,
    replace_nodes,
)
from benchfarm_virtual.programs.phone_files import find_library, linked_folders, read_whole
from benchfarm_virtual.programs.process import BenchmarkFailedError

if TYPE_CHECKING:
    from benchfarm_virtual.programs.interpreter import Interpreter

#: The name in the note of a fake library for it.
DUMMY_PROGRAM: Final = "dummy_external_delegate"
STABLE_PROGRAM: Final = "sample_stable_delegate"
_STABLE_NAME: Final = "google_sample_delegate"
_STABLE_OPERATORS: Final = frozenset({"ADD", "SUB"})


@dataclass(frozen=True, slots=True, kw_only=True)
class DummyDelegate:
    """Its options."""

    allowed_builtin_code: int = -1
    error_during_init: bool = False
    error_during_prepare: bool = False
    error_during_invoke: bool = False

    @classmethod
    def from_options(cls, text: str) -> DummyDelegate:
        """Return what ``key:value;key:value`` says; what can't be read is dropped without a word."""
        options = dict(part.split(":", 1) for part in text.split(";") if ":" in part)
        try:
            code = int(options.get("allowed_builtin_code", "-1"))
        except ValueError:
            code = -1
        return cls(
            allowed_builtin_code=code,
            error_during_init=options.get("error_during_init") == "true",
            error_during_prepare=options.get("error_during_prepare") == "true",
            error_during_invoke=options.get("error_during_invoke") == "true",
        )

    def settings(self) -> Iterator[tuple[str, int]]:
        """Yield the options as the delegate lists them."""
        yield "allowed_builtin_code", self.allowed_builtin_code
        yield "error_during_init", int(self.error_during_init)
        yield "error_during_prepare", int(self.error_during_prepare)
        yield "error_during_invoke", int(self.error_during_invoke)


class ExternalDelegate:
    """A delegate from a library; the only one that this phone can stand in for is the test
    delegate.
    """

    provider = "EXTERNAL"
    static_only = True
    #: The delegate's own name in the plan.
    runtime_name: ClassVar[str] = "DummyDelegate"

    def __init__(self, dummy: DummyDelegate) -> None:
        self._dummy = dummy

    def apply(self, interpreter: Interpreter) -> int:
        """Give it the operators of one kind."""
        say, plan = interpreter.run.say, interpreter.plan
        taken = frozenset(
            i for i, op in operators_of(plan) if op.code == self._dummy.allowed_builtin_code
        )
        partitions = sum(1 for run in plan.partitions(taken) if run and run[0] in taken)
        say.runtime(
            "INFO",
            f"{self.runtime_name} delegate: {len(taken)} nodes delegated out of {len(plan.execution)} nodes with "
            f"{partitions} partitions.\n",
        )
        kernel_node = len(plan.nodes)
        done = replace_nodes(interpreter, plan, self.runtime_name, taken)
        if done is None:
            return 0
        if self._dummy.error_during_init:
            say.runtime("ERROR", "Failed to initialize kernel.")
            raise BenchmarkFailedError
        if self._dummy.error_during_prepare:
            not_prepared(interpreter, plan, self.runtime_name, node=kernel_node)
        if self._dummy.error_during_invoke:
            interpreter.invoke_error = (
                f"Node number {kernel_node} ({self.runtime_name}) failed to invoke."
            )
        return len(done.kernels)


class SampleStableDelegate:
    """TensorFlow Lite's sample of a stable delegate: it takes additions and subtractions."""

    provider = "STABLE_DELEGATE"
    static_only = True

    def apply(self, interpreter: Interpreter) -> int:
        """Give it the operators that it has."""
        taken = frozenset(
            i for i, op in operators_of(interpreter.plan) if op.name in _STABLE_OPERATORS
        )
        done = replace_nodes(interpreter, interpreter.plan, _STABLE_NAME, taken)
        return len(done.kernels) if done is not None else 0


def create_external(interpreter: Interpreter) -> Delegate | None:
    """Create it, or say why there is none (then None)."""
    run = interpreter.run
    # A library that is missing, or none, is passed over without a word, as release builds do.
    try:
        note = note_of(read_whole(run.process, run.parameters.text("external_delegate_path")))
    except PhoneFileError:
        return None
    if note is None or note.program != DUMMY_PROGRAM:
        return None
    dummy = DummyDelegate.from_options(run.parameters.text("external_delegate_options"))
    for name, value in dummy.settings():
        run.say.runtime("INFO", f"Dummy delegate: {name} set to {value}.")
    return ExternalDelegate(dummy)


def create_stable(interpreter: Interpreter) -> Delegate | None:
    """Create it, or say why there is none (then None)."""
    run = interpreter.run
    path = run.parameters.text("stable_delegate_settings_file")
    try:
        settings = json.loads(read_whole(run.process, path))
    except PhoneFileError:
        run.say.error(f"Failed to load the delegate settings file ({path}).")
        settings = None
    except ValueError:
        run.say.error(f"Failed to parse the delegate settings file ({path}).")
        settings = None
    loader = settings.get("stable_delegate_loader_settings") if isinstance(settings, dict) else None
    library = loader.get("delegate_path") if isinstance(loader, dict) else None
    if not isinstance(library, str):
        run.say.error("Invalid TFLiteSettings for the stable delegate.")
        return None
    folders = [library.rpartition("/")[0]] if "/" in library else linked_folders(run.process)
    note = find_library(run.process, library.rpartition("/")[2], folders)
    if note is None or note.program != STABLE_PROGRAM:
        run.say.error(
            f"Failed to load stable ABI delegate from stable ABI delegate binary ({library})."
        )
        return None
    return SampleStableDelegate()
