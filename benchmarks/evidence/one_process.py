"""One fresh process: load a model into LiteRT, warm up, and print each inference's time in
nanoseconds as JSON."""

import json
import sys
import time


def main() -> None:
    from ai_edge_litert.interpreter import Interpreter

    model, threads, runs, warm_s = (
        sys.argv[1],
        int(sys.argv[2]),
        int(sys.argv[3]),
        float(sys.argv[4]),
    )
    interpreter = Interpreter(model_path=model, num_threads=threads)
    interpreter.allocate_tensors()
    until = time.perf_counter() + warm_s
    while time.perf_counter() < until:
        interpreter.invoke()
    times_ns = []
    for _ in range(runs):
        before = time.perf_counter_ns()
        interpreter.invoke()
        times_ns.append(time.perf_counter_ns() - before)
    json.dump(times_ns, sys.stdout)


if __name__ == "__main__":
    main()
