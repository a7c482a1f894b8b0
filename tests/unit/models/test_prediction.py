"""What delegates are likely to take: tables, rules, partitions, and what devices said."""

import csv
from dataclasses import replace
from pathlib import Path

import pytest
from ai_edge_litert import schema_py_generated as schema

from orchestrator.errors import UsageError
from orchestrator.models import prediction as predicting
from orchestrator.models.graph import OPTIONS, Graph, Operator, Subgraph, Tensor
from orchestrator.models.inspect import open_graph
from orchestrator.models.prediction import PREDICTED, OperatorView, kinds, partitions, predict
from orchestrator.models.zoo import sample_models
from orchestrator.records.model import LearnedOperator

FLOAT, INT8 = sample_models()
CODES = vars(schema.BuiltinOperator)
TABLES = Path(predicting.__file__).parent / "delegate_tables"


def tensor(kind: str = "FLOAT32", shape: tuple[int, ...] = (1, 8, 8, 4), constant: int = 0) -> Tensor:
    return Tensor(
        name="t", type_number=vars(schema.TensorType)[kind], shape=shape, shape_signature=shape, buffer=0,
        constant_bytes=constant, scales=(), zero_points=(),
    )  # fmt: skip


def operator(name: str, inputs: tuple[int, ...], outputs: tuple[int, ...], **options) -> Operator:
    return Operator(code=CODES[name], custom_name="", inputs=inputs, outputs=outputs, options=options)


def graph_of(*operators: Operator, tensors: tuple[Tensor, ...]) -> Graph:
    subgraph = Subgraph(tensors=tensors, inputs=(0,), outputs=(), operators=operators)
    return Graph(
        version=3, description="", min_runtime_version="", metadata=(), subgraphs=(subgraph,), signatures=()
    )  # fmt: skip


def chain(*names: str) -> Graph:
    """Operators one after the other, each with one input."""
    made = [operator(name, (number,), (number + 1,)) for number, name in enumerate(names)]
    return graph_of(*made, tensors=tuple(tensor() for _ in range(len(names) + 1)))


