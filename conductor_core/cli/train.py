"""``train`` makes a Conductor from a config file, stage by stage.

A config of real size has real workers, perhaps many processes, or a dry run of it all (``train_at_scale``).
"""

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from conductor_core.cli import inputs, options
from conductor_core.cli.inputs import needs_extra, opened_store
from conductor_core.cli.output import print_json
from conductor_core.errors import BadInput
from conductor_core.lab.records.training import Stage
from conductor_core.lab.training.config import STAGES, TrainingConfig, read_config
from conductor_core.settings import Settings
from storage import Store

if TYPE_CHECKING:
    from conductor_core.lab.training.recorder import Trained


def train_at_scale(
    config: TrainingConfig,
    out: Path | None,
    *,
    resume: bool,
    stop_after: Stage | None,
    start_from: str | None,
    dry_run: bool,
    pool: str | None,
    max_usd: float | None,
    db: str | None,
    show: Callable[[str], None],
) -> "Trained":
    """Trains, or rehearses it in a dry run. Raises: BadInput, and what stops a training."""
    config = _with_choices(config, pool, max_usd)
    settings = inputs.read_settings()
    with _folder(out, show, dry_run=dry_run) as folder, _store(db, settings) as store:
        from conductor_core.lab.training import scale  # only now: torch takes seconds to load
        from conductor_core.lab.training.folder import held

        with held(folder, resume=resume) if _main_process() else nullcontext():
            if dry_run:
                settings = settings.model_copy(update={"rehearsal_tokens_per_s": 0.0})
                made = scale.rehearsed(config, folder, pool=pool)
                for line in scale.differences(config, made):
                    show(line)
                scale.write_model(made)
                config, start_from = made, None
            return scale.train(
                config,
                folder,
                settings,
                resume=resume,
                stop_after=stop_after,
                start_from=start_from,
                sink=None if store is None else store.log,
                show=show,
            )


def _main_process() -> bool:
    return os.environ.get("RANK", "0") == "0"


def _with_choices(config: TrainingConfig, pool: str | None, max_usd: float | None) -> TrainingConfig:
    if config.scale is None:
        raise BadInput(f"--dry-run: config {config.name} is small enough to be run as it is")
    chosen = {name: value for name, value in (("pool", pool), ("max_usd", max_usd)) if value is not None}
    workers = config.scale.workers.model_copy(update=chosen)
    return config.model_copy(update={"scale": config.scale.model_copy(update={"workers": workers})})


@contextmanager
def _folder(out: Path | None, show: Callable[[str], None], *, dry_run: bool) -> Iterator[Path]:
    """Gives ``out``, or for a dry run without one a temporary folder, which is then removed."""
    if out is not None:
        yield out
        return
    if not dry_run or int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise BadInput("give --out FOLDER: where the model, the record and the workers' answers are kept")
    with tempfile.TemporaryDirectory(prefix="dry-run-") as folder:
        yield Path(folder)
        show("the dry run came to its end; its folder is removed: keep it with --out FOLDER")


@contextmanager
def _store(db: str | None, settings: Settings) -> Iterator[Store | None]:
    """Opens the database that keeps the rollouts' runs. None if none is named, or if this is not the main process."""
    with opened_store(db, settings) if db is not None and _main_process() else nullcontext() as store:
        yield store


Config = Annotated[
    str, typer.Argument(metavar="CONFIG", help="tiny, tiny-by-reward, qwen2.5-7b-grpo, ..., or a TOML file.")
]
Out = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER", help="Folder for model and record. Default: one by config and seed in your data folder."
    ),
]
Seed = Annotated[int | None, typer.Option(help="Seed instead of the config's.")]
Resume = Annotated[bool, typer.Option("--resume", help="Continue the training that FOLDER holds.")]
StopAfter = Annotated[
    str | None, typer.Option(metavar="STAGE", help="Stop after this stage: cold_start, grpo or recursion.")
]
StartFrom = Annotated[
    str | None, typer.Option("--from", metavar="MODEL", help="Begin with this model folder, without a cold start.")
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Try every part of a full-size training with small replacements.")
]
Pool = Annotated[
    str | None, typer.Option(metavar="NAME", help="Pool instead of the config's; not for a small training.")
]
Db = Annotated[
    str | None,
    typer.Option(
        metavar="FILE|URL",
        callback=inputs.database_url,
        help="Keep each rollout as a run in this database. Without it none is kept.",
    ),
]
MaxUsd = Annotated[
    float | None, typer.Option(min=0, max=1e9, help="Cost cap of the workers over the whole training, in USD.")
]


def train_command(
    config: Config,
    out: Out = None,
    seed: Seed = None,
    resume: Resume = False,
    stop_after: StopAfter = None,
    start_from: StartFrom = None,
    dry_run: DryRun = False,
    max_usd: MaxUsd = None,
    pool: Pool = None,
    db: Db = None,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
) -> int:
    stage = next((each for each in STAGES if each == stop_after), None)
    if stop_after is not None and stage is None:
        raise BadInput(f"--stop-after: unknown stage {stop_after}; choose {', '.join(STAGES)}")
    written = read_config(config)
    asked = written if seed is None else written.model_copy(update={"seed": seed})

    needs_extra("train")
    speaks = os.environ.get("RANK", "0") == "0"  # of a launch of many processes only the first

    def show(line: str) -> None:
        if speaks and not quiet:
            print(line, file=sys.stderr, flush=True)

    if asked.scale is not None or dry_run:
        done = train_at_scale(
            asked,
            out,
            resume=resume,
            stop_after=stage,
            start_from=start_from,
            dry_run=dry_run,
            pool=pool,
            max_usd=max_usd,
            db=db,
            show=show,
        )
    else:
        for option, value in (("--pool", pool), ("--db", db), ("--max-usd", max_usd)):
            if value is not None:
                raise BadInput(f"{option}: {asked.name} is trained on simulated workers, which need none")
        # Only now: torch takes seconds to load.
        if asked.adapter is not None:
            from conductor_core.lab.training.small import train
        else:
            from conductor_core.lab.training.tiny.run import train

        if out is None:
            out = _own_folder(asked, written.seed)
            show(f"model and record go into {out}")
        done = train(asked, out, resume=resume, stop_after=stage, start_from=start_from, show=show)
    if not speaks:
        return 0
    if as_json:
        print_json(
            {
                "folder": str(done.folder),
                "sha256": done.sha256,
                "stage": done.stage,
                "seconds": done.seconds,
                "iteration": done.iteration and done.iteration.model_dump(mode="json", exclude_none=True),
                "held_out": done.held_out and done.held_out.model_dump(mode="json", exclude_none=True),
            }
        )
    else:
        print(f"{done.folder} sha256 {done.sha256}")
    return 0


def _own_folder(config: TrainingConfig, written_seed: int) -> Path:
    """Returns a folder of the data folder, named by the config, and by the seed if it is not the config's own."""
    name = config.name if config.seed == written_seed else f"{config.name}-seed{config.seed}"
    return inputs.read_settings().data_folder / "training" / name
