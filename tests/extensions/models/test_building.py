"""Models of each kind, built by TensorFlow: what they are, that they compute, that they can be
built again."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from orchestrator.config.model_manifest import load_manifest
from orchestrator.errors import ModelError, UsageError
from orchestrator.extensions.models import files as model_files
from orchestrator.extensions.models.building import (
    VARIANTS,
    BuildOrder,
    BuiltModel,
    FailedBuild,
    build_models,
)
from orchestrator.models.graph import newest_of, oldest_runtime
from orchestrator.models.inspect import identify_model, inspect_model, open_graph
from orchestrator.models.zoo import sample_models
from tests.conftest import poll_until
from tests.samples.command import Cli
from tests.samples.places import BENCHFARM, REPO

ENVIRON = dict(os.environ)
#: A Keras file, its SavedModel, and one that needs TensorFlow's own operators.
USERS_MODELS = """
import sys, keras, tensorflow as tf
from pathlib import Path
folder = Path(sys.argv[1])
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
tf.saved_model.save(odd, str(folder / "odd"), signatures={"serving_default": odd.run, "second": odd.run})
"""
#: What Python runs first in the process with TensorFlow: opening one file for writing ends it.
DIES_AT_ONE = """
import os, sys
def look(event, arguments):
    if event == "open" and str(arguments[0]).endswith("tiny_mlp_float16.out"):
        print("out of luck", file=sys.stderr, flush=True)
        os.abort()
sys.addaudithook(look)
"""
#: Runs each model once in a process of its own and prints the shapes of its outputs.
RUN = """
import json, sys
import numpy as np
from ai_edge_litert.interpreter import Interpreter
interpreter = Interpreter(sys.argv[1], num_threads=1)
interpreter.allocate_tensors()
for inlet in interpreter.get_input_details():
    interpreter.set_tensor(inlet["index"], np.ones(inlet["shape"], inlet["dtype"]))
