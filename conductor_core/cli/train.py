"""``train`` makes a Conductor from a config file, stage by stage.

A config of real size has real workers, perhaps many processes, or a dry run of it all (``train_at_scale``).
"""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from conductor_core.cli import inputs, options
from conductor_core.cli.inputs import needs_extra
from conductor_core.errors import BadInput
from conductor_core.lab.training.config import STAGES, TrainingConfig, read_config

if TYPE_CHECKING:
    from conductor_core.lab.training.recorder import Trained


def train_at_scale(
    config: TrainingConfig,
    out: Path | None,
    given: options.Options,
    show: Callable[[str], None],
    *,
    dry_run: bool,
    **choices: Any,
) -> "Trained":
    """Trains, or rehearses it in a dry run. Raises: BadInput, and what stops a training.

    ``choices``: how it goes on, ``resume``, ``stop_after`` and ``start_from``.
    """
    if config.scale is None:
        raise BadInput(f"--dry-run: config {config.name} is small enough to be run as it is")
    named = (("pool", given.pool), ("max_usd", given.max_usd))
    chosen = {name: value for name, value in named if value is not None}
    workers = config.scale.workers.model_copy(update=chosen)
    config = config.model_copy(update={"scale": config.scale.model_copy(update={"workers": workers})})
    settings = given.settings
    kept = given.store() if given.db is not None and _main_process() else nullcontext()
    with _folder(out, show, dry_run=dry_run) as folder, kept as store:
        from conductor_core.lab.training import scale  # only now: torch takes seconds to load
        from conductor_core.lab.training.folder import held

        with held(folder, resume=choices["resume"]) if _main_process() else nullcontext():
            if dry_run:
                settings = settings.model_copy(update={"rehearsal_tokens_per_s": 0.0})
                made = scale.rehearsed(config, folder, pool=given.pool)
                for line in scale.differences(config, made):
                    show(line)
                scale.write_model(made)
                config, choices["start_from"] = made, None
            sink = None if store is None else store.log
            return scale.train(config, folder, settings, sink=sink, show=show, **choices)


def _main_process() -> bool:
    """Whether this is the first of a launch of many."""
    return os.environ.get("RANK", "0") == "0"


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


Seed = Annotated[int | None, typer.Option(help="Seed instead of the config's.")]
Pool = Annotated[
    str | None, typer.Option(metavar="NAME", help="Pool instead of the config's; not for a small training.")
]


def train_command(
    config: Annotated[
        str, typer.Argument(metavar="CONFIG", help="tiny, tiny-by-reward, qwen2.5-7b-grpo, ..., or a TOML file.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Folder for model and record. Default: one by config and seed in your data folder."
        ),
    ] = None,
    seed: Seed = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the training that FOLDER holds.")] = False,
    stop_after: Annotated[
        str | None, typer.Option(metavar="STAGE", help="Stop after this stage: cold_start, grpo or recursion.")
    ] = None,
    start_from: Annotated[
        str | None, typer.Option("--from", metavar="MODEL", help="Begin with this model folder, without a cold start.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Try every part of a full-size training with small replacements.")
    ] = False,
    max_usd: Annotated[
        float | None, typer.Option(min=0, max=1e9, help="Cost cap of the workers over the whole training, in USD.")
    ] = None,
    pool: Pool = None,
    db: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|URL",
            callback=inputs.database_url,
            help="Keep each rollout as a run in this database. Without it none is kept.",
        ),
    ] = None,
    given: options.JsonQuiet = options.NONE,
) -> int:
    stage = next((each for each in STAGES if each == stop_after), None)
    if stop_after is not None and stage is None:
        raise BadInput(f"--stop-after: unknown stage {stop_after}; choose {', '.join(STAGES)}")
    written = read_config(config)
    asked = written if seed is None else written.model_copy(update={"seed": seed})

    needs_extra("train")

    def show(line: str) -> None:
        if _main_process():
            given.say(line)

    choices: dict[str, Any] = {"resume": resume, "stop_after": stage, "start_from": start_from}
    if asked.scale is not None or dry_run:
        given = replace(given, pool=pool, max_usd=max_usd, db=db)
        done = train_at_scale(asked, out, given, show, dry_run=dry_run, **choices)
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
            name = asked.name if asked.seed == written.seed else f"{asked.name}-seed{asked.seed}"
            out = given.settings.data_folder / "training" / name
            show(f"model and record go into {out}")
        done = train(asked, out, show=show, **choices)
    if not _main_process():
        return 0
    figures = {"iteration": done.iteration, "held_out": done.held_out}
    given.print(
        lambda: {
            "folder": str(done.folder),
            "sha256": done.sha256,
            "stage": done.stage,
            "seconds": done.seconds,
            **{name: each and each.model_dump(mode="json", exclude_none=True) for name, each in figures.items()},
        },
        lambda: [f"{done.folder} sha256 {done.sha256}"],
    )
    return 0