@pytest.mark.parametrize("delegate", PREDICTED)
def test_each_line_of_a_table_is_about_an_operator_of_the_schema_and_names_its_source(delegate):
    kinds = set(vars(schema.TensorType))
    some = graph_of(operator("ADD", (0, 1), (2,)), tensors=(tensor(),) * 3).subgraphs[0]
    questions = {*OperatorView(some).answers(some.operators[0]), *OPTIONS, "constant"}
    with (TABLES / f"{delegate}.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) > 30
    for row in rows:
        custom = delegate == "gpu" and row["operator"][0].isupper() and not row["operator"].isupper()
        assert row["operator"] in CODES or custom, row
        assert {*row["types"].split(), *row["weights"].split()} <= kinds, row
        assert " of " in row["source"] or row["source"].startswith("seen with "), row
        for rule in filter(None, row["rules"].split(";")):
            what, sign, values = predicting._rule(rule)
            assert sign in {"=", "<=", ">="}
            assert what in questions, f"nothing answers {what} of {row['operator']}"
            assert values, row
            numeric = what not in {"activation", "output_type"}
            assert not numeric or all(float(value) >= 0 for value in values), row


def test_sample_models_are_taken_as_phones_take_them():
    assert predict(open_graph(FLOAT), "gpu").extent == "full"
    assert predict(open_graph(FLOAT), "hexagon").extent == "none"
    assert predict(open_graph(INT8), "hexagon").extent == "full"
    partial = predict(open_graph(INT8), "xnnpack")
    assert (partial.extent, partial.taken, partial.partitions) == ("partial", 29, 1)
    assert [refusal.operator for refusal in partial.refusals] == ["SOFTMAX"]
    assert "INT8" in partial.refusals[0].reason
    assert "xnnpack/README.md" in partial.refusals[0].source


def test_gpu_keeps_only_its_largest_partition():
    graph = chain("RELU", "TOPK_V2", "RELU", "RELU", "RELU", "WHERE", "RELU")
    found = predict(graph, "gpu")
    assert (found.taken, found.partitions, found.partitions_left_out) == (3, 1, 2)
    assert predict(graph, "xnnpack").partitions == 3


def test_partitions_follow_data_and_not_the_order_of_the_file():
    # Two branches from one input, refused operators first in each: what can be taken behind them is one partition.
    operators = (
        operator("WHERE", (0,), (1,)), operator("RELU", (1,), (2,)),
        operator("WHERE", (0,), (3,)), operator("RELU", (3,), (4,)), operator("ADD", (2, 4), (5,)),
    )  # fmt: skip
    graph = graph_of(*operators, tensors=tuple(tensor() for _ in range(6)))
    assert partitions(graph.subgraphs[0], [False, True, False, True, True]) == [[1, 3, 4]]


def test_rank_options_and_constant_inputs_decide():
    slice_tensors = (
        tensor(),
        tensor("INT32", (4,), 16),
        tensor("INT32", (4,), 16),
        tensor("INT32", (4,), 16),
        tensor(),
    )
    whole = {"ellipsis_mask": 0, "new_axis_mask": 0, "shrink_axis_mask": 0}
    sliced = operator("STRIDED_SLICE", (0, 1, 2, 3), (4,), **whole)
    assert predict(graph_of(sliced, tensors=slice_tensors), "gpu").extent == "full"
    shrunk = replace(sliced, options={**whole, "shrink_axis_mask": 1})
    (refusal,) = predict(graph_of(shrunk, tensors=slice_tensors), "gpu").refusals
    assert refusal.reason == "shrink_axis_mask is 1, must be 0"
    flat = (tensor(shape=(8,)), *slice_tensors[1:])
    assert "rank is 1" in predict(graph_of(sliced, tensors=flat), "gpu").refusals[0].reason
    computed = (*slice_tensors[:2], tensor("INT32", (4,)), *slice_tensors[3:])
    assert "input 2 is computed" in predict(graph_of(sliced, tensors=computed), "xnnpack").refusals[0].reason


def test_nnapi_depends_on_android():
    graph = graph_of(operator("TRANSPOSE", (0, 1), (2,)), tensors=(tensor(), tensor("INT32", (4,), 16), tensor()))
    assert predict(graph, "nnapi", sdk=28).extent == "full"
    (refusal,) = predict(graph, "nnapi", sdk=27).refusals
    assert refusal.reason == "needs Android API 28, this is 27"


@pytest.mark.parametrize(
    ("made", "tensors", "sdk", "taken"),
    [
        (operator("PACK", (0, 1), (2,), axis=0), (tensor(), tensor(), tensor()), 30, True),
        (operator("PACK", (0, 1), (2,), axis=4), (tensor(), tensor(), tensor()), 30, False),
        (operator("PACK", (0, 1), (2,), axis=4), (tensor(), tensor(), tensor()), 33, True),
        (operator("UNPACK", (0,), (1,), axis=3), (tensor(), tensor()), 36, False),
        (operator("UNPACK", (0,), (1,), axis=1), (tensor("INT8"), tensor("INT8")), 30, True),
        (operator("QUANTIZE", (0,), (1,)), (tensor(), tensor("INT8")), 29, False),
        (operator("QUANTIZE", (0,), (1,)), (tensor(), tensor("INT8")), 30, True),
        (operator("SQUARED_DIFFERENCE", (0, 1), (2,)), (tensor("INT8"), tensor("INT8"), tensor("INT8")), 29, False),
        (operator("SUM", (0, 1), (2,)), (tensor(), tensor("INT32", (1,), 4), tensor(shape=())), 36, False),
        (operator("BATCH_MATMUL", (0, 1), (2,)), (tensor(), tensor(shape=(2, 8, 4, 8)), tensor()), 36, False),
        (operator("BATCH_MATMUL", (0, 1), (2,)), (tensor(), tensor("INT8", constant=64), tensor()), 36, False),
        (operator("BATCH_MATMUL", (0, 1), (2,)), (tensor(), tensor(), tensor()), 36, True),
        (operator("BATCH_MATMUL", (0, 1), (2,)), (tensor(), tensor(), tensor()), 30, False),
        (operator("ADD", (0, 1), (2,)), (tensor(), tensor(shape=(1, 1, 1, 1, 1)), tensor()), 36, False),
        (operator("MEAN", (0, 1), (2,)), (tensor(shape=(1,) * 5), tensor("INT32", (1,), 4), tensor()), 36, False),
        (operator("SELECT", (0, 1, 2), (3,)), (tensor("BOOL"), tensor(), tensor(), tensor()), 29, True),
        (operator("SELECT", (0, 1, 2), (3,)), (tensor("BOOL", (1,)), tensor(), tensor(), tensor()), 29, False),
        (operator("DEQUANTIZE", (0,), (1,)), (tensor("FLOAT16", constant=512), tensor()), 28, True),
        (operator("DEQUANTIZE", (0,), (1,)), (tensor("FLOAT16"), tensor()), 29, False),
        (operator("AVERAGE_POOL_2D", (0,), (1,), filter_width=17, filter_height=16), (tensor("INT8"),) * 2, 36, False),
        (operator("GELU", (0,), (1,)), (tensor(), tensor()), 36, False),
    ],
    ids=lambda item: item.code if isinstance(item, Operator) else None,
)
def test_nnapi_takes_what_its_delegate_validates(made, tensors, sdk, taken):
    found = predict(graph_of(made, tensors=tensors), "nnapi", sdk=sdk)
    assert (found.extent == "full") is taken, found.refusals


def test_words_of_devices_go_before_the_documents():
    graph = chain("RELU", "SOFTMAX", "WHERE")
    said = {
        key: LearnedOperator(delegate="gpu", operator=key.split()[0], is_taken=taken, reason=reason, runs=3)
        for key, taken, reason in (("RELU", False, "Operation is not supported."), (kinds(graph)[2], True, ""))
    }
    documented, learned = predict(graph, "gpu"), predict(graph, "gpu", learned=said)
    assert [item.operator for item in documented.refusals] == ["WHERE"]
    assert [(item.operator, item.source) for item in learned.refusals] == [("RELU", "3 runs on devices")]
    assert learned.learned == 2


def test_unknown_delegate_is_an_error_that_names_the_known_ones():
    with pytest.raises(UsageError, match="coreml") as raised:
        predict(open_graph(FLOAT), "coreml")
    assert "gpu" in raised.value.hint
