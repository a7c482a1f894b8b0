"""Evidence about delegates in the lines of one run: which were requested, created, applied, refused,
and which operators were left to the CPU.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from orchestrator.delegates import DELEGATES, requested_delegates
from orchestrator.records import frozen
from orchestrator.records.run import DelegateShare

#: Names of delegates in outputs, lower case, and the word benchfarm uses for each.
_FAMILIES: Final = {
    name: word for record in DELEGATES.values() for name, word in record.called.items()
}
#: Parameters as the program echoes them (lower case), and the flag each stands for.
_ECHOED_FLAGS: Final = {
    echo.lower(): flag for record in DELEGATES.values() for echo, flag in record.echoes.items()
}
#: Names, lower case, that show the interface to the hardware, and flags that request one.
_BACKENDS: Final = {
    name: backend for record in DELEGATES.values() for name, backend in record.backends.items()
}
#: Parameters that a program may echo first, as it spells them.
ECHO_NAMES: Final = frozenset(
    {
        *(echo for record in DELEGATES.values() for echo in record.echoes),
        "Log parameter values verbosely",
        "Min num runs",
        "Num threads",
        "Graph",
        "Signature to run",
        "Min warmup runs",
        "Min runs duration (seconds)",
        "Max runs duration (seconds)",
        "#threads used for CPU inference",
        "NNAPI accelerator name",
        "Enable op profiling",
        "Input layers",
    }
)
_CREATED: Final = re.compile(
    r"Created TensorFlow Lite (?:(XNNPACK|YNNPACK) delegate|delegate for ([\w ]{1,40}?))(?: for\b|[.(]|$)"
)
_PROVIDER_CREATED: Final = re.compile(r"(\w{1,40}) delegate created\.")
_REPLACING: Final = re.compile(
    r"Replacing\s{1,20}(?P<nodes>\d{1,9})(?:\s{1,20}out of\s{1,20}(?P<total>\d{1,9}))?\s{1,20}node\(s\) with delegate"
    r" \((?P<name>[^)]{0,100})\)(?: node, yielding (?P<partitions>\d{1,9}) partitions"
    r"(?: for (?:subgraph (?P<subgraph>\d{1,9})(?: \((?P<signature>[^()]{1,100})\))?|the whole graph))?)?",
    re.ASCII,
)
#: Such a line that is cut off before the delegate's name.
_REPLACING_CUT: Final = re.compile(
    r"Replacing\s{1,20}\d{1,9}\s{1,20}(?:out of|node\(s\))", re.ASCII
)
_SIMPLE: Final = re.compile(
    r"(?P<name>[\w ]{1,60}) delegate: (?P<nodes>\d{1,9}) nodes delegated out of (?P<total>\d{1,9}) nodes"
    r"(?:,? with (?P<partitions>\d{1,9}) partitions)?",
    re.ASCII,
)
#: Programs of 2020 leave out "Explicitly" and say "w/ the delegate"; the oldest say nothing after
#: "delegate".
_APPLIED: Final = re.compile(
    r"(?:Explicitly a|A)pplied (?P<name>\w{1,40}) delegate"
    r"(?:, and the model graph will be (?P<how>completely|partially) executed (?:by|w/|with) the delegate"
    r"(?: w/ (?P<kernels>\d{1,9}) delegate kernels)?)?\.?[\s*`|]*$",
    re.ASCII,
)
_EXTENTS: Final[Mapping[str | None, str]] = {
    "completely": "full",
    "partially": "partial",
    None: "unknown",
}
_NOT_USED: Final = re.compile(
    r"Though (\w{1,40}) delegate is (?:explicitly )?applied, the model graph will not be executed "
    r"(?:by|w/|with) the delegate"
)
#: The GPU delegate's count of the operators that it takes; the second form is of 2020 and before.
_GPU_SPLIT: Final = re.compile(
    r"(?:First )?(?P<gpu>\d{1,9}) operations will run on the GPU, and the remaining (?P<cpu>\d{1,9})\b"
    r"|(?P<none>No) operations will run on the GPU, and all (?P<all>\d{1,9}) operations will run on the CPU",
    re.ASCII,
)
#: Lines that NNAPI's delegate prints only when it was asked for.
_NNAPI_ONLY: Final = ("NNAPI SL driver ", "NN API returned error ")
#: Messages of NNAPI's delegate of 2018 when it fails, in the first inference.
_NNAPI_FAILED: Final = (
    "Returning error since NNAPI returned failure",
    "Failed to build graph for NNAPI",
)
_FAILED: Final = re.compile(r"Failed to apply (\w{1,40}) delegate\.")
_TITLE_WORD: Final = re.compile(
    rf"(?<![A-Za-z])(?:{'|'.join(name for name, record in DELEGATES.items() if not record.is_named_by_flag)})(?![A-Za-z])",
    re.IGNORECASE,
)
_GPU_KERNELS: Final = re.compile(r"Created (\d{1,9}) GPU delegate kernels", re.ASCII)
_UNSUPPORTED: Final = re.compile(r"(\w{1,40}) acceleration is unsupported on this platform")
_NODE_FAILED: Final = re.compile(
    r"Node number \d+ \((\w*[Dd]elegate\w*|LITERT_\w+)\) failed to (?:prepare|invoke|init)"
)
_ACCELERATORS: Final = re.compile(r"NNAPI accelerators available: \[(.*)\]")
_CHOSEN_DEVICE: Final = re.compile(
    r"ExecutionPlan: SIMPLE for (\S+)|findBestDevice: only one best device: \S+ = (\S+)"
)
_API: Final = re.compile(
    r"Initialized (OpenCL|OpenGL|Metal|WebGPU)-based API(?: from serialized data)?\."
)
#: LiteRT's lines since 2.4 about its accelerators, and why its compiler for the NPU did nothing;
#: other lines show the operators that they take.
_ACCELERATOR: Final = re.compile(
    r"Apply accelerator (?P<name>[\w ]{1,60})|YNNPACK CPU accelerator (?:registered|could not be loaded)"
    r"|enable_ynnpack was requested, but |Failed to load (?:compiler plugins|plugin at): "
    r"|0 compiler plugins were applied|Plugin errs: "
)
#: The number of operators that its compiler took for the NPU, and of the partitions that replace
#: them in the model.
_COMPILED: Final = re.compile(
    r"Partitioned subgraph<(\d{1,9})>, selected (\d{1,9}) ops, from a total of (\d{1,9}) ops\."
    r" resulted in (\d{1,9}) partitions\.",
    re.ASCII,
)
_NPU_FILES: Final = frozenset(
    {
        "litert_dispatch.cc",
        "dispatch_delegate.cc",
        "neuron_adapter_api.cc",
        "qnn_manager.cc",
        "enn_manager.cc",
    }
)
#: Lines without OpenCL: the GPU delegate's, and LiteRT's.
_NO_OPENCL: Final = (
    "Falling back to OpenGL",
    "OpenCL not supported on this platform. Using OpenGL instead",
)
_NPU_FAILED: Final = ("Failed to create a dispatch delegate kernel", "No usable Dispatch runtime")
#: The runtime's line when a delegate fails while it is applied: it removes all of them.
_REVERTED: Final = "Restored original execution plan after delegate application failure"
#: Lines which report that a delegate is unavailable and the run continues without it.
_UNAVAILABLE: Final = tuple(
    (words, name.value) for name, record in DELEGATES.items() for words in record.unavailable
)
_UNAVAILABLE_WORDS: Final = tuple(words for words, _ in _UNAVAILABLE)
#: A model with more delegated subgraphs, or a run with more telling lines, doesn't exist; the rest
#: isn't kept.
_MOST_SHARES: Final = 2000
_MOST_LINES: Final = 200
_MOST_OPERATORS: Final = 20_000


def family(name: str) -> str:
    """Return benchfarm's word for a delegate's name; a vendor's own name is an external delegate."""
    return _FAMILIES.get(name.strip().lower(), "external")


