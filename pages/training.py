"""Training: how a Conductor was trained or is being trained now, curve by curve, and what it wrote meanwhile."""

import shlex
from collections.abc import Sequence

import streamlit as st

from conductor_core.lab.records import in_use
from conductor_core.lab.records.training import Stage, TrainingRecord, read_record
from pages.components.app.session import current
from pages.components.app.widgets import across, download, segments
from pages.components.records.folders import RecordFolder, State, choose_record, follow, no_record
from pages.components.style.figures import figure, title
from pages.components.style.formats import ago
from pages.components.training.charts import STAGE_WORDS, Panel, pace_s, panels, spans, stages_of, to_csv, window
from pages.components.training.samples import head_html, samples_view

EMPTY = "**No training yet.** This command trains the small Conductor on this machine:"


def show() -> None:
    chosen = choose_record("training", "Training")
    if chosen is None:
        folder = current().settings.data_folder / "training" / "tiny"
        no_record("training", EMPTY, f"conductor train tiny --out {shlex.quote(str(folder))}")
        return

    def state(record: TrainingRecord, folder: RecordFolder) -> State:
        return folder.state(ended=record.ended is not None, pace_s=pace_s(record))

    follow(chosen, read_record, state, _body)


def _body(record: TrainingRecord, folder: RecordFolder, state: State) -> None:
    with st.container(border=True, key="training-head"):
        st.html(head_html(record, state, ago(folder.changed_utc)))
        if state == "stopped":
            st.caption(_how_on(record, folder))
        if record.rows and record.started is None:
            st.caption(
                ":material/help: The first row is missing: whether the workers were simulated is unknown, as are seed, "
                "machine and configuration."
            )
        if record.started and record.started.simulated:
            st.caption(
                ":material/theater_comedy: The reward came from simulated workers: the curves show how the method "
                "learns and say nothing about any vendor's model."
            )
    begun = stages_of(record)
    if not begun and state == "running":
        coming = "Curves of reward, loss and valid plans appear here as soon as it ends."
        st.progress(0.0, text=f"The first iteration is under way. {coming}")
        return
    if not begun:
        st.info("It ended before its first iteration, so there are no curves.", icon=":material/hourglass_empty:")
        return
    stages, smooth = _controls(record, begun)
    drawn, places = panels(record, stages, smooth=smooth), spans(record, stages)
    with st.container(key="training-charts"):
        for left in range(0, len(drawn), 2):
            for panel, column in zip(drawn[left : left + 2], st.columns(2, gap="small"), strict=False):
                with column, st.container(border=True, key=f"chart-{panel.key}"):
                    _chart(panel, to_csv(panel.curves, places))
    samples_view(record)
    if record.started:
        with st.expander("Configuration", icon=":material/settings:", key="training-config"):
            st.json(dict(record.started.config), expanded=2)


def _how_on(record: TrainingRecord, folder: RecordFolder) -> str:
    """Says what to do about a training that stopped. Without a lock, a silent process may still be at it."""
    if record.started is None:
        return "It cannot be resumed: its first row is missing."
    on = "continues from its last checkpoint with the same command and `--resume`"
    # The command that goes on reads the record strictly.
    on += ", once each line that cannot be read is removed." if record.broken else "."
    if in_use(folder.folder) is None:
        return f"It is silent, which may not be its end. If its process has ended, it {on}"
    return f"It {on}"


def _controls(record: TrainingRecord, begun: Sequence[Stage]) -> tuple[Sequence[Stage], bool]:
    rewarded: list[Stage] = [stage for stage in begun if stage != "cold_start"] or list(begun)
    with across("training-controls"):
        chosen = rewarded
        if len(begun) > 1:
            # A stage that begins changes the key, so that the page shows it without being asked.
            key, how = f"training-stages-{len(begun)}", {"selection_mode": "multi", "default": rewarded}
            chosen = segments("Stages", begun, key, format_func=STAGE_WORDS.__getitem__, **how)
        stages = [stage for stage in begun if stage in chosen] or rewarded
        smooth = st.toggle("Smooth", value=True, key="training-smooth", width="content")
        points = window(spans(record, stages))
        st.caption(f"running mean of {points} points, what was recorded behind it" if smooth else "as recorded")
    return stages, smooth


def _chart(panel: Panel, table: str) -> None:
    says = f"{panel.title} as CSV"
    with across(f"chart-head-{panel.key}"):
        title(panel.title, panel.note)
        with st.container(width="content", key=f"icon-only-{panel.key}"):
            download(says, table, f"{panel.key}.csv", "text/csv", f"csv-{panel.key}", help=says, type="tertiary")
    figure(panel.figure, key=f"figure-{panel.key}", alt=panel.alt, group="training")


show()
