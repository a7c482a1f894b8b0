"""The fixtures of the installed command, for the tests of extensions that use it."""

from tests.e2e.conftest import (
    cli,
    four_phones,
    lab,
    lab_of,
    make_cli,
    matrix_lab,
    model,
    nothing_goes_on,
    plan_file,
    running_lab,
)

__all__ = [
    "cli",
    "four_phones",
    "lab",
    "lab_of",
    "make_cli",
    "matrix_lab",
    "model",
    "nothing_goes_on",
    "plan_file",
    "running_lab",
]
