"""Each of the runtime's kernels gives a reference; models without one are told, each with its
reason.
"""

import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor

import flatbuffers
import pytest
from ai_edge_litert import schema_py_generated as schema

from orchestrator.errors import InterruptedByUserError, ModelError
from orchestrator.models.inspect import identify_model
from orchestrator.models.parity import HostReference
from tests.samples.places import MODELS


def written(
    path, *, code: str = "RELU", custom: bytes = b"", kind: str = "FLOAT32", name: bytes = b"x"
):
    """Write a model of one operator from one input to one output."""
    model, graph, operator, sort = (
        schema.ModelT(),
        schema.SubGraphT(),
        schema.OperatorT(),
        schema.OperatorCodeT(),
    )
    sort.builtinCode = sort.deprecatedBuiltinCode = vars(schema.BuiltinOperator)[code]
    sort.customCode = custom or None
    graph.tensors = []
    for label in (name, b"y"):
        tensor = schema.TensorT()
        tensor.shape, tensor.name, tensor.buffer, tensor.type = (
            [1, 4],
            label,
            0,
            vars(schema.TensorType)[kind],
        )
        graph.tensors.append(tensor)
    operator.inputs, operator.outputs = [0], [1]
    graph.operators, graph.inputs, graph.outputs = [operator], [0], [1]
    model.version, model.operatorCodes, model.subgraphs, model.buffers = (
        3,
        [sort],
        [graph],
        [schema.BufferT()],
    )
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
    path.write_bytes(bytes(builder.Output()))
    return identify_model(path)


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (
            {"code": "CUSTOM", "custom": b"MyOp"},
            "needs MyOp; the reference here has builtin operators only",
        ),
        ({"code": "CUSTOM", "custom": b"FlexErf"}, "needs FlexErf; the reference here"),
        ({"kind": "STRING"}, "its input 'x' is text; only models of numbers can be compared"),
        ({"kind": "COMPLEX64"}, "an input of type complex64"),
        ({"name": b"a,b"}, "can't name the input 'a,b'"),
    ],
)
def test_model_without_a_reference_says_why(made, reason, tmp_path):
    model = written(tmp_path / "m.tflite", **made)
    with pytest.raises(ModelError, match=reason):
        HostReference(tmp_path / "kept").basis(model)
    assert not (tmp_path / "kept").exists()


def test_a_large_model_is_copied_once_however_often_it_is_asked_for(tmp_path, monkeypatch):
    path = written(tmp_path / "m.tflite").path
    with path.open("ab") as file:
        file.truncate(65 << 20)
    model = identify_model(path)
    reference = HostReference(tmp_path / "kept")
    assert reference.reason_against(model) == ""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "no-such-folder"))
    assert reference.reason_against(model) == ""


@pytest.mark.slow
def test_each_of_the_runtimes_kernels_gives_a_reference(tmp_path):
    model = identify_model(MODELS / "texturenet_0.25_256_int8.tflite")
    reference = HostReference(tmp_path / "kept")
    kept = {item.name: item.data for item in reference.basis(model).attachments}
    assert {name for name in kept if name.endswith(".bin")} == {
        "parity-builtin.bin", "parity-xnnpack.bin", "parity-plain.bin", "parity-contrast.bin",
    }  # fmt: skip
    # XNNPACK rounds int8 otherwise: a reference of one kind of kernels would be wrong for the
    # other.
    assert kept["parity-builtin.bin"] != kept["parity-xnnpack.bin"]
    assert kept["parity-builtin.bin"] != kept["parity-contrast.bin"]
    assert {item.name: item.data for item in reference.basis(model).attachments} == kept


@pytest.fixture(scope="session")
def references_begun():
    """The folders of the references that were begun, in order."""
    begun = []

    def note(event, arguments):
        if event == "subprocess.Popen" and "orchestrator.models.reference_run" in arguments[1]:
            begun.append(arguments[1][-1])

    # No hook can be taken back.
    sys.addaudithook(note)
    return begun


@pytest.mark.slow
@pytest.mark.parametrize("has_kernels", [True, False])
def test_phones_that_want_a_reference_at_once_share_one(has_kernels, references_begun, tmp_path):
    kind = "FLOAT32" if has_kernels else "BOOL"
    model = written(tmp_path / "m.tflite", kind=kind)
    # Each of a farm's jobs has one of its own.
    references = [HostReference(tmp_path / "kept") for _ in range(4)]
    references_begun.clear()

    def by_a_phone(reference):
        try:
            return [item.data for item in reference.basis(model).attachments]
        except ModelError as error:
            return str(error)

    with ThreadPoolExecutor(4) as phones:
        first, *others = phones.map(by_a_phone, references)
    assert isinstance(first, list) is has_kernels
    assert others == [first] * 3
    # Nor does another case of theirs want it computed again.
    assert by_a_phone(references[0]) == first
    assert len(set(references_begun)) == 1


@pytest.mark.slow
def test_one_that_is_cancelled_begins_no_reference_and_still_has_those_that_are_kept(
    references_begun, tmp_path
):
    models = [written(tmp_path / f"{code}.tflite", code=code) for code in ("RELU", "RELU6")]
    kept = HostReference(tmp_path / "kept").basis(models[0])
    references_begun.clear()
    cancelled = threading.Event()
    cancelled.set()
    reference = HostReference(tmp_path / "kept", cancelled)
    assert reference.basis(models[0]) == kept
    with pytest.raises(InterruptedByUserError):
        reference.basis(models[1])
    assert references_begun == []
