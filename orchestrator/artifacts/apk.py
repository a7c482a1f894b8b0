"""What an APK says about itself, read from its manifest and its list of files. Nothing is installed or run."""

from __future__ import annotations

import re
import struct
import zipfile
import zlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from orchestrator.artifacts.elf import inspect_elf_bytes
from orchestrator.artifacts.manifest import DamagedManifestError, Element, read_manifest
from orchestrator.artifacts.signature import DamagedSignatureError, signers_of
from orchestrator.errors import ArtifactError

MAGIC: Final = b"PK\x03\x04"
_MANIFEST: Final = "AndroidManifest.xml"
_MANIFEST_BYTES_MAX: Final = 4_000_000
_LIBRARY: Final = re.compile(r"lib/([A-Za-z0-9_-]+)/[^/]+\.so")
#: A stand-in's library is tiny; larger ones needn't be unpacked to know that they are none.
_STAND_IN_BYTES_MAX: Final = 65_536
#: What reading a damaged archive raises, beside zipfile's own error.
_DAMAGE: Final = (
    zipfile.BadZipFile, zlib.error, EOFError, ValueError, KeyError, NotImplementedError, RuntimeError, struct.error,
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ApkFacts:
    """What an APK is."""

    package: str
    #: Full class names.
    activities: tuple[str, ...]
    version_code: int | None
    version_name: str
    #: The lowest Android API level that it can be installed on.
    min_sdk: int
    debuggable: bool
    #: For which ABIs it has libraries; empty for one without native code, which runs on all.
    abis: tuple[str, ...]
    #: A stand-in that only a virtual phone can run.
    is_stand_in: bool
    #: sha256 of the certificate of each of its signers; empty for one that isn't signed.
    signers: tuple[str, ...] = ()


def inspect_apk(path: Path) -> ApkFacts:
    """Return what an APK is.

    Raises:
        ArtifactError: no zip archive, a damaged one, or one without an Android manifest.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            return replace(_facts(archive, path), signers=signers_of(path, archive))
    except DamagedManifestError as error:
        raise ArtifactError(f"{str(path)!r}: its {_MANIFEST} is damaged: {error}", hint="get the file again") from error
    except DamagedSignatureError as error:
        raise ArtifactError(f"{str(path)!r}: its signature is damaged: {error}", hint="get the file again") from error
    except OSError as error:
        raise ArtifactError(f"{str(path)!r} can't be read: {error.strerror or error}") from error
    except _DAMAGE as error:
        raise ArtifactError(f"{str(path)!r} is no APK, or a damaged one: {error}", hint="get the file again") from error


def full_activity(package: str, activity: str) -> str:
    """Return an activity's full class name: ``.Main`` and ``Main`` stand for ``<package>.Main``."""
    return (
        f"{package}{activity}" if activity.startswith(".") else activity if "." in activity else f"{package}.{activity}"
    )


def _facts(archive: zipfile.ZipFile, path: Path) -> ApkFacts:
    if _MANIFEST not in archive.namelist():
        raise ArtifactError(f"{str(path)!r} is a zip archive without {_MANIFEST}, so no APK")
    with archive.open(_MANIFEST) as stream:
        content = stream.read(_MANIFEST_BYTES_MAX + 1)
    if len(content) > _MANIFEST_BYTES_MAX:
        raise ArtifactError(f"{str(path)!r}: its {_MANIFEST} is larger than {_MANIFEST_BYTES_MAX} bytes")
    elements = read_manifest(content)
    manifest = _first(elements, ("manifest",))
    package = str(manifest.get("package", ""))
    if not package:
        raise ArtifactError(f"{str(path)!r}: its {_MANIFEST} names no package")
    version_code, min_sdk = (
        manifest.get("versionCode"),
        _first(elements, ("manifest", "uses-sdk")).get("minSdkVersion", 1),
    )
    libraries = [info for info in archive.infolist() if _LIBRARY.fullmatch(info.filename)]
    return ApkFacts(
        package=package,
        activities=tuple(
            full_activity(package, str(element.attributes["name"]))
            for element in elements
            if element.path == ("manifest", "application", "activity") and "name" in element.attributes
        ),
        version_code=version_code if isinstance(version_code, int) else None,
        version_name=str(manifest.get("versionName", "")),
        # A preview's codename instead of a number means: only that preview.
        min_sdk=min_sdk if isinstance(min_sdk, int) else 10_000,
        debuggable=_first(elements, ("manifest", "application")).get("debuggable", False) is True,
        abis=tuple(sorted({info.filename.split("/")[1] for info in libraries})),
        is_stand_in=any(_is_stand_in(archive, info) for info in libraries),
    )


def _first(elements: list[Element], path: tuple[str, ...]) -> dict[str, str | int | bool]:
    return next((element.attributes for element in elements if element.path == path), {})


def _is_stand_in(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bool:
    if info.file_size > _STAND_IN_BYTES_MAX:
        return False
    with archive.open(info) as stream:
        content = stream.read(_STAND_IN_BYTES_MAX)
    try:
        return inspect_elf_bytes(content, info.filename).is_stand_in
    except ArtifactError:
        return False
