"""``train`` for a config of real size has real workers, perhaps many processes, or a dry run of it all."""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from conductor_core.cli import inputs
from conductor_core.cli.wiring import opened_store
from conductor_core.errors import BadInput
from conductor_core.records.training import Stage
from conductor_core.settings import Settings
from conductor_core.training.config import TrainingConfig
from storage import Store

if TYPE_CHECKING:
    from conductor_core.training.recorder import Trained


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
        from conductor_core.training.folder import held
        from conductor_core.training.scale import run as scale  # only now: torch takes seconds to load

        with held(folder, resume=resume) if _main_process() else nullcontext():
            if dry_run:
                from conductor_core.training.scale.dry_run import differences, rehearsed, write_model

                settings = settings.model_copy(update={"rehearsal_tokens_per_s": 0.0})
                made = rehearsed(config, folder, pool=pool)
                for line in differences(config, made):
                    show(line)
                write_model(made)
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
