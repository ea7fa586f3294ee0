"""Turns arguments into an exit code. Every error that a user can meet becomes one line on stderr."""

import json
import logging
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer
from typer.main import get_command

from conductor_core import __version__, masking
from conductor_core.cli.commands import app_for
from conductor_core.cli.text import one_line
from conductor_core.errors import BadInput, InspectorError, StoreError

_BAD_INPUT = 2


def _version(asked: bool) -> None:
    if asked:
        print(f"conductor-inspector {__version__}")
        raise typer.Exit


def _common(
    _asked_version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show the program's log on stderr.")] = False,
) -> None:
    masking.mask_logs()
    # Without a handler, Python would print the log's warnings and tracebacks between the lines of progress.
    logging.basicConfig(
        level=logging.INFO,
        handlers=[logging.StreamHandler() if verbose else logging.NullHandler()],
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command: 0 done, 1 the run failed, 2 bad input, 130 or 143 stopped by a signal."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    _open_what_is_closed()
    for stream in (sys.stdout, sys.stderr):
        if (reconfigure := getattr(stream, "reconfigure", None)) is not None:
            reconfigure(errors="backslashreplace")
    try:
        code = _run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        _give_stdout_up()  # whoever read our output has left
        return 1
    except OSError as error:
        _give_stdout_up()
        with suppress(OSError):
            print(f"error: the output cannot be written: {error.strerror or error}", file=sys.stderr)
        return 1
    return code


def _open_what_is_closed() -> None:
    """Opens the streams that the caller closed. Without them Python prints on stdout what belongs on stderr."""
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115  for as long as the process
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115  for as long as the process


def _give_stdout_up() -> None:
    """Closes stdout, so that the interpreter does not complain once more at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _stdout_failed() -> bool:
    try:
        sys.stdout.flush()
    except OSError:
        return True
    return False


def _run(arguments: Sequence[str]) -> int:
    try:
        app = app_for(arguments)
        app.callback()(_common)
        result = get_command(app).main(args=arguments, prog_name=_name(), standalone_mode=False)
    except typer.TyperException as error:
        return _fail(arguments, "BadInput", _usage_message(error), _BAD_INPUT)
    except InspectorError as error:
        return _fail(arguments, error.code, str(error), _BAD_INPUT if isinstance(error, BadInput | StoreError) else 1)
    except BrokenPipeError:
        raise
    except OSError as error:
        if _stdout_failed():
            raise
        return _fail(arguments, type(error).__name__, f"this machine refused: {error}", 1)
    except KeyboardInterrupt:
        return 130
    return result if isinstance(result, int) else 0


def _name() -> str:
    """Returns how the program was called."""
    called = Path(sys.argv[0]).name
    return called if called == "conductor" else "python -m conductor_core"


def _fail(arguments: Sequence[str], code: str, message: str, exit_code: int) -> int:
    line = one_line(message, 2000)
    if "--json" in arguments:
        from conductor_core.documents import error_document  # it brings in the whole vocabulary of runs

        # For many tasks, stdout has one document on each line.
        print(json.dumps(error_document(code, line), indent=None if "--tasks" in arguments else 2))
    print(f"error: {line}", file=sys.stderr)
    return exit_code


def _usage_message(error: typer.TyperException) -> str:
    format_message = getattr(error, "format_message", None)
    message = str(error) if format_message is None else str(format_message())
    return f"{message.rstrip('.')}; see --help"
