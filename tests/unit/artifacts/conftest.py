"""A web server with faults for every test that wants one."""

import pytest

from tests.unit.artifacts.file_server import file_server


@pytest.fixture
def server():
    with file_server() as running:
        yield running
