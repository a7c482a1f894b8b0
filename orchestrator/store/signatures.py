"""Authors of bundles: Ed25519 signatures over its manifest, by keys in OpenSSH's form.

The manifest holds the sum of the records, and they the sums of all raw output: a signature of it covers everything.
It proves that the holder of the key wrote these bytes, not that a phone was measured.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import os
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from orchestrator.errors import HostStorageError, StoreCorruptError, UsageError

_MAKE_ONE: Final = "'ssh-keygen -t ed25519 -N \"\"' makes one, and so does 'benchfarm store key'"
#: Before what is signed, so that no signature of something else, made with the same key, is one of a bundle.
_PURPOSE: Final = b"benchfarm-bundle\0"
_KIND: Final = "ssh-ed25519"


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A key that signatures are checked with."""

    key: Ed25519PublicKey

    @property
    def text(self) -> str:
        """One line, as in OpenSSH's ``.pub`` files: ``ssh-ed25519 AAAA...``."""
        form = serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
        return self.key.public_bytes(*form).decode("ascii")

    @property
    def fingerprint(self) -> str:
        """The sum by which people compare keys, as ``ssh-keygen -l`` prints it: ``SHA256:...``."""
        digest = hashlib.sha256(base64.b64decode(self.text.split()[1])).digest()
        return f"SHA256:{base64.b64encode(digest).decode('ascii').rstrip('=')}"


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A key that bundles are signed with."""

    key: Ed25519PrivateKey

    @property
    def public(self) -> PublicKey:
        """What others check its signatures with."""
        return PublicKey(self.key.public_key())

    def sign(self, manifest: bytes) -> bytes:
        """Return the member that a bundle with this manifest gets."""
        signature = base64.b64encode(self.key.sign(_PURPOSE + manifest)).decode("ascii")
        return json.dumps({"key": self.public.text, "signature": signature}, indent=2).encode("ascii") + b"\n"


def own_key(path: Path) -> SigningKey:
    """Return this computer's key, made at its first use, in a file that only its user may read.

    Raises UsageError for a file that holds none, HostStorageError when it can't be written.
    """
    if not path.exists():
        form = serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".key-") as draft:
                # Its mode is 0600 from the beginning.
                draft.write(Ed25519PrivateKey.generate().private_bytes(*form))
                draft.flush()
                os.fsync(draft.fileno())
                with suppress(FileExistsError):
                    # Never in the place of a key that another process made meanwhile.
                    os.link(draft.name, path)
        except OSError as error:
            raise HostStorageError(f"{path}: the key can't be written: {error.strerror or error}") from error
    return read_key(path)


def read_key(path: Path) -> SigningKey:
    """Return the key of a file as ``ssh-keygen -t ed25519 -N ''`` writes it; raises UsageError."""
    try:
        key = serialization.load_ssh_private_key(path.read_bytes(), password=None)
    except OSError as error:
        raise UsageError(
            f"{path}: {error.strerror or error}", hint="'ssh-keygen -t ed25519 -N \"\"' makes one"
        ) from error
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise UsageError(f"{path}: is no OpenSSH private key without a passphrase", hint=_MAKE_ONE) from error
    if not isinstance(key, Ed25519PrivateKey):
        raise UsageError(f"{path}: isn't an Ed25519 key", hint=_MAKE_ONE)
    return SigningKey(key)


def trusted_key(given: str) -> PublicKey:
    """Return the public key that a person names: its text, or a file that holds it; raises UsageError."""
    text = given
    if not given.startswith(f"{_KIND} "):
        try:
            text = Path(given).read_text("ascii")
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "isn't a text file"
            raise UsageError(f"--trust {given}: {reason}", hint="'benchfarm store key' prints a public key") from error
    try:
        return _public_key(text)
    except ValueError as error:
        raise UsageError(
            f"--trust {given[:80]}: is no Ed25519 public key", hint="'benchfarm store key' prints one"
        ) from error


def signer_of(signature: bytes, manifest: bytes, *, where: str) -> PublicKey:
    """Return the key that a manifest was signed with; raises StoreCorruptError when the signature isn't its."""
    try:
        values = json.loads(signature)
        key, given = _public_key(values["key"]), base64.b64decode(values["signature"], validate=True)
        key.key.verify(given, _PURPOSE + manifest)
    except InvalidSignature as error:
        raise StoreCorruptError(
            f"{where}: the signature isn't of this manifest: the bundle was changed after it was signed",
            hint="ask its author for it again",
        ) from error
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, binascii.Error) as error:
        raise StoreCorruptError(f"{where}: the signature can't be read") from error
    return key


def _public_key(text: str) -> PublicKey:
    try:
        key = serialization.load_ssh_public_key(text.strip().encode("ascii"))
    except UnsupportedAlgorithm as error:
        raise ValueError("another kind of key") from error
    if not isinstance(key, Ed25519PublicKey):
        raise ValueError("another kind of key")
    return PublicKey(key)