def is_delegate_kernel(node_type: str) -> bool:
    """Whether a node of a graph that runs is the kernel of a delegate of the runtime's own."""
    return (
        node_type.startswith("TfLite") and "Delegate" in node_type
    ) or node_type.lower() in _BACKENDS


def backend_of(delegate: str) -> str:
    """Return the GPU interface in the name of a LiteRT GPU delegate; "" for any other delegate."""
    return _BACKENDS.get(delegate.strip().lower(), "")


def share_in(text: str) -> tuple[DelegateShare, str] | None:
    """Return the share of a delegate in a line, and the model's signature ("" where none is named);
    None for any other line.
    """
    match = _REPLACING.match(text) or _SIMPLE.match(text)
    if match is None:
        return None
    groups = match.groupdict()
    total, partitions, subgraph = (
        int(groups[name]) if groups.get(name) else None
        for name in ("total", "partitions", "subgraph")
    )
    share = DelegateShare(
        delegate=groups["name"] or "",
        delegated_nodes=int(groups["nodes"]),
        total_nodes=total,
        partitions=partitions,
        subgraph=subgraph,
    )
    return share, groups.get("signature") or ""


def accelerators_in(text: str) -> tuple[str, ...] | None:
    """Return NNAPI's accelerators that a text lists; None when it lists none."""
    match = _ACCELERATORS.search(text)
    return (
        None
        if match is None
        else tuple(name.strip() for name in match[1].split(",") if name.strip())
    )


