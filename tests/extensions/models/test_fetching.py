"""Published models: fetched through a server with faults, taken out of archives, held to their
first content."""

import io
import ssl
import tarfile
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from orchestrator.config.declarations import load_manifest
from orchestrator.errors import ModelError
from orchestrator.extensions.models.files import published_models, take_model
from orchestrator.models.inspect import sample_models
from tests.samples.command import Cli
from tests.unit.artifacts.file_server import file_server

FLOAT, INT8 = (path.read_bytes() for path in sample_models())
NAME = "squeezenet"
URL_PATH = "/" + published_models()[NAME]["url"].removeprefix("https://")


def tgz(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


GOOD = tgz({"squeezenet_2018/squeezenet.pb": b"graph", "squeezenet_2018/squeezenet.tflite": FLOAT})


@pytest.fixture
def server():
    with file_server() as running:
        yield running


def fetch(server, home: Path, *options: str, url: str = "", **environ: str) -> tuple[int, dict]:
    words = ("model", "fetch", NAME, "--json", *options)
    environ = {"BENCHFARM_MIRROR": url or server.url, **environ}
    done = Cli(home=home)(*words, **environ)
    return done.exit_code, done.json


def test_model_comes_out_of_its_archive_into_the_manifest_with_its_accuracy(server, tmp_path):
    server.put(URL_PATH, GOOD)
    code, (told,) = fetch(server, tmp_path)
    assert (code, told["name"]) == (0, NAME)
    assert (tmp_path / "models" / f"{NAME}.tflite").read_bytes() == FLOAT
    (entry,) = load_manifest(tmp_path / "models.yaml").values()
    assert (entry.name, entry.accuracy.percent) == (NAME, 49.0)
    assert entry.accuracy.source.startswith("https://")
    assert entry.url == published_models()[NAME]["url"]
    asked = len(server.asked)
    assert fetch(server, tmp_path)[0] == 0
    assert len(server.asked) == asked


def test_a_cut_off_download_is_tried_again_and_a_damaged_file_fetched_again(server, tmp_path):
    server.put(URL_PATH, GOOD, faults=[("cut", 5000)])
    assert fetch(server, tmp_path)[0] == 0
    (tmp_path / "models" / f"{NAME}.tflite").write_bytes(FLOAT[:-100])
    # Which another process writes at the same time.
    draft = tmp_path / "models" / f".{NAME}.tflite.new"
    draft.write_bytes(FLOAT[:-200])
    assert fetch(server, tmp_path)[0] == 0
    assert (tmp_path / "models" / f"{NAME}.tflite").read_bytes() == FLOAT
    assert draft.read_bytes() == FLOAT[:-200]


def test_other_content_than_at_first_sight_is_refused(server, tmp_path):
    server.put(URL_PATH, GOOD)
    fetch(server, tmp_path)
    kept = tmp_path / "models" / f"{NAME}.tflite"
    kept.unlink()
    server.put(URL_PATH, tgz({"a.tflite": INT8}))
    code, told = fetch(server, tmp_path)
    assert code == 2
    assert "isn't the expected model" in told["error"]["message"]
    assert not kept.exists()
    assert list((tmp_path / "models").iterdir()) == []


@pytest.mark.parametrize(
    ("content", "code", "message"),
    [
        (tgz({"a.txt": b"x"}), 2, "has 0 .tflite files"),
        (tgz({"a.tflite": FLOAT, "b.tflite": INT8}), 2, "has 2 .tflite files"),
        (tgz({"a.tflite": b"<html>not found</html>"}), 2, "web page"),
        (GOOD[:-2000], 2, "damaged"),
        (b"<html>not found</html>", 2, "damaged"),
    ],
    ids=["no model", "two models", "page in an archive", "cut short", "page"],
)
def test_what_is_no_model_is_refused_and_nothing_of_it_kept(
    server, tmp_path, content, code, message
):
    server.put(URL_PATH, content)
    found, told = fetch(server, tmp_path)
    assert (found, message in told["error"]["message"]) == (code, True), told
    assert list((tmp_path / "models").iterdir()) == []
    assert not (tmp_path / "models.yaml").exists()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory) -> Path:
    """A key and a certificate of our own for 127.0.0.1, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "benchfarm test")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "server.pem"
    plain = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )  # fmt: skip
    path.write_bytes(plain + made.public_bytes(serialization.Encoding.PEM))
    return path


def test_server_with_tls_is_trusted_only_by_its_certificate_and_followed_where_it_sends_us(
    server, certificate, tmp_path
):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server.server.socket = context.wrap_socket(server.server.socket, server_side=True)
    url = server.url.replace("http:", "https:")
    server.put(URL_PATH, b"", faults=[("to", f"{url}/elsewhere/model.tgz")] * 3)
    server.put("/elsewhere/model.tgz", GOOD, faults=[("cut", 5000)])
    code, told = fetch(server, tmp_path, url=url, REQUESTS_CA_BUNDLE="")
    assert (code, "certificate" in told["error"]["message"]) == (4, True), told
    assert "REQUESTS_CA_BUNDLE" in told["error"]["hint"]
    assert server.asked == []
    code, told = fetch(server, tmp_path, url=url, REQUESTS_CA_BUNDLE=str(certificate))
    assert (code, told[0]["name"]) == (0, NAME)
    assert (tmp_path / "models" / f"{NAME}.tflite").read_bytes() == FLOAT


def test_missing_file_and_unknown_name_are_errors(server, tmp_path):
    code, told = fetch(server, tmp_path)
    assert (code, told["error"]["code"]) == (4, "not-there")
    code, told = fetch(server, tmp_path, "nosuch")
    assert (code, told["error"]["code"]) == (2, "usage")


def test_names_in_an_archive_decide_no_path(tmp_path):
    archive = tmp_path / "a.tgz"
    for name in ("../../evil.tflite", "/etc/evil.tflite"):
        archive.write_bytes(tgz({name: FLOAT}))
        take_model(archive, tmp_path / "out" / "m.tflite", label="a")
        assert [path.name for path in tmp_path.rglob("*.tflite")] == ["m.tflite"]
    link = io.BytesIO()
    with tarfile.open(fileobj=link, mode="w") as tar:
        info = tarfile.TarInfo("m.tflite")
        info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(info)
    archive.write_bytes(link.getvalue())
    with pytest.raises(ModelError, match=r"has 0 \.tflite files"):
        take_model(archive, tmp_path / "out" / "m.tflite", label="a")


def test_published_models_name_an_https_address_and_a_source_of_their_accuracy():
    assert len(published_models()) >= 6
    for row in published_models().values():
        assert row["url"].startswith("https://")
        assert 0 < float(row["top1_percent"]) < 100
        assert row["accuracy_source"].startswith("https://")
