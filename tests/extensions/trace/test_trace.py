"""Slices out of traces: the walk, the file, and what is lost or broken."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import FtraceStats, Trace

from orchestrator.errors import OutputParseError
from orchestrator.extensions.trace.run_pass import Mark, Recording, read_recording, summarise


def begin(at_ns: int, name: str, *, thread: int = 10, process: int = 10) -> Mark:
    return Mark(at_ns=at_ns, thread=thread, process=process, name=name)


def end(at_ns: int, *, thread: int = 10) -> Mark:
    return Mark(at_ns=at_ns, thread=thread, process=thread, name=None)


def test_time_inside_an_inner_operator_is_not_counted_twice() -> None:
    marks = (begin(0, "invoke@-1/0"), begin(10_000, "CONV_2D@0/0"), end(70_000), end(100_000))
    outer, inner = sorted(summarise(Recording(marks=marks)).operators, key=lambda item: item.node)
    assert (outer.total_us, outer.self_us, outer.share) == (100.0, 40.0, 0.4)
    assert (inner.total_us, inner.self_us, inner.share) == (60.0, 60.0, 0.6)


def test_other_slices_between_operators_keep_the_nesting() -> None:
    marks = (
        begin(0, "ADD@1/0"), begin(1000, "some work"), begin(2000, "MUL@2/0"), end(4000), end(5000), end(10_000),
    )  # fmt: skip
    add, mul = summarise(Recording(marks=marks)).operators
    assert (add.name, add.self_us) == ("ADD", 8.0)
    assert (mul.name, mul.self_us) == ("MUL", 2.0)


def test_a_name_with_an_at_sign_and_other_odd_letters_is_kept() -> None:
    marks = (begin(0, "my@op\x1b[31m|<script>@7/2"), end(1000))
    (found,) = summarise(Recording(marks=marks)).operators
    assert (found.name, found.node, found.subgraph) == ("my@op\x1b[31m|<script>", 7, 2)


def test_slices_without_their_other_half_are_left_out_and_counted() -> None:
    marks = (end(1), begin(2, "ADD@0/0"), end(3), begin(4, "ADD@0/0"))
    summary = summarise(Recording(marks=marks))
    assert [item.count for item in summary.operators] == [1]
    assert summary.gaps == ("2 slices lack their begin or end and are left out",)


def test_a_thread_number_that_passed_to_another_process_is_told_apart() -> None:
    marks = (begin(1, "ADD@0/0", process=20), begin(2, "MUL@0/0"), end(4), end(5))
    summary = summarise(Recording(marks=marks))
    assert [(item.name, item.self_us) for item in summary.operators] == [("MUL", 0.002)]
    assert summary.gaps == ("1 slices lack their begin or end and are left out",)


def test_the_benchmark_is_the_process_that_the_command_names() -> None:
    marks = (begin(0, "ADD@0/0"), end(5), begin(6, "ADD@0/0"), end(7), begin(0, "MUL@0/0", thread=20, process=20),
             end(9, thread=20))  # fmt: skip
    processes = {10: "com.other.app", 20: "/data/local/tmp/x/benchmark_model"}
    summary = summarise(
        Recording(marks=marks, processes=processes),
        command="taskset f0 /data/local/tmp/x/benchmark_model --graph=m",
    )
    assert (summary.process, summary.operators[0].name) == (20, "MUL")
    assert summarise(Recording(marks=marks)).process == 10


@given(st.lists(st.builds(Mark, at_ns=st.integers(0, 9), thread=st.integers(1, 3), process=st.integers(1, 3),
                          name=st.none() | st.sampled_from(["A@0/0", "B@1/0", "x"]))))  # fmt: skip
def test_any_marks_give_a_summary_whose_times_are_never_negative(marks: list[Mark]) -> None:
    for item in summarise(Recording(marks=tuple(marks))).operators:
        assert item.count > 0
        assert 0 <= item.self_us <= item.total_us


def test_events_of_several_cores_are_read_in_the_order_of_time() -> None:
    trace = Trace()
    for cpu, events in (
        (1, [(300, "E|10\n")]),
        (0, [(100, "B|10|ADD@0/0\n"), (150, "C|10|heat|3\n")]),
    ):
        bundle = trace.packet.add().ftrace_events
        bundle.cpu = cpu
        for at_ns, text in events:
            event = bundle.event.add(timestamp=at_ns, pid=10)
            event.print.buf = text
    process = trace.packet.add().process_tree.processes.add(pid=10)
    process.cmdline.append("/data/local/tmp/benchmark_model")
    recording = read_recording(trace.SerializeToString())
    summary = summarise(recording)
    assert [(item.name, item.total_us) for item in summary.operators] == [("ADD", 0.2)]
    assert summary.process_name == "/data/local/tmp/benchmark_model"
    assert summary.gaps == ()


def test_lost_events_of_a_perfetto_trace_are_told() -> None:
    trace = Trace()
    for phase, overrun in ((FtraceStats.START_OF_TRACE, 5), (FtraceStats.END_OF_TRACE, 12)):
        stats = trace.packet.add().ftrace_stats
        stats.phase = phase
        stats.cpu_stats.add(cpu=0, overrun=overrun)
    trace.packet.add().trace_stats.buffer_stats.add(chunks_discarded=3)
    recording = read_recording(trace.SerializeToString())
    assert recording.gaps == (
        "the phone lost 7 events; a shorter run makes a smaller trace",
        "perfetto's buffer had no room for 3 chunks",
    )


def test_a_name_that_is_no_utf_8_is_read_as_far_as_it_is() -> None:
    trace = Trace()
    events = trace.packet.add().ftrace_events.event
    for at_ns, text in ((100, "B|10|ADD?@0/0\n"), (200, "E|10\n")):
        events.add(timestamp=at_ns, pid=10).print.buf = text
    trace.packet.add().process_tree.processes.add(pid=10).cmdline.append("/data/model?")
    data = trace.SerializeToString().replace(b"?", b"\xff")
    summary = summarise(read_recording(data))
    assert [item.name for item in summary.operators] == ["ADD\ufffd"]
    assert summary.process_name == "/data/model\ufffd"


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "the trace is empty: perfetto was killed before it could write"),
        (
            b"\xff\xff\xff",
            "this isn't a complete perfetto trace: its 3 bytes were cut off or are something else; record it again",
        ),
    ],
)
def test_a_file_that_is_no_trace_is_refused_with_the_reason(data: bytes, told: str) -> None:
    with pytest.raises(OutputParseError) as caught:
        read_recording(data)
    assert str(caught.value) == told
