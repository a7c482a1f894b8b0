"""From a plan and devices to cases, skips and an order."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.delegates import DELEGATES, FlagFamily, delegates_of, needed_companions
from orchestrator.planning.expansion import Expansion, Stock, expand, reference_case
from orchestrator.planning.selection import tools_for
from orchestrator.records.campaign import Invocation
from orchestrator.records.case import (
    Build,
    BuildSha,
    Companion,
    DelegateName,
    Model,
    ModelSha,
    Pass,
    ProcessMode,
    Serial,
    Skip,
    ToolName,
)
from orchestrator.records.device import CpuCluster, DeviceFacts, DeviceKind, DeviceProfile
from orchestrator.records.plan import (
    DelegateChoice,
    InvocationCount,
    Matrix,
    Order,
    Plan,
    PlanModel,
    RunSettings,
    fixed_count,
)
from tests.samples.extensions import needs_extension
from tests.samples.records import facts_of

PHONE = facts_of(
    "PHONE1",
    sdk=33,
    soc="SM8250",
    clusters=(
        CpuCluster(cpus=(0, 1, 2, 3), min_khz=300_000, max_khz=1_800_000),
        CpuCluster(cpus=(4, 5, 6, 7), min_khz=700_000, max_khz=2_800_000),
    ),
)
COMPUTER = facts_of(
    "host", kind=DeviceKind.HOST, clusters=(CpuCluster(cpus=(0, 1), min_khz=None, max_khz=None),)
)
MODELS = [Model(name=name, sha256=ModelSha(name * 64), size_bytes=1) for name in "ab"]
NATIVE = Build(name="native", tool=ToolName.NATIVE, sha256=BuildSha("c" * 64), abi="arm64-v8a")
WITH_HEXAGON = replace(
    NATIVE,
    companions=(
        Companion(name="libhexagon_nn_skel_v66.so", sha256="2" * 64),
        Companion(name="libhexagon_interface.so", sha256="1" * 64),
    ),
)
LITERT = Build(name="litert", tool=ToolName.LITERT, sha256=BuildSha("d" * 64), abi="")


def plan(*, invocations: int | InvocationCount = 3, **changes: object) -> Plan:
    bounds = fixed_count(invocations) if isinstance(invocations, int) else invocations
    models = tuple(
        PlanModel(name=model.name, path=Path(f"{model.name}.tflite")) for model in MODELS
    )
    return replace(Plan(name="p", models=models, invocations=bounds), **changes)  # type: ignore[arg-type]


def expanded(
    the_plan: Plan,
    facts: DeviceFacts = PHONE,
    build: Build | Skip = NATIVE,
    **profiles: DeviceProfile,
) -> Expansion:
    builds = {(facts.serial, tool): build for tool in tools_for(the_plan, facts.kind)}
    return expand(the_plan, [facts], MODELS, Stock(builds=builds, profiles=profiles))


def queue_of(the_plan: Plan) -> Sequence[Invocation]:
    return expanded(the_plan).invocations[PHONE.serial]


def test_cold_starts_come_stage_by_stage_case_after_case_as_many_rounds_as_there_are_invocations() -> (
    None
):
    matrix = Matrix(delegates=(DelegateName.CPU, DelegateName.XNNPACK))
    queue = queue_of(plan(matrix=matrix, invocations=2, passes=(Pass.COLD,)))
    assert [item.run_pass for item in queue] == [Pass.COLD] * len(queue)
    assert [item.number for item in queue] == [1, 4, 0, 1, 2, 3, 4, 5] * 2


@pytest.mark.parametrize("run_pass", [Pass.MEMORY, Pass.PROFILE])
def test_a_pass_whose_flags_a_program_lacks_is_no_ordinary_run_under_its_name(
    run_pass: Pass,
) -> None:
    matrix = Matrix(tools=(ToolName.LITERT,))
    alone, both = (
        expanded(plan(matrix=matrix, passes=passes), COMPUTER, LITERT)
        for passes in ((run_pass,), (Pass.TIMING, run_pass))
    )
    for found in (alone, both):
        assert {skip.reason for skip in found.skipped} == {
            f"pass {run_pass.value}: 'litert' has no flags for it"
        }
    assert alone.cases == ()
    assert {item.run_pass for item in both.invocations[COMPUTER.serial]} == {Pass.TIMING}


def test_interleaving_runs_each_case_once_before_any_case_again() -> None:
    matrix = Matrix(threads=(1, 2, 4))
    queue = queue_of(plan(matrix=matrix, invocations=4))
    for number in range(4):
        one_round = queue[number * 6 : number * 6 + 6]
        assert {item.number for item in one_round} == {number}
        assert len({item.case.case_key for item in one_round}) == 6


def test_sequential_order_finishes_a_case_before_the_next() -> None:
    queue = queue_of(plan(order=Order.SEQUENTIAL, invocations=2))
    assert [(item.case.model_name, item.number) for item in queue] == [
        ("a", 0),
        ("a", 1),
        ("b", 0),
        ("b", 1),
    ]


@pytest.mark.parametrize(
    ("facts", "changes", "code"),
    [
        (replace(PHONE, sdk=35), {"delegates": (DelegateName.NNAPI,)}, "nnapi-deprecated"),
        (replace(PHONE, sdk=26), {"delegates": (DelegateName.NNAPI,)}, "nnapi-missing"),
        (
            replace(PHONE, soc="Tensor G3", platform="zuma"),
            {"delegates": (DelegateName.HEXAGON,)},
            "delegate-not-on-soc",
        ),
        (PHONE, {"delegates": (DelegateName.COREML,)}, "delegate-not-in-tool"),
        (PHONE, {"delegates": (DelegateName.NPU,)}, "delegate-not-in-tool"),
        (COMPUTER, {"delegates": (DelegateName.NNAPI,)}, "delegate-not-in-tool"),
        (COMPUTER, {"delegates": (DelegateName.GPU,)}, "no-gpu"),
        (PHONE, {"delegates": (DelegateName.HEXAGON,)}, "hexagon-libraries-missing"),
        (PHONE, {"delegates": (DelegateName.EXTERNAL,)}, "external-delegate-unnamed"),
        (PHONE, {"modes": (ProcessMode.FOREGROUND,)}, "mode-not-in-tool"),
        (COMPUTER, {"tools": (ToolName.APK,)}, "tool-not-on-device"),
    ],
)
def test_what_cannot_be_measured_is_skipped_with_its_reason(
    facts: DeviceFacts, changes: Mapping[str, Any], code: str
) -> None:
    expansion = expanded(plan(matrix=Matrix(threads=(1,), **changes)), facts)
    assert not expansion.cases
    assert {skip.reason_code for skip in expansion.skipped} == {code}
    assert all(skip.reason for skip in expansion.skipped)


def test_an_app_is_not_measured_on_cores_that_nothing_keeps_it_to() -> None:
    both = Matrix(threads=(1,), tools=(ToolName.APK, ToolName.NATIVE))
    expansion = expanded(plan(matrix=both, settings=RunSettings(affinity="f0")), PHONE)
    assert {(case.tool, case.affinity) for case in expansion.cases} == {(ToolName.NATIVE, "f0")}
    assert {(skip.tool, skip.reason_code) for skip in expansion.skipped} == {
        (ToolName.APK, "affinity-not-in-tool")
    }


def test_without_a_build_all_is_skipped_with_what_to_do() -> None:
    missing = Skip(reason_code="no-build", reason="get one with 'benchfarm build add'")
    expansion = expanded(plan(), build=missing)
    assert not expansion.cases
    assert {(skip.reason_code, skip.reason) for skip in expansion.skipped} == {
        (missing.reason_code, missing.reason)
    }


@pytest.mark.parametrize("soc", ["SM8250", "SDM845", "sm8150", "Snapdragon 855"])
def test_hexagon_is_tried_on_qualcomm(soc: str) -> None:
    matrix = Matrix(delegates=(DelegateName.HEXAGON,))
    expansion = expanded(plan(matrix=matrix), replace(PHONE, soc=soc), WITH_HEXAGON)
    assert len(expansion.cases) == 2
    assert expansion.cases[0].files == (
        ("libhexagon_interface.so", "1" * 64),
        ("libhexagon_nn_skel_v66.so", "2" * 64),
    )


def test_a_profile_that_does_not_list_a_delegate_skips_it() -> None:
    profile = DeviceProfile(
        name="plain", title="Plain", kind=DeviceKind.ANDROID, match={}, soc="", cluster_cores=(8,),
        delegates=(DelegateName.XNNPACK,),
    )  # fmt: skip
    matrix = Matrix(delegates=(DelegateName.XNNPACK, DelegateName.GPU))
    expansion = expanded(plan(matrix=matrix), replace(PHONE, profile="plain"), plain=profile)
    assert {case.delegate for case in expansion.cases} == {DelegateName.XNNPACK}
    assert {skip.reason_code for skip in expansion.skipped} == {"delegate-not-on-profile"}


def test_a_fake_binary_never_reaches_a_real_phone() -> None:
    fake = replace(NATIVE, is_virtual=True)
    assert {skip.reason_code for skip in expanded(plan(), build=fake).skipped} == {"virtual-build"}
    assert expanded(plan(), replace(PHONE, is_virtual=True), build=fake).cases


def test_more_threads_than_cores_are_skipped() -> None:
    matrix = Matrix(threads=(1, 2, 4), tools=(ToolName.LITERT,))
    expansion = expanded(plan(matrix=matrix), COMPUTER, LITERT)
    assert {case.threads for case in expansion.cases} == {1, 2}
    assert {skip.reason_code for skip in expansion.skipped} == {"more-threads-than-cores"}


def test_the_case_key_depends_on_everything_that_may_change_the_number() -> None:
    case = expanded(plan()).cases[0]
    changes: dict[str, object] = {
        "serial": Serial("other"), "model_sha256": ModelSha("0" * 64), "delegate": DelegateName.CPU, "threads": 2,
        "tool": ToolName.APK, "build_sha256": BuildSha("0" * 64), "flags": (("a", "b"),), "num_runs": 7,
        "min_secs": 0.25, "max_secs": 3.0, "warmup_runs": 9, "warmup_min_secs": 0.125, "affinity": "f0",
    }  # fmt: skip
    keys = {replace(case, **{name: value}).case_key for name, value in changes.items()}  # type: ignore[arg-type]
    assert len(keys | {case.case_key}) == len(changes) + 1


def test_the_estimate_is_that_of_the_busiest_device() -> None:
    few, many = plan(invocations=1), plan(invocations=4)
    (small, _), (large, most) = expanded(few).estimate_s(few), expanded(many).estimate_s(many)
    assert large == most == pytest.approx(4 * small)


def test_the_estimate_of_an_adaptive_plan_ends_at_the_rules_most_or_the_budget() -> None:
    rule = plan(invocations=InvocationCount(first=4, most=12))
    least, most = expanded(rule).estimate_s(rule)
    assert most == pytest.approx(3 * least)
    tight = replace(rule, budget=least + 7.0)
    assert expanded(tight).estimate_s(tight) == pytest.approx((least, least + 7.0))


def test_other_passes_run_once_after_the_timing_pass_and_sustained_last_for_its_own_time() -> None:
    the_plan = plan(
        invocations=3,
        sustained=600.0,
        passes=(Pass.SUSTAINED, Pass.TIMING, Pass.MEMORY, Pass.PROFILE),
    )
    assert [item.run_pass for item in queue_of(the_plan)] == (
        [Pass.TIMING] * 6 + [Pass.MEMORY] * 2 + [Pass.PROFILE] * 2 + [Pass.SUSTAINED] * 2
    )
    assert expanded(the_plan).estimate_s(the_plan)[0] > 1200.0


@pytest.mark.parametrize(
    ("run_pass", "width"),
    [
        pytest.param(Pass("energy"), 1, marks=needs_extension("energy")),
        pytest.param(Pass("contention"), 3, marks=needs_extension("contention")),
    ],
)
def test_what_is_compared_in_rounds_is_measured_a_b_b_a(run_pass: Pass, width: int) -> None:
    the_plan = plan(invocations=2, passes=(run_pass,), contention=("cpu=1", "memory=1"))
    queue = [item for item in queue_of(the_plan) if item.run_pass is run_pass]
    half = len(queue) // 2
    assert len(queue) == 2 * 2 * width
    assert [item.number // width for item in queue] == [0] * half + [1] * half
    assert [(item.case, item.number % width) for item in queue[half:]] == [
        (item.case, item.number % width) for item in reversed(queue[:half])
    ]


def test_the_reference_workload_is_the_same_whatever_a_plan_measures() -> None:
    builds = {(PHONE.serial, ToolName.NATIVE): NATIVE}
    cases = {
        reference_case(
            plan(matrix=Matrix(threads=threads), settings=RunSettings(min_secs=9)),
            PHONE,
            MODELS[0],
            builds,
        )
        for threads in ((1,), (2, 4))
    }
    (case,) = cases
    assert case is not None
    assert (case.threads, case.delegate, case.min_secs) == (1, DelegateName.XNNPACK, 1.0)
    assert reference_case(plan(), PHONE, MODELS[0], {}) is None


@needs_extension("iphone")
def test_the_reference_workload_has_the_key_of_the_stored_ones_also_on_an_iphone() -> None:
    program = replace(NATIVE, tool=ToolName.LITERT_IOS, abi="")
    iphone = replace(PHONE, kind=DeviceKind.IOS)
    case = reference_case(plan(), iphone, MODELS[0], {(iphone.serial, program.tool): program})
    assert case is not None
    settings = (case.num_runs, case.min_secs, case.max_secs, case.warmup_runs, case.affinity)
    assert settings == (10, 1.0, 30.0, 1, "big")


def test_flags_of_another_program_are_skipped_and_the_set_without_flags_runs() -> None:
    matrix = Matrix(threads=(1,), flags=((), (("gpu_backend", "cl"),)))
    expansion = expanded(plan(matrix=matrix), COMPUTER, LITERT)
    assert {case.flags for case in expansion.cases} == {()}
    assert {skip.reason_code for skip in expansion.skipped} == {"flags-not-in-tool"}


@pytest.mark.parametrize(
    ("soc", "maker", "wanted"),
    [
        ("SM8550", "QTI", ["libLiteRtDispatch_Qualcomm.so", "libQnnHtp.so", "libQnnHtpV73Skel.so"]),
        ("MT6989", "Mediatek", ["libLiteRtDispatch_MediaTek.so"]),
        ("Tensor G5", "Google", ["libLiteRtCompilerPlugin_google_tensor.so"]),
    ],
)
def test_a_delegate_gets_the_libraries_of_its_own_and_of_the_phone_s_chip(
    soc: str, maker: str, wanted: list[str]
) -> None:
    names = [
        "libLiteRt.so", "libLiteRtClGlAccelerator.so", "libLiteRtCompilerPlugin_google_tensor.so",
        "libLiteRtDispatch_MediaTek.so", "libLiteRtDispatch_Qualcomm.so", "libQnnHtp.so", "libQnnHtpV73Skel.so",
    ]  # fmt: skip
    companions = tuple(
        Companion(name=name, sha256=f"{number}" * 64) for number, name in enumerate(names)
    )
    phone = replace(PHONE, soc=soc, properties={"ro.soc.model": soc, "ro.soc.manufacturer": maker})

    def files(delegate: DelegateName) -> list[str]:
        build = replace(NATIVE, companions=companions)
        return [item.name for item in needed_companions(build, phone, delegate)]

    assert files(DelegateName.NPU) == ["libLiteRt.so", *wanted]
    assert files(DelegateName.GPU) == ["libLiteRt.so", "libLiteRtClGlAccelerator.so"]
    assert files(DelegateName.XNNPACK) == ["libLiteRt.so"]
    # Qualcomm's and MediaTek's own TFLite delegates load the same.
    assert files(DelegateName.EXTERNAL) == ["libLiteRt.so", *wanted]


@pytest.mark.parametrize(
    ("soc", "properties", "wanted"),
    [
        # Android 11 and older name no chip; some say who made it.
        ("", {}, ["libQnnHtp.so", "libneuronusdk.so"]),
        ("Qualcomm Technologies, Inc SM8150", {}, ["libQnnHtp.so"]),
        ("Spreadtrum T616", {"ro.soc.model": "T616"}, []),
    ],
)
def test_a_phone_that_does_not_name_its_chip_gets_the_libraries_of_every_vendor(
    soc: str, properties: dict[str, str], wanted: list[str]
) -> None:
    names = ["libQnnHtp.so", "libneuronusdk.so"]
    companions = tuple(Companion(name=name, sha256="a" * 64) for name in names)
    phone = replace(PHONE, soc=soc, properties=properties)
    build = replace(NATIVE, companions=companions)
    found = needed_companions(build, phone, DelegateName.EXTERNAL)
    assert [item.name for item in found] == wanted
    assert needed_companions(build, phone, DelegateName.XNNPACK) == ()


def test_an_npu_without_a_dispatch_library_is_skipped_with_the_chip_named() -> None:
    build = replace(NATIVE, tool=ToolName.LITERT_NATIVE)
    matrix = Matrix(delegates=(DelegateName.NPU,), tools=(ToolName.LITERT_NATIVE,))
    (skip, *_) = expanded(plan(matrix=matrix), PHONE, build).skipped
    assert (skip.reason_code, "Qualcomm" in skip.reason) == ("npu-libraries-missing", True)


@pytest.mark.parametrize(
    ("flag", "value", "refused"),
    [
        ("external_delegate_path", "@libmine.so", {"cpu", "xnnpack", "gpu"}),
        ("stable_delegate_settings_file", "@settings.json", {"cpu", "xnnpack", "gpu"}),
        ("use_npu", "true", {"cpu", "xnnpack", "gpu"}),
        # What an accelerator leaves may run on either library for the CPU.
        ("use_ynnpack", "true", {"cpu", "xnnpack"}),
        ("use_xnnpack", "1", {"cpu"}),
        ("use_xnnpack", "false", {"xnnpack"}),
        ("use_ynnpack", "false", set()),
        ("external_delegate_path", "", set()),
    ],
)
def test_a_flag_that_switches_the_delegate_off_or_another_one_on_is_refused(
    flag: str, value: str, refused: set[str]
) -> None:
    delegates = (DelegateName.CPU, DelegateName.XNNPACK, DelegateName.GPU)
    expansion = expanded(
        plan(matrix=Matrix(delegates=delegates, threads=(1,), flags=(((flag, value),),)))
    )
    assert {skip.delegate for skip in expansion.skipped} == refused
    assert {case.delegate for case in expansion.cases} == set(delegates) - refused
    assert {skip.reason_code for skip in expansion.skipped} <= {"flag-of-another-delegate"}
    assert all(flag in skip.reason for skip in expansion.skipped)


@pytest.mark.parametrize("flag", ["external_delegate_path", "stable_delegate_settings_file"])
def test_an_external_delegate_has_the_flags_that_name_it(flag: str) -> None:
    matrix = Matrix(delegates=(DelegateName.EXTERNAL,), flags=(((flag, "@x"),), ((flag, ""),)))
    expansion = expanded(plan(matrix=matrix))
    assert {case.flags for case in expansion.cases} == {((flag, "@x"),)}
    assert {skip.reason_code for skip in expansion.skipped} == {"external-delegate-unnamed"}


def test_modes_are_an_axis_and_the_usual_one_changes_no_case() -> None:
    usual = expanded(plan(matrix=Matrix(threads=(1,)))).cases
    found = expanded(
        plan(matrix=Matrix(threads=(1,), modes=(ProcessMode.SHELL, ProcessMode.TOP_APP)))
    ).cases
    assert {case.mode for case in found} == {None, ProcessMode.TOP_APP}
    assert {case.case_key for case in usual} < {case.case_key for case in found}


def test_auto_tries_what_a_phone_has_and_says_nothing_of_what_it_lacks() -> None:
    auto = plan(matrix=Matrix(delegates=(DelegateChoice.AUTO,)))
    found = expanded(auto)
    # Of this phone's programs none has an NPU's libraries.
    assert {(case.delegate.value, case.threads) for case in found.cases} == {
        (name, threads) for name in ("cpu", "xnnpack", "gpu") for threads in (1, 4)
    }
    assert found.skipped == ()
    every = expanded(plan(matrix=Matrix(delegates=(DelegateChoice.ALL,))))
    known = {
        name
        for name in delegates_of(FlagFamily.BENCHMARK_MODEL, PHONE.kind)
        if not DELEGATES[name].is_named_by_flag
    }
    assert {item.delegate for item in (*every.cases, *every.skipped)} == known
    assert {skip.delegate.value for skip in every.skipped} == {"hexagon"}
    assert {skip.reason_code for skip in every.skipped} == {"hexagon-libraries-missing"}


def test_thread_counts_that_a_delegate_may_leave_unused_count_once_in_the_least_estimate() -> None:
    gpu = plan(matrix=Matrix(delegates=(DelegateName.GPU,), threads=(1, 2, 4)), invocations=2)
    (least, most) = expanded(gpu).estimate_s(gpu)
    assert most == pytest.approx(3 * least)
    every = replace(gpu, matrix=replace(gpu.matrix, every_thread_count=True))
    assert expanded(every).estimate_s(every) == pytest.approx((most, most))


def test_without_a_named_program_each_device_gets_its_usual_one() -> None:
    assert {case.tool for case in expanded(plan()).cases} == {ToolName.NATIVE}
    assert {
        case.tool for case in expanded(plan(matrix=Matrix(threads=(1,))), COMPUTER, LITERT).cases
    } == {ToolName.LITERT}


@needs_extension("runtimes")
def test_a_pass_that_a_case_cannot_do_is_skipped_with_a_reason_also_beside_another() -> None:
    matrix = Matrix(tools=(ToolName.LITERT_LM,), threads=(1,))
    bundle = Model(name="m", sha256=ModelSha("m"), size_bytes=1, path=Path("m.litertlm"))
    stock = Stock(
        builds={(PHONE.serial, ToolName.LITERT_LM): replace(NATIVE, tool=ToolName.LITERT_LM)}
    )
    cold, both = (
        expand(plan(matrix=matrix, passes=passes), [PHONE], [bundle], stock)
        for passes in ((Pass.COLD,), (Pass.TIMING, Pass.COLD))
    )
    assert cold.cases == ()
    for found in (cold, both):
        assert {skip.reason_code for skip in found.skipped} == {"pass-not-in-tool"}
    assert {item.run_pass for item in both.invocations[PHONE.serial]} == {Pass.TIMING}


@pytest.mark.parametrize("tool", [ToolName.LITERT, ToolName.NATIVE])
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=needs_extension(name)) for name in ("contention", "energy", "trace")],
)
def test_a_pass_of_android_phones_is_skipped_on_this_computer(name: str, tool: ToolName) -> None:
    wanted = plan(matrix=Matrix(tools=(tool,)), passes=(Pass.TIMING, Pass(name)))
    both = expanded(wanted, COMPUTER, replace(NATIVE, tool=tool))
    assert {item.run_pass for item in both.invocations[COMPUTER.serial]} == {Pass.TIMING}
    assert {skip.reason for skip in both.skipped} == {
        f"pass {name}: '{tool}' can't be run in it on this computer"
    }
