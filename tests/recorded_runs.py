"""The runs that come with the program: `make recorded-runs` makes them anew.

Two show the story of the tour: a wrong answer because a step did not see an output, and the same run after one access
list was changed. The engine carries them out with the simulated workers, at a pace that can be read.

The third is real: ``python -m tests.recorded_runs CODER WRITER`` lets the small Conductor plan a task, and the models
of these files of the models folder, named without ``.gguf``, answer it. It is kept as it came.
"""

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from conductor_core import __version__
from conductor_core.chat.messages import WorkerSpec
from conductor_core.engine.host import EngineHost
from conductor_core.engine.offers import save_pool
from conductor_core.engine.request import rerun_of
from conductor_core.rehearsal import grade
from conductor_core.run.actor import THE_PROGRAM
from conductor_core.run.request import RunRequest
from conductor_core.run.share import FOLDER, SharedRun, inert_json, packed_events
from conductor_core.run.trace import RunTrace
from conductor_core.settings import Settings
from pages.components.tour import drive as story
from storage import Store, open_store

TOKENS_PER_S = 45
DELTA_MS = 80


@dataclass(frozen=True)
class Engine:
    """The engine on a database of its own, whose workers write at a readable pace."""

    settings: Settings
    store: Store
    host: EngineHost

    def run(self, request: RunRequest) -> RunTrace:
        """Carries out what nobody asked for by name. Raises: SystemExit if it is not completed."""
        trace = self.host.wait(self.host.start(request.model_copy(update={"actor": THE_PROGRAM, "door": None})), 300)
        if trace.status != "completed":
            raise SystemExit(f"error: the run ended as {trace.status}: {trace.error}")
        return trace


@contextmanager
def engine() -> Iterator[Engine]:
    models = Settings().models_folder
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(data_folder=Path(folder), rehearsal_tokens_per_s=TOKENS_PER_S, delta_interval_ms=DELTA_MS)
        (Path(folder) / models.name).symlink_to(models)
        store = open_store(settings.resolved_database_url)
        host = EngineHost(store.log, settings, store)
        try:
            yield Engine(settings, store, host)
        finally:
            host.close()
            store.close()


REAL_TASK = "Write a Python function median(values) for lists of any length, the empty list included, and check it."


def make(engine: Engine) -> dict[str, RunTrace]:
    """Carries the runs out, oldest first. Raises: SystemExit if they do not show what they are for."""
    withheld = engine.run(RunRequest(task=story.TASK, workflow=story.PLAN, seed=story.SEED))
    unmoved = tuple(range(len(story.PLAN.steps)))
    granted = engine.run(rerun_of(withheld, story.CHANGED, door="cli", origins=unmoved))
    right = [grade(trace.task, trace.answer or "") for trace in (withheld, granted)]
    if right != [False, True]:
        raise SystemExit(f"error: these runs show something else now: {right}. Choose another seed or task")
    return {"1-withheld": withheld, "2-granted": granted}


def make_real(engine: Engine, coder: str, writer: str) -> RunTrace:
    """Carries out the run with real models, files of the models folder, named without ``.gguf``."""
    workers = (
        ("coder", coder, "writes and explains code"),
        ("checker", coder, "checks work for mistakes"),
        ("writer", writer, "writes and rewrites texts"),
    )
    specs = [
        WorkerSpec(name=name, provider="gguf", model=f"models: {model}", description=about, timeout_s=600)
        for name, model, about in workers
    ]
    save_pool("real", specs, engine.settings)
    return engine.run(RunRequest(task=REAL_TASK, conductor="small", pool="real"))


def write(store: Store, trace: RunTrace, name: str) -> Path:
    events = [stored.event for stored in store.events(trace.run_id)]
    shared = SharedRun(
        written_by=f"conductor-inspector {__version__}",
        written_at_utc=datetime.now(UTC),
        run_id=trace.run_id,
        task=trace.task,
        simulated=trace.simulated,
        record=packed_events(events),
        view="",
    )
    file = FOLDER / f"{name}.json"
    file.write_text(inert_json(shared) + "\n", encoding="utf-8", newline="\n")
    return file


def main() -> int:
    with engine() as running:
        traces = {"3-real": make_real(running, *sys.argv[1:])} if sys.argv[1:] else make(running)
        for name, trace in traces.items():
            file = write(running.store, trace, name)
            size, said = file.stat().st_size, f"{len(trace.steps)} steps, answer {trace.answer!r}"
            print(f"wrote {file.relative_to(FOLDER.parents[2])}: {size / 1e3:.0f} kB, {said}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
