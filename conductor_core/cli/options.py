"""The options that several commands share, and what they lead to: settings, database, engine, and what is printed."""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from conductor_core.chat.messages import OnIncomplete
from conductor_core.cli.inputs import database_url, named, read_settings, with_lora
from conductor_core.cli.output import one_line, print_json, print_not_on_record, print_notes
from conductor_core.engine.request import limits_from
from conductor_core.errors import BadInput
from conductor_core.files import is_there
from conductor_core.run.request import RunRequest
from conductor_core.run.values import Limits
from conductor_core.settings import Settings

if TYPE_CHECKING:
    from conductor_core.engine.host import EngineHost
    from conductor_core.run.events import EventSink
    from storage import Store

Status = Literal[
    "queued", "running", "waiting", "planned", "completed", "refused", "filtered", "cut", "empty", "failed", "denied",
    "cancelled", "interrupted", "damaged", "too_new", "key_away",
    "erased",
]  # fmt: skip
"""What ``runs --status`` takes."""
WorkflowFile = Annotated[Path | None, typer.Option(metavar="FILE", help="Run this workflow instead of planning one.")]
RunId = Annotated[str, typer.Argument(metavar="RUN_ID", help="The run's id, or its beginning.")]
Note = Annotated[str, typer.Option(metavar="TEXT", help="Why. Kept in the run's record.")]
OfStep = Annotated[str | None, typer.Option(metavar="N", help="Decide only about step N. Default: all that waits now.")]


