"""The pass ``parity``: the model's outputs for given inputs, compared with the reference's on this
computer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from orchestrator.analysis.parity import parity_findings, with_parity
from orchestrator.delegates import DELEGATES
from orchestrator.delegates.specification import FlagFamily
from orchestrator.passes.specification import (
    INFO_FILES,
    INFO_FLAGS,
    PassSpec,
    Prepared,
)
from orchestrator.ports import Tool
from orchestrator.programs import program
from orchestrator.records.case import Case, Pass
from orchestrator.records.device import DeviceFacts
from orchestrator.records.parity import OUTPUTS_FILE
from orchestrator.records.run import RawOutput, RunRecord, ToolReport
from orchestrator.records.verdict import Finding

_FAMILY: Final = FlagFamily.BENCHMARK_MODEL

#: Flags of a plan that say themselves what the inputs or outputs are.
OWN_INPUTS: Final = frozenset(
    {
        "input_layer",
        "input_layer_shape",
        "input_layer_value_files",
        "input_layer_value_range",
        "output_filepath",
        "output_proto_filepath",
        "signature_to_run_for",
    }
)


def can_be_checked(case: Case) -> bool:
    """Whether a case's program writes outputs, and there is a reference beside its own kernels."""
    return (
        program(case.tool).is_benchmark_model
        and not DELEGATES[case.delegate].is_builtin
        and not OWN_INPUTS.intersection(name for name, _ in case.flags)
    )


def _input_flags(case: Case, prepared: Prepared) -> Mapping[str, str]:
    """Return the flags that give a model its inputs, and as few inferences as can be."""
    inputs = prepared.inputs
    return {
        "num_runs": "1",
        "min_secs": "0",
        "warmup_runs": "1",
        "warmup_min_secs": "0",
        "input_layer": ",".join(item.name for item in inputs),
        "input_layer_shape": ":".join(",".join(map(str, item.shape)) for item in inputs),
        # A single colon ends the name.
        "input_layer_value_files": ",".join(
            f"{item.name.replace(':', '::')}:{item.path}" for item in inputs
        ),
    }


def _read(tool: Tool, report: ToolReport, raw: RawOutput, case: Case) -> ToolReport:
    return with_parity(report, raw, case)


def _findings(report: ToolReport, case: Case, facts: DeviceFacts) -> Iterator[Finding]:
    yield from parity_findings(report)


def _tells(run: RunRecord) -> str:
    extra = run.report.extra if run.report is not None else {}
    return (
        f"outputs {extra['parity']}: {extra.get('parity_reason', '')}" if "parity" in extra else ""
    )


PASS = PassSpec(
    name=Pass.PARITY,
    about="Whether the model's outputs are right",
    guide="choose-a-delegate",
    flags=INFO_FLAGS,
    files={_FAMILY: {**INFO_FILES[_FAMILY], "output_filepath": OUTPUTS_FILE}},
    last_flags=_input_flags,
    compares_outputs=True,
    plan_key=("parity_inputs", "are the inputs of the pass 'parity'"),
    read=_read,
    findings=_findings,
    tells=_tells,
)
