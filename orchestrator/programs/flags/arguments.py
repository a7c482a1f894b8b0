"""The flags that a case and a pass mean, for programs that take benchmark_model's flags.

Every default that may change the number is passed explicitly. ``use_xnnpack`` above all: without it the programs apply
XNNPACK by themselves and say so in one line at most. An accelerator's leftovers run on the builtin kernels unless the
plan's flags say otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from orchestrator.delegates import DELEGATES, flags_of
from orchestrator.delegates.specification import FlagFamily
from orchestrator.errors import UsageError
from orchestrator.ports import InvocationRequest
from orchestrator.programs.running.environment import CACHE_FLAGS, hexagon_folder, start_flags
from orchestrator.records.build_spec import OWNED_FLAGS
from orchestrator.records.parity import OUTPUTS_FILE, PlacedInput
from orchestrator.records.start import StartStage, stage_of
from orchestrator.records.workload import Case, Pass

RESULT_FILE: Final = "result.pb"
RUNTIME_INFO_FILE: Final = "runtime_info.pb"
PROFILE_FILE: Final = "op_profile.pb"

#: Flags that only gather more about a run; a program that doesn't have them (older ones don't) runs without.
_OMITTABLE: Final = frozenset({"result_file_path", "export_model_runtime_info", "model_runtime_info_output_file"})


def benchmark_flags(request: InvocationRequest, *, folder: str) -> list[tuple[str, str]]:
    """Return the flags of one invocation as (name, value), delegates in the order in which they are to be applied.

    ``folder`` is where the program may write its result files. Raises UsageError for a delegate that this family of
    programs doesn't have, and for a flag that isn't the plan's to set.
    """
    flags = case_flags(
        request.case, request.run_pass, model_path=request.model_path, folder=folder, known=request.known_flags,
        stage=stage_of(request.run_pass, request.number), cache_folder=request.cache_folder, inputs=request.inputs,
    )  # fmt: skip
    skels = hexagon_folder(request)
    if skels and "hexagon_lib_path" not in dict(flags):
        flags.append(("hexagon_lib_path", skels))
    return [(name, placed_value(value, request)) for name, value in flags]


def placed_value(value: str, request: InvocationRequest) -> str:
    """Return a flag's value with ``@name`` of one of the case's files as that file's path on the device."""
    return request.file_paths.get(value[1:], value) if value.startswith("@") else value


def files_written(run_pass: Pass) -> tuple[str, ...]:
    """Return the files that a program writes in a pass, by the flags that it is given."""
    further = {
        Pass.TIMING: (RUNTIME_INFO_FILE,),
        Pass.COLD: (RUNTIME_INFO_FILE,),
        Pass.PROFILE: (PROFILE_FILE,),
        Pass.PARITY: (RUNTIME_INFO_FILE, OUTPUTS_FILE),
    }
    return (RESULT_FILE, *further.get(run_pass, ()))


def case_flags(
    case: Case,
    run_pass: Pass,
    *,
    model_path: str,
    folder: str,
    known: frozenset[str] = frozenset(),
    stage: StartStage | None = None,
    cache_folder: str = "/caches",
    inputs: Sequence[PlacedInput] = (),
) -> list[tuple[str, str]]:
    """Return the flags of one pass over a case, see :func:`benchmark_flags`.

    ``known`` are the flags that the very program has, where that is known: those of ours that only gather more are left
    out when it doesn't have them, and so is ``use_xnnpack=false`` where there is no XNNPACK to leave out. ``stage`` is
    that of the pass ``cold``, in which only it says what is cached, where. ``inputs`` are those of the pass ``parity``.
    """
    if FlagFamily.BENCHMARK_MODEL not in DELEGATES[case.delegate].flags:
        raise UsageError(f"{case.tool} has no delegate {case.delegate}")
    flags = {
        "graph": model_path,
        "num_threads": str(case.threads),
        "num_runs": str(case.num_runs),
        "min_secs": f"{case.min_secs:g}",
        "max_secs": f"{case.max_secs:g}",
        "warmup_runs": str(case.warmup_runs),
        "warmup_min_secs": f"{case.warmup_min_secs:g}",
        **flags_of(case.delegate, FlagFamily.BENCHMARK_MODEL),
        "result_file_path": f"{folder}/{RESULT_FILE}",
        **_pass_flags(run_pass, folder),
        **(parity_flags(inputs, folder) if run_pass is Pass.PARITY else {}),
    }
    if known:
        flags = {
            name: value
            for name, value in flags.items()
            if name in known or not (name in _OMITTABLE or (name, value) == ("use_xnnpack", "false"))
        }
    for name, value in case.flags:
        if name in OWNED_FLAGS:
            raise UsageError(f"flag {name} follows from the plan's own keys and can't be set beside them")
        flags[name] = value
    if run_pass is Pass.COLD:
        stage, token = stage or StartStage.CACHE_WARM, case.model_sha256[:16]
        start = start_flags(case.delegate, stage, cache_folder=cache_folder, token=token)
        flags = {name: value for name, value in flags.items() if name not in CACHE_FLAGS} | start
    return list(flags.items())


def _pass_flags(run_pass: Pass, folder: str) -> dict[str, str]:
    if run_pass is Pass.MEMORY:
        return {"report_peak_memory_footprint": "true"}
    if run_pass is Pass.PROFILE:
        return {
            "enable_op_profiling": "true",
            "op_profiling_output_mode": "proto",
            "op_profiling_output_file": f"{folder}/{PROFILE_FILE}",
        }
    return {"export_model_runtime_info": "true", "model_runtime_info_output_file": f"{folder}/{RUNTIME_INFO_FILE}"}


def parity_flags(inputs: Sequence[PlacedInput], folder: str) -> dict[str, str]:
    """Return the flags that give a model its inputs and have its outputs written, after as few inferences as can be."""
    return {
        "num_runs": "1",
        "min_secs": "0",
        "warmup_runs": "1",
        "warmup_min_secs": "0",
        "input_layer": ",".join(item.name for item in inputs),
        "input_layer_shape": ":".join(",".join(map(str, item.shape)) for item in inputs),
        # A single colon ends the name.
        "input_layer_value_files": ",".join(f"{item.name.replace(':', '::')}:{item.path}" for item in inputs),
        "output_filepath": f"{folder}/{OUTPUTS_FILE}",
    }


def format_flags(flags: list[tuple[str, str]]) -> list[str]:
    """Return the flags as the programs read them: ``--name=value``, one word each, not quoted for a shell."""
    return [f"--{name}={value}" for name, value in flags]
