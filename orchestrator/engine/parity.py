"""The pass ``parity``: what a case's outputs are to be compared with, and why some can't be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from orchestrator.analysis.outcome import Ending
from orchestrator.engine.workload import Services, Workload
from orchestrator.errors import ModelError
from orchestrator.programs import program
from orchestrator.records.campaign import Invocation
from orchestrator.records.parity import ParityBasis
from orchestrator.records.run import Outcome

#: Flags of a plan that would change what the inputs or outputs are.
_OWN_INPUTS: Final = (
    "input_layer", "input_layer_shape", "input_layer_value_files", "input_layer_value_range", "output_filepath",
    "output_proto_filepath", "signature_to_run_for",
)  # fmt: skip


def basis_of(invocation: Invocation, workload: Workload, services: Services) -> ParityBasis | Ending:
    """Return what an invocation's outputs are to be compared with, or the ending of one that can't be run."""
    case = invocation.case
    if not program(case.tool).is_benchmark_model:
        return _skip("parity-not-in-tool", f"'{case.tool}' writes no outputs that could be compared")
    if services.reference is None:
        return _skip("parity-no-reference", "nothing here computes the reference outputs")
    given: Mapping[str, str] = dict(case.flags)
    owned = [name for name in _OWN_INPUTS if name in given]
    if owned:
        return _skip("parity-own-inputs", f"the flag {owned[0]} says itself what the inputs or outputs are")
    try:
        return services.reference.basis(workload.models[case.model_sha256], workload.campaign.terms.parity_inputs)
    except ModelError as error:
        return _skip("parity-no-reference", str(error))


def _skip(code: str, reason: str) -> Ending:
    return Ending(outcome=Outcome.SKIPPED, reason_code=code, reason=reason)
