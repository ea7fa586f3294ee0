"""The entry of the command line: the table of commands, and one exit code for all that can happen.

Exit codes: 0 done, 1 the run failed, 2 bad input. Every error that a user can meet becomes one line on stderr, and a
missing package is named by the extra that brings it. Only the command that is asked for is imported: else a short
command would spend most of its time on imports. Ctrl-C and SIGTERM end a command with an exit code of their own.
"""

import inspect
import json
import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from conductor_core import __version__
from conductor_core.cli.output import one_line
from conductor_core.errors import BadInput, InspectorError, StoreError
from conductor_core.files import give_stdout_up, only_for_owner
from conductor_core.privacy import masking


@dataclass(frozen=True)
class Group:
    """Commands under one name, and what the list of commands says of them."""

    line: str
    commands: Mapping[str, tuple[str, str]]


COMMANDS: Mapping[str, tuple[str, str] | Group] = {
    "plan": ("plan:plan", "Let the Conductor write a workflow for TASK, without running it."),
    "check": ("check:check", "Show what a workflow FILE means, and every fault and warning with its place."),
    "run": (
        "run:run",
        "Run TASK (-: stdin): the Conductor plans, workers answer. The answer goes to stdout, progress to stderr.",
    ),
    "rerun": (
        "rerun:rerun",
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
    "serve": ("serve:serve", "Serve runs as models to clients of OpenAI's and Anthropic's APIs, without the pages."),
    "mcp": (
        "mcp:mcp",
        "Serve the record of runs to a coding agent as MCP tools that only read, over stdin and stdout.",
    ),
    "export": (
        "export:export",
        "Write RUN_ID as a page that opens without a server, or its plan as lists, JSON, a picture or a script.",
    ),
    "import": (
        "export:import_run",
        "Read a run from a page that export, compare or Share wrote. It is marked as imported.",
    ),
    "runs": ("show:runs", "List runs, newest first."),
    "waiting": ("approvals:waiting", "List the runs that wait for an approval or for tools: for what, since when."),
    "approve": ("approvals:approve", "Let RUN_ID continue, as it is or with an edited workflow."),
    "deny": ("approvals:deny", "End RUN_ID as denied. Finished steps are kept."),
    "cancel": ("approvals:cancel", "Cancel RUN_ID, whichever process carries it out. Finished steps are kept."),
    "judge": ("judge:judge", "Say that the answer of RUN_ID, or one of its steps, is right or wrong; a score, a note."),
    "judgements": (
        "judge:judgements",
        "List what people, graders and judges hold of runs, or export the right answers as a suite for evaluate.",
    ),
    "log": Group(
        "Check, search, export, copy and erase the record of all runs, and show who viewed it.",
        {
            "verify": ("log_evidence:verify_record", "Check that the record is as it was written; changes nothing."),
            "search": ("log_search:search", "Find texts of runs; without WORDS, runs."),
            "ledger": ("log_search:ledger", "Which provider and host received what; with WORDS, only such texts."),
            "received": ("log_search:received", "Answer from the events whether a provider was ever sent a text."),
            "spending": ("log_search:spending", "Tokens and cost by day, agent and person."),
            "failures": ("log_search:failures", "Which failures there are, how often, and in which tasks."),
            "shadow": (
                "log_search:shadow",
                "Compare forwarded requests with the Conductor's runs of them: right, time, tokens, cost, failures.",
            ),
            "access": (
                "log_search:access",
                "Who viewed, exported, searched, erased, deleted or held what, newest first.",
            ),
            "export": ("log_evidence:export", "Write runs as a bundle that anybody can check without this program."),
            "record": (
                "log_evidence:record",
                "Check a bundle, then print what happened in its runs, from the proven events alone.",
            ),
            "verifier": (
                "log_evidence:verifier",
                "Write the verifier as one file that needs Python and cryptography.",
            ),
            "key": ("log_evidence:key", "Print the public key that checks this log, and its fingerprint."),
            "anchor": (
                "log_evidence:anchor",
                "Show where checkpoints are published and whether that is a witness, or choose where.",
            ),
            "witness": (
                "log_evidence:witness",
                "As another user: keep what a log publishes, as long as it only grows.",
            ),
            "backup": (
                "log_lifecycle:backup_database",
                "Copy the database to a new file, while it is in use, and verify the copy.",
            ),
            "restore": (
                "log_lifecycle:restore_database",
                "Put a backup in the place of a database, once it is verified.",
            ),
            "erase": ("log_lifecycle:erase", "Destroy the text of runs for good. They stay in lists as erased."),
            "retain": ("log_lifecycle:retain", "List the runs that are older than so many days, or erase them."),
            "hold": ("log_lifecycle:hold", "Forbid to delete or erase runs, or allow it again."),
        },
    ),
    "models": Group(
        "List, download, delete and time the Conductors of this machine: list, pull, remove, time.",
        {
            "list": (
                "models:list_models",
                "List every Conductor that this machine has or could have: size, licence, memory, seconds a plan takes "
                "here.",
            ),
            "pull": (
                "models:pull",
                "Download a model of the hub. It goes on where it stopped, however that was; digests are checked.",
            ),
            "remove": (
                "models:remove",
                "Delete what the hub's cache has of a model, also an unfinished download. A model in use stays.",
            ),
            "time": (
                "models:time_model",
                "Measure how many seconds a plan takes on this machine. The model need not be downloaded.",
            ),
        },
    ),
    "tools": (
        "tools:tools",
        "List the tools that workers of POOL_FILE may call, or call one: POOL_FILE call SERVER.TOOL.",
    ),
    "keys": Group(
        "Create, list and revoke the keys of the endpoint: create, list, revoke.",
        {
            "create": ("keys:create", "Create a key for NAME, and print it."),
            "list": ("keys:list_keys", "List all keys with their limits and what they spent today, in UTC."),
            "revoke": ("keys:revoke", "Revoke the key NAME."),
        },
    ),
    "tiers": Group(
        "Send easy requests to one cheap worker: fit, curve.",
        {
            "fit": ("tiers:fit", "Fit the classifier on recorded outcomes, and write it to FILE."),
            "curve": ("tiers:curve_command", "Show cost against quality for the thresholds of FILE."),
        },
    ),
    "train": ("train:train_command", "Train a Conductor by CONFIG. Give the output folder as --conductor to use it."),
    "evaluate": (
        "evaluate:evaluate_command",
        "Give a suite of tasks with known answers to the Conductor and its baselines, and score each.",
    ),
}
"""For each name: where the command is, and what it does. Its help goes on with the docstring of the function."""


def _typed(command: Callable[..., int], common: Sequence[str]) -> Callable[..., int]:
    """Returns the command as typer reads it: its parameter ``given`` is the shared options that its annotation names.

    It takes, and ignores, those of the ``common`` options that it lacks: a script can give the same ones to each.
    """
    own = dict(inspect.signature(command).parameters)
    shared = own.pop("given", None)
    of: Any = None
    names: list[str] = []
    if shared is not None:
        of, *names = get_args(shared.annotation)
    types = get_type_hints(of, include_extras=True) if of else {}

    @wraps(command)
    def run(**typed: Any) -> int:
        given = {"given": of(**{name: typed[name] for name in names})} if of else {}
        return command(**{name: typed[name] for name in own}, **given)

    kind = inspect.Parameter.KEYWORD_ONLY
    parameters = [each.replace(kind=kind) for each in own.values()]
    parameters += [inspect.Parameter(each, kind, default=getattr(of, each), annotation=types[each]) for each in names]
    for name in common:
        if name not in own and name not in names:
            hidden = Annotated[str | None, typer.Option(f"--{name}", hidden=True)]
            parameters.append(inspect.Parameter(name, kind, default=None, annotation=hidden))
    # typer reads both.
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


_COMMON = ("conductor", "pool", "db")
_HAVE_THEIR_OWN = ("ui", "log_evidence", "log_lifecycle", "log_search")


class LazyGroup(TyperGroup):
    """Lists the commands of ``table`` without importing them, and imports the one that is asked for."""

    table: Mapping[str, tuple[str, str] | Group] = COMMANDS

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        lines = {name: entry.line if isinstance(entry, Group) else entry[1] for name, entry in self.table.items()}
        self.commands = {name: TyperCommand(name, help=line, rich_markup_mode=None) for name, line in lines.items()}

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, listed, rest = super().resolve_command(ctx, args)
        return name, listed if name is None else self._imported(name), rest

    def _imported(self, name: str) -> Any:
        entry = self.table[name]
        if isinstance(entry, Group):
            kind = type("CommandsOf", (LazyGroup,), {"table": entry.commands})
            return kind(name=name, help=entry.line, rich_markup_mode=None)
        place, line = entry
        module, function = place.split(":")
        command = getattr(import_module(f"conductor_core.cli.{module}"), function)
        one = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
        typed = _typed(command, () if module in _HAVE_THEIR_OWN else _COMMON)
        one.command(name, help=f"{line}\n\n{inspect.getdoc(command) or ''}")(typed)
        return get_command(one)


_BAD_INPUT = 2


def _version(asked: bool) -> None:
    if asked:
        print(f"conductor-inspector {__version__}")
        raise typer.Exit


app = typer.Typer(cls=LazyGroup, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.callback()
def _common(
    _asked_version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show the program's log on stderr.")] = False,
) -> None:
    """See, steer and re-run what a Conductor's workflow of language models does."""
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
    # The caller may have closed these. Without them Python prints on stdout what belongs on stderr.
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115  for as long as the process
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115  for as long as the process
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


def _run(arguments: Sequence[str]) -> int:
    called = Path(sys.argv[0]).name
    name = called if called == "conductor" else "python -m conductor_core"
    try:
        result = get_command(app).main(args=arguments, prog_name=name, standalone_mode=False)
    except typer.TyperException as error:
        format_message = getattr(error, "format_message", None)
        message = str(error) if format_message is None else str(format_message())
        said = f"{message.rstrip('.').replace(': Value error, ', ': ')}; see --help"
        return _fail(arguments, "BadInput", said, _BAD_INPUT)
    except InspectorError as error:
        return _fail(arguments, error.code, str(error), _BAD_INPUT if isinstance(error, BadInput | StoreError) else 1)
    except BrokenPipeError:
        raise
    except OSError as error:
        sys.stdout.flush()  # raises if it was stdout that failed
        return _fail(arguments, type(error).__name__, f"this machine refused: {error}", 1)
    except KeyboardInterrupt:
        return 130
    except SystemExit as stopped:  # by SIGTERM, or after the words for the shell's completion
        return stopped.code if isinstance(stopped.code, int) else 0
    return result if isinstance(result, int) else 0


def _fail(arguments: Sequence[str], code: str, message: str, exit_code: int) -> int:
    line = one_line(masking.known_and_set().text(message), 2000)
    if "--json" in arguments:
        from conductor_core.analysis.documents import error_document  # it brings in the whole vocabulary of runs

        # For many tasks, stdout has one document on each line.
        print(json.dumps(error_document(code, line), indent=None if "--tasks" in arguments else 2))
    print(f"error: {line}", file=sys.stderr)
    return exit_code
