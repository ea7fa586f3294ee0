"""The recorded runs that come with the program, so that the first page shows something that happened.

The real engine carried them out with simulated workers: ``make recorded-runs`` makes them again. Each is the JSON of a
shared file (``share``) without its page.
"""

from pathlib import Path

from conductor_core.run.actor import THE_PROGRAM
from conductor_core.run.events import Event, RunCreated, now_utc
from conductor_core.run.share import read_data
from conductor_core.run.values import Imported

FOLDER = Path(__file__).with_name("shipped")


def recorded_runs() -> list[list[Event]]:
    """Returns the events of each run, oldest run first, as they are put into a new database.

    The runs keep their ids, because one of them is a re-run of another. Their first events say that they are recorded.
    """
    return [_recorded(file) for file in sorted(FOLDER.glob("*.json"))]


def _recorded(file: Path) -> list[Event]:
    shared, events, _ = read_data(file.read_text(encoding="utf-8"), f"recorded run {file.name}")
    created = events[0]
    if not isinstance(created, RunCreated):
        raise ValueError("a run begins with run.created")
    imported = Imported(
        run_id=shared.run_id,
        written_by=shared.written_by,
        written_at_utc=shared.written_at_utc,
        imported_at_utc=now_utc(),
        recorded=True,
        actor=THE_PROGRAM,
    )
    return [created.model_copy(update={"imported": imported}), *events[1:]]
