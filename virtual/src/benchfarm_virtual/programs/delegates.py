"""Which delegates a run's flags ask for, created in the providers' order."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from benchfarm_virtual.programs.accelerator_delegates import create_hexagon, create_nnapi
from benchfarm_virtual.programs.delegate_steps import Delegate
from benchfarm_virtual.programs.external_delegate import create_external, create_stable
from benchfarm_virtual.programs.gpu_delegate import create_gpu
from benchfarm_virtual.programs.litert_gpu import create_litert_gpu, create_npu
from benchfarm_virtual.programs.xnnpack_delegate import create_xnnpack

if TYPE_CHECKING:
    from benchfarm_virtual.programs.interpreter import Interpreter


def create(interpreter: Interpreter) -> list[Delegate]:
    """Create the delegates that the flags ask for, in the providers' order; return them in the
    command line's.
    """
    flags, say, once = interpreter.run.parameters, interpreter.run.say, interpreter.run.once
    makers: list[tuple[str, bool, Callable[[Interpreter], Delegate | None]]] = [
        ("use_xnnpack", flags.switch("use_xnnpack"), create_xnnpack),
        ("external_delegate_path", bool(flags.text("external_delegate_path")), create_external),
        (
            "use_gpu",
            flags.switch("use_gpu"),
            create_litert_gpu if interpreter.run.is_litert else create_gpu,
        ),
        ("use_hexagon", flags.switch("use_hexagon"), create_hexagon),
        ("use_nnapi", flags.switch("use_nnapi"), create_nnapi),
        ("use_npu", flags.switch("use_npu"), create_npu),
        (
            "stable_delegate_settings_file",
            bool(flags.text("stable_delegate_settings_file")),
            create_stable,
        ),
    ]
    created: list[tuple[int, Delegate]] = []
    for flag, wanted, make in makers:
        if flag == "use_nnapi" and not wanted and flags.text("nnapi_accelerator_name"):
            name = flags.text("nnapi_accelerator_name")
            say.warn(
                f"`--use_nnapi=true` must be set for the provided NNAPI accelerator ({name}) to be used."
            )
        delegate = make(interpreter) if wanted else None
        if delegate is None:
            continue
        if not interpreter.run.is_litert and once.first("delegate created"):
            say.info(f"{delegate.provider} delegate created.")
        created.append((flags.positions.get(flag, 0), delegate))
    return [delegate for _, delegate in sorted(created, key=lambda item: item[0])]
