"""The sample models: what they are, that they compute, and that they can be built again."""

import json
import subprocess
import sys

import pytest

from orchestrator.errors import ModelError
from orchestrator.models import zoo
from orchestrator.models.inspect import inspect_model
from tests.samples.places import REPO

#: Runs both sample models on the same pictures in a process of its own: native code may abort.
AGREEMENT = """
import json, sys
import numpy as np
from ai_edge_litert.interpreter import Interpreter
from orchestrator.models.zoo import labels_in_turn, pictures

def answers(path, images):
    interpreter = Interpreter(path, num_threads=1)
    interpreter.allocate_tensors()
    (inlet,), (outlet,) = interpreter.get_input_details(), interpreter.get_output_details()
    found = []
    for image in images:
        if inlet["dtype"] == np.int8:
            scale, zero = inlet["quantization"]
            image = np.clip(np.round(image / scale + zero), -128, 127).astype(np.int8)
        interpreter.set_tensor(inlet["index"], image[None])
        interpreter.invoke()
        found.append(int(interpreter.get_tensor(outlet["index"])[0].argmax()))
    return np.array(found), [op["op_name"] for op in interpreter._get_ops_details()].count("DELEGATE")

labels = labels_in_turn(3)
images = pictures(labels, seed=777)
(floats, float_parts), (ints, int_parts) = (answers(path, images) for path in sys.argv[1:])
print(json.dumps({
    "agreement": float((floats == ints).mean()), "right_float": float((floats == labels).mean()),
    "right_int8": float((ints == labels).mean()), "distinct": len(set(floats.tolist())),
    "parts": [float_parts, int_parts],
}))
"""


def test_samples_compute_and_int8_follows_float():
    command = [sys.executable, "-c", AGREEMENT, *map(str, zoo.sample_models())]
    done = subprocess.run(command, capture_output=True, cwd=REPO, timeout=300, check=True)
    result = json.loads(done.stdout)
    assert result["agreement"] >= 0.9
    assert result["right_float"] >= 0.8
    assert result["right_int8"] >= 0.8
    assert result["distinct"] >= 60
    # Each of them goes to XNNPACK as one piece.
    assert result["parts"] == [1, 1]


def test_samples_are_small_and_have_one_fixed_shape():
    for path in zoo.sample_models():
        facts = inspect_model(path)
        assert facts.size_bytes < 1_000_000
        assert facts.inputs[0].shape_signature == facts.inputs[0].shape
        assert set(facts.operators) == {"CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "MEAN", "SOFTMAX"}


def test_building_the_samples_again_gives_the_same_models(tmp_path):
    code = "import sys, pathlib, orchestrator.models.zoo as zoo; zoo.build_samples(pathlib.Path(sys.argv[1]))"
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, cwd=REPO, timeout=1200, check=True)
    manifest = json.loads((tmp_path / zoo.MANIFEST_NAME).read_text())
    for shipped in zoo.sample_models():
        built, kept = inspect_model(tmp_path / shipped.name), inspect_model(shipped)
        # Another version of TensorFlow may lay the file out otherwise; what it computes stays.
        for what in ("operators", "multiply_adds", "precision", "inputs", "signatures"):
            assert getattr(built, what) == getattr(kept, what)
        assert manifest["models"][shipped.name]["size_bytes"] == built.size_bytes


def test_damaged_sample_is_an_error_that_says_how_to_get_it_back(tmp_path):
    for name in (zoo.FLOAT_NAME, zoo.INT8_NAME, zoo.MANIFEST_NAME):
        (tmp_path / "samples" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "samples" / name).write_bytes((zoo.sample_models()[0].parent / name).read_bytes())
    assert len(zoo.sample_models(tmp_path / "samples")) == 2
    (tmp_path / "samples" / zoo.INT8_NAME).write_bytes(b"half a model")
    with pytest.raises(ModelError, match="isn't the sample model") as raised:
        zoo.sample_models(tmp_path / "samples")
    assert "benchfarm model samples" in raised.value.hint
    (tmp_path / "samples" / zoo.MANIFEST_NAME).unlink()
    with pytest.raises(ModelError, match="can't be read"):
        zoo.sample_models(tmp_path / "samples")
