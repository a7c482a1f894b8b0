"""The fixtures of the installed command, for the tests of extensions that use it."""

from tests.e2e.conftest import (
    cli,
    database,
    four_phones,
    lab,
    lab_of,
    make_cli,
    matrix_lab,
    model,
    nothing_goes_on,
    plan_file,
    running_lab,
    two_hosts,
)

__all__ = [
    "cli",
    "database",
    "four_phones",
    "lab",
    "lab_of",
    "make_cli",
    "matrix_lab",
    "model",
    "nothing_goes_on",
    "plan_file",
    "running_lab",
    "two_hosts",
]
