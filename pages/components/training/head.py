"""HTML of the Training page's head: what is trained, its progress, and its figures. Every text is escaped."""

from collections.abc import Sequence
from html import escape
from statistics import fmean

from conductor_core.lab.records import in_order
from conductor_core.lab.records.training import Stage, TrainingRecord
from pages.components.records.folders import State
from pages.components.style.formats import seconds
from pages.components.training.charts import grammar_in_words
from pages.components.training.curves import STAGE_WORDS, STAGES, splits, stages_of, time_left_s

AVERAGED = 10
_SPLITS = "train: wordings of the training, other numbers; test: other wordings too"
STATE_PILLS = {
    "running": '<span class="pill running">◔ training</span>',
    "ended": '<span class="pill completed">✓ done</span>',
    "stopped": '<span class="pill interrupted">⚡ stopped</span>',
}


def head_html(record: TrainingRecord, state: State, quiet: str) -> str:
    """Returns the whole head. ``quiet`` says in words how long ago the record was last written."""
    started = record.started
    name = started.name if started else record.folder.name
    simulated = '<span class="pill simulated">simulated workers</span>' if started and started.simulated else ""
    facts = [f"seed {started.seed}", escape(started.machine), f"began {escape(_moment(started.at))}"] if started else []
    if state == "stopped":
        facts.append(f"last written {quiet}")
    said = "".join(f"<span>{fact}</span>" for fact in facts)
    return (
        f'<div class="record-head"><div class="record-title"><b>{escape(name)}</b>{STATE_PILLS[state]}{simulated}'
        f'<span class="record-facts">{said}</span></div>{_progress(record, state)}{_tiles(record)}</div>'
    )


def _moment(at: str) -> str:
    """Shortens a moment in ISO 8601 to what people need; returns any other text as it is."""
    return at[:16].replace("T", " ") + " UTC" if at[10:11] == "T" else at


def _progress(record: TrainingRecord, state: State) -> str:
    """Draws a bar per stage, as long as the stage is planned, with the part that is done."""
    planned = record.started.planned if record.started else {}
    begun = stages_of(record)
    stages = [stage for stage in STAGES if stage in begun or planned.get(stage)]
    return f'<div class="stages">{"".join(_stage(record, stage, state) for stage in stages)}</div>' if stages else ""


def _stage(record: TrainingRecord, stage: Stage, state: State) -> str:
    rows = record.iterations(stage)
    reached = rows[-1].iteration if rows else 0
    planned = record.started.planned.get(stage, 0) if record.started else 0
    lessons = [row for row in record.taught() if row.stage == stage]
    words = [f"{reached} of {planned}" if reached < planned else f"{reached} iteration{'s'[: reached != 1]}"]
    if lessons:
        shown, of = lessons[-1].rounds, lessons[-1].planned
        # There is room for one figure. Lessons are most of such a stage, unless iterations are under way.
        if not 0 < reached < planned:
            words = [f"{of:,} rounds" if shown == of else f"{shown:,} of {of:,} rounds"]
    if rows or lessons:
        words.append(seconds((rows or lessons)[-1].seconds * 1000))
    left_s = time_left_s(record, stage)
    current = (rows or lessons) and stages_of(record)[-1] == stage and record.ended is None
    if state == "running" and current and left_s is not None:
        words.append("less than a minute left" if left_s < 60 else f"about {round(left_s / 60)} min left")
    # Without a plan on record, only a later stage or the end shows that it is done; until then there is no bar.
    done = bool(record.ended or (reached >= planned if planned else not current))
    share = min(reached / planned, 1.0) if planned else 1.0 if done else None
    if lessons and not rows:
        share = lessons[-1].rounds / lessons[-1].planned
    kind = "done" if done else "running" if state == "running" else "stopped"
    glyph = {"done": "✓", "running": "◔", "stopped": "⚡"}[kind] if rows or lessons else "○"
    said = " · ".join(words)
    track = '<div class="track"><div class="done {}" style="width: {:.1f}%"></div></div>'
    bar = "" if share is None else track.format(kind, 100 * share)
    return (
        f'<div class="stage" style="flex-grow: {max(planned or reached, 1) ** 0.5:.2f}">'
        f'<div class="stage-words" title="{said}"><b>{glyph} {STAGE_WORDS[stage]}</b> '
        f'<span class="number">{said}</span></div>{bar}</div>'
    )


def _tiles(record: TrainingRecord) -> str:
    """Draws the latest figures beside the first ones."""
    tiles: list[str] = []
    if held := record.held_out():
        first = f"{held[0].accuracy:.3f} at first" if len(held) > 1 else f"measured once, on {held[0].n} tasks"
        note = f"{first} · {escape(splits(held))}"
        tiles.append(_tile("held-out accuracy", f"{held[-1].accuracy:.3f}", note, _SPLITS))
        by = held[-1].accuracy_by_difficulty
        if names := in_order(by):
            parts = " / ".join(f"{by[name]:.2f}" for name in names)
            tiles.append(_tile(" / ".join(map(escape, names)), parts, f"{held[-1].n} held-out tasks"))
    rows = [row for row in record.iterations() if row.reward is not None]
    if rows:
        grammar = grammar_in_words(record, [row.stage for row in rows])
        tiles += [
            _first_and_last("reward", [row.reward for row in rows], "{:.3f}"),
            _first_and_last("valid plans", [row.format_rate for row in rows], "{:.1%}", grammar),
            _first_and_last("steps per workflow", [row.steps for row in rows], "{:.2f}"),
            _first_and_last("loss in its lessons", [row.loss for row in record.taught()], "{:.3f}"),
        ]
    else:
        tiles.append(_first_and_last("loss", [row.loss for row in record.iterations()], "{:.3f}"))
    return f'<div class="tiles">{"".join(tiles)}</div>' if any(tiles) else ""


def _first_and_last(name: str, values: Sequence[float | None], form: str, further: str = "") -> str:
    """Draws the mean of the last iterations beside that of the first: a single one says little.

    ``further`` goes into its note.
    """
    found = [value for value in values if value is not None]
    if not found:
        return ""
    first, last = fmean(found[:AVERAGED]), fmean(found[-AVERAGED:])
    further = further and f" · {further}"
    if len(found) < 2 * AVERAGED:
        return _tile(name, form.format(found[-1]), f"{form.format(found[0])} at first{further}")
    return _tile(name, form.format(last), f"{form.format(first)} in the first {AVERAGED}{further}")


def _tile(name: str, value: str, note: str, title: str = "") -> str:
    titled = f' title="{title}"' if title else ""
    return (
        f'<div class="tile"{titled}><div class="muted">{name}</div><div class="tile-value">{value}</div>'
        f'<div class="muted">{note}</div></div>'
    )
