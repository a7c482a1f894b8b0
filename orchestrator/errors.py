"""Every error that benchfarm raises on purpose, and the exit code each one ends a command with.

2: what the user gave can't be used; 3: a phone, or the way to it; 4: a program; 5: the store; 130:
interrupted. Exit codes beside these: 0 all went well, 1 the command did its work but a case failed
or can't be trusted, 6 the time didn't reach for everything and nothing else was wrong, 70 a fault
in benchfarm itself (run again with --debug for the traceback), 141 the reader of the output is
gone.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar, Final, TypeVar

_Kind = TypeVar("_Kind", bound="BenchfarmError")


class BenchfarmError(Exception):
    """A named error; the message says what happened, where, and what to do next."""

    exit_code: ClassVar[int] = 70
    #: True when the same step may succeed if it is tried again.
    transient: ClassVar[bool] = False
    #: The campaign that it ended; empty for none.
    campaign_id: str = ""

    def __init__(self, message: str = "", *, hint: str = "") -> None:
        super().__init__(message or (type(self).__doc__ or "").strip().splitlines()[0])
        self.hint = hint

    @property
    def reason(self) -> str:
        """The message, without what the place that shows it says already."""
        return str(self)

    @property
    def code(self) -> str:
        """The error's name in stored records and JSON, for example ``link-lost``."""
        name = type(self).__name__.removesuffix("Error")
        return "".join("-" + c.lower() if c.isupper() else c for c in name).lstrip("-")

    @property
    def facts(self) -> dict[str, object]:
        """The error's machine-readable fields."""
        common = {"code": self.code, "message": str(self), "hint": self.hint}
        campaign = {"campaign_id": self.campaign_id} if self.campaign_id else {}
        return {**common, "exit_code": self.exit_code, **campaign}


class UsageError(BenchfarmError):
    """What was asked for can't be done as written; see the message and --help."""

    exit_code = 2


class PlanError(UsageError):
    """The file has faults; mend each of them and run again."""

    def __init__(self, message: str = "", *, faults: Sequence[str] = (), hint: str = "") -> None:
        super().__init__("\n".join([message, *faults]) if faults else message, hint=hint)
        #: One line each: ``file:line:column: key: what is wrong``.
        self.faults = tuple(faults)


class ProgramInUseError(PlanError):
    """Another job on this host needs a program of this name as another file declares it; that
    passes.
    """


class CampaignInUseError(UsageError):
    """Another process runs this campaign now; wait for it, or stop it first."""


class NotFoundError(UsageError):
    """Nothing here has the name that was given; look for a typing mistake."""


class ModelError(UsageError):
    """The model file can't be used: it is missing, truncated or no TFLite flatbuffer."""


class OutputParseError(UsageError):
    """The text isn't the output of a benchmark program that benchfarm knows."""


class MissingPackageError(UsageError):
    """A package that this needs isn't installed; an extra of benchfarm brings it."""


class PluginError(UsageError):
    """A plugin can't be used; update or remove the distribution that brings it."""


class StoreMissingError(UsageError):
    """There is no store where one was named; look for a typing mistake, or measure into it first."""


class DeviceError(BenchfarmError):
    """Something went wrong with a phone or on the way to it."""

    exit_code = 3

    def __init__(self, message: str = "", *, serial: str = "", hint: str = "") -> None:
        super().__init__(f"{serial}: {message}" if serial and message else message, hint=hint)
        self.serial = serial

    @property
    def reason(self) -> str:
        """The message without the device's serial number in front."""
        return str(self).removeprefix(f"{self.serial}: ")


class AdbUnavailableError(DeviceError):
    """The adb server can't be started or reached; set $BENCHFARM_ADB to an adb binary or start the
    server.
    """


class NoDeviceError(DeviceError):
    """No usable phone is attached; plug one in, allow USB debugging, then run 'benchfarm devices'."""


class DeviceUnusableError(DeviceError):
    """The phone is attached but can't be used; 'benchfarm devices' says why."""


class DeviceUnauthorizedError(DeviceUnusableError):
    """The phone doesn't let this computer in; accept its key on the phone's screen (USB debugging)."""


class DeviceUnfitError(DeviceUnusableError):
    """The phone didn't become fit to be measured in time; let it cool, charge or come to rest."""


class DeviceSetAsideError(DeviceUnusableError):
    """The phone is kept out until somebody has looked at it; 'benchfarm device release' lets it in
    again.
    """


class LinkLostError(DeviceError):
    """The connection to the phone ended before the answer was whole; check the cable and try again."""

    transient = True


class DeviceTimeoutError(DeviceError):
    """The phone didn't answer in time; check whether it hangs and try again."""

    transient = True


