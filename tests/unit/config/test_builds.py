"""Build files: those that ship, and mistakes in those that people write."""

from orchestrator.config.declarations import load_build, load_builds
from orchestrator.installation import data_folder
from orchestrator.records.case import ToolName

URL = "https://example.com/x"


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
