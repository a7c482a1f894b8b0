import csv

import pytest

from orchestrator.errors import BenchfarmError
from orchestrator.extensions.interop.published import load_language_models, load_published
from orchestrator.installation import data_folder


def test_published_table_has_each_cell_of_the_shipped_file():
    path = data_folder("reports") / "published" / "tflite_published.csv"
    with path.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 48
    for row, figure in zip(rows, load_published(), strict=True):
        assert (figure.model, figure.device) == (row["model"], row["device"])
        assert row["configuration"].startswith(figure.delegate.value)
        assert figure.threads == (
            int(row["configuration"][4]) if "threads" in row["configuration"] else None
        )
        assert figure.text == (f"{row['latency_ms']} ms" if row["latency_ms"] else "")
        assert figure.latency_us == (float(row["latency_ms"]) * 1000 if row["latency_ms"] else None)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("model,device\n", ":1:"),
        ("model,device,configuration,latency_ms\na,b,gpu,1\na,b,gpu,fast\n", ":3:"),
        ("model,device,configuration,latency_ms\na,b,gpu\n", ":2:"),
    ],
)
def test_faulty_table_is_refused_with_its_line(tmp_path, text, place):
    path = tmp_path / "table.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(BenchfarmError, match=place):
        load_published(path)


def test_language_models_have_each_speed_of_the_shipped_file():
    path = data_folder("reports") / "published" / "litert_lm_published.csv"
    with path.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    printed = [row[key] for row in rows for key in ("prefill_tok_s", "decode_tok_s") if row[key]]
    figures = load_language_models()
    assert [figure.text for figure in figures] == [f"{text} tokens/s" for text in printed]
    assert len(printed) == 79
    throttled = next(figure for figure in figures if figure.text == "3.343 tokens/s")
    assert throttled.model == "Qwen3-0.6B mixed int4, decode 256 after 1024, context 1280"
    assert throttled.latency_us == pytest.approx(1e6 / 3.343)
    assert any("throttled" in note for note in throttled.notes)
    assert "measurements-lm.jsonl" in throttled.source
