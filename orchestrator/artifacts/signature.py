"""Who signed an APK: the sha256 of each signer's certificate, from its signing block or its v1 signature.

The block lies before the zip archive's central directory (source.android.com, "APK Signature Scheme v2" and "v3"):
size, pairs of length, id and value, size again, magic. The signature itself isn't checked here: Android does so when it
installs the app. This says whose app it is, because an update by somebody else can't be installed over it.
"""

from __future__ import annotations

import re
import struct
import zipfile
from pathlib import Path
from typing import Final

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
