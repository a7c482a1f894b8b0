"""Where the options of operators lie in a file: those that decide which delegate takes an operator.

Operators, option tables and fields are numbered as in the public schema; a test holds each line against it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

#: Name -> field number, struct layout (``<f``: a real number), value of an absent field.
OptionFields = Mapping[str, tuple[int, str, int]]

_STRIDES: Final = {"stride_w": (1, "<i", 0), "stride_h": (2, "<i", 0)}
_POOL: Final[OptionFields] = {
    **_STRIDES, "filter_width": (3, "<i", 0), "filter_height": (4, "<i", 0), "activation": (5, "<b", 0),
}  # fmt: skip
_ACTIVATION: Final[OptionFields] = {"activation": (0, "<b", 0)}
_KEEP_DIMS: Final[OptionFields] = {"keep_dims": (0, "<b", 0)}
_BLOCK_SIZE: Final[OptionFields] = {"block_size": (0, "<i", 0)}

#: By the number of the builtin operator.
OPTIONS: Final[Mapping[int, OptionFields]] = {
    0: _ACTIVATION,  # ADD
    1: _POOL,  # AVERAGE_POOL_2D
    2: {"activation": (1, "<b", 0)},  # CONCATENATION
    3: {**_STRIDES, "activation": (3, "<b", 0), "dilation_w": (4, "<i", 1), "dilation_h": (5, "<i", 1)},  # CONV_2D
    4: {  # DEPTHWISE_CONV_2D
        **_STRIDES,
        "depth_multiplier": (3, "<i", 0),
        "activation": (4, "<b", 0),
        "dilation_w": (5, "<i", 1),
        "dilation_h": (6, "<i", 1),
    },
    5: _BLOCK_SIZE,  # DEPTH_TO_SPACE
    9: {"activation": (0, "<b", 0), "weights_format": (1, "<b", 0), "keep_num_dims": (2, "<b", 0)},  # FULLY_CONNECTED
    11: _ACTIVATION,  # L2_NORMALIZATION
    12: _POOL,  # L2_POOL_2D
    15: {"lsh_type": (0, "<b", 0)},  # LSH_PROJECTION
    16: {"activation": (0, "<b", 0), "kernel_type": (3, "<b", 0)},  # LSTM
    17: _POOL,  # MAX_POOL_2D
    18: _ACTIVATION,  # MUL
    23: {"align_corners": (2, "<b", 0), "half_pixel_centers": (3, "<b", 0)},  # RESIZE_BILINEAR
    25: {"beta": (0, "<f", 0)},  # SOFTMAX
    26: _BLOCK_SIZE,  # SPACE_TO_DEPTH
    40: _KEEP_DIMS,  # MEAN
    41: _ACTIVATION,  # SUB
    42: _ACTIVATION,  # DIV
    45: {
        "ellipsis_mask": (2, "<i", 0),
        "new_axis_mask": (3, "<i", 0),
        "shrink_axis_mask": (4, "<i", 0),
    },  # STRIDED_SLICE
    49: {"num_splits": (0, "<i", 0)},  # SPLIT
    67: {**_STRIDES, "activation": (3, "<b", 0)},  # TRANSPOSE_CONV
    74: _KEEP_DIMS,  # SUM
    82: _KEEP_DIMS,  # REDUCE_MAX
    83: {"axis": (1, "<i", 0)},  # PACK
    88: {"axis": (1, "<i", 0)},  # UNPACK
    97: {"align_corners": (0, "<b", 0), "half_pixel_centers": (1, "<b", 0)},  # RESIZE_NEAREST_NEIGHBOR
    100: {"mode": (0, "<b", 0)},  # MIRROR_PAD
    126: {"adj_x": (0, "<b", 0), "adj_y": (1, "<b", 0)},  # BATCH_MATMUL
}
