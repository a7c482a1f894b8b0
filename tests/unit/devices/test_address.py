import pytest

from orchestrator.devices.adb_server import configured_address, parse_address
from orchestrator.devices.sockets import ServerAddress
from orchestrator.errors import UsageError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("5040", ServerAddress(port=5040)),
        ("farm.example:5037", ServerAddress(host="farm.example", port=5037)),
        ("farm.example", ServerAddress(host="farm.example")),
        ("tcp:5041", ServerAddress(port=5041)),
        ("tcp:localhost:5041", ServerAddress(port=5041)),
        ("tcp:farm.example:1", ServerAddress(host="farm.example", port=1)),
        ("[::1]:5042", ServerAddress(host="::1", port=5042)),
        ("localfilesystem:/run/adb.sock", ServerAddress(path="/run/adb.sock")),
    ],
)
def test_an_address_is_read_in_every_form_that_adb_takes(
    text: str, expected: ServerAddress
) -> None:
    assert parse_address(text) == expected


@pytest.mark.parametrize(
    "text", ["host:0", "host:65536", "a b:1", "http://host:1", "", ":", "localfilesystem:x", "h:p"]
)
def test_a_text_that_is_no_address_is_refused_by_name(text: str) -> None:
    with pytest.raises(UsageError, match=r"\$SOURCE"):
        parse_address(text, source="$SOURCE")


def test_the_setting_goes_before_the_socket_variable_and_that_before_address_and_port() -> None:
    environ = {
        "ADB_SERVER_SOCKET": "tcp:b:2",
        "ANDROID_ADB_SERVER_ADDRESS": "c",
        "ANDROID_ADB_SERVER_PORT": "3",
    }
    assert configured_address("a:1", environ) == ServerAddress(host="a", port=1)
    assert configured_address("", environ) == ServerAddress(host="b", port=2)
    del environ["ADB_SERVER_SOCKET"]
    assert configured_address("", environ) == ServerAddress(host="c", port=3)
    del environ["ANDROID_ADB_SERVER_ADDRESS"]
    assert configured_address("", environ) == ServerAddress(port=3)
    assert configured_address("", {"ANDROID_ADB_SERVER_ADDRESS": "fe80::1"}) == ServerAddress(
        host="fe80::1"
    )
    assert configured_address("", {}) is None


def test_a_port_variable_that_is_no_number_is_named() -> None:
    with pytest.raises(UsageError, match=r"\$ANDROID_ADB_SERVER_PORT is 'localhost:x'"):
        configured_address("", {"ANDROID_ADB_SERVER_PORT": "x"})


def test_only_addresses_of_this_computer_are_local() -> None:
    assert parse_address("localhost:1").is_local
    assert parse_address("localfilesystem:/x").is_local
    assert not parse_address("farm.example:1").is_local
