"""Python's cycle collector, held while a report is made.

A report makes millions of small objects that live until it is written, and no cycles among them. The collector looks
through all of them again and again, and finds nothing: a quarter of the time of a report of 5,000 cases.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def without_collector(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Return the function with the collector off while it runs; it is on again afterwards when it was on before."""

    @wraps(function)
    def held(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        if not gc.isenabled():
            return function(*args, **kwargs)
        gc.disable()
        try:
            return function(*args, **kwargs)
        finally:
            gc.enable()

    return held
