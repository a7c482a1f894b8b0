"""The process: runs the command that was typed, and turns whatever ends it into a message and an
exit code.
"""

from __future__ import annotations

import errno
import gc
import itertools
import os
import signal
import sys
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import FrameType
from typing import Any, Final, NoReturn

from orchestrator.cli.commands import ROOT, options
from orchestrator.cli.output import (
    OutputClosedError,
    ignore_stop_signals,
    json_pieces,
    open_standard_streams,
    say,
    say_json,
    write_line,
)
from orchestrator.errors import (
    BenchfarmError,
    HostStorageError,
    InterruptedByUserError,
    UsageError,
)
from orchestrator.installation import missing_package

_PATH_ERRORS: Final = {errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENAMETOOLONG}


def run() -> None:
    """Run the command line and exit with its code; no traceback reaches a user without --debug."""
    try:
        _run()
    finally:
        # All output is written; freeing memory takes a while, and no garbage is looked for in it.
        ignore_stop_signals()
        gc.freeze()


def _run() -> NoReturn:
    open_standard_streams()
    for number in (signal.SIGTERM, signal.SIGHUP):
        # Phones are restored also after a cancelled job and a closed terminal; nohup's signals stay
        # ignored.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _stop)
    options.log_format = _format_on_command_line(sys.argv)
    if "_BENCHFARM_COMPLETE" in os.environ:
        from typer.completion import completion_init  # type: ignore[attr-defined]

        completion_init()
    try:
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        exit_code = ROOT.main(prog_name="benchfarm", standalone_mode=False)
        if exit_code == InterruptedByUserError.exit_code:
            # The option parser ends on Ctrl-C without a word.
            raise InterruptedByUserError
        raise SystemExit(exit_code or 0)
    except BenchfarmError as error:
        _fail(error.facts)
    except KeyboardInterrupt:
        _fail(InterruptedByUserError().facts)
    except ModuleNotFoundError as error:
        _fail(missing_package(error.name or str(error)).facts)
    except OutputClosedError:
        # The reader ended, not the command.
        raise SystemExit(141) from None
    except Exception as error:  # noqa: BLE001 - the last line of defence
        # Of the option parser, whose errors have no public class in every version of typer.
        if hasattr(error, "format_message"):
            _refuse(error)
        if isinstance(error, OSError) and error.filename and error.errno in _PATH_ERRORS:
            reason = f"{error.filename}: {error.strerror}"
            _fail(UsageError(reason, hint="check the path and its permissions").facts)
        _fail(
            {
                "code": "internal",
                "message": f"a fault in benchfarm itself: {type(error).__name__}: {error}",
                "hint": "run the command again with 'benchfarm --debug ...' and report the traceback",
                "exit_code": BenchfarmError.exit_code,
            }
        )


def _stop(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _refuse(error: Any) -> NoReturn:  # noqa: ANN401 - see above
    """Print an error of the option parser, and exit."""
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "benchfarm"
    message = error.format_message()
    if context is not None and message == context.get_help():
        if not ("--json" in sys.argv or _is_json_log()):
            say(message, err=True)
            raise SystemExit(error.exit_code)
        message = f"{command} needs a command"
    hint = f"see '{command} -h'"
    _fail({**UsageError(message, hint=hint).facts, "exit_code": error.exit_code})


def _format_on_command_line(words: Sequence[str]) -> str | None:
    """Return the value of ``--log-format``, for errors before the options are read."""
    for word, following in itertools.pairwise((*words, "")):
        if word == "--log-format":
            return following
        if word.startswith("--log-format="):
            return word.partition("=")[2]
    return None


def _is_json_log() -> bool:
    if options.log_format is not None:
        return options.log_format == "json"
    from orchestrator.settings import Settings

    with suppress(BenchfarmError):
        return Settings.from_environment().log_format == "json"
    return False


def _fail(error: Mapping[str, object]) -> NoReturn:
    """Print the error that ended the command, to programs as JSON, and exit; ignore further
    signals.
    """
    ignore_stop_signals()
    # As typed: the option parser's errors are JSON too.
    if "--json" in sys.argv:
        # Where nobody can read it, the exit code is enough.
        with suppress(OutputClosedError, HostStorageError):
            say_json(json_pieces({"error": error}, sys.stdout))
    if _is_json_log():
        trace = traceback.format_exc() if options.debug else None
        keys = {name: value for name, value in error.items() if name != "message"}
        write_line("error", str(error["message"]), level="error", **keys, traceback=trace)
        raise SystemExit(error["exit_code"])
    if options.debug:
        traceback.print_exc()
    say(f"benchfarm: error: {error['message']}", err=True)
    if error["hint"]:
        say(f"  {error['hint']}", err=True)
    raise SystemExit(error["exit_code"])
