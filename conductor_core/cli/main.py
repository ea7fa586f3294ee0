"""The entry of the command line: the list of commands, and one exit code for all that can happen.

Exit codes: 0 done, 1 the run failed, 2 bad input. Every error that a user can meet becomes one line on stderr, and a
missing package is named by the extra that brings it. Only the command that is asked for is imported: else a short
command would spend most of its time on imports. Ctrl-C and SIGTERM end a command with an exit code of their own.
"""

import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer
from typer.main import get_command

from conductor_core import __version__
from conductor_core.cli.text import one_line
from conductor_core.errors import BadInput, InspectorError, StoreError
from conductor_core.files import give_stdout_up, only_for_owner
from conductor_core.privacy import masking

COMMANDS = {
    "plan": ("plan:plan", "Let the Conductor write a workflow for TASK, without running it."),
    "check": ("check:check", "Show what a workflow FILE means, and every fault and warning with its place."),
    "run": (
        "run:run",
        "Run TASK (-: stdin): the Conductor plans, workers answer. The answer goes to stdout, progress to stderr.",
    ),
    "rerun": (
        "rerun:rerun_command",
        "Run RUN_ID again as a new run, with one step or the workflow changed; unchanged steps are reused.",
    ),
    "show": (
        "show:show",
        "Print the whole record of a run: plan, steps, what each saw and was not shown, spending, answer.",
    ),
    "compare": ("compare:compare_command", "Compare runs: plans, outputs, answers, cost and time."),
    "blame": (
        "blame:blame_command",
        "Measure which step, and which access granted or withheld, decided the answer of RUN_ID.",
    ),
    "ui": ("ui:ui", "Serve the inspector for a browser: ask, watch, edit, re-run."),
    "export": (
        "export:export",
        "Write RUN_ID as a page that opens without a server, or its plan as lists, JSON, a picture or a script.",
    ),
    "import": (
        "import_run:import_run",
        "Read a run from a page that export, compare or Share wrote. It is marked as imported.",
    ),
    "runs": ("show:runs", "List runs, newest first."),
    "waiting": ("approvals:waiting", "List the runs that wait for an approval: for what, by which gate, since when."),
    "approve": ("approvals:approve", "Let RUN_ID continue, as it is or with an edited workflow."),
    "deny": ("approvals:deny", "End RUN_ID as denied. Finished steps are kept."),
    "cancel": ("cancel:cancel_command", "Cancel RUN_ID, whichever process carries it out. Finished steps are kept."),
    "models": (
        "models:models",
        "List, download, delete and time the Conductors of this machine: list, pull, remove, time.",
    ),
    "train": ("train:train_command", "Train a Conductor by CONFIG. Give the output folder as --conductor to use it."),
    "evaluate": (
        "evaluate:evaluate_command",
        "Give a suite of tasks with known answers to the Conductor and its baselines, and score each.",
    ),
}
"""For each name: where the command is, and its line in the list of commands."""


def app_for(arguments: Sequence[str]) -> typer.Typer:
    """Builds the program. Of its commands, only the one that ``arguments`` name can be called."""
    app = typer.Typer(
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        help="See, steer and re-run what a Conductor's workflow of language models does.",
    )
    asked = next((argument for argument in arguments if not argument.startswith("-")), None)
    for name, (place, line) in COMMANDS.items():
        if name == asked:
            module, function = place.split(":")
            found = getattr(import_module(f"conductor_core.cli.{module}"), function)
            if isinstance(found, typer.Typer):
                app.add_typer(found, name=name)
            else:
                app.command(name)(found)
        else:
            app.command(name, help=line)(_not_asked)
    return app


def _not_asked() -> int:
    raise AssertionError("a command that was not named was called")


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
    only_for_owner()
    _open_what_is_closed()
    for stream in (sys.stdout, sys.stderr):
        if (reconfigure := getattr(stream, "reconfigure", None)) is not None:
            reconfigure(errors="backslashreplace")
    try:
        code = _run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        give_stdout_up()  # whoever read our output has left
        return 1
    except OSError as error:
        give_stdout_up()
        with suppress(OSError):
            print(f"error: the output cannot be written: {error.strerror or error}", file=sys.stderr)
        return 1
    return code


def _open_what_is_closed() -> None:
    """Opens the streams that the caller closed. Without them Python prints on stdout what belongs on stderr."""
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115  for as long as the process
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115  for as long as the process


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
    line = one_line(masking.known_and_set().text(message), 2000)
    if "--json" in arguments:
        from conductor_core.analysis.documents import error_document  # it brings in the whole vocabulary of runs

        # For many tasks, stdout has one document on each line.
        print(json.dumps(error_document(code, line), indent=None if "--tasks" in arguments else 2))
    print(f"error: {line}", file=sys.stderr)
    return exit_code


def _usage_message(error: typer.TyperException) -> str:
    format_message = getattr(error, "format_message", None)
    message = str(error) if format_message is None else str(format_message())
    return f"{message.rstrip('.')}; see --help"


# Extras of the distribution.

EXTRAS = {
    "train": ("accelerate", "datasets", "trl"),
    "evaluate": ("datasets", "math_verify", "sklearn", "scipy"),
    "otlp": (
        "opentelemetry.trace",
        "opentelemetry.sdk",
        "opentelemetry.exporter.otlp.proto.http",
        "opentelemetry.exporter.otlp.json.common",
        "requests",
    ),
}
"""By extra: the modules that it brings, as they are imported."""


def needs_extra(extra: str) -> None:
    """Raises: BadInput if a module of ``extra`` is not installed."""
    missing = [module for module in EXTRAS[extra] if not _is_installed(module)]
    if missing:
        raise BadInput(
            f'this command needs the extra "{extra}" ({", ".join(missing)} not installed). '
            f"Run: pip install 'conductor-inspector[{extra}]'"
        )


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # a package above it is missing
        return False


# Signals.

_EXIT_CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}


@contextmanager
def stopping(stop: Callable[[], object]) -> Iterator[list[int]]:
    """Calls ``stop`` at the first SIGINT or SIGTERM; a second one ends the program. Needs a running event loop.

    Yields a list: empty at first, it holds the exit code from the first signal on.
    """
    import asyncio  # when used: the short commands run nothing

    loop = asyncio.get_running_loop()
    codes: list[int] = []

    def on_signal(number: signal.Signals) -> None:
        if codes:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        codes.append(_EXIT_CODES[number])
        stop()

    for number in _EXIT_CODES:
        loop.add_signal_handler(number, on_signal, number)
    try:
        yield codes
    finally:
        for number in _EXIT_CODES:
            loop.remove_signal_handler(number)
