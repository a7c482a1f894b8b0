"""The core's tests where there are no extensions: ``make test-core``.

The extensions, their entry points and their tests are left out of a copy of this checkout; the
exit code is pytest's.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.samples.checkout_copy import copy_core, run_in

#: What is about extensions, or about everything that there is.
LEFT_OUT = ("tests/unit/test_plugins.py", "tests/unit/test_wheel.py")


def main(words: list[str]) -> int:
    """Run the tests that are named, else the unit tests; return pytest's exit code."""
    with tempfile.TemporaryDirectory(prefix="benchfarm-core-") as name:
        folder = Path(name)
        copy_core(folder, lambda file: file not in LEFT_OUT)
        tests = words or ["tests/unit"]
        options = ["-q", "-n", "auto", "-p", "no:cacheprovider"]
        return run_in(folder, "-m", "pytest", *options, *tests, shown=True).returncode


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
