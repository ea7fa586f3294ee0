"""The command ``train`` makes a Conductor from a config file, stage by stage."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from conductor_core.cli import inputs, options
from conductor_core.cli.extras import needs_extra
from conductor_core.cli.output import print_json
from conductor_core.cli.train_scale import train_at_scale
from conductor_core.errors import BadInput
from conductor_core.training.config import STAGES, TrainingConfig, read_config

Config = Annotated[
    str, typer.Argument(metavar="CONFIG", help="tiny, tiny-by-reward, qwen2.5-7b-grpo, ..., or a TOML file.")
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="FOLDER",
        help="Folder for model and record. Default: one by config and seed in your data folder.",
    ),
]
Seed = Annotated[int | None, typer.Option("--seed", help="Seed instead of the config's.")]
Resume = Annotated[bool, typer.Option("--resume", help="Continue the training that FOLDER holds.")]
StopAfter = Annotated[
    str | None,
    typer.Option("--stop-after", metavar="STAGE", help="Stop after this stage: cold_start, grpo or recursion."),
]
StartFrom = Annotated[
    str | None, typer.Option("--from", metavar="MODEL", help="Begin with this model folder, without a cold start.")
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Try every part of a full-size training with small replacements.")
]
Pool = Annotated[
    str | None, typer.Option("--pool", metavar="NAME", help="Pool instead of the config's; not for a small training.")
]
Db = Annotated[
    str | None,
    typer.Option(
        "--db",
        metavar="FILE|URL",
        callback=inputs.database_url,
        help="Keep each rollout as a run in this database. Without it none is kept.",
    ),
]
MaxUsd = Annotated[
    float | None,
    typer.Option("--max-usd", min=0, max=1e9, help="Cost cap of the workers over the whole training, in USD."),
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
    _conductor: options.UnusedConductor = None,
) -> int:
    """Train a Conductor by CONFIG. Give the output folder as --conductor to use it."""
    stage = next((each for each in STAGES if each == stop_after), None)
    if stop_after is not None and stage is None:
        raise BadInput(f"--stop-after: there is no stage {stop_after}; stages: {', '.join(STAGES)}")
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
        from conductor_core.training.tiny.run import train  # only now: torch takes seconds to load

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
