"""An issue's text: what maintainers ask for, and nothing that names a person, a computer or a
phone."""

from orchestrator.report.issue import without_private

PRIVATE = ("R58M123ABC", "alice", "alices-laptop", "/home/alice")


def test_names_paths_and_addresses_are_left_out() -> None:
    text = (
        "/home/alice/models/net.tflite on R58M123ABC (r58m123abc) by alice@example.org from alices-laptop\n"
        "LD_LIBRARY_PATH=/data/local/tmp/benchfarm/ab12:/data/local/tmp/x ./run --graph=/data/local/tmp/m/net.tflite\n"
        "connected 192.168.1.20:5555, 00:11:22:aa:bb:cc; /vendor/lib64/libOpenCL.so; /system/bin/sh\n"
        "file:///home/alice/report.html malice stays, 1.2.3 stays"
    )
    told = without_private(text, PRIVATE)
    for word in (
        *PRIVATE,
        "r58m123abc",
        "192.168",
        "00:11",
        "example.org",
        "/data/local",
        "benchfarm/ab12",
    ):
        assert word not in told.replace("malice", ""), word
    assert "net.tflite on PRIVATE (PRIVATE)" in told
    assert "--graph=./net.tflite" in told
    assert "/vendor/lib64/libOpenCL.so; /system/bin/sh" in told
    assert told.endswith("malice stays, 1.2.3 stays")
