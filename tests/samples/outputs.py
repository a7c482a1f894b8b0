"""What benchmark_model prints of one run, as a console showed it before the severities."""

RUN = """\
STARTING!
Log parameter values verbosely: [0]
Num threads: [4]
Graph: [/data/local/tmp/m.tflite]
Loaded model /data/local/tmp/m.tflite
Created TensorFlow Lite XNNPACK delegate for CPU.
Replacing 29 out of 31 node(s) with delegate (TfLiteXNNPackDelegate) node, yielding 4 partitions for subgraph 0.
The input model file size (MB): 4.30469
Initialized session in 19.505ms.
Running benchmark for at least 1 iterations and at least 0.5 seconds but terminate if exceeding 150 seconds.
count=38 first=39445 curr=11259 min=11223 max=39445 avg=13272.4 std=6127 p5=11236 median=11272 p95=36775

Running benchmark for at least 50 iterations and at least 1 seconds but terminate if exceeding 150 seconds.
count=89 first=11274 curr=11238 min=11203 max=11932 avg=11293 std=129 p5=11221 median=11248 p95=11526

Inference timings in us: Init: 19505, First inference: 39445, Warmup (avg): 13272.4, Inference (avg): 11293
Memory footprint delta from the start of the tool (MB): init=14.8516 overall=15.1094
"""
