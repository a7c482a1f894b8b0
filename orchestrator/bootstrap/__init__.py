"""Where everything is put together: settings from the environment, adapters from settings.

Nothing else does either.
"""

from orchestrator.bootstrap.settings import Settings, this_computer
from orchestrator.bootstrap.virtual_lab import fake_build
from orchestrator.bootstrap.workspace import Attached, OpenedDevices, Workspace

__all__ = ["Attached", "OpenedDevices", "Settings", "Workspace", "fake_build", "this_computer"]
