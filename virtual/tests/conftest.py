"""Tests of virtual phones use the private adb servers of benchfarm's tests."""

from tests.conftest import adb_server, free_port, lab, make_lab, old_adb_server, wait_until

__all__ = ["adb_server", "free_port", "lab", "make_lab", "old_adb_server", "wait_until"]
