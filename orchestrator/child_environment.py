"""The environment of every program that is started: what programs need, and no token, password or
key of ours.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Final

from orchestrator.errors import UsageError

#: Names further variables that programs get, with commas between them.
PASS_ENV: Final = "BENCHFARM_PASS_ENV"  # noqa: S105 - the name of a setting
#: Who and where; language and time; files; how libraries, Python and compute libraries are found;
#: Android's tools.
_NAMES: Final = frozenset(
    (  # noqa: SIM905 - thirty names on a line each say no more
        "PATH HOME USER LOGNAME SHELL TERM LANG LANGUAGE TZ TMPDIR TMP TEMP "
        "XDG_RUNTIME_DIR XDG_CACHE_HOME XDG_CONFIG_HOME XDG_DATA_HOME "
        "LD_LIBRARY_PATH LD_PRELOAD PYTHONPATH PYTHONHOME PYTHONNOUSERSITE PYTHONDONTWRITEBYTECODE VIRTUAL_ENV "
        "SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE CUDA_VISIBLE_DEVICES GLIBC_TUNABLES "
        "OCL_ICD_VENDORS VK_ICD_FILENAMES VK_DRIVER_FILES "
        "ANDROID_HOME ANDROID_SDK_ROOT ANDROID_SDK_HOME ANDROID_USER_HOME ANDROID_NDK_HOME ANDROID_SERIAL "
        "ANDROID_ADB_SERVER_ADDRESS ANDROID_ADB_SERVER_PORT ANDROID_ADB_LOG_PATH"
    ).split()
)
_PREFIXES: Final = ("LC_", "ADB_", "DYLD_", "OMP_", "TF_")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


def child_environment(environ: Mapping[str, str] | None = None, **further: str) -> dict[str, str]:
    """Return the variables that a program gets: those of a fixed list, those that the user passes
    on, ``further``.

    ``environ`` (None: this process's) may hold ``BENCHFARM_PASS_ENV=NAME,NAME``. Raises UsageError
    when that isn't a list of names.
    """
    have = os.environ if environ is None else environ
    asked = [name.strip() for name in have.get(PASS_ENV, "").split(",") if name.strip()]
    for name in asked:
        if not _NAME.fullmatch(name):
            raise UsageError(
                f"{PASS_ENV}: {name!r} isn't the name of a variable",
                hint=f"write {PASS_ENV}=NAME,NAME",
            )
    passed = {
        name: value for name, value in have.items() if name in _NAMES or name.startswith(_PREFIXES)
    }
    return passed | {name: have[name] for name in asked if name in have} | further
