"""Where the operators really ran: the requested delegate against the evidence in the output.

A benchmark program that can't use the requested delegate often runs on the CPU, exits with 0 and
prints a plausible figure. So a delegate counts only on positive evidence, in this order:
the runtime info that names each node's delegate, the line about what was "explicitly applied", the
"Replacing k out of n" lines (which may be followed by a failure and then prove nothing). Where the
evidence is missing and the transcript is whole, the run fell back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from orchestrator.delegates.evidence import DelegateClues, DelegateRequest, backend_of, family
from orchestrator.records import frozen
from orchestrator.records.model import chosen_signature
from orchestrator.records.run import DelegateEvidence, DelegateShare, DelegateTruth

_MOST_LINES: Final = 60
#: The truth of a run with several requested delegates is the first of these that one of them has:
#: a failure, else the best.
_ORDER: Final = (
    DelegateTruth.FAILED,
    DelegateTruth.FULL,
    DelegateTruth.WRONG_BACKEND,
    DelegateTruth.PARTIAL,
    DelegateTruth.NONE,
    DelegateTruth.FELL_BACK,
    DelegateTruth.FLAG_IGNORED,
    DelegateTruth.UNKNOWN,
)
#: Words of the line that shows each truth best; it is named first among the evidence.
_MAIN_LINES: Final[Mapping[DelegateTruth, tuple[str, ...]]] = {
    DelegateTruth.FULL: (
        "completely executed",
        "Partitioned",
        "Replacing",
        "nodes delegated out of",
    ),
    DelegateTruth.PARTIAL: (
        "partially executed",
        "Partitioned",
        "Replacing",
        "nodes delegated out of",
    ),
    DelegateTruth.NONE: ("will not be executed",),
    DelegateTruth.FELL_BACK: (
        "unsupported on this platform",
        "Couldn't load",
        "Could not create",
        "not supported",
        "Invalid TFLiteSettings",
        "could not be loaded",
        "Plugin errs",
        "Failed to load",
        "Unable to load",
        "compiler plugin",
        "Restored original",
    ),
    DelegateTruth.WRONG_BACKEND: (
        "Falling back to OpenGL",
        "Using OpenGL instead",
        "SIMPLE for",
        "only one best device",
        "accelerators available",
        "-based API",
        "Explicitly applied",
        "XNNPACK delegate",
        "Replacing",
    ),
    DelegateTruth.FLAG_IGNORED: ("Unconsumed",),
    DelegateTruth.FAILED: ("Failed to apply", "Failed to create", "failed to", "Disallowed"),
}
#: NNAPI's own CPU implementation, which every phone lists among the accelerators.
REFERENCE_DEVICE: Final = "nnapi-reference"
#: Delegates that are applied without a request: the runtime's own for the CPU, and a build's for
#: TensorFlow's operators.
_IMPLICIT: Final = frozenset({"xnnpack", "flex"})
_GPU: Final = frozenset({"gpu", "metal"})


@frozen
class RuntimeNodes:
    """The delegate of each node of a model: the ground truth of delegation."""

    shares: tuple[DelegateShare, ...]
    total_nodes: int
    #: Operators that no delegate took, in graph order.
    cpu_operators: tuple[str, ...]
    #: Whether it is known which of the model's subgraphs ran.
    is_certain: bool = True


def extent_of(
    requested: str, actual: str, delegated: int | None, total: int | None
) -> DelegateTruth:
    """Return a delegate's truth from the output's name of the delegate that ran, and its number of
    nodes.
    """
    on_cpu = {"cpu", "xnnpack"}
    is_cpu = actual in on_cpu
    if not actual:
        return DelegateTruth.UNKNOWN
    if requested and actual != requested:
        is_back = is_cpu and requested not in on_cpu
        return DelegateTruth.FELL_BACK if is_back else DelegateTruth.WRONG_BACKEND
    if delegated is None or not total:
        # What XNNPACK leaves runs on the CPU too.
        return DelegateTruth.FULL if is_cpu else DelegateTruth.UNKNOWN
    return _extent(delegated, total)


def _extent(delegated: int, total: int) -> DelegateTruth:
    return (
        DelegateTruth.NONE
        if delegated == 0
        else DelegateTruth.FULL
        if delegated >= total
        else DelegateTruth.PARTIAL
    )


@dataclass(slots=True, kw_only=True)
class Judge:
    """Derives the delegate evidence of one run from its lines."""

    clues: DelegateClues
    #: The requested delegates; several are judged one by one and together.
    request: DelegateRequest
    #: The model's nodes as the runtime info names them; decides when it is there and the run has a
    #: result.
    runtime: RuntimeNodes | None = None
    #: Whether the run completed. A delegate of a run that failed before it was set up has failed.
    has_result: bool
    #: Whether the session was set up (delegates applied, tensors allocated) before the run ended.
    has_started: bool
    #: Whether the transcript holds all lines from loading the model to the session's start, so that
    #: a missing line about a delegate proves that it wasn't applied.
    is_whole: bool
    #: Whether the output shows that the run failed, and wasn't merely cut off.
    ended_badly: bool = False
    shares: list[DelegateShare] = field(init=False)

    def __post_init__(self) -> None:
        clues = self.clues
        # Where the info doesn't show which subgraph ran, the program's lines decide.
        is_extent_known = not {"full", "partial", "none"}.isdisjoint(clues.applied.values())
        is_known = self.runtime is not None and (self.runtime.is_certain or not is_extent_known)
        self.runtime = self.runtime if self.has_result and is_known else None
        if clues.is_reverted and self.has_result and self.runtime is None:
            unavailable = list(self.request.delegates)
            clues = self.clues = DelegateClues(
                lines=clues.lines, unavailable=unavailable, failed=clues.failed
            )
            self.request = replace(self.request, xnnpack_off=True)
        self.shares = list(self.runtime.shares if self.runtime else self._logged_shares())
        if clues.gpu_split is not None and not any(
            family(share.delegate) in _GPU for share in self.shares
        ):
            on_gpu, on_cpu = clues.gpu_split
            self.shares.append(
                DelegateShare(delegate="GPU", delegated_nodes=on_gpu, total_nodes=on_gpu + on_cpu)
            )
        self.ended_badly = self.ended_badly or bool(clues.failed) or clues.refused_cpu

    def _logged_shares(self) -> list[DelegateShare]:
        """Return the shares of the subgraph that ran, where a line names it. Where lines name only
        other subgraphs, its shares are unknown; where no line names any, all shares count.
        """
        shares, signature = self.clues.shares, self.request.signature
        ran = {share.subgraph for share, name in shares.items() if name == signature}
        # A model's only function is "main" by any signature.
        named_signatures = set(shares.values()) - {"", "main"}
        if not signature or not (ran or (named_signatures and chosen_signature(signature))):
            return list(shares)
        ran_shares = [share for share in shares if share.subgraph in ran]
        total = max((share.total_nodes or 0 for share in ran_shares), default=0) or None
        delegates = {share.delegate for share in ran_shares}
        return ran_shares + [
            DelegateShare(delegate=name, delegated_nodes=0, total_nodes=total)
            for name in dict.fromkeys(share.delegate for share in shares)
            if name not in delegates
        ]

    def evidence(self) -> DelegateEvidence:
        """Judge where the operators ran."""
        clues, request = self.clues, self.request
        each = {name: self.delegate_truth(name) for name in request.delegates}
        if each:
            truth = min(each.values(), key=_ORDER.index)
            main = next(name for name in request.delegates if each[name] is truth)
        else:
            default = "xnnpack" if "xnnpack" in clues.created else ""
            main = family(self.shares[0].delegate) if self.shares else default
            truth = self.delegate_truth(main) if self.shares else DelegateTruth.UNKNOWN
        share = self.main_share(main)
        sharing = [
            name
            for name, delegate_truth in each.items()
            if delegate_truth in {DelegateTruth.FULL, DelegateTruth.PARTIAL}
        ]
        is_shared = len(sharing) > 1 and truth is not DelegateTruth.FAILED
        operators = dict.fromkeys(clues.cpu_operators)
        if self.runtime is not None:
            explained = {name for name, _ in operators}
            operators |= dict.fromkeys(
                (name, "") for name in self.runtime.cpu_operators if name not in explained
            )
        lines = [*clues.lines, *clues.system_lines]
        main_line = next(
            (line for words in _MAIN_LINES.get(truth, ()) for line in lines if words in line), None
        )
        return DelegateEvidence(
            requested="+".join(request.delegates),
            actual="+".join(sharing) if is_shared else self.actual(main, truth),
            truth=truth,
            delegated_nodes=share.delegated_nodes if share else None,
            total_nodes=share.total_nodes if share else None,
            partitions=share.partitions if share else None,
            backend=self.gpu_backend,
            accelerator=request.accelerator or "+".join(clues.chosen_devices),
            lines=tuple(sorted(lines, key=lambda line: line != main_line))[:_MOST_LINES],
            cpu_operators=tuple(operators),
            kernels=clues.kernels if clues.kernels is not None else clues.gpu_kernels,
            shares=tuple(self.shares),
            each=each if len(each) > 1 else {},
        )

    def delegate_truth(self, name: str) -> DelegateTruth:
        """Return the truth of one requested delegate."""
        if name == "cpu":
            return self._cpu_truth()
        if name in self.clues.failed and not self.has_result:
            return DelegateTruth.FAILED
        if self.runtime is not None:
            truth = self._coverage(name)
            if truth is DelegateTruth.UNKNOWN:
                truth = (
                    DelegateTruth.WRONG_BACKEND
                    if self._unexpected_delegates
                    else self._absent(name)
                )
        else:
            truth = self._truth_in_log(name)
        if name == "xnnpack" and self.has_started and self._unexpected_delegates:
            return DelegateTruth.WRONG_BACKEND
        if truth in {DelegateTruth.FULL, DelegateTruth.PARTIAL} and self._is_wrong_backend(name):
            return DelegateTruth.WRONG_BACKEND
        if (
            name == "nnapi"
            and truth is DelegateTruth.FULL
            and REFERENCE_DEVICE in self.clues.chosen_devices
        ):
            return DelegateTruth.PARTIAL
        return truth

    def _truth_in_log(self, name: str) -> DelegateTruth:
        if self._has_extent(name) and self.has_started:
            return DelegateTruth(self.clues.applied[name])
        if (
            not self.has_started
            and not self.has_result
            and self._was_tried(name)
            and self.ended_badly
        ):
            return DelegateTruth.FAILED
        if self._has_extent(name):
            return DelegateTruth(self.clues.applied[name])
        if name in self.request.ignored:
            return DelegateTruth.FLAG_IGNORED
        coverage = self._coverage(name)
        if coverage is not DelegateTruth.UNKNOWN or self.main_share(name):
            return coverage
        if name in self.clues.unavailable:
            return DelegateTruth.FELL_BACK
        if not self.has_result and self.ended_badly and self._was_tried(name):
            return DelegateTruth.FAILED
        if name in self.clues.applied or self.clues.has_unnamed_share:
            return DelegateTruth.UNKNOWN
        if self.has_result and self._unexpected_delegates:
            return DelegateTruth.WRONG_BACKEND
        if self.has_result and self._xnnpack_took_nodes and name != "xnnpack":
            # The runtime prints such a line for every delegate that takes nodes.
            return self._absent(name)
        if self.is_whole and self.has_started and name not in self.clues.created:
            return self._absent(name)
        return DelegateTruth.UNKNOWN

    def _has_extent(self, name: str) -> bool:
        """Whether a line shows how much of the model a delegate was applied to."""
        return self.clues.applied.get(name, DelegateTruth.UNKNOWN) != DelegateTruth.UNKNOWN

    def _was_tried(self, name: str) -> bool:
        clues = self.clues
        return (
            name in clues.created
            or name in clues.applied
            or self.main_share(name) is not None
            or (clues.refused_cpu and name in self.request.delegates)
            or (name == "nnapi" and clues.has_nnapi_lines)
        )

    def _absent(self, name: str) -> DelegateTruth:
        return (
            DelegateTruth.FLAG_IGNORED if name in self.request.ignored else DelegateTruth.FELL_BACK
        )

    def _cpu_truth(self) -> DelegateTruth:
        has_xnnpack = self._has_xnnpack
        if "xnnpack" in self.clues.failed and not self.has_result:
            return DelegateTruth.FAILED
        if self.request.is_explicit:
            if has_xnnpack or (self.has_started and self._unexpected_delegates):
                return DelegateTruth.WRONG_BACKEND
            is_off = self.request.xnnpack_off and not self.clues.has_unnamed_share
            proven = is_off or self.runtime is not None
            return DelegateTruth.FULL if proven and self.has_started else DelegateTruth.UNKNOWN
        if has_xnnpack:
            return self._coverage("xnnpack")
        if self.request.xnnpack_off and self.has_started and not self.clues.has_unnamed_share:
            return DelegateTruth.FULL
        return DelegateTruth.UNKNOWN

    @property
    def _unexpected_delegates(self) -> list[str]:
        """The delegates that took nodes and are neither requested nor implicit."""
        active = [
            name for name, extent in self.clues.applied.items() if extent != DelegateTruth.NONE
        ]
        active += [family(share.delegate) for share in self.shares if share.delegated_nodes > 0]
        expected = _IMPLICIT.union(
            *(_GPU if name in _GPU else {name} for name in self.request.delegates)
        )
        return [name for name in dict.fromkeys(active) if name not in expected]

    @property
    def gpu_backend(self) -> str:
        """The GPU's interface (OpenCL, ...), "" when the output doesn't show it."""
        return self.clues.backend or next(
            filter(None, (backend_of(share.delegate) for share in self.shares)), ""
        )

    @property
    def _has_xnnpack(self) -> bool:
        if self.runtime is not None:
            return bool(self._delegate_shares("xnnpack"))
        return (
            "xnnpack" in self.clues.created
            or "xnnpack" in self.clues.applied
            or self._xnnpack_took_nodes
        )

    @property
    def _xnnpack_took_nodes(self) -> bool:
        return any(share.delegated_nodes > 0 for share in self._delegate_shares("xnnpack"))

    def _delegate_shares(self, name: str) -> list[DelegateShare]:
        # An iPhone's GPU is requested as ``gpu`` and reported as Metal.
        names = _GPU if name in _GPU else {name}
        return [share for share in self.shares if family(share.delegate) in names]

    def main_share(self, name: str) -> DelegateShare | None:
        """Return a delegate's share, in operators of the model before LiteRT compiled parts of it
        for the NPU; None if unknown.
        """
        share = self._share(name)
        compiled = self.clues.compiled.get(share.subgraph or 0) if share and name == "npu" else None
        if share is None or compiled is None or compiled[2] != share.delegated_nodes:
            return share
        return replace(share, delegated_nodes=compiled[0], total_nodes=compiled[1])

    def _share(self, name: str) -> DelegateShare | None:
        """Return a delegate's share of all that ran (runtime info), else of the subgraph that the
        log names or of the first one; None if unknown.
        """
        name = "xnnpack" if name == "cpu" else name
        shares = self._delegate_shares(name)
        if self.runtime is not None:
            if not shares and name not in self.clues.applied:
                return None
            return DelegateShare(
                delegate=shares[0].delegate if shares else name,
                delegated_nodes=sum(share.delegated_nodes for share in shares),
                total_nodes=self.runtime.total_nodes,
                partitions=sum(share.partitions or 0 for share in shares),
                subgraph=shares[0].subgraph if shares else None,
            )
        return min(shares, key=lambda share: share.subgraph or 0, default=None)

    def _coverage(self, name: str) -> DelegateTruth:
        share = self.main_share(name)
        if share is None or share.total_nodes is None:
            return DelegateTruth.UNKNOWN
        return _extent(share.delegated_nodes, share.total_nodes)

    def _is_wrong_backend(self, name: str) -> bool:
        if name == "nnapi":
            devices = self.clues.chosen_devices or self.clues.accelerators
            return (
                set(devices) == {REFERENCE_DEVICE} or self.request.accelerator == REFERENCE_DEVICE
            )
        if name == "npu":
            # Qualcomm's library for the NPU drives the GPU, too.
            return self.request.accelerator in _GPU
        if name == "gpu":
            # Without a requested backend, OpenGL is the GPU too: phones without OpenCL have no
            # other interface.
            requested = self.request.gpu_backend
            return bool(requested and self.gpu_backend) and self.gpu_backend != requested
        return False

    def actual(self, name: str, truth: DelegateTruth) -> str:
        """Return where the operators ran, "" when the output doesn't show it."""
        if truth is DelegateTruth.FAILED:
            return ""
        if truth is DelegateTruth.WRONG_BACKEND:
            if name in {"cpu", "xnnpack"}:
                return "+".join(self._unexpected_delegates) or "xnnpack"
            if (
                self.main_share(name) is None
                and name not in self.clues.applied
                and self._unexpected_delegates
            ):
                return "+".join(self._unexpected_delegates)
            return {"nnapi": REFERENCE_DEVICE, "npu": "gpu"}.get(name, name)
        has_xnnpack = self._has_xnnpack
        if name == "cpu":
            return "xnnpack" if has_xnnpack else "cpu" if truth is DelegateTruth.FULL else ""
        if truth is DelegateTruth.FULL:
            return name
        if truth is DelegateTruth.PARTIAL:
            return f"{name}+xnnpack" if name != "xnnpack" and self._xnnpack_took_nodes else name
        if truth is DelegateTruth.UNKNOWN:
            return "xnnpack" if name == "xnnpack" and has_xnnpack else ""
        if name != "xnnpack" and has_xnnpack:
            return "xnnpack"
        return "cpu" if self.request.xnnpack_off or name == "xnnpack" else ""
