"""What an app's slices say: inferences, operators by type, gaps between delegates, copies."""

from __future__ import annotations

from orchestrator.extensions.trace.slices import summarise_app
from orchestrator.extensions.trace.trace_file import Mark, Recording

APP = "com.example.camera"


def marks(*slices: tuple[str, int, int], thread: int = 11, process: int = 10) -> list[Mark]:
    """Return the marks of slices (name, begin, end in microseconds), those around others first."""
    found: list[tuple[int, int, int, Mark]] = []
    for depth, (name, begin, end) in enumerate(slices):
        begun = Mark(at_ns=begin * 1000, thread=thread, process=process, name=name)
        ended = Mark(at_ns=end * 1000, thread=thread, process=thread, name=None)
        found += [(begin, 1, depth, begun), (end, 0, -depth, ended)]
    return [mark for *_, mark in sorted(found, key=lambda item: item[:3])]


#: As the runtime writes them, with a GPU's kernel twice and two operators between on the CPU.
SPLIT = (
    ("AllocateTensors@0/0", 0, 50),
    ("Invoke@0/0", 100, 1100),
    ("TfLiteGpuDelegateV2@7/0", 110, 410),
    ("Copy output from GPU", 350, 400),
    ("RESHAPE@3/0", 420, 440),
    ("TOPK_V2@4/0", 450, 550),
    ("TfLiteGpuDelegateV2@8/0", 600, 1000),
    ("copyInput", 610, 640),
)


def recorded(*more: Mark) -> Recording:
    return Recording(marks=(*marks(*SPLIT), *more), processes={10: APP, 20: "com.other"})


def test_an_inference_is_split_into_operators_delegates_and_what_lies_between() -> None:
    found = summarise_app(recorded(), APP)
    assert (found.inferences, found.total_us, found.median_us, found.between_us) == (
        1,
        1000.0,
        1000.0,
        180.0,
    )
    assert [(part.name, part.count, part.total_us, part.share) for part in found.operators] == [
        ("TfLiteGpuDelegateV2", 2, 700.0, 0.7), ("TOPK_V2", 1, 100.0, 0.1), ("RESHAPE", 1, 20.0, 0.02),
    ]  # fmt: skip
    assert [part.name for part in found.delegates] == ["TfLiteGpuDelegateV2"]
    assert [(part.name, part.per_inference) for part in found.outside] == [
        ("AllocateTensors", None)
    ]
    gaps = found.delegate_gaps
    assert (gaps.count, gaps.total_us, gaps.operators_us, gaps.operators) == (
        1,
        190.0,
        120.0,
        ("TOPK_V2", "RESHAPE"),
    )


def test_copies_are_counted_with_the_direction_that_their_name_tells() -> None:
    found = summarise_app(
        recorded(*marks(("memcopy", 2000, 2030), ("inner copy", 2010, 2020))), APP
    )
    assert [(part.name, part.direction, part.total_us) for part in found.copies] == [
        ("Copy output from GPU", "output", 50.0), ("copyInput", "input", 30.0), ("memcopy", "", 30.0),
    ]  # fmt: skip


def test_a_subgraph_that_is_invoked_inside_is_part_of_its_inference() -> None:
    slices = (
        ("Invoke@0/0", 0, 100),
        ("WHILE@0/0", 10, 90),
        ("Invoke@0/1", 20, 60),
        ("ADD@0/1", 25, 45),
    )
    found = summarise_app(Recording(marks=tuple(marks(*slices)), processes={10: f"{APP}:ml"}), APP)
    assert (found.inferences, found.total_us) == (1, 100.0)
    assert {part.name: part.total_us for part in found.operators} == {"WHILE": 40.0, "ADD": 20.0}


def test_only_the_apps_processes_count_whoever_names_them() -> None:
    other = marks(("Invoke@0/0", 0, 9), thread=20, process=20)
    late = marks(("Invoke@0/0", 5000, 5009), thread=31, process=30)
    found = summarise_app(recorded(*other, *late), APP)
    assert (found.inferences, found.foreign_slices) == (1, 2)
    seen = summarise_app(recorded(*other, *late), APP, {30})
    assert (seen.inferences, seen.foreign_slices) == (2, 1)
    short = Recording(
        marks=tuple(marks(("Invoke@0/0", 0, 9))), processes={10: "m.example.camera"[-15:]}
    )
    assert summarise_app(short, APP).inferences == 1


def test_operators_of_an_inference_that_was_cut_off_are_no_share_of_one() -> None:
    cut = marks(("Invoke@0/0", 0, 100), ("ADD@0/0", 10, 20))[:-1]
    found = summarise_app(Recording(marks=tuple(cut), processes={10: APP}), APP)
    assert (found.inferences, found.operators, found.unmatched) == (0, (), 1)
    assert [(part.name, part.share) for part in found.outside] == [("ADD", None)]
    assert found.has_slices
    assert not summarise_app(Recording(marks=()), APP).has_slices