def _add_once(names: list[str], name: str) -> None:
    if name not in names:
        names.append(name)


@dataclass(slots=True)
class DelegateClues:
    """The evidence about delegates in the lines of one run."""

    created: list[str] = field(default_factory=list)
    #: The shares in the order of their lines, each once, and the name of the subgraph.
    shares: dict[DelegateShare, str] = field(default_factory=dict)
    #: Subgraph -> operators that were compiled for the NPU, of how many, and how many took their
    #: place.
    compiled: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    #: Whether a delegate took operators whose name was cut off.
    has_unnamed_share: bool = False
    #: Operators that the GPU delegate counts for itself and for the CPU; the first subgraph's.
    gpu_split: tuple[int, int] | None = None
    #: Whether a line of NNAPI's delegate was printed, which is made only when it is asked for.
    has_nnapi_lines: bool = False
    #: Delegate -> "full", "partial", "none" or "unknown", as printed after it was applied.
    applied: dict[str, str] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    #: Whether all delegates were removed; the run then continues with the CPU's own kernels.
    is_reverted: bool = False
    unavailable: list[str] = field(default_factory=list)
    kernels: int | None = None
    gpu_kernels: int | None = None
    backend: str = ""
    accelerators: tuple[str, ...] = ()
    #: The devices that NNAPI chose for its parts of the model, and the phone's lines about that,
    #: which alone are no run.
    chosen_devices: list[str] = field(default_factory=list)
    system_lines: list[str] = field(default_factory=list)
    uses_npu_runtime: bool = False
    #: Whether ``--require_full_delegation`` ended the run.
    refused_cpu: bool = False
    #: The lines with evidence, in order, each once.
    lines: dict[str, None] = field(default_factory=dict)
    cpu_operators: dict[tuple[str, str], None] = field(default_factory=dict)

    def feed(self, text: str, source_file: str = "") -> bool:
        """Read one line; return whether it is evidence about delegates."""
        if text.startswith(_NNAPI_ONLY):
            self.has_nnapi_lines = True
        if source_file in _NPU_FILES:
            self.uses_npu_runtime = True
        is_evidence = (
            ("elegate" in text or "LITERT_" in text) and self._read_delegate_line(text)
        ) or self._read(text)
        if is_evidence:
            self.add_line(text)
        return is_evidence

    def add_line(self, text: str) -> None:
        """Keep a line as evidence, as long as there is room."""
        if len(self.lines) < _MOST_LINES:
            self.lines.setdefault(text)

    def add_cpu_operator(self, operator: str, reason: str) -> None:
        """Keep what the GPU delegate leaves to the CPU, and why."""
        if len(self.cpu_operators) < _MOST_OPERATORS:
            self.cpu_operators.setdefault((operator, reason))

    def _read(self, text: str) -> bool:
        if text.startswith(_UNAVAILABLE_WORDS):
            _add_once(
                self.unavailable,
                next(delegate for words, delegate in _UNAVAILABLE if text.startswith(words)),
            )
        elif match := _UNSUPPORTED.match(text):
            _add_once(self.unavailable, family(match[1]))
        elif text.startswith("NNAPI accel") and (accelerators := accelerators_in(text)) is not None:
            self.accelerators = accelerators
            self.has_nnapi_lines = True
        elif match := _GPU_SPLIT.match(text):
            split = (
                (0, int(match["all"])) if match["none"] else (int(match["gpu"]), int(match["cpu"]))
            )
            self.gpu_split = self.gpu_split or split
        elif match := _API.match(text):
            self.backend = match[1].lower()
        elif match := _ACCELERATOR.match(text):
            if match["name"] and (
                accelerator := next(
                    (name for name in ("gpu", "npu") if name in match["name"].lower()), ""
                )
            ):
                _add_once(self.created, accelerator)
        elif match := _COMPILED.match(text):
            subgraph, *operators = map(int, match.groups())
            if len(self.compiled) < _MOST_SHARES:
                self.compiled[subgraph] = (operators[0], operators[1], operators[2])
        elif text.startswith(_NPU_FAILED):
            _add_once(self.failed, "npu")
        elif text.startswith(_NNAPI_FAILED):
            _add_once(self.failed, "nnapi")
        elif _REPLACING_CUT.match(text):
            self.has_unnamed_share = True
        elif text.startswith("Disallowed CPU fallback detected"):
            self.refused_cpu = True
        elif text.startswith(_REVERTED):
            self.is_reverted = True
        else:
            # If OpenGL then works, another line names it.
            return text.startswith(_NO_OPENCL)
        return True

    def _read_delegate_line(self, text: str) -> bool:
        if (share := share_in(text)) is not None:
            if len(self.shares) < _MOST_SHARES:
                self.shares.setdefault(*share)
        elif match := _APPLIED.match(text):
            self.applied[family(match["name"])] = _EXTENTS[match["how"]]
            if match["kernels"]:
                self.kernels = int(match["kernels"])
        elif match := _NOT_USED.match(text):
            self.applied[family(match[1])] = "none"
        elif match := _FAILED.match(text) or _NODE_FAILED.match(text):
            _add_once(self.failed, family(match[1]))
        elif match := _GPU_KERNELS.match(text):
            # Each subgraph has such a line; the first is the main graph's.
            self.gpu_kernels = int(match[1]) if self.gpu_kernels is None else self.gpu_kernels
        elif match := _CREATED.match(text) or _PROVIDER_CREATED.match(text):
            _add_once(self.created, family(next(filter(None, match.groups()))))
        else:
            return False
        return True

    def read_system_line(self, text: str) -> None:
        """Read a line of the phone's NNAPI runtime, which names the device that it chose for a part
        of the model.
        """
        if match := _CHOSEN_DEVICE.search(text):
            _add_once(self.chosen_devices, match[1] or match[2])
            _add_once(self.system_lines, text)


