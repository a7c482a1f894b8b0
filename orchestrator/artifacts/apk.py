"""What an APK says about itself: its manifest, its files and who signed it. Nothing is installed or run.

The block lies before the zip archive's central directory (source.android.com, "APK Signature Scheme v2" and "v3"):
size, pairs of length, id and value, size again, magic. The signature itself isn't checked here: Android does so when it
installs the app. This says whose app it is, because an update by somebody else can't be installed over it.

The layout is that of ResourceTypes.h in the Android Open Source Project (frameworks/base, libs/androidfw): chunks of
type, header size and size; a pool of strings; a map from attribute names to resource numbers; then the elements.
"""

from __future__ import annotations

import enum
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from orchestrator.artifacts.elf import inspect_elf_bytes
from orchestrator.errors import ArtifactError


class _Chunk(enum.IntEnum):
    STRING_POOL = 0x0001
    XML = 0x0003
    START_ELEMENT = 0x0102
    END_ELEMENT = 0x0103
    RESOURCE_MAP = 0x0180


_UTF8_FLAG: Final = 1 << 8
_NONE: Final = 0xFFFFFFFF
_TYPE_STRING, _TYPE_INT, _TYPE_HEX, _TYPE_BOOL = 0x03, 0x10, 0x11, 0x12
#: Attributes are known by their resource number: tools that shrink an app drop or change their names.
_ATTRIBUTES: Final = {
    0x01010003: "name", 0x0101000F: "debuggable", 0x0101020C: "minSdkVersion", 0x0101021B: "versionCode",
    0x0101021C: "versionName",
}  # fmt: skip
_STRINGS_MAX: Final = 100_000
_ELEMENTS_MAX: Final = 100_000


class DamagedManifestError(Exception):
    """The bytes aren't Android's binary XML."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Element:
    """One element: its path of names from the root, and those attributes whose value isn't a reference."""

    path: tuple[str, ...]
    attributes: dict[str, str | int | bool]


def read_manifest(data: bytes) -> list[Element]:
    """Return the elements of a binary XML file in their order; raises DamagedManifestError."""
    try:
        return list(_elements(data))
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise DamagedManifestError(str(error)) from error


def _elements(data: bytes) -> Iterator[Element]:
    kind, header_size, size = struct.unpack_from("<HHI", data)
    if kind != _Chunk.XML or size > len(data):
        raise DamagedManifestError("it doesn't begin as binary XML does")
    strings: list[str] = []
    names: dict[int, str] = {}
    path: list[str] = []
    for number, (chunk, head, at, end) in enumerate(_chunks(data, header_size, size)):
        if number > _ELEMENTS_MAX:
            raise DamagedManifestError(f"it has more than {_ELEMENTS_MAX} chunks")
        match chunk:
            case _Chunk.STRING_POOL:
                strings = _strings(data[at:end])
            case _Chunk.RESOURCE_MAP:
                ids = struct.unpack_from(f"<{(end - at - head) // 4}I", data, at + head)
                names = {index: _ATTRIBUTES[value] for index, value in enumerate(ids) if value in _ATTRIBUTES}
            case _Chunk.START_ELEMENT:
                name, attributes = _element(data[at + head : end], strings, names)
                path.append(name)
                yield Element(path=tuple(path), attributes=attributes)
            case _Chunk.END_ELEMENT:
                if not path:
                    raise DamagedManifestError("an element ends that didn't begin")
                path.pop()


