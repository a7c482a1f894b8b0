"""Every seam of benchfarm, as a Protocol: where several bodies ship, or the engine would else import an adapter."""

from orchestrator.ports.device import (
    Device,
    Fitness,
    PackageInfo,
    PlacedFile,
    ProcessResult,
    ShellResult,
)
from orchestrator.ports.tool import (
    InvocationRequest,
    Observer,
    ParityReference,
    SessionTool,
    Tool,
    Turn,
    TurnTool,
    session_of,
)

__all__ = [
    "Device",
    "Fitness",
    "InvocationRequest",
    "Observer",
    "PackageInfo",
    "ParityReference",
    "PlacedFile",
    "ProcessResult",
    "SessionTool",
    "ShellResult",
    "Tool",
    "Turn",
    "TurnTool",
    "session_of",
]