def is_delegate_line(text: str) -> bool:
    """Whether a line is evidence about delegates, which programs print before their result."""
    return DelegateClues().feed(text)


@frozen
class DelegateRequest:
    """The delegates that a run requested, in the order of the flags."""

    delegates: tuple[str, ...] = ()
    #: False where no delegate was requested and none was switched off: the program's own choice.
    is_explicit: bool = True
    accelerator: str = ""
    #: The requested interface to the GPU, "" for any.
    gpu_backend: str = ""
    #: Delegates whose flags the program didn't know.
    ignored: tuple[str, ...] = ()
    #: Whether the output shows that XNNPACK was switched off, or is of a time before it.
    xnnpack_off: bool = False
    #: The model's signature that ran, "" if unknown.
    signature: str = ""


class Printed(Protocol):
    """The parts of a run's output that show which delegate was requested."""

    #: The heading above a paste; it counts only without other evidence.
    title: str
    #: Of the command line, and whether a part of it was left out.
    flags: dict[str, str]
    is_elided: bool
    #: Parameters as the program echoed them, and flags that it doesn't know.
    echoed: dict[str, str]
    unconsumed: list[str]
    #: Whether the program is LiteRT's, which echoes no delegate and chooses one by itself, so that
    #: neither missing parameters nor the delegate that ran show the request.
    is_litert: bool
    delegates: DelegateClues

    @property
    def signature(self) -> str:
        """The model's signature that ran, "" if unknown."""


