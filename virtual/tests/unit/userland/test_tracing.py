"""perfetto on the phone: what is recorded, when it ends, and what is refused."""

from __future__ import annotations

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

from benchfarm_virtual.contract import TraceEvent

CONFIG = (
    'buffers { size_kb: 64 fill_policy: DISCARD } duration_ms: 60000 data_sources { config { name: "linux.ftrace" '
    'ftrace_config { ftrace_events: "ftrace/print" atrace_apps: "/data/local/tmp/bench" } } }'
)
TRACE = "/data/misc/perfetto-traces/t.pftrace"
START = f"printf %s '{CONFIG}' | perfetto --background --txt -c - -o {TRACE}"


def write_slice(phone, name: str = "/data/local/tmp/bench", count: int = 1) -> None:
    tracing = phone.userland.tracing
    for _ in range(count):
        now = tracing.now_ns()
        events = [TraceEvent(now, 2, 77, "B|77|ADD@0/0"), TraceEvent(now, 2, 77, "E|77")]
        tracing.write(77, name, 2000, events)


def start(phone, command: str = START) -> str:
    """Start perfetto and wait until apps are told of it, as they are in their own time; return its
    process.
    """
    pid = phone.out(command).strip()
    assert pid.isdigit()
    phone.run(
        'i=0; until [ "$(getprop debug.atrace.app_number)" = 1 ] || [ $i -gt 200 ]; do sleep 0.05; i=$((i+1)); done'
    )
    return pid


def read(phone) -> Trace:
    trace = Trace()
    trace.ParseFromString(phone.out(f"cat {TRACE}").encode("utf-8", "surrogateescape"))
    return trace


def prints(trace: Trace) -> list[str]:
    return [e.print.buf for p in trace.packet for e in p.ftrace_events.event if e.HasField("print")]


def stop(phone, pid: str, signal: str = "TERM") -> None:
    phone.run(
        f"kill -{signal} {pid}; i=0; while [ -d /proc/{pid} ] && [ $i -lt 200 ]; do sleep 0.05; i=$((i+1)); done"
    )


def test_perfetto_continues_in_the_background_and_writes_its_file_when_told_to_stop(phone):
    write_slice(phone)
    pid = start(phone)
    assert TRACE in phone.out(f"cat /proc/{pid}/cmdline")
    write_slice(phone)
    write_slice(phone, "/system/bin/other")
    stop(phone, pid)
    trace = read(phone)
    assert prints(trace) == ["B|77|ADD@0/0\n", "E|77\n"]
    assert [list(p.cmdline) for x in trace.packet for p in x.process_tree.processes] == [
        ["/data/local/tmp/bench"]
    ]
    assert phone.out("getprop debug.atrace.app_number") == "0\n"


def test_what_finds_no_room_is_lost_and_told(phone):
    pid = start(phone, START.replace("size_kb: 64", "size_kb: 1"))
    write_slice(phone, count=200)
    stop(phone, pid)
    trace = read(phone)
    lost = sum(cpu.overrun for packet in trace.packet for cpu in packet.ftrace_stats.cpu_stats)
    assert lost > 0
    assert len(prints(trace)) + lost == 400


def test_before_android_11_the_service_is_off_on_phones_of_other_makers(make_phone):
    phone = make_phone(props={"ro.build.version.sdk": "29", "ro.product.manufacturer": "samsung"})
    status, _, err = phone.run(START)
    assert status == 1
    assert "traced" in err
    phone.run("setprop persist.traced.enable 1")
    stop(phone, start(phone))