@dataclass(frozen=True)
class Options:
    """What the shared options of a command say. The annotation of its parameter ``given`` names those that it takes."""

    conductor: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            callback=named,
            help="tiny (default), a name or FILE#NAME of a conductors file, a model folder, a GGUF file, a hub id, or "
            "URL#MODEL. CONDUCTOR_CONDUCTOR sets another default.",
        ),
    ] = None
    lora: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A LoRA adapter in GGUF form for --conductor FILE.gguf.")
    ] = None
    pool: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            callback=named,
            help="rehearsal (default), paper, small, a pool file (TOML), or the name of one in pools/ of the data "
            "folder. CONDUCTOR_POOL sets another default.",
        ),
    ] = None
    db: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|URL",
            callback=database_url,
            help="Database: an SQLite file or its URL. Default: DATABASE_URL, else a file in your data folder.",
        ),
    ] = None
    exclude: Annotated[
        list[str] | None, typer.Option(metavar="AGENT", help="A worker to leave out; may be repeated.")
    ] = None
    seed: Annotated[
        int | None, typer.Option(min=-(2**63), max=2**63 - 1, help="Seed of simulated workers and of sampled decoding.")
    ] = None
    max_steps: Annotated[int | None, typer.Option(min=1, max=32, help="Steps a workflow may have.")] = None
    max_tokens: Annotated[int | None, typer.Option(min=1, max=10**12, help="Token budget of the run.")] = None
    max_usd: Annotated[float | None, typer.Option(min=0, max=1e9, help="Cost budget of the run in USD.")] = None
    max_seconds: Annotated[
        float | None, typer.Option(min=0.001, max=1e9, help="Wall time budget of the run in seconds.")
    ] = None
    max_depth: Annotated[int | None, typer.Option(min=0, max=8, help="Recursive rounds below the first.")] = None
    on_incomplete: Annotated[
        OnIncomplete | None,
        typer.Option(
            help="What happens to a step whose answer is refused, filtered, cut or empty. allow: later steps read what "
            "there is. stop: those steps are skipped. more_tokens: a cut answer is requested again with more tokens. "
            "fallback: the worker's fallback is asked. Default: the pool file's, else CONDUCTOR_ON_INCOMPLETE."
        ),
    ] = None
    give_question: Annotated[
        bool | None,
        typer.Option(
            "--give-question/--no-give-question",
            help="Tell every step the task, even if its instruction lacks {question}. Default: the pool file's, else "
            "CONDUCTOR_GIVE_QUESTION.",
        ),
    ] = None
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document to stdout, everything else to stderr.")
    ] = False
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Do not show progress on stderr.")] = False

    @cached_property
    def settings(self) -> Settings:
        return read_settings()

    def say(self, *lines: str) -> None:
        """Prints progress on stderr."""
        if lines and not self.quiet:
            print("\n".join(lines), file=sys.stderr, flush=True)

    def print(self, document: Callable[[], Any], lines: Callable[[], Iterable[str]]) -> None:
        """Prints a document if that is asked for, else lines; only one of them is made."""
        if self.as_json:
            print_json(document())
        else:
            print("\n".join(lines()))

    def limits(self, base: Limits | None = None) -> Limits:
        """Returns the budgets of ``base``, by default the settings', with those that were given in their place."""
        start = limits_from(self.settings) if base is None else base
        given = {name: value for name in Limits.model_fields if (value := getattr(self, name)) is not None}
        return Limits.model_validate(dict(start) | given)

    def request(self, **more: Any) -> RunRequest:
        """Returns a run as the options and the settings ask for it. ``more``: its further fields."""
        asked: dict[str, Any] = {
            "conductor": with_lora(self.conductor, self.lora) or self.settings.conductor,
            "pool": self.pool or self.settings.pool,
            "limits": self.limits(),
            "seed": self.settings.seed if self.seed is None else self.seed,
            "excluded": tuple(self.exclude or ()),
            "on_incomplete": self.on_incomplete,
            "give_question": self.give_question,
        }
        return RunRequest.model_validate(asked | more)

    # Databases. The store is imported by whoever opens one.

    @property
    def database(self) -> Path:
        """The file of the database. Raises: StoreError."""
        from storage.database.connections import path_of

        return path_of(self.db or self.settings.resolved_database_url)

    @property
    def existing_database(self) -> Path:
        """The file of a database that is there. Raises: BadInput, StoreError."""
        if not (path := self.database).is_file():
            raise BadInput(f"no database at {one_line(str(path), 300)}")
        return path

    @contextmanager
    def store(self, *, read: bool = False, of_a_run: bool = False) -> "Iterator[Store]":
        """Opens the database and marks the runs of dead processes.

        With ``read``, a database that cannot be written will do, too. With ``read`` or ``of_a_run`` it must be there if
        it was named: runs are looked for in it. Raises: StoreError, BadInput.
        """
        from storage.store import store_of

        if self.db is not None and (read or of_a_run) and not is_there(self.database):
            raise BadInput(f"no database at {one_line(str(self.database), 300)}")
        with closing(store_of(self.database, self.settings)) as store:
            if store.refusal is not None and not read:
                raise store.refusal
            store.mark_interrupted()
            yield store

    @contextmanager
    def reading(self) -> "Iterator[Store]":
        """Opens the database to show what is in it. In the end says what is wrong with it, or with its access log."""
        with self.store(read=True) as store:
            yield store
            print_not_on_record(store)
            print_notes(store)

    @contextmanager
    def existing_store(self) -> "Iterator[Store]":
        """Opens a database that is there as it is: no run of a dead process is marked. Raises: BadInput, StoreError."""
        from storage.store import store_of

        with closing(store_of(self.existing_database, self.settings)) as store:
            yield store

    @contextmanager
    def engine(self, store: "Store", *, serves: bool = False) -> "Iterator[EngineHost]":
        """Opens the engine, which writes to ``store``. On closing it cancels what still runs. Raises: StoreError.

        ``serves``: nobody waits for its results, and it goes on with every run about which somebody decides.
        """
        if store.refusal is not None:
            raise store.refusal
        from conductor_core.engine.host import EngineHost

        traces = None
        log: EventSink = store.log
        if self.settings.otlp_endpoint is not None:
            from conductor_core.export.otel import open_traces, watched

            traces = open_traces(self.settings, lambda run_id: [stored.event for stored in store.events(run_id)])
            log = watched(store.log, traces)
        host = EngineHost(log, self.settings, store, awaited=not serves, carries_on_all=serves)
        try:
            yield host
        finally:
            host.close()
            if traces is not None and (lost := traces.close()):
                print(f"warning: {one_line(lost, 400)}", file=sys.stderr)


NONE = Options()
OF_A_PLAN = ("conductor", "lora", "pool", "db", "exclude", "seed", "max_steps", "max_depth")
OF_A_RUN = (
    "conductor", "lora", "pool", "db", "exclude", "seed", "max_steps", "max_tokens", "max_usd", "max_seconds",
    "max_depth", "on_incomplete", "give_question",
)  # fmt: skip
Db = Annotated[Options, "db"]
Json = Annotated[Options, "as_json"]
JsonQuiet = Annotated[Options, "as_json", "quiet"]
DbJson = Annotated[Options, "db", "as_json"]
DbJsonQuiet = Annotated[Options, "db", "as_json", "quiet"]
