"""``python -m storage erase``, ``retain`` and ``hold``: takes the text of runs for good, or forbids that."""

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from conductor_core.errors import BadInput, UnknownRun
from conductor_core.formats import run_word
from conductor_core.run.actor import local_caller
from conductor_core.run.request import file_part
from conductor_core.run.trace import RunUnreadable
from conductor_core.settings import Settings
from storage.evidence.history import counted
from storage.records import ERASED, RunSummary
from storage.store import Store, store_of

LEAST_DAYS = 184
"""Six months, for which the EU AI Act wants the logs of a high-risk system kept (articles 19 and 26)."""
_PAGE_RUNS = 200

Source = Callable[[str | None], Path]


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the commands to a parser."""
    erasing = commands.add_parser("erase", help="Destroy the text of runs for good. They stay in lists as erased.")
    erasing.add_argument("run_ids", metavar="RUN_ID", nargs="+", help="A whole id.")
    keeping = commands.add_parser("retain", help="List the runs that are older than so many days, or erase them.")
    keeping.add_argument("--days", type=int, required=True, help=f"At least {LEAST_DAYS}, which is six months.")
    keeping.add_argument("--erase", action="store_true", help="Erase them. Without this they are only listed.")
    holding = commands.add_parser("hold", help="Forbid to delete or erase runs, or allow it again.")
    holding.add_argument("run_ids", metavar="RUN_ID", nargs="+", help="A whole id.")
    holding.add_argument("--release", action="store_true", help="Allow it again.")
    for parser in (erasing, keeping, holding):
        parser.add_argument("--db", metavar="FILE|URL", help="Else DATABASE_URL, else your data folder's.")
        parser.add_argument("--json", action="store_true", help="Print one JSON document.")


def erase_runs(given: argparse.Namespace, source: Source) -> int:
    """Returns 0 if every named run is erased, 1 if one was refused. Raises: BadInput, StoreError."""
    settings = Settings()
    with _opened(source(given.db), settings) as store:
        _require(store, given.run_ids, "erase")
        return _erase(store, given.run_ids, settings, as_json=given.json)


def hold_runs(given: argparse.Namespace, source: Source) -> int:
    """Returns 0. Raises: BadInput, StoreError."""
    with _opened(source(given.db), Settings()) as store:
        _require(store, given.run_ids, "hold")
        run_ids = list(dict.fromkeys(given.run_ids))
        store.hold(run_ids, local_caller("cli"), held=not given.release)
        if given.json:
            print(json.dumps({"held": [] if given.release else run_ids, "released": run_ids if given.release else []}))
            return 0
        for run_id in run_ids:
            said = "released: it can be deleted and erased" if given.release else "held: nobody can delete or erase it"
            print(f"{run_id}: {said}")
    return 0


def _require(store: Store, run_ids: Sequence[str], command: str) -> None:
    """Raises: UnknownRun for an id that no run has."""
    known = {run.run_id for run in _all(store)}
    if unknown := [run_id for run_id in run_ids if run_id not in known]:
        raise UnknownRun(f"unknown run {unknown[0]!r}; {command} needs whole ids")


def retain(given: argparse.Namespace, source: Source) -> int:
    """Returns 0, or 1 if a run was refused. Raises: BadInput, StoreError."""
    if given.days < LEAST_DAYS:
        raise BadInput(f"--days {given.days} is less than six months: runs are kept at least {LEAST_DAYS} days")
    settings = Settings()
    before = datetime.now(UTC) - timedelta(days=given.days)
    with _opened(source(given.db), settings) as store:
        there = _all(store)
        # Of any age: their text was to go already.
        broken_off = store.unfinished([run.run_id for run in there if run.status == ERASED])
        old = [run for run in there if run.run_id in broken_off or _is_due(run, before)]
        if given.erase and not old and not given.json:
            print(f"{_none_due(given.days)}: nothing was erased")
            return 0
        if given.erase:
            return _erase(store, [run.run_id for run in old], settings, as_json=given.json)
        held = store.held([run.run_id for run in old if run.run_id not in broken_off])
        if given.json:
            stay = [run.run_id for run in old if run.run_id in held]
            print(json.dumps({"would_erase": [run.run_id for run in old if run.run_id not in held], "held": stay}))
            return 0
        for run in old:
            note = "  its key is still there" if run.run_id in broken_off else ""
            note = "  held: stays" if run.run_id in held else note
            day = "no date   " if run.created_at_utc is None else f"{run.created_at_utc:%Y-%m-%d}"
            print(f"{run.run_id}  {day}  {run_word(run.status)}{note}")
        would = counted(len(old) - len(held), "run")
        held_ones = counted(len(held), "is", "are")
        print(f"{would} would be erased, {held_ones} held; --erase does it" if old else _none_due(given.days))
        return 0


def _none_due(days: int) -> str:
    return f"no run is older than {counted(days, 'day')}"


def _is_due(run: RunSummary, before: datetime) -> bool:
    return run.status != ERASED and run.created_at_utc is not None and run.created_at_utc < before


@contextmanager
def _opened(path: Path, settings: Settings) -> Iterator[Store]:
    if not path.is_file():
        raise BadInput(f"no database at {path}")
    store = store_of(path, settings)
    try:
        yield store
    finally:
        store.close()


def _all(store: Store) -> list[RunSummary]:
    found: list[RunSummary] = []
    before: int | None = None
    while page := store.runs(limit=_PAGE_RUNS, before=before):
        found += page
        before = page[-1].sequence
    return found


def _erase(store: Store, run_ids: Sequence[str], settings: Settings, *, as_json: bool) -> int:
    copies = _copies(store, run_ids)
    if run_ids:
        print(f"erasing {counted(len(run_ids), 'run')}; the database is then rewritten", file=sys.stderr)
    edits = 0

    def forget(run_id: str) -> None:
        nonlocal edits
        edits += remove_edits(settings.data_folder, run_id)

    done = store.erase(run_ids, local_caller("cli"), forget)
    if as_json:
        document = {"erased": done.run_ids, "refused": done.refused, "copies": copies, "kept_edits": edits}
        print(json.dumps(document | {"keyless": done.keyless}))
        return 1 if done.refused else 0
    for run_id in done.run_ids:
        print(f"{run_id}: erased")
        if run_id in done.keyless:
            print("  its key was not there to be destroyed: if a copy of the file .keys comes back, erase it again")
        if run_id in copies:
            print(f"  re-runs and imported copies of it may hold its text: {', '.join(copies[run_id])}")
    for run_id, why in done.refused.items():
        print(f"{run_id}: not erased: {why}")
    if done.run_ids:
        print("backups and exported files that were made before still hold what they held")
    return 1 if done.refused else 0


def _copies(store: Store, run_ids: Sequence[str]) -> dict[str, list[str]]:
    """Returns the re-runs of each run, and the runs that were imported from a file of it, where there are any."""
    copies = {run_id: store.copies(run_id) for run_id in run_ids}
    for run in _all(store) if run_ids else ():
        if run.imported and run.status != ERASED:
            with suppress(RunUnreadable):
                imported = store.created(run.run_id).imported
                if imported is not None and imported.run_id in copies:
                    copies[imported.run_id].append(run.run_id)
    return {run_id: others for run_id, others in copies.items() if others}


def remove_edits(data_folder: Path, run_id: str) -> int:
    """Removes the edits of the run's plan that browsers keep, and returns how many. Raises: OSError."""
    files = list((data_folder / "edits").glob(f"*.{file_part(run_id)}.*"))
    for file in files:
        file.unlink(missing_ok=True)
    return len(files)
