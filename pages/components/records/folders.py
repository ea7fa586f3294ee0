"""Where the records of training and evaluation are, and whether one of them still grows."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, TypeVar

import streamlit as st

from conductor_core.errors import InspectorError
from conductor_core.lab.records import SHIPPED, evaluation, in_use, training
from conductor_core.lab.records.evaluation import EvaluationRecord
from conductor_core.lab.records.training import TrainingRecord
from pages.components.app.session import current
from pages.components.app.widgets import across, fault_box
from pages.components.style.formats import inert, is_text

Kind = Literal["training", "evaluations"]
State = Literal["running", "stopped", "ended"]
R = TypeVar("R", EvaluationRecord, TrainingRecord)

_FILES = {"training": training.RECORD, "evaluations": evaluation.PLAN}
_SHIPPED = {"training": "training", "evaluations": "evaluation"}
# A record that stays silent for this long, or for several of its own iterations, is no longer written.
LEAST_QUIET_S = 90.0


@dataclass(frozen=True)
class RecordFolder:
    """A folder that holds a record.

    A ``shipped`` one came with this repository. ``began_utc`` is what the record says, else when it was last written.
    """

    folder: Path
    shipped: bool
    began_utc: datetime

    @property
    def label(self) -> str:
        return f"{self.folder.name} · {'shipped' if self.shipped else f'{self.began_utc:%Y-%m-%d %H:%M}'}"

    @property
    def changed_utc(self) -> datetime:
        """When it was last written. Raises: OSError if it is gone."""
        return _changed_utc(self.folder)

    def state(self, *, ended: bool, pace_s: float = 0.0) -> State:
        """Returns how the record stands now, as ``state`` does. Raises: OSError if it is gone."""
        silent_s = (datetime.now(UTC) - self.changed_utc).total_seconds()
        return state(ended=ended, silent_s=silent_s, pace_s=pace_s, in_use=in_use(self.folder))


def record_folders(kind: Kind, data_folder: Path) -> list[RecordFolder]:
    """Lists the records of this machine, newest first, and then the shipped ones."""
    own = sorted(_folders(kind, data_folder / kind, shipped=False), key=lambda each: each.began_utc, reverse=True)
    theirs = sorted(_folders(kind, SHIPPED / _SHIPPED[kind], shipped=True), key=lambda each: each.folder.name)
    return own + theirs


def _folders(kind: Kind, root: Path, *, shipped: bool) -> Iterator[RecordFolder]:
    # A single shipped record has the root itself as its folder.
    for file in [root / _FILES[kind], *root.glob(f"*/{_FILES[kind]}")]:
        fitted = kind == "evaluations" and file.parent.name.startswith(evaluation.FIT_PREFIX)
        if file.is_file() and is_text(str(file)) and not fitted:
            yield RecordFolder(file.parent, shipped, _began_utc(file))


def _began_utc(file: Path) -> datetime:
    """Reads when a record began, from its plan or its first line; where that is broken, when it was last changed."""
    try:
        with file.open(encoding="utf-8") as text:
            head = text.read() if file.name == evaluation.PLAN else text.readline()
        began = datetime.fromisoformat(json.loads(head)["at"])
    except (OSError, ValueError, KeyError, TypeError):
        return _changed_utc(file.parent)
    return began if began.tzinfo else began.replace(tzinfo=UTC)


def _changed_utc(folder: Path) -> datetime:
    parts = _parts(folder)
    if not parts:
        raise FileNotFoundError(f"{folder} no longer holds a record")
    return datetime.fromtimestamp(max(each.stat().st_mtime for each in parts), UTC)


def _parts(folder: Path) -> list[Path]:
    names = (training.RECORD, evaluation.PLAN, evaluation.OUTCOMES, evaluation.SUMMARY)
    return [folder / name for name in names if (folder / name).is_file()]


def read(read_record: Callable[..., R], folder: Path) -> R:
    """Returns the record, read again only when it has changed, without broken lines. Raises: BadInput."""
    stamp = tuple((part.name, part.stat().st_mtime_ns, part.stat().st_size) for part in _parts(folder))
    record: R = _read(read_record, folder, stamp)
    return record


@lru_cache(maxsize=8)
def _read(read_record: Callable[..., Any], folder: Path, _stamp: object) -> Any:
    return read_record(folder, lenient=True)


def state(*, ended: bool, silent_s: float, pace_s: float = 0.0, in_use: bool | None = None) -> State:
    """Returns how a record stands: by its lock (preparing takes minutes without a row), else by its silence.

    Args:
        silent_s: since it was last written.
        pace_s: the usual seconds between two of its rows.
        in_use: whether a process holds its folder, as ``records.in_use`` says; None: unknown.
    """
    if ended:
        return "ended"
    if in_use is not None:
        return "running" if in_use else "stopped"
    return "running" if silent_s < max(LEAST_QUIET_S, 10 * pace_s) else "stopped"


LIVE_S = 3.0
WAITING_S = 10.0  # between two looks whether a record has begun, or one that stopped goes on


def choose_record(kind: Kind, title: str) -> RecordFolder | None:
    """Draws the page's title with the choice beside it. Returns the chosen record, at first the one begun last."""
    found = record_folders(kind, current().settings.data_folder)
    with across("record-choice"):
        st.title(title, anchor=False)
        if not found:
            return None
        by_path = {str(each.folder): each for each in found}
        path = st.selectbox(
            "Record",
            list(by_path),
            format_func=lambda each: by_path[each].label,
            # A record that begins changes the key, so that the page shows it without being asked.
            key=f"{kind}:{found[0].folder}",
            label_visibility="collapsed",
            width=340,
            persist_state="session",
        )
    return by_path.get(path or "", found[0])


def no_record(kind: Kind, what: str, command: str) -> None:
    @st.fragment(run_every=WAITING_S)
    def wait() -> None:
        root = current().settings.data_folder
        if record_folders(kind, root):
            st.rerun()
        with st.container(border=True, horizontal_alignment="center", key=f"{kind}-empty"):
            st.markdown(what)
            st.code(command, language="bash")
            st.caption(f"Looked for in {inert(str(root / kind))}, a folder for each; this page shows it as it runs.")

    wait()


def follow(
    chosen: RecordFolder,
    read_record: Callable[..., R],
    state_of: Callable[[R, RecordFolder], State],
    draw: Callable[[R, RecordFolder, State], None],
) -> None:
    """Draws a record again and again while its command runs, and the whole page once its state changes."""
    try:
        state = state_of(read(read_record, chosen.folder), chosen)
    except (InspectorError, OSError) as error:
        fault_box(str(error))
        return

    def body() -> None:
        try:
            record = read(read_record, chosen.folder)
            now = state_of(record, chosen)
        except (InspectorError, OSError) as error:
            fault_box(str(error))
            return
        if now != state:
            st.rerun()
        if broken := record.broken:
            more = f" ({len(broken) - 1} more after it)" if len(broken) > 1 else ""
            fault_box(f"{broken[0]}{more}. It is left out below.")
        draw(record, chosen, now)

    # Only a run of the whole page can set this: a fragment cannot change its own interval.
    every_s = {"running": LIVE_S, "stopped": WAITING_S, "ended": None}[state]
    st.fragment(body, run_every=every_s)()
