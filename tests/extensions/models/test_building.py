"""Models of each kind, built by TensorFlow: what they are, that they compute, that they can be
built again."""

import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

from orchestrator.config.declarations import load_manifest
from orchestrator.errors import UsageError
from orchestrator.extensions.models import files as model_files
from orchestrator.extensions.models.building import (
    TENSORFLOW_ENVIRON,
    VARIANTS,
    BuildOrder,
    BuiltModel,
    FailedBuild,
    _outcome,
    build_models,
)
from orchestrator.extensions.models.conversion import fixed_shapes
from orchestrator.extensions.models.files import build_orders
from orchestrator.models.inspect import identify_model, inspect_model
from tests.samples.command import Cli
from tests.samples.places import REPO

ENVIRON = dict(os.environ)
#: Builds orders as the process with TensorFlow does, which takes seconds to start. The first
#: one is for a network of ours; the others are for a user's Keras file, and for a SavedModel that
#: needs TensorFlow's own operators.
BUILDS = """
import sys, keras, tensorflow as tf
from pathlib import Path
from orchestrator.extensions.models.conversion import convert
folder, first, *others = map(Path, sys.argv[1:])
convert(first)
keras.utils.set_random_seed(1)
inlets = [keras.Input((None, None, 3), name="picture"), keras.Input((4,), name="extra")]
x = keras.layers.GlobalAveragePooling2D()(keras.layers.Conv2D(4, 3, activation="swish")(inlets[0]))
model = keras.Model(inlets, keras.layers.Dense(2, name="scores")(keras.layers.Concatenate()([x, inlets[1]])))
model.save(folder / "users.keras")
class Odd(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec((None, 4, 4), tf.float32, name="x")])
    def run(self, x):
        return {"y": tf.raw_ops.MatrixInverse(input=x)}
odd = Odd()
tf.saved_model.save(odd, str(folder / "odd"), signatures={"serving_default": odd.run})
for order in others:
    convert(order)
"""
#: What Python runs first in the process with TensorFlow: opening one file for writing ends it.
DIES_AT_ONE = """
import os, sys
def look(event, arguments):
    if event == "open" and str(arguments[0]).endswith("tiny_attention_float16.out"):
        print("out of luck", file=sys.stderr, flush=True)
        os.abort()
sys.addaudithook(look)
"""
#: Runs each model once and prints the shapes of its outputs.
RUN = """
import json, sys
import numpy as np
from ai_edge_litert.interpreter import Interpreter
shapes = {}
for path in sys.argv[1:]:
    interpreter = Interpreter(path, num_threads=1)
    interpreter.allocate_tensors()
    for inlet in interpreter.get_input_details():
        interpreter.set_tensor(inlet["index"], np.ones(inlet["shape"], inlet["dtype"]))
    interpreter.invoke()
    outlets = interpreter.get_output_details()
    shapes[path] = [interpreter.get_tensor(outlet["index"]).shape for outlet in outlets]
print(json.dumps(shapes))
"""


@dataclass
class Done:
    """What became of one order."""

    models: list[BuiltModel]
    failures: list[FailedBuild]


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """What became of all orders, one of which ends the process."""
    folder = tmp_path_factory.mktemp("users")
    odd = str(folder / "odd")
    orders = {
        "cnn": BuildOrder(source="tiny_cnn", variants=VARIANTS),
        "keras": BuildOrder(
            source=str(folder / "users.keras"), variants=("float32", "int8"), batches=(3,), sizes=(16,)
        ),
        "needs flex": BuildOrder(source=odd),
        "flex": BuildOrder(source=odd, flex=True, batches=(2,)),
    }  # fmt: skip
    for name, order in orders.items():
        (folder / name).mkdir()
        (folder / name / "order.json").write_text(json.dumps(asdict(order)))
    words = [folder, *(folder / name for name in orders)]
    subprocess.run(
        [sys.executable, "-c", BUILDS, *map(str, words)],
        env=ENVIRON | TENSORFLOW_ENVIRON,
        capture_output=True,
        timeout=600,
        check=True,
    )
    outcomes = {
        name: [
            _outcome(json.loads(line), folder / "out")
            for line in (folder / name / "done.jsonl").read_text().splitlines()
        ]
        for name in orders
    }
    (folder / "sitecustomize.py").write_text(DIES_AT_ONE)
    attention = BuildOrder(
        source="tiny_attention", variants=("float32", "int16x8", "int8", "float16", "dynamic-range")
    )
    environ = {**ENVIRON, "PYTHONPATH": f"{folder}:{REPO}"}
    outcomes["attention"] = build_models(attention, folder / "out", environ=environ)
    return {
        name: Done(
            models=[item for item in found if isinstance(item, BuiltModel)],
            failures=[item for item in found if isinstance(item, FailedBuild)],
        )
        for name, found in outcomes.items()
    }


@pytest.fixture(scope="module")
def built(done):
    """What was built of a small network and of one with attention, by name."""
    return {model.name: model for name in ("cnn", "attention") for model in done[name].models}