interpreter.invoke()
outputs = [interpreter.get_tensor(outlet["index"]).shape for outlet in interpreter.get_output_details()]
print(json.dumps(outputs))
"""


@dataclass
class Done:
    """What became of one order."""

    models: list[BuiltModel] = field(default_factory=list)
    failures: list[FailedBuild] = field(default_factory=list)


def ran(path: Path) -> list[list[int]]:
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(path)], capture_output=True, timeout=300, check=True
    )
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """What became of all orders, the last of which ends the process."""
    folder = tmp_path_factory.mktemp("users")
    subprocess.run(
        [sys.executable, "-c", USERS_MODELS, str(folder)],
        capture_output=True,
        timeout=600,
        check=True,
    )
    rng = np.random.default_rng(0)
    np.savez(
        folder / "samples.npz", picture=rng.normal(size=(5, 16, 16, 3)) * 9, extra=rng.normal(size=(5, 4))
    )  # fmt: skip
    odd = str(folder / "odd")
    orders = {
        "cnn": BuildOrder(source="tiny_cnn", variants=VARIANTS),
        "attention": BuildOrder(source="tiny_attention", variants=("float32", "int8", "int16x8")),
        "keras": BuildOrder(
            source=str(folder / "users.keras"), variants=("float32", "int8"), batches=(3,), sizes=(16, 20),
            representative=str(folder / "samples.npz"),
        ),
        "needs flex": BuildOrder(source=odd),
        "flex": BuildOrder(source=odd, flex=True, signature="second", batches=(2,)),
        "no signature": BuildOrder(source=odd, signature="../third"),
        "dies": BuildOrder(source="tiny_mlp", variants=("float32", "float16", "int8")),
    }  # fmt: skip
    (folder / "sitecustomize.py").write_text(DIES_AT_ONE)
    environ = {**ENVIRON, "PYTHONPATH": f"{folder}:{REPO}"}
    names = {id(order): name for name, order in orders.items()}
    found = {name: Done() for name in orders}
    for order, outcome in build_models(list(orders.values()), folder / "out", environ=environ):
        own = found[names[id(order)]]
        (own.models if isinstance(outcome, BuiltModel) else own.failures).append(outcome)
    return found


@pytest.fixture(scope="module")
def built(done):
    """All variants of a small network and of one with attention, by name; and what couldn't be
    built.
    """
    of_both = [done["cnn"], done["attention"]]
    return {model.name: model for item in of_both for model in item.models}, [
        f for i in of_both for f in i.failures
    ]


def test_each_variant_is_what_its_name_says(built):
    models, failures = built
    kinds = {variant: inspect_model(models[f"tiny_cnn_{variant}"].path) for variant in VARIANTS}
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
    assert kinds["int8"].arena_bytes < kinds["float32"].arena_bytes
    for facts in kinds.values():
        assert [(s.key, s.inputs, s.outputs) for s in facts.signatures] == [
            ("serving_default", ("image",), ("probabilities",))
        ]
    # One variant that the converter refuses doesn't lose the others.
    assert [failure.name for failure in failures] == ["tiny_attention_int16x8"]
    assert "16x8" in failures[0].reason


def test_built_models_compute(built):
    models, _ = built
    for model in models.values():
        assert ran(model.path)


def test_oldest_runtime_by_operators_is_what_the_converter_writes(done):
    models = [model for item in done.values() for model in item.models]
    graphs = {model.name: open_graph(model.path) for model in models}
    told = {
        name: (oldest_runtime(graph), graph.min_runtime_version) for name, graph in graphs.items()
    }
    # It writes what it knows before it quantises to 16 bits, which needs newer operators.
    wide = {name: told.pop(name) for name in list(told) if name.endswith("int16x8")}
    assert len(told) == 11
    assert all(found == written for found, written in told.values()), told
    assert {
        name: newest_of(written, found) == found for name, (found, written) in wide.items()
    } == dict.fromkeys(wide, True)
    assert [newest_of(*pair) for pair in (("2.9.0", "2.10.0"), ("", "1.5.0"), ("odd", ""), ("1.6.0", ""))] == [
        "2.10.0", "1.5.0", "odd", "1.6.0",
    ]  # fmt: skip


def test_users_keras_file_gets_batch_size_and_its_own_samples(done):
    models, failures = done["keras"].models, done["keras"].failures
    assert [model.name for model in models] == [
        "users_16_b3_float32",
        "users_16_b3_int8",
        "users_20_b3_float32",
    ]
    # The samples are 16 pixels wide, so that no other size can be calibrated with them.
    assert [failure.name for failure in failures] == ["users_20_b3_int8"]
    assert "[n, " in failures[0].reason
    by_name = {model.name: model for model in models}
    facts = inspect_model(by_name["users_16_b3_int8"].path)
    assert sorted(tensor.shape for tensor in facts.inputs) == [(3, 4), (3, 16, 16, 3)]
    assert facts.signatures[0].inputs == ("extra", "picture")
    # The scale is that of the samples, not of random ones between -1 and 1.
    assert max(tensor.scale for tensor in facts.inputs) > 0.1
    assert len(by_name["users_16_b3_int8"].build["representative_sha256"]) == 64
    assert ran(by_name["users_16_b3_float32"].path) == [[3, 2]]


def test_tensorflows_own_operators_need_flex_and_signatures_are_chosen(done):
    assert "--flex" in done["needs flex"].failures[0].hint
    assert done["flex"].failures == []
    facts = inspect_model(done["flex"].models[0].path)
    assert (facts.flex_operators, facts.inputs[0].shape) == (("FlexMatrixInverse",), (2, 4, 4))
    assert done["flex"].models[0].name == "odd_second_b2_float32"
    assert "has no signature '../third', only" in done["no signature"].failures[0].reason


def test_file_that_ends_the_process_loses_none_that_was_built_before(done):
    assert [model.name for model in done["dies"].models] == ["tiny_mlp_float32"]
    assert [failure.name for failure in done["dies"].failures] == [
        "tiny_mlp_float16",
        "tiny_mlp_int8",
    ]
    for failure in done["dies"].failures:
        assert "ended by signal 6" in failure.reason
        assert "out of luck" in failure.reason
    for name in ("cnn", "keras", "flex"):
        assert done[name].models
    assert all(
        identify_model(model.path).sha256 == model.sha256
        for item in done.values()
        for model in item.models
    )


def test_command_builds_the_same_bytes_again_and_its_manifest_says_how(built, tmp_path):
    models, _ = built
    ended = Cli(home=tmp_path)(
        "model", "build", "tiny_cnn", "--variant", "float32,int8", "--json", timeout_s=600,
    ).ok()  # fmt: skip
    entries = {entry.name: entry for entry in load_manifest(tmp_path / "models.yaml").values()}
    assert {name: entry.sha256 for name, entry in entries.items()} == {
        name: models[name].sha256 for name in ("tiny_cnn_float32", "tiny_cnn_int8")
    }
    assert [entry["sha256"] for entry in ended.json["models"]] == [
        e.sha256 for e in entries.values()
    ]
    entry = entries["tiny_cnn_int8"]
    assert identify_model(tmp_path / "models" / "tiny_cnn_int8.tflite").sha256 == entry.sha256
    assert entry.command == "benchfarm model build tiny_cnn --variant int8 --seed 0 --batch 1"
    assert entry.note == model_files.RANDOM_NOTE
    assert {"source", "variant", "weights", "seed", "tensorflow", "keras", "batch"} <= set(
        entry.build
    )
    assert entry.build["representative"] == "16 random inputs"


def test_damaged_sample_is_an_error_that_says_how_to_get_it_back(tmp_path):
    folder = sample_models()[0].parent
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    assert len(sample_models(tmp_path)) == 2
    (tmp_path / sample_models()[1].name).write_bytes(b"half a model")
    with pytest.raises(ModelError, match="isn't the sample model"):
        sample_models(tmp_path)
    (tmp_path / "manifest.json").unlink()
    with pytest.raises(ModelError, match="can't be read"):
        sample_models(tmp_path)


@pytest.mark.parametrize(
    ("order", "message"),
    [
        (BuildOrder(source="nosuch"), "neither a network's name"),
        (BuildOrder(source="tiny_cnn", variants=("int4",)), "is no variant"),
        (BuildOrder(source="tiny_cnn", weights="imagenet"), "are for Keras applications"),
        (BuildOrder(source="tiny_cnn", weights="/no/file"), "no file '/no/file' of weights"),
        (BuildOrder(source="tiny_cnn", sizes=(0,)), "counted from 1"),
        (BuildOrder(source=str(REPO / "docs")), "holds no saved_model.pb"),
        (
            BuildOrder(source="tiny_cnn", batches=(1, 1)),
            "would both be written to tiny_cnn_float32.tflite",
        ),
    ],
)
def test_impossible_orders_are_refused_before_tensorflow_starts(order, message, tmp_path):
    with pytest.raises(UsageError, match=message):
        list(build_models([order], tmp_path, environ={}))


def test_process_that_cannot_start_is_an_error_with_its_last_words(tmp_path):
    (tmp_path / "tensorflow.py").write_text(
        "import os, sys\nprint('out of luck', flush=True)\nos.abort()\n"
    )
    (tmp_path / "keras.py").write_text("")
    environ = {**ENVIRON, "PYTHONPATH": f"{tmp_path}:{REPO}"}
    with pytest.raises(ModelError, match=r"ended by signal 6.*out of luck"):
        list(build_models([BuildOrder(source="tiny_cnn")], tmp_path / "out", environ=environ))


def test_builder_that_is_killed_leaves_no_process_and_no_folder(tmp_path):
    mark = tmp_path / "mark"
    (tmp_path / "tensorflow.py").write_text(
        f"import os, sys, time\nopen({str(mark) + '.part'!r}, 'w').write(f'{{os.getpid()}} {{sys.argv[1]}}')\n"
        f"os.rename({str(mark) + '.part'!r}, {str(mark)!r})\ntime.sleep(600)\n"
    )
    (tmp_path / "keras.py").write_text("")
    environ = Cli(home=tmp_path).environ(PYTHONPATH=f"{tmp_path}:{REPO}")
    command = [BENCHFARM, "model", "build", "tiny_cnn"]
    with subprocess.Popen(
        command, env=environ, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    ) as builder:
        poll_until(mark.exists, "the builder starts TensorFlow", 120)
        builder.kill()
    process, work = mark.read_text().split()
    poll_until(
        lambda: not Path(work).exists() and not Path(f"/proc/{process}/cmdline").exists(),
        "the process and its folder go with the builder", 60,
    )  # fmt: skip