def _chunks(data: bytes, start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield type, header size, begin and end of each chunk."""
    while start + 8 <= end:
        kind, head, size = struct.unpack_from("<HHI", data, start)
        if head < 8 or size < head or start + size > end:
            raise DamagedManifestError(f"the chunk at byte {start} has size {size}")
        yield kind, head, start, start + size
        start += size


def _strings(pool: bytes) -> list[str]:
    head = struct.unpack_from("<H", pool, 2)[0]
    count, _, flags, strings_start, _ = struct.unpack_from("<5I", pool, 8)
    if count > _STRINGS_MAX:
        raise DamagedManifestError(f"it has {count} strings")
    offsets = struct.unpack_from(f"<{count}I", pool, head)
    read = _utf8 if flags & _UTF8_FLAG else _utf16
    return [read(pool, strings_start + offset) for offset in offsets]


def _utf8(pool: bytes, at: int) -> str:
    # Two lengths, in characters and in bytes; each takes two bytes when its first has the high bit.
    at += 2 if pool[at] & 0x80 else 1
    length = pool[at]
    at += 1
    if length & 0x80:
        length = (length & 0x7F) << 8 | pool[at]
        at += 1
    return _cut(pool, at, length).decode("utf-8", "replace")


def _utf16(pool: bytes, at: int) -> str:
    length = struct.unpack_from("<H", pool, at)[0]
    at += 2
    if length & 0x8000:
        length = (length & 0x7FFF) << 16 | struct.unpack_from("<H", pool, at)[0]
        at += 2
    return _cut(pool, at, 2 * length).decode("utf-16-le", "replace")


def _cut(pool: bytes, at: int, size: int) -> bytes:
    if at + size > len(pool):
        raise DamagedManifestError("a string reaches beyond its pool")
    return pool[at : at + size]


def _element(body: bytes, strings: list[str], names: dict[int, str]) -> tuple[str, dict[str, str | int | bool]]:
    _, name, start, size, count = struct.unpack_from("<IIHHH", body)
    attributes: dict[str, str | int | bool] = {}
    if size < 20:
        raise DamagedManifestError(f"attributes of {size} bytes")
    for number in range(count):
        _, key, raw, _, _, kind, value = struct.unpack_from("<IIIHBBI", body, start + number * size)
        known = names.get(key) or strings[key]
        if kind == _TYPE_STRING:
            attributes[known] = strings[value]
        elif kind in {_TYPE_INT, _TYPE_HEX}:
            attributes[known] = int(value)
        elif kind == _TYPE_BOOL:
            attributes[known] = value != 0
        elif raw != _NONE:
            attributes[known] = strings[raw]
    return strings[name], attributes


_MAGIC: Final = b"APK Sig Block 42"
#: v3.1, v3 and v2, in the order in which Android prefers them.
_SCHEMES: Final = (0x1B93AD61, 0xF05368C0, 0x7109871A)
_BLOCK_BYTES_MAX: Final = 4 << 20
_PKCS7_BYTES_MAX: Final = 1 << 20
_V1: Final = re.compile(r"META-INF/[^/]+\.(?:RSA|DSA|EC)")


class DamagedSignatureError(Exception):
    """The signing block doesn't have its own layout."""


def signers_of(path: Path, archive: zipfile.ZipFile) -> tuple[str, ...]:
    """Return the sha256 of each signer's certificate as hexadecimal digits; empty for an APK that isn't signed.

    Raises:
        DamagedSignatureError: a signature is there and can't be read.
    """
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.x509 import InvalidVersion

    try:
        certificates = _from_block(path, archive.start_dir) or _from_v1(archive)
        return tuple(dict.fromkeys(_digest(certificate) for certificate in certificates))
    except InvalidVersion as error:
        raise DamagedSignatureError(f"a certificate of an unknown version: {error}") from error
    except (struct.error, ValueError, IndexError, UnsupportedAlgorithm) as error:
        raise DamagedSignatureError(str(error)) from error


def _from_block(path: Path, directory_at: int) -> list[bytes]:
    with path.open("rb") as stream:
        if directory_at < 32:
            return []
        stream.seek(directory_at - 24)
        size, magic = struct.unpack("<Q16s", stream.read(24))
        if magic != _MAGIC:
            return []
        if size < 24 or size > min(_BLOCK_BYTES_MAX, directory_at - 8):
            raise DamagedSignatureError(f"a signing block of {size} bytes")
        stream.seek(directory_at - size - 8)
        block = stream.read(size + 8)
    if struct.unpack_from("<Q", block)[0] != size:
        raise DamagedSignatureError("the two sizes of the signing block differ")
    values = _pairs(block[8:-24])
    for scheme in _SCHEMES:
        if scheme in values:
            return [_certificate(signer) for signer in _items(_items(values[scheme])[0])]
    return []


def _pairs(body: bytes) -> dict[int, bytes]:
    values: dict[int, bytes] = {}
    at = 0
    while at < len(body):
        size, key = struct.unpack_from("<QI", body, at)
        if size < 4 or at + 8 + size > len(body):
            raise DamagedSignatureError(f"an entry of {size} bytes")
        values[key] = body[at + 12 : at + 8 + size]
        at += 8 + size
    return values


def _certificate(signer: bytes) -> bytes:
    """Return a signer's own certificate: the first of its signed data's second part."""
    signed_data = _items(signer)[0]
    return _items(_items(signed_data, most=2)[1])[0]


def _items(body: bytes, *, most: int = 1000) -> list[bytes]:
    """Split parts that each begin with their length; what follows the first ``most`` isn't looked at."""
    found: list[bytes] = []
    at = 0
    while at < len(body) and len(found) < most:
        size = struct.unpack_from("<I", body, at)[0]
        if at + 4 + size > len(body):
            raise DamagedSignatureError(f"a part of {size} bytes where {len(body) - at - 4} are left")
        found.append(body[at + 4 : at + 4 + size])
        at += 4 + size
    return found


def _from_v1(archive: zipfile.ZipFile) -> list[bytes]:
    from cryptography.hazmat.primitives.serialization import Encoding, pkcs7

    found: list[bytes] = []
    for info in archive.infolist():
        if _V1.fullmatch(info.filename) and info.file_size <= _PKCS7_BYTES_MAX:
            chain = pkcs7.load_der_pkcs7_certificates(archive.read(info))
            found += [certificate.public_bytes(Encoding.DER) for certificate in chain[:1]]
    return found


def _digest(certificate: bytes) -> str:
    from cryptography import x509
    from cryptography.hazmat.primitives.hashes import SHA256

    return x509.load_der_x509_certificate(certificate).fingerprint(SHA256()).hex()


MAGIC: Final = b"PK\x03\x04"
_MANIFEST: Final = "AndroidManifest.xml"
_MANIFEST_BYTES_MAX: Final = 4_000_000
_LIBRARY: Final = re.compile(r"lib/([A-Za-z0-9_-]+)/[^/]+\.so")
#: A fake binary's library is tiny; larger ones needn't be unpacked to know that they are none.
_FAKE_BYTES_MAX: Final = 65_536
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
    #: A fake binary that only a virtual phone can run.
    is_fake: bool
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
        is_fake=any(_is_fake(archive, info) for info in libraries),
    )


def _first(elements: list[Element], path: tuple[str, ...]) -> dict[str, str | int | bool]:
    return next((element.attributes for element in elements if element.path == path), {})


def _is_fake(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bool:
    if info.file_size > _FAKE_BYTES_MAX:
        return False
    with archive.open(info) as stream:
        content = stream.read(_FAKE_BYTES_MAX)
    try:
        return inspect_elf_bytes(content, info.filename).is_fake
    except ArtifactError:
        return False
