"""Who signed an APK."""

import io
import zipfile

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, pkcs7
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.artifacts.apk import inspect_apk
from orchestrator.errors import ArtifactError
from tests.unit.artifacts.sample_files import app_bytes, certificate, fingerprint, signed

V2, V3, V31 = 0x7109871A, 0xF05368C0, 0x1B93AD61


def signers(tmp_path, content: bytes) -> tuple[str, ...]:
    path = tmp_path / "a.apk"
    path.write_bytes(content)
    return inspect_apk(path).signers


def test_certificates_of_the_signing_block_are_told_by_their_sha256(tmp_path):
    one, other = certificate("one"), certificate("other")
    assert signers(tmp_path, signed(app_bytes(), {V2: [one]})) == (fingerprint(one),)
    assert signers(tmp_path, signed(app_bytes(), {V2: [one, other]})) == (fingerprint(one), fingerprint(other))


def test_newest_scheme_is_believed_as_android_does(tmp_path):
    old, new, newest = certificate("old"), certificate("new"), certificate("newest")
    assert signers(tmp_path, signed(app_bytes(), {V2: [old], V3: [new]})) == (fingerprint(new),)
    assert signers(tmp_path, signed(app_bytes(), {V2: [old], V31: [newest], V3: [new]})) == (fingerprint(newest),)


def test_v1_signature_is_read_when_there_is_no_block(tmp_path):
    item = certificate()
    assert isinstance(item.public_key(), ec.EllipticCurvePublicKey)
    out = io.BytesIO(app_bytes())
    with zipfile.ZipFile(out, "a") as archive:
        archive.writestr("META-INF/CERT.EC", pkcs7.serialize_certificates([item], Encoding.DER))
    assert signers(tmp_path, out.getvalue()) == (fingerprint(item),)


def test_apk_that_nobody_signed_has_no_signer(tmp_path):
    assert signers(tmp_path, app_bytes()) == ()


@pytest.mark.slow
@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_mutated_signing_block_gives_signers_or_an_artifact_error(tmp_path_factory, data):
    original = app_bytes()
    content = bytearray(signed(original, {V2: [CERTIFICATE]}))
    begin = content.index(b"APK Sig Block 42") - (len(content) - len(original)) + 16
    end = begin + len(content) - len(original)
    for _ in range(data.draw(st.integers(1, 6))):
        content[data.draw(st.integers(begin, end - 1))] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]))
    try:
        assert isinstance(signers(tmp_path_factory.mktemp("fuzz"), bytes(content)), tuple)
    except ArtifactError:
        pass


CERTIFICATE = certificate()


def test_certificate_of_an_unknown_version_is_damage(tmp_path):
    content = signed(app_bytes(), {V2: [CERTIFICATE]})
    # The version of an X.509 certificate: [0] EXPLICIT INTEGER 2 stands for the third.
    assert content.count(bytes.fromhex("a003020102")) == 1
    with pytest.raises(ArtifactError, match="a certificate of an unknown version"):
        signers(tmp_path, content.replace(bytes.fromhex("a003020102"), bytes.fromhex("a00302017f")))


@pytest.mark.parametrize("size", [0, 23, 1 << 40])
def test_signing_block_of_a_wrong_size_is_damaged(tmp_path, size):
    content = signed(app_bytes(), {V2: [CERTIFICATE]})
    at = content.index(b"APK Sig Block 42") - 8
    with pytest.raises(ArtifactError, match="its signature is damaged"):
        signers(tmp_path, content[:at] + size.to_bytes(8, "little") + content[at + 8 :])
