"""The flags that a case and a pass mean, for programs that take benchmark_model's flags.

Every default that may change the number is passed explicitly. ``use_xnnpack`` above all: without it
the programs apply XNNPACK by themselves and say so in one line at most. An accelerator's leftovers
run on the builtin kernels unless the plan's flags say otherwise.
"""

from __future__ import annotations

from typing import Final

from orchestrator.delegates import DELEGATES, flags_of
from orchestrator.delegates.specification import FlagFamily
from orchestrator.errors import UsageError
from orchestrator.passes import pass_of
from orchestrator.passes.specification import NOTHING_PREPARED, PassSpec, Prepared
from orchestrator.ports import InvocationRequest
from orchestrator.programs.running.environment import hexagon_folder
from orchestrator.records.build_spec import OWNED_FLAGS
from orchestrator.records.case import Case, Pass

RESULT_FILE: Final = "result.pb"

#: Flags that only gather more about a run; a program that doesn't have them (older ones don't) runs
#: without.
_OMITTABLE: Final = frozenset(
    {"result_file_path", "export_model_runtime_info", "model_runtime_info_output_file"}
)


def benchmark_flags(request: InvocationRequest, *, folder: str) -> list[tuple[str, str]]:
    """Return the flags of one invocation as (name, value), delegates in the order in which they are
    to be applied.

    ``folder`` is where the program may write its result files. Raises UsageError for a delegate
    that this family of programs doesn't have, and for a flag that isn't the plan's to set.
    """
    own = pass_of(request.run_pass)
    prepared = Prepared(
        variant=request.variant, cache_folder=request.cache_folder, inputs=request.inputs
    )
    flags = dict(
        case_flags(request.case, own, request.model_path, folder, request.known_flags, prepared)
    )
    skels = hexagon_folder(request)
    if skels:
        flags.setdefault("hexagon_lib_path", skels)
    return [(name, placed_value(value, request)) for name, value in flags.items()]


def placed_value(value: str, request: InvocationRequest) -> str:
    """Return a flag's value with ``@name`` of one of the case's files as that file's path on the
    device.
    """
    return request.file_paths.get(value[1:], value) if value.startswith("@") else value


def files_written(run_pass: Pass) -> tuple[str, ...]:
    """Return the files that a program writes in a pass, by the flags that it is given."""
    return (RESULT_FILE, *pass_of(run_pass).files.get(FlagFamily.BENCHMARK_MODEL, {}).values())


def pass_flags(own: PassSpec, family: FlagFamily, folder: str) -> dict[str, str]:
    """Return the flags that a pass means for programs of a family; they write their files to
    ``folder``.
    """
    files = {name: f"{folder}/{file}" for name, file in own.files.get(family, {}).items()}
    return {**own.flags.get(family, {}), **files}


def case_flags(
    case: Case,
    own: PassSpec,
    model_path: str,
    folder: str,
    known: frozenset[str] = frozenset(),
    prepared: Prepared = NOTHING_PREPARED,
) -> list[tuple[str, str]]:
    """Return the flags of one pass over a case, see :func:`benchmark_flags`.

    ``known`` are the flags that the very program has, where that is known: those of ours that only
    gather more are left out when it doesn't have them, and so is ``use_xnnpack=false`` where there
    is no XNNPACK to leave out.
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
        **pass_flags(own, FlagFamily.BENCHMARK_MODEL, folder),
    }
    if known:
        flags = {
            name: value
            for name, value in flags.items()
            if name in known
            or not (name in _OMITTABLE or (name, value) == ("use_xnnpack", "false"))
        }
    for name, value in case.flags:
        if name in OWNED_FLAGS:
            raise UsageError(
                f"flag {name} follows from the plan's own keys and can't be set beside them"
            )
        flags[name] = value
    flags = {name: value for name, value in flags.items() if name not in own.withheld_flags}
    return list({**flags, **own.last_flags(case, prepared)}.items())


def format_flags(flags: list[tuple[str, str]]) -> list[str]:
    """Return the flags as the programs read them: ``--name=value``, one word each, not quoted for a
    shell.
    """
    return [f"--{name}={value}" for name, value in flags]