def read_request(log: Printed) -> DelegateRequest:
    """Return the requested delegates: from the command line and the echoed parameters, else those
    that the program tried.
    """
    flags, echoed, clues, is_litert = log.flags, log.echoed, log.delegates, log.is_litert
    values = dict(flags)
    accelerator = ""
    # If the first echoed parameter says that all are echoed, unset ones are too.
    is_verbose = (
        values.get("verbose", "").lower() in {"true", "1"} if flags else "Num threads" in echoed
    )
    for name, value in echoed.items():
        key = name.lower()
        if key in _ECHOED_FLAGS:
            values[_ECHOED_FLAGS[key]] = value
        elif key == "nnapi accelerator name":
            accelerator = value
        elif key == "log parameter values verbosely":
            is_verbose = value == "1"
    parts = [word.lstrip("-").partition("=") for word in log.unconsumed]
    unknown = {name: value if equals else "true" for name, equals, value in parts}
    requested = requested_delegates(unknown | values)
    ignored = [name for name, switch in requested.items() if switch & unknown.keys()]
    is_xnnpack_off = values.get("use_xnnpack", "").strip().lower() in {"0", "false"}
    order = {delegate: place for place, delegate in enumerate(clues.applied)}
    names = sorted(requested, key=lambda name: order.get(name, len(order)))
    is_old = "Use legacy nnapi" in echoed
    is_explicit = True
    if not names and is_litert and values.get("use_cpu", "").lower() in {"true", "1"}:
        names, is_explicit = ["cpu"], False
    if not names and not is_litert:
        names = _tried_delegates(clues, accelerator)
    has_npu = any(family(share.delegate) == "npu" for share in clues.shares)
    if not names and "gpu" in clues.created and not has_npu:
        # LiteRT applies its NPU's accelerator unasked, the GPU's not.
        names = ["gpu"]
    if not names and (flags or echoed) and not is_litert and not log.is_elided:
        names = ["cpu"]
        is_explicit = is_xnnpack_off and not is_verbose
    if (
        not names
        and not flags
        and len(titles := {word.lower() for word in _TITLE_WORD.findall(log.title)}) == 1
    ):
        names, is_explicit = list(titles), False
    return DelegateRequest(
        delegates=tuple(names),
        is_explicit=is_explicit and bool(names),
        accelerator=accelerator
        or flags.get("nnapi_accelerator_name", "")
        or flags.get("qualcomm_backend", ""),
        gpu_backend=next(
            (_BACKENDS[word] for word in map("=".join, values.items()) if word in _BACKENDS), ""
        ),
        ignored=tuple(ignored),
        xnnpack_off=is_old or (is_xnnpack_off and not is_verbose),
        signature=log.signature,
    )


def _tried_delegates(clues: DelegateClues, accelerator: str) -> list[str]:
    all_names = [
        *clues.applied,
        *clues.failed,
        *(family(share.delegate) for share in clues.shares),
        *clues.created,
    ]
    delegates = list(
        dict.fromkeys(name for name in all_names if name not in {"xnnpack", "flex", "external"})
    )
    if clues.uses_npu_runtime:
        delegates = ["npu"]
    if not delegates and (accelerator or clues.has_nnapi_lines):
        delegates = ["nnapi"]
    explicit = [name for name in clues.applied if name in {"xnnpack", "external"}]
    return delegates or explicit
