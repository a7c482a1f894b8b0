"""Build files: those that ship, and mistakes in those that people write."""

import pytest

from orchestrator.config.builds import load_build, load_builds
from orchestrator.errors import PlanError
from orchestrator.installation import data_folder
from orchestrator.records.case import ToolName

URL = "https://example.com/x"
GOOD = f"name: p\ntitle: T\ntool: native\nprogram: x\nabis:\n  arm64-v8a: {{url: {URL}}}\n"


def test_shipped_builds_have_one_default_for_each_tool_and_abi():
    specs = load_builds([data_folder("apk_builds")])
    defaults = [(spec.tool, spec.abi) for spec in specs if spec.default]
    assert len(defaults) == len(set(defaults))
    phone = {spec.tool: spec for spec in specs if spec.default and spec.abi == "arm64-v8a"}
    assert phone[ToolName.NATIVE].program == "benchmark_model"
    assert phone[ToolName.APK].expected.package == "org.tensorflow.lite.benchmark"
    assert (ToolName.NATIVE, "linux-x86_64") in defaults
    urls = [(spec.source.url, spec.how_to_get) for spec in specs]
    assert all(url.startswith("https://") and url in told for url, told in urls)


def test_source_may_be_an_address_or_a_recipe(tmp_path):
    (tmp_path / "p.yaml").write_text(
        "name: p\ntitle: T\ntool: native\nprogram: x\nabis:\n  arm64-v8a: {recipe: [bazel build //x, cp x y]}\n"
        f"  x86: {{url: {URL}, sha256: {'AB' * 32}}}\nlibraries:\n  l.so: {{}}\n  m.so: {{url: {{}}}}\n"
    )
    built, kept = load_build(tmp_path / "p.yaml")
    assert "build it (bazel build //x; cp x y)" in built.how_to_get
    assert kept.source.sha256 == ("ab" * 32,)
    assert [kept.library_url(name) for name in kept.libraries] == ["https://example.com/l.so", ""]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (GOOD.replace("native", "nativ"), "'nativ' isn't one of native, apk, litert, "),
        (GOOD.replace("arm64-v8a", "arm64"), "'arm64' isn't one of arm64-v8a"),
        (GOOD.replace(f"url: {URL}", "sha256: []"), "needs exactly one of url and recipe"),
        (GOOD.replace(f"url: {URL}", f"url: {URL}, recipe: x"), "exactly one of url and recipe"),
        (GOOD.replace("https", "http"), "isn't an https address"),
        (
            GOOD.replace("tool: native", "tool: apk"),
            "an APK needs expected.package and expected.activity",
        ),
        (GOOD.replace("name: p", "name: q"), "name: 'q' must be the file's name, 'p'"),
        (GOOD.replace("program: x", "program: ../x"), "isn't a name of letters"),
        (
            GOOD + "expected: {min_skd: 3}\n",
            "expected.min_skd: unknown key; did you mean 'min_sdk'?",
        ),
        (
            GOOD.replace(f"{{url: {URL}}}", f"{{url: {URL}, urll: x}}"),
            "abis.arm64-v8a.urll: unknown key; did you mean 'url'?",
        ),
        (GOOD + "package: a\n", "package: isn't a key here; it belongs under expected:"),
        (
            GOOD + f"url: {URL}\n",
            "url: isn't a key here; it belongs under a name in abis: or a name in libraries:",
        ),
        (
            GOOD.replace(f"arm64-v8a: {{url: {URL}}}", f"url: {URL}"),
            "p.yaml:6:3: abis.url: isn't a key here; it belongs under a name in abis: or a name ",
        ),
        (
            GOOD + f"x86: {{url: {URL}}}\n",
            "p.yaml:7:1: x86: isn't a key here; it belongs under abis:",
        ),
    ],
)
def test_each_mistake_has_its_message(tmp_path, text, fault):
    path = tmp_path / "p.yaml"
    path.write_text(text)
    with pytest.raises(PlanError) as raised:
        load_build(path)
    assert fault in str(raised.value)
    (line,) = raised.value.faults
    assert line.startswith(f"{path}:")
