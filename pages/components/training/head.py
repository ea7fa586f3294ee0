"""The head of the Training page: what is trained, how far it is, and where it has come to. HTML, every text escaped."""

from collections.abc import Sequence
from html import escape
from statistics import fmean

from conductor_core.records import in_order
from conductor_core.records.training import HeldOut, Stage, TrainingRecord
from pages.components.look.words import seconds
from pages.components.records.folders import State
from pages.components.training.curves import STAGE_WORDS, STAGES, splits, stages_of, time_left_s
from pages.components.training.stage_settings import grammar_in_words

AVERAGED = 10
_SPLITS = "train: wordings of the training, other numbers; test: other wordings too"
STATE_PILLS = {
    "running": '<span class="pill running">◔ training</span>',
    "ended": '<span class="pill completed">✓ done</span>',
    "stopped": '<span class="pill interrupted">⚡ stopped</span>',
}


def head_html(record: TrainingRecord, state: State, quiet: str) -> str:
    """The whole head. ``quiet``: how long ago the record was last written, in words."""
    started = record.started
    name = started.name if started else record.folder.name
    pills = [STATE_PILLS[state]]
    if started and started.simulated:
        pills.append('<span class="pill simulated">simulated workers</span>')
    facts = [f"seed {started.seed}", escape(started.machine), f"began {escape(_moment(started.at))}"] if started else []
    if state == "stopped":
        facts.append(f"last written {quiet}")
    said = "".join(f"<span>{fact}</span>" for fact in facts)
    return (
        f'<div class="record-head"><div class="record-title"><b>{escape(name)}</b>{"".join(pills)}'
        f'<span class="record-facts">{said}</span></div>{_progress(record, state)}{_tiles(record)}</div>'
    )


def _moment(at: str) -> str:
    """A moment in ISO 8601 as far as people need it; what is none is shown as it is."""
    return at[:16].replace("T", " ") + " UTC" if at[10:11] == "T" else at


def _progress(record: TrainingRecord, state: State) -> str:
    """A bar a stage, as long as it is planned, with what is done of it."""
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
        # There is room for one figure: the lessons are most of such a stage, unless iterations are under way.
        if not 0 < reached < planned:
            words = [f"{of:,} rounds" if shown == of else f"{shown:,} of {of:,} rounds"]
    if rows or lessons:
        words.append(seconds((rows or lessons)[-1].seconds * 1000))
    left_s = time_left_s(record, stage)
    current = (rows or lessons) and stages_of(record)[-1] == stage and record.ended is None
    if state == "running" and current and left_s is not None:
        words.append("less than a minute left" if left_s < 60 else f"about {round(left_s / 60)} min left")
    # Without a plan on record only what came after it, or the end, says that it is done; until then there is no bar.
    done = bool(record.ended or (reached >= planned if planned else not current))
    share = min(reached / planned, 1.0) if planned else 1.0 if done else None
    if lessons and not rows:
        share = lessons[-1].rounds / lessons[-1].planned
    kind = "done" if done else "running" if state == "running" else "stopped"
    glyph = {"done": "✓", "running": "◔", "stopped": "⚡"}[kind] if rows or lessons else "○"
    said = " · ".join(words)
    return (
        f'<div class="stage" style="flex-grow: {max(planned or reached, 1) ** 0.5:.2f}">'
        f'<div class="stage-words" title="{said}"><b>{glyph} {STAGE_WORDS[stage]}</b> '
        f'<span class="number">{said}</span></div>{_bar(share, kind)}</div>'
    )


def _bar(share: float | None, kind: str) -> str:
    if share is None:
        return ""
    return f'<div class="track"><div class="done {kind}" style="width: {100 * share:.1f}%"></div></div>'


def _tiles(record: TrainingRecord) -> str:
    """Where it has come to, and from where."""
    tiles: list[str] = []
    held = record.held_out()
    if held:
        note = f"{_from(f'{held[0].accuracy:.3f}', held)} · {escape(splits(held))}"
        tiles.append(_tile("held-out accuracy", f"{held[-1].accuracy:.3f}", note, _SPLITS))
        by = held[-1].accuracy_by_difficulty
        if names := in_order(by):
            parts = " / ".join(f"{by[name]:.2f}" for name in names)
            tiles.append(_tile(" / ".join(map(escape, names)), parts, f"{held[-1].n} held-out tasks"))
    rows = [row for row in record.iterations() if row.reward is not None]
    if rows:
        tiles.append(_first_and_last("reward", [row.reward for row in rows], "{:.3f}"))
        grammar = grammar_in_words(record, [row.stage for row in rows])
        tiles.append(_first_and_last("valid plans", [row.format_rate for row in rows], "{:.1%}", grammar))
        tiles.append(_first_and_last("steps per workflow", [row.steps for row in rows], "{:.2f}"))
        tiles.append(_first_and_last("loss in its lessons", [row.loss for row in record.taught()], "{:.3f}"))
    else:
        tiles.append(_first_and_last("loss", [row.loss for row in record.iterations()], "{:.3f}"))
    return f'<div class="tiles">{"".join(tiles)}</div>' if any(tiles) else ""


def _first_and_last(name: str, values: Sequence[float | None], form: str, further: str = "") -> str:
    """The mean of the last iterations beside that of the first: a single one says little. ``further``: for its note."""
    found = [value for value in values if value is not None]
    if not found:
        return ""
    first, last = fmean(found[:AVERAGED]), fmean(found[-AVERAGED:])
    further = further and f" · {further}"
    if len(found) < 2 * AVERAGED:
        return _tile(name, form.format(found[-1]), f"{form.format(found[0])} at first{further}")
    return _tile(name, form.format(last), f"{form.format(first)} in the first {AVERAGED}{further}")


def _from(first: str, held: tuple[HeldOut, ...]) -> str:
    return f"{first} at first" if len(held) > 1 else f"measured once, on {held[0].n} tasks"


def _tile(name: str, value: str, note: str, title: str = "") -> str:
    titled = f' title="{title}"' if title else ""
    return (
        f'<div class="tile"{titled}><div class="muted">{name}</div><div class="tile-value">{value}</div>'
        f'<div class="muted">{note}</div></div>'
    )
