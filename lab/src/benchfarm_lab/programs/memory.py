"""How much memory a run takes, as the program reports it: growth of the process's high-water mark."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from benchfarm_lab.delegation import GPU, HEXAGON, NNAPI, NPU, XNNPACK

if TYPE_CHECKING:
    from benchfarm_lab.programs.interpreter import Interpreter

_PAGE_KB: Final = 4
#: A process before it does anything, and what the interpreter itself takes.
_PROCESS_KB: Final = 7200.0
_RUNTIME_KB: Final = 2700.0
_UNIT_KB: Final = {GPU: 84_000.0, NNAPI: 9_500.0, HEXAGON: 6_000.0, NPU: 12_000.0, XNNPACK: 900.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """Memory in kB: what initialisation and the whole run added to the process, and the parts of its end."""

    init_kb: int
    overall_kb: int
    peak_kb: int
    anonymous_kb: int
    arena_kb: float


def footprint_of(interpreter: Interpreter, runs: int) -> Footprint:
    """Return the memory of a run; in a process that had more before, growth is smaller, down to 0."""
    once = interpreter.run.once
    units = {plan.nodes[i].delegate for plan in interpreter.plans for i in plan.execution}
    model_kb = interpreter.graph.size_bytes / 1024
    computed = [t for t in interpreter.subgraph.tensors if not t.constant]
    # The arena reuses memory: about the two largest tensors live at a time.
    arena_kb = sum(sorted((t.size_bytes for t in computed), reverse=True)[:3]) / 1024 * interpreter.scale
    anonymous_kb = arena_kb + sum(_UNIT_KB.get(unit, 0.0) for unit in units)
    if XNNPACK in units:
        anonymous_kb += 1.3 * model_kb
    init_kb = _RUNTIME_KB + model_kb + anonymous_kb
    # What the program keeps of each run's time.
    overall_kb = init_kb + 0.03 * arena_kb + 350.0 + runs * 0.024
    grown_init = max(0.0, init_kb - once.max_rss_kb)
    grown = max(0.0, overall_kb - once.max_rss_kb)
    return Footprint(
        init_kb=_pages(grown_init), overall_kb=_pages(grown), peak_kb=_pages(_PROCESS_KB + overall_kb),
        anonymous_kb=_pages(anonymous_kb + 1400.0 + runs * 0.024), arena_kb=arena_kb,
    )  # fmt: skip


def _pages(kilobytes: float) -> int:
    return int(kilobytes // _PAGE_KB) * _PAGE_KB
