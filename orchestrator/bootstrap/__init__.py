"""Where everything is put together: settings from the environment, adapters from settings. Nothing else does either."""

from orchestrator.bootstrap.builds import stand_in_build
from orchestrator.bootstrap.farm import Attached, Farm, OpenedDevices
from orchestrator.bootstrap.settings import Settings, this_computer

__all__ = ["Attached", "Farm", "OpenedDevices", "Settings", "stand_in_build", "this_computer"]
