"""What benchfarm quotes arrives whole, through a real adb server, Android's adbd and mksh."""

import re
from collections.abc import Iterator
from shlex import quote

import pytest

from orchestrator.devices.adb_server import AdbServer
from orchestrator.devices.phone import AdbDevice
from orchestrator.devices.quiet import put_setting
from orchestrator.devices.sockets import ServerAddress
from orchestrator.programs.apk import ACTIVITY, start_command
from orchestrator.records.case import APP_PACKAGE, ToolName
from tests.samples.real_phone import RealPhone
from tests.samples.sample_lab import case
from tests.samples.tools import request_of

#: Those without white space are given to the app as values of flags, too.
AWKWARD = (
    "plain", "it's", 'double"quote', "''", '""', "$HOME", "$(touch gone)", "${x}", "`id`", "back\\slash", "\\", "\\\\n",
    "-rf", "--es", "a;b", "a&&b", "a|b", "a>b", "<in", "*", "/data/*", "?", "[a]", "~", "~root", "#hash", "!bang",
    "%s%n", "{a,b}", "(sub)", "a=b", "ünïcödé-模型-🙂", "\u202e", "\x1b[31m", "\x07", "$'\\n'", "@x", "^", "\u00a0",
)  # fmt: skip
#: What no flag of the app may hold and other words can.
WITH_SPACE = (
    "",
    " ",
    "two  spaces",
    " both ",
    "new\nline",
    "\n",
    "end\n",
    "tab\there",
    "carriage\rreturn",
    "a\n'b\" $c\\\n",
)


@pytest.fixture
def device(real_phone: RealPhone, adb_server: object) -> Iterator[AdbDevice]:
    server = AdbServer(ServerAddress(port=adb_server.port))  # type: ignore[attr-defined]
    adb_server.connect(real_phone.address)  # type: ignore[attr-defined]
    yield AdbDevice(server, real_phone.address)
    server.disconnect(real_phone.address)


def test_the_apps_arguments_arrive_as_one_string(device: AdbDevice, real_phone: RealPhone) -> None:
    flags = tuple(
        (f"flag{number}", word) for number, word in enumerate(AWKWARD) if not re.search(r"\s", word)
    )
    request = request_of(
        case(tool=ToolName.APK, flags=flags),
        model_path='/data/local/tmp/it\'s a "model" $x.tflite'.replace(" ", "_"),
    )
    device.shell(start_command(request))
    *words, argument = real_phone.calls("am")[-1]
    assert words == ["start", "-S", "-W", "-n", ACTIVITY, "--es", "args"]
    given = argument.split(" ")
    assert {f"--{name}={word}" for name, word in flags} <= set(given)
    assert f"--graph={request.model_path}" in given


@pytest.mark.parametrize(
    "command",
    ["am start --es args", "pm path", f"run-as {APP_PACKAGE} sh -c", "settings get global"],
)
def test_every_word_arrives_as_it_was(
    device: AdbDevice, real_phone: RealPhone, command: str
) -> None:
    words = [*AWKWARD, *WITH_SPACE]
    device.shell("\n".join(f"{command} {quote(word)} </dev/null" for word in words))
    name, *rest = command.split()
    assert real_phone.calls(name)[-len(words) :] == [[*rest, word] for word in words]


def test_a_setting_is_restored_whatever_it_held(device: AdbDevice, real_phone: RealPhone) -> None:
    names = [f"name{number}" for number, _ in enumerate(AWKWARD)]
    device.shell(
        "\n".join(
            put_setting("global", name, word) for name, word in zip(names, AWKWARD, strict=True)
        )
    )
    stored = [(real_phone.folder / "state/settings/global" / name).read_text() for name in names]
    assert stored == [f"{word}\n" for word in AWKWARD]
    device.shell("\n".join(put_setting("global", name, "null") for name in names))
    assert "name0" not in device.shell("settings list global").text


def test_a_file_of_an_app_is_read_through_run_as(device: AdbDevice, real_phone: RealPhone) -> None:
    folder = f"/data/local/tmp/apps/{APP_PACKAGE}"
    name = 'it\'s a "file" $(id) `x` \\ ünï\nline'
    device.shell(f"mkdir -p {folder}; printf 'its content' >{folder}/{quote(name)}")
    assert device.read_file(name, package=APP_PACKAGE) == b"its content"
    assert device.read_file("absent", package=APP_PACKAGE) is None
    assert real_phone.calls("run-as")[-1][:3] == [APP_PACKAGE, "sh", "-c"]
