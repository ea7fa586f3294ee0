"""Loads the suite that a user names with ``--suite``."""

from pathlib import Path

from conductor_core.errors import BadInput
from conductor_core.evaluation.suites import files, hub, rehearsal
from conductor_core.evaluation.tasks import Suite


def load_suite(ref: str, split: str = "test", *, limit: int | None = None, seed: int = 0) -> Suite:
    """Loads at most ``limit`` tasks of ``ref``. The same arguments give the same tasks in the same order.

    Args:
        ref: ``rehearsal``, the path of a JSON Lines file, or a benchmark of ``hub.BENCHMARKS``.
        split: ``test`` or ``train``; for a file ``test``, ``fit`` or ``held-out``.
    Raises: BadInput.
    """
    if limit is not None and limit < 1:
        raise BadInput(f"a suite needs at least one task, not {limit}")
    if ref == "rehearsal":
        return rehearsal.load(split, limit=limit, seed=seed)
    if ref in hub.BENCHMARKS:
        return hub.load(ref, split, limit=limit, seed=seed)
    path = Path(ref)
    if path.suffix in (".jsonl", ".json") or path.is_file():
        return files.load(path, split, limit=limit, seed=seed)
    raise BadInput(
        f"there is no suite {ref!r}: give rehearsal, {', '.join(hub.BENCHMARKS)}, or the path of a .jsonl file"
    )
