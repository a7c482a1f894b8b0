"""How a benchmark program is started and followed on a device."""