class DeviceBusyError(DeviceError):
    """Another benchfarm process is using this phone; wait for it or choose another."""

    transient = True


class DeviceChangedError(DeviceError):
    """The phone that answers isn't the one the run began with: another serial number, or it was
    rebooted.
    """


class DeviceCommandError(DeviceError):
    """A command that had to succeed failed on the phone."""


class FolderRefusedError(DeviceCommandError):
    """The phone's shell user may not write in our folder, or not in /data/local/tmp itself."""


class ShellRestrictedError(DeviceCommandError):
    """The phone's maker doesn't let the shell user do this; see the developer options."""


class RunAsRefusedError(DeviceCommandError):
    """The phone doesn't give the app's own files away (run-as)."""


class SystemDownError(DeviceError):
    """Android's own services aren't running; wait until they are, or reboot the phone."""

    transient = True


class LogOverrunError(DeviceError):
    """The phone's log was overwritten faster than it could be read; give it more room."""

    transient = True


class TransferError(DeviceError):
    """What arrived differs from what was sent; try again, and another cable if it happens often."""

    transient = True


class DeviceStorageError(DeviceError):
    """There is no space left on the phone; free some."""


#: Errors that waiting may mend: the connection to the device is lost, or another device is in its
#: place.
RETURNING: Final = (
    AdbUnavailableError,
    NoDeviceError,
    DeviceUnauthorizedError,
    LinkLostError,
    DeviceTimeoutError,
    DeviceChangedError,
    SystemDownError,
    LogOverrunError,
    TransferError,
)


class InstallError(DeviceError):
    """The phone's package manager refused the APK."""

    def __init__(
        self, message: str = "", *, install_code: str = "", serial: str = "", hint: str = ""
    ) -> None:
        super().__init__(message, serial=serial, hint=hint)
        #: The package manager's own word, for example ``INSTALL_FAILED_NO_MATCHING_ABIS``.
        self.install_code = install_code


class ArtifactError(BenchfarmError):
    """A benchmark program can't be found or isn't what its checksum says; see 'benchfarm build'."""

    exit_code = 4


class DownloadError(ArtifactError):
    """A benchmark program couldn't be fetched; what was here before is kept."""


class NotThereError(DownloadError):
    """The server has no such file; look at the address in the build's file, or at the mirror."""


class StoreError(BenchfarmError):
    """The store can't be used; nothing was lost or changed."""

    exit_code = 5


class StoreAwayError(StoreError):
    """The database's server can't be reached, ended the connection, or has no space left."""


class StoreBusyError(StoreError):
    """Another process kept the store locked for too long; try again when it is done."""


class StoreCorruptError(StoreError):
    """The store's file is damaged or isn't a benchfarm store; it was left untouched."""


class StoreEncodingError(StoreError):
    """The database's encoding isn't UTF8, so that it can't hold every character; nothing was
    written.
    """

    def __init__(self, name: str, encoding: str) -> None:
        super().__init__(
            f"{name}: the database has the encoding {encoding}; benchfarm stores text as UTF8 only",
            hint="create a database for it: createdb --encoding UTF8 --template template0 NAME",
        )


class HostStorageError(BenchfarmError):
    """There is no space left on this computer; free some, what was stored before is kept."""

    exit_code = 5


class InterruptedByUserError(BenchfarmError):
    """Stopped by Ctrl-C or a signal."""

    exit_code = 130


def kinds_below(kind: type[_Kind]) -> Iterator[type[_Kind]]:
    """Yield a kind of error and all kinds of it."""
    yield kind
    for below in kind.__subclasses__():
        yield from kinds_below(below)


def closest(word: str, words: Iterable[str]) -> str:
    """Return the most similar of some words, or an empty text when none is similar."""
    names = {name.lower(): str(name) for name in words}
    matches = difflib.get_close_matches(word.lower(), list(names), n=1, cutoff=0.6)
    return names[matches[0]] if matches else ""


def nearest(word: str, words: Iterable[str]) -> str:
    """Return ``did you mean 'x'?``, or an empty text when no word is similar."""
    match = closest(word, words)
    return f"did you mean {match!r}?" if match else ""


def choices(word: str, words: Iterable[str]) -> str:
    """Return the hint for a word that isn't one of ``words``: the most similar one, or all."""
    names = [*words]
    return nearest(word, names) or f"choose one of {', '.join(names)}"


def check_word(option: str, word: str, words: Iterable[str]) -> None:
    """Raise UsageError for an option's word that isn't one of ``words``."""
    names = [*words]
    if word not in names:
        raise UsageError(f"{option} {word!r} isn't known", hint=choices(word, names))
