"""Where everything is put together: settings from the environment, adapters from settings. Nothing else does either."""

from orchestrator.bootstrap.builds import fake_build
from orchestrator.bootstrap.farm import Attached, Farm, OpenedDevices
from orchestrator.bootstrap.settings import Settings, this_computer

__all__ = ["Attached", "Farm", "OpenedDevices", "Settings", "fake_build", "this_computer"]
