"""Who signed an APK, as far as an update has to come from the same signer.

The APK Signing Block (scheme v2 and v3) and the JAR signature (v1) are read, nothing is verified: a phone that isn't
real only needs to tell two signers apart.
"""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path
from typing import Final

_MAGIC: Final = b"APK Sig Block 42"
_SCHEMES: Final = (0x7109871A, 0xF05368C0)
_END_OF_ZIP: Final = b"PK\x05\x06"
_MAX_BLOCK_BYTES: Final = 4 << 20


def signer_digest(apk: Path) -> str | None:
    """Return the SHA-256 of the signer's certificate, None for an APK that isn't signed."""
    try:
        return _block_signer(apk) or _jar_signer(apk)
    except (OSError, ValueError, IndexError, zipfile.BadZipFile):
        return None


def _block_signer(apk: Path) -> str | None:
    with apk.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - 65557))
        tail = file.read()
        end = tail.rfind(_END_OF_ZIP)
        if end < 0:
            return None
        directory = int.from_bytes(tail[end + 16 : end + 20], "little")
        if directory < 32:
            return None
        file.seek(directory - 24)
        footer = file.read(24)
        length = int.from_bytes(footer[:8], "little")
        if footer[8:] != _MAGIC or not 24 <= length <= min(directory, _MAX_BLOCK_BYTES):
            return None
        file.seek(directory - length)
        pairs = file.read(length - 24)
    found: dict[int, bytes] = {}
    at = 0
    while at + 12 <= len(pairs):
        pair = int.from_bytes(pairs[at : at + 8], "little")
        found[int.from_bytes(pairs[at + 8 : at + 12], "little")] = pairs[at + 12 : at + 8 + pair]
        at += 8 + pair
    for scheme in _SCHEMES:
        if scheme in found:
            return hashlib.sha256(_first_certificate(found[scheme])).hexdigest()
    return None


def _piece(data: bytes) -> tuple[bytes, bytes]:
    """Split off a piece that is preceded by its length."""
    length = int.from_bytes(data[:4], "little")
    if length > len(data) - 4:
        raise ValueError("a length in the signing block goes beyond it")
    return data[4 : 4 + length], data[4 + length :]


def _first_certificate(value: bytes) -> bytes:
    signers, _ = _piece(value)
    signer, _ = _piece(signers)
    signed_data, _ = _piece(signer)
    _, rest = _piece(signed_data)  # digests
    certificates, _ = _piece(rest)
    return _piece(certificates)[0]


def _jar_signer(apk: Path) -> str | None:
    with zipfile.ZipFile(apk) as archive:
        blocks = sorted(
            name for name in archive.namelist()
            if name.startswith("META-INF/") and name.rsplit(".", 1)[-1] in {"RSA", "DSA", "EC"}
        )  # fmt: skip
        if not blocks:
            return None
        block = archive.read(blocks[0])
    from cryptography.hazmat.primitives.serialization import Encoding, pkcs7

    certificates = pkcs7.load_der_pkcs7_certificates(block)
    return hashlib.sha256(certificates[0].public_bytes(Encoding.DER)).hexdigest() if certificates else None
