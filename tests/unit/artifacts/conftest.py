"""A web server with faults for every test that wants one."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from file_server import file_server


@pytest.fixture
def server():
    with file_server() as running:
        yield running
