"""Every seam of benchfarm, as a Protocol: where several bodies ship, or the engine would else import an adapter."""

from orchestrator.ports.device import (
    Conditioner,
    Device,
    Fitness,
    Lease,
    PackageInfo,
    PlacedFile,
    ProcessResult,
    Quarantine,
    Rescuer,
    ShellResult,
)
from orchestrator.ports.tool import (
    FlagBook,
    InvocationRequest,
    Observer,
    ParityReference,
    SessionTool,
    Tool,
    Turn,
    TurnTool,
)

__all__ = [
    "Conditioner",
    "Device",
    "Fitness",
    "FlagBook",
    "InvocationRequest",
    "Lease",
    "Observer",
    "PackageInfo",
    "ParityReference",
    "PlacedFile",
    "ProcessResult",
    "Quarantine",
    "Rescuer",
    "SessionTool",
    "ShellResult",
    "Tool",
    "Turn",
    "TurnTool",
]
