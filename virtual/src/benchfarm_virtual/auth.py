"""Who may talk to a phone: adb's RSA keys, read and checked as adbd does.

An adb server proves that it has a private key by signing a token of 20 random bytes as if it were a
SHA-1 digest (PKCS#1 v1.5). Its public key lies beside the private one in ``adbkey.pub``: base64 of
a little-endian structure (words in the modulus, -1/n mod 2**32, modulus, R**2 mod n, exponent),
then a space and a name. Source of the format: the Android Open Source Project's libcrypto_utils.
"""

from __future__ import annotations

import base64
import os
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey, RSAPublicNumbers
from cryptography.hazmat.primitives.asymmetric.utils import Prehashed
from cryptography.hazmat.primitives.hashes import SHA1

from benchfarm_virtual.errors import UsageError

TOKEN_BYTES: Final = 20
_MODULUS_BYTES: Final = 256
_KEY = struct.Struct(f"<II{_MODULUS_BYTES}s{_MODULUS_BYTES}sI")


def load_public_keys(paths: Iterable[Path]) -> tuple[RSAPublicKey, ...]:
    """Read the adb servers' public keys; raise UsageError for a file that can't be read or holds
    none.
    """
    keys = []
    for path in paths:
        try:
            blob = base64.b64decode(path.read_bytes().partition(b" ")[0], validate=True)
            _, _, modulus, _, exponent = _KEY.unpack(blob)
            numbers = RSAPublicNumbers(exponent, int.from_bytes(modulus, "little"))
            keys.append(numbers.public_key())
        except (OSError, struct.error, ValueError) as fault:
            raise UsageError(
                f"{path}: no adb public key ({fault})",
                hint="give the adbkey.pub that lies beside the adb server's adbkey",
            ) from None
    return tuple(keys)


class KeyChallenge:
    """One connection's proof: tokens go out, signatures come back."""

    def __init__(self, allowed: Sequence[RSAPublicKey]) -> None:
        self._allowed = allowed
        self._token = b""
        #: True once a signature by an allowed key was seen.
        self.proved = False

    def next_token(self) -> bytes:
        """Return a new token to be signed; it is good for one answer."""
        self._token = os.urandom(TOKEN_BYTES)
        return self._token

    def check(self, signature: bytes) -> bool:
        """Say whether the signature is an allowed key's over the last token."""
        token, self._token = self._token, b""
        if len(token) != TOKEN_BYTES:
            return False
        for key in self._allowed:
            try:
                # S303: the algorithm is adb's; the token is signed in place of a digest, nothing is
                # hashed.
                key.verify(signature, token, PKCS1v15(), Prehashed(SHA1()))  # noqa: S303
            except InvalidSignature:
                continue
            self.proved = True
            return True
        return False
