"""Lists the commands. Each returns its exit code: 0 done, 1 the run failed, 2 bad input.

Only the command that is asked for is imported: else a short command would spend most of its time on imports.
"""

from collections.abc import Sequence
from importlib import import_module

import typer

COMMANDS = {
    "plan": ("plan:plan", "Let the Conductor write a workflow for TASK, without running it."),
    "check": ("check:check", "Show what a workflow FILE means, and every fault and warning with its place."),
    "run": ("run:run", "Run TASK: the Conductor plans, workers answer. The answer goes to stdout, progress to stderr."),
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
    "waiting": ("waiting:waiting", "List the runs that wait for an approval: for what, by which gate, since when."),
    "approve": ("waiting:approve", "Let RUN_ID go on, as it is or with an edited workflow."),
    "deny": ("waiting:deny", "End RUN_ID as denied. Finished steps are kept."),
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