def test_each_variant_is_what_its_name_says(built):
    kinds = {variant: inspect_model(built[f"tiny_cnn_{variant}"].path) for variant in VARIANTS}
    assert [kinds[variant].precision for variant in ("float32", "float16", "int8", "int16x8")] == [
        "float32", "float16", "int8", "int16",
    ]  # fmt: skip
    assert kinds["dynamic-range"].weights_bytes < kinds["float32"].weights_bytes
    assert [kinds[variant].inputs[0].dtype for variant in ("float32", "int8", "int16x8")] == [
        "float32",
        "int8",
        "int16",
    ]
    assert len({facts.parameters for facts in kinds.values()}) == 1
    assert len({facts.multiply_adds for facts in kinds.values()}) == 1
    for facts in kinds.values():
        assert [(s.key, s.inputs, s.outputs) for s in facts.signatures] == [
            ("serving_default", ("image",), ("probabilities",))
        ]


def test_built_models_compute(done):
    models = [model for name in ("cnn", "attention", "keras") for model in done[name].models]
    words = [sys.executable, "-c", RUN, *(str(model.path) for model in models)]
    ended = subprocess.run(words, capture_output=True, timeout=300, check=True)
    shapes = {Path(path).stem: shapes for path, shapes in json.loads(ended.stdout).items()}
    assert shapes.keys() == {model.name for model in models}
    assert all(shapes.values())
    assert shapes["users_16_b3_float32"] == [[3, 2]]


def test_users_keras_file_gets_batch_and_size(done):
    models = {model.name: model for model in done["keras"].models}
    assert list(models) == ["users_16_b3_float32", "users_16_b3_int8"]
    facts = inspect_model(models["users_16_b3_int8"].path)
    assert sorted(tensor.shape for tensor in facts.inputs) == [(3, 4), (3, 16, 16, 3)]
    assert facts.signatures[0].inputs == ("extra", "picture")


@pytest.mark.parametrize(
    ("shape", "size", "message"),
    [
        ((4, 8, 8, 3), None, "its batch is fixed at 4, so it can't be built for 1"),
        ((None, 8, 8, 3), 16, "its pictures are fixed at 8x8, so it can't be built for 16"),
        ((None, 8), 16, "no input is a picture, so it can't be built for size 16"),
        ((None, None, 3), None, r"an input's shape is dynamic \(1, \?, 3\)$"),
    ],
)
def test_a_source_of_another_batch_or_size_is_refused(shape, size, message):
    with pytest.raises(ValueError, match=message):
        fixed_shapes({"x": shape}, size, 1, BuildOrder(source="users.keras"))


def test_tensorflows_own_operators_need_flex(done):
    assert "--flex" in done["needs flex"].failures[0].hint
    assert done["flex"].failures == []
    facts = inspect_model(done["flex"].models[0].path)
    assert (facts.flex_operators, facts.inputs[0].shape) == (("FlexMatrixInverse",), (2, 4, 4))


def test_what_is_refused_and_what_ends_the_process_lose_none_that_was_built_before(done):
    assert [model.name for model in done["attention"].models] == [
        "tiny_attention_float32",
        "tiny_attention_int8",
    ]
    refused, *ended = done["attention"].failures
    assert refused.name == "tiny_attention_int16x8"
    assert "16x8" in refused.reason
    assert [failure.name for failure in ended] == [
        "tiny_attention_float16",
        "tiny_attention_dynamic-range",
    ]
    for failure in ended:
        assert "ended by signal 6" in failure.reason
        assert "out of luck" in failure.reason
    assert done["cnn"].failures == []
    assert all(
        identify_model(model.path).sha256 == model.sha256
        for item in done.values()
        for model in item.models
    )


def test_command_builds_the_same_bytes_again_and_its_manifest_says_how(built, tmp_path):
    ended = Cli(home=tmp_path)(
        "model", "build", "tiny_cnn", "--variant", "int8", "--json", timeout_s=600,
    ).ok()  # fmt: skip
    (entry,) = load_manifest(tmp_path / "models.yaml").values()
    assert entry.sha256 == built["tiny_cnn_int8"].sha256
    assert [model["sha256"] for model in ended.json["models"]] == [entry.sha256]
    assert identify_model(tmp_path / "models" / "tiny_cnn_int8.tflite").sha256 == entry.sha256
    assert entry.command == "benchfarm model build tiny_cnn --variant int8 --seed 0 --batch 1"
    assert entry.note == model_files.RANDOM_NOTE
    assert {"source", "variant", "weights", "seed", "tensorflow", "keras", "batch"} <= set(
        entry.build
    )
    assert entry.build["representative"] == "16 random inputs"


@pytest.mark.parametrize(
    ("order", "message"),
    [
        (BuildOrder(source="nosuch"), "neither a network's name"),
        (BuildOrder(source="tiny_cnn", variants=("int4",)), "is no variant"),
        (BuildOrder(source=str(REPO / "docs")), "holds no saved_model.pb"),
    ],
)
def test_impossible_orders_are_refused_before_tensorflow_starts(order, message):
    with pytest.raises(UsageError, match=message):
        build_orders((order.source,), order)


def test_two_sources_of_one_name_are_refused(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "m.keras").touch()
    sources = (str(tmp_path / "a" / "m.keras"), str(tmp_path / "b" / "m.keras"))
    with pytest.raises(UsageError, match=r"would both be written to m_float32\.tflite"):
        build_orders(sources, BuildOrder(source=""))
    folders = [tmp_path / "m_v1.0", tmp_path / "m_v1.1"]
    for folder in folders:
        folder.mkdir()
        (folder / "saved_model.pb").touch()
    orders = build_orders([str(folder) for folder in folders], BuildOrder(source=""))
    assert [order.names for order in orders] == [["m_v1.0_float32"], ["m_v1.1_float32"]]
