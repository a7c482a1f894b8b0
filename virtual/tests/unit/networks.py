"""Networks of the published table as lists of operators: shapes as in the papers, no weights."""

from __future__ import annotations

from ai_edge_litert.schema_py_generated import BuiltinOperator

from benchfarm_virtual.graph import Operator, Subgraph, Tensor


class Network:
    """A network being built; every method takes and returns tensor numbers."""

    def __init__(self, kind: str = "FLOAT32") -> None:
        self.kind = kind
        self.size = 4 if kind == "FLOAT32" else 1
        self.tensors: list[Tensor] = []
        self.operators: list[Operator] = []

    def tensor(self, shape: tuple[int, ...], *, constant: bool = False) -> int:
        elements = 1
        for n in shape:
            elements *= n
        data = elements * self.size if constant else 0
        self.tensors.append(
            Tensor(
                name=f"t{len(self.tensors)}",
                type_name=self.kind,
                element_bytes=self.size,
                shape=shape,
                data_bytes=data,
            )
        )
        return len(self.tensors) - 1

    def op(
        self,
        name: str,
        inputs: tuple[int, ...],
        shape: tuple[int, ...],
        window: tuple[int, int] = (1, 1),
    ) -> int:
        out = self.tensor(shape)
        self.operators.append(
            Operator(
                code=getattr(BuiltinOperator, name),
                name=name,
                version=1,
                inputs=inputs,
                outputs=(out,),
                window=window,
            )
        )
        return out

    def conv(
        self,
        x: int,
        out: int,
        k: tuple[int, int] | int = 1,
        stride: int = 1,
        *,
        valid: bool = False,
    ) -> int:
        kh, kw = (k, k) if isinstance(k, int) else k
        n, h, w, c = self.tensors[x].shape
        weights = self.tensor((out, kh, kw, c), constant=True)
        bias = self.tensor((out,), constant=True)
        return self.op(
            "CONV_2D", (x, weights, bias), (n, *self._spatial(h, w, kh, kw, stride, valid), out)
        )

    def depthwise(self, x: int, k: int = 3, stride: int = 1) -> int:
        n, h, w, c = self.tensors[x].shape
        weights = self.tensor((1, k, k, c), constant=True)
        bias = self.tensor((c,), constant=True)
        return self.op(
            "DEPTHWISE_CONV_2D",
            (x, weights, bias),
            (n, *self._spatial(h, w, k, k, stride, False), c),
        )

    def pool(
        self, x: int, k: int, stride: int, name: str = "MAX_POOL_2D", *, valid: bool = False
    ) -> int:
        n, h, w, c = self.tensors[x].shape
        return self.op(name, (x,), (n, *self._spatial(h, w, k, k, stride, valid), c), (k, k))

    def concat(self, *xs: int) -> int:
        shapes = [self.tensors[x].shape for x in xs]
        return self.op("CONCATENATION", xs, (*shapes[0][:-1], sum(s[-1] for s in shapes)))

    def add(self, x: int, y: int) -> int:
        return self.op("ADD", (x, y), self.tensors[x].shape)

    def each(self, name: str, x: int) -> int:
        return self.op(name, (x,), self.tensors[x].shape)

    def head(self, x: int, classes: int) -> int:
        n, h, w, c = self.tensors[x].shape
        x = self.op("AVERAGE_POOL_2D", (x,), (n, 1, 1, c), (h, w))
        x = self.conv(x, classes)
        x = self.op("RESHAPE", (x,), (n, classes))
        return self.op("SOFTMAX", (x,), (n, classes))

    @staticmethod
    def _spatial(h: int, w: int, kh: int, kw: int, stride: int, valid: bool) -> tuple[int, int]:
        if valid:
            return (h - kh) // stride + 1, (w - kw) // stride + 1
        return -(-h // stride), -(-w // stride)

    def subgraph(self, first: int, last: int) -> Subgraph:
        return Subgraph(
            name="main",
            tensors=tuple(self.tensors),
            inputs=(first,),
            outputs=(last,),
            operators=tuple(self.operators),
        )


def mobilenet_v1(kind: str = "FLOAT32") -> Subgraph:
    net = Network(kind)
    first = net.tensor((1, 224, 224, 3))
    x = net.conv(first, 32, 3, 2)
    for out, stride in [
        (64, 1),
        (128, 2),
        (128, 1),
        (256, 2),
        (256, 1),
        (512, 2),
        *[(512, 1)] * 5,
        (1024, 2),
        (1024, 1),
    ]:
        x = net.conv(net.depthwise(x, 3, stride), out)
    return net.subgraph(first, net.head(x, 1001))


def squeezenet() -> Subgraph:
    net = Network()
    first = net.tensor((1, 224, 224, 3))
    x = net.pool(net.conv(first, 96, 7, 2), 3, 2)
    for squeeze, expand, pooled in [
        (16, 64, False), (16, 64, False), (32, 128, True), (32, 128, False), (48, 192, False), (48, 192, False),
        (64, 256, True), (64, 256, False),
    ]:  # fmt: skip
        x = net.conv(x, squeeze)
        x = net.concat(net.conv(x, expand), net.conv(x, expand, 3))
        x = net.pool(x, 3, 2) if pooled else x
    return net.subgraph(first, net.head(x, 1001))


def _inception_stem(net: Network, x: int) -> int:
    x = net.conv(net.conv(net.conv(x, 32, 3, 2, valid=True), 32, 3, valid=True), 64, 3)
    x = net.concat(net.pool(x, 3, 2, valid=True), net.conv(x, 96, 3, 2, valid=True))
    left = net.conv(net.conv(x, 64), 96, 3, valid=True)
    right = net.conv(net.conv(net.conv(net.conv(x, 64), 64, (1, 7)), 64, (7, 1)), 96, 3, valid=True)
    x = net.concat(left, right)
    return net.concat(net.conv(x, 192, 3, 2, valid=True), net.pool(x, 3, 2, valid=True))


def inception_v4() -> Subgraph:
    net = Network()
    first = net.tensor((1, 299, 299, 3))
    x = _inception_stem(net, first)
    for _ in range(4):
        x = net.concat(
            net.conv(x, 96), net.conv(net.conv(x, 64), 96, 3), net.conv(net.conv(net.conv(x, 64), 96, 3), 96, 3),
            net.conv(net.pool(x, 3, 1, "AVERAGE_POOL_2D"), 96),
        )  # fmt: skip
    x = net.concat(
        net.conv(x, 384, 3, 2, valid=True), net.conv(net.conv(net.conv(x, 192), 224, 3), 256, 3, 2, valid=True),
        net.pool(x, 3, 2, valid=True),
    )  # fmt: skip
    for _ in range(7):
        deep = net.conv(x, 192)
        for out, k in [(192, (7, 1)), (224, (1, 7)), (224, (7, 1)), (256, (1, 7))]:
            deep = net.conv(deep, out, k)
        x = net.concat(
            net.conv(x, 384), net.conv(net.conv(net.conv(x, 192), 224, (1, 7)), 256, (7, 1)), deep,
            net.conv(net.pool(x, 3, 1, "AVERAGE_POOL_2D"), 128),
        )  # fmt: skip
    deep = net.conv(net.conv(net.conv(x, 256), 256, (1, 7)), 320, (7, 1))
    x = net.concat(
        net.conv(net.conv(x, 192), 192, 3, 2, valid=True), net.conv(deep, 320, 3, 2, valid=True),
        net.pool(x, 3, 2, valid=True),
    )  # fmt: skip
    for _ in range(3):
        one = net.conv(x, 384)
        two = net.conv(net.conv(net.conv(x, 384), 448, (1, 3)), 512, (3, 1))
        x = net.concat(
            net.conv(x, 256), net.conv(one, 256, (1, 3)), net.conv(one, 256, (3, 1)), net.conv(two, 256, (1, 3)),
            net.conv(two, 256, (3, 1)), net.conv(net.pool(x, 3, 1, "AVERAGE_POOL_2D"), 256),
        )  # fmt: skip
    return net.subgraph(first, net.head(x, 1001))


def inception_resnet_v2() -> Subgraph:
    net = Network()
    first = net.tensor((1, 299, 299, 3))
    x = net.conv(net.conv(net.conv(first, 32, 3, 2, valid=True), 32, 3, valid=True), 64, 3)
    x = net.conv(net.conv(net.pool(x, 3, 2, valid=True), 80), 192, 3, valid=True)
    x = net.pool(x, 3, 2, valid=True)
    x = net.concat(
        net.conv(x, 96), net.conv(net.conv(x, 48), 64, 5), net.conv(net.conv(net.conv(x, 64), 96, 3), 96, 3),
        net.conv(net.pool(x, 3, 1, "AVERAGE_POOL_2D"), 64),
    )  # fmt: skip
    for _ in range(10):
        y = net.concat(
            net.conv(x, 32),
            net.conv(net.conv(x, 32), 32, 3),
            net.conv(net.conv(net.conv(x, 32), 48, 3), 64, 3),
        )
        x = net.add(x, net.conv(y, 320))
    x = net.concat(
        net.conv(x, 384, 3, 2, valid=True), net.conv(net.conv(net.conv(x, 256), 256, 3), 384, 3, 2, valid=True),
        net.pool(x, 3, 2, valid=True),
    )  # fmt: skip
    for _ in range(20):
        y = net.concat(
            net.conv(x, 192), net.conv(net.conv(net.conv(x, 128), 160, (1, 7)), 192, (7, 1))
        )
        x = net.add(x, net.conv(y, 1088))
    x = net.concat(
        net.conv(net.conv(x, 256), 384, 3, 2, valid=True), net.conv(net.conv(x, 256), 288, 3, 2, valid=True),
        net.conv(net.conv(net.conv(x, 256), 288, 3), 320, 3, 2, valid=True), net.pool(x, 3, 2, valid=True),
    )  # fmt: skip
    for _ in range(10):
        y = net.concat(
            net.conv(x, 192), net.conv(net.conv(net.conv(x, 192), 224, (1, 3)), 256, (3, 1))
        )
        x = net.add(x, net.conv(y, 2080))
    x = net.conv(x, 1536)
    return net.subgraph(first, net.head(x, 1001))


def nasnet_mobile() -> Subgraph:
    net = Network()
    first = net.tensor((1, 224, 224, 3))

    def separable(x: int, out: int, k: int, stride: int = 1) -> int:
        x = net.conv(net.depthwise(net.each("RELU", x), k, stride), out)
        return net.conv(net.depthwise(net.each("RELU", x), k), out)

    def fit(x: int, like: int, out: int) -> int:
        x = net.each("RELU", x)
        if net.tensors[x].shape[1] != net.tensors[like].shape[1]:
            half = out // 2
            return net.concat(
                net.conv(net.pool(x, 1, 2, "AVERAGE_POOL_2D"), half),
                net.conv(net.pool(x, 1, 2, "AVERAGE_POOL_2D"), half),
            )
        return net.conv(x, out)

    def normal(x: int, before: int, out: int) -> int:
        p, h = fit(before, x, out), net.conv(net.each("RELU", x), out)
        return net.concat(
            p, net.add(separable(h, out, 5), separable(p, out, 3)), net.add(separable(p, out, 5), separable(p, out, 3)),
            net.add(net.pool(h, 3, 1, "AVERAGE_POOL_2D"), p),
            net.add(net.pool(p, 3, 1, "AVERAGE_POOL_2D"), net.pool(p, 3, 1, "AVERAGE_POOL_2D")),
            net.add(separable(h, out, 3), h),
        )  # fmt: skip

    def reduction(x: int, before: int, out: int) -> int:
        p, h = fit(before, x, out), net.conv(net.each("RELU", x), out)
        one = net.add(separable(h, out, 5, 2), separable(p, out, 7, 2))
        two = net.add(net.pool(h, 3, 2), separable(p, out, 7, 2))
        three = net.add(net.pool(h, 3, 2, "AVERAGE_POOL_2D"), separable(p, out, 5, 2))
        four = net.add(net.pool(one, 3, 1, "AVERAGE_POOL_2D"), two)
        five = net.add(separable(one, out, 3), net.pool(h, 3, 2))
        return net.concat(two, three, four, five)

    before = x = net.conv(first, 32, 3, 2, valid=True)
    before, x = x, reduction(x, before, 11)
    before, x = x, reduction(x, before, 22)
    for stage, out in enumerate((44, 88, 176)):
        for _ in range(4):
            before, x = x, normal(x, before, out)
        if stage < 2:
            before, x = x, reduction(x, before, 2 * out)
    return net.subgraph(first, net.head(net.each("RELU", x), 1001))


#: As the published table names them.
PUBLISHED = {
    "Mobilenet_1.0_224(float)": lambda: mobilenet_v1(),
    "Mobilenet_1.0_224 (quant)": lambda: mobilenet_v1("UINT8"),
    "NASNet mobile": nasnet_mobile,
    "SqueezeNet": squeezenet,
    "Inception_ResNet_V2": inception_resnet_v2,
    "Inception_V4": inception_v4,
}
