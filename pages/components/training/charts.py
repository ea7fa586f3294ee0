"""The figures of a training run, after figures 3, 7 and 8 of the paper (arXiv 2512.04388), all on one axis.

What is said of the stages comes from the training's configuration. Nothing checks that on reading; odd parts do not
count.
"""

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, count
from operator import attrgetter
from typing import Any

from conductor_core.lab.records import DIFFICULTIES
from conductor_core.lab.records.training import HeldOut, Iteration, Stage, TrainingRecord
from pages.components.style.figures import Figure, layout, legend, marks, names_beside, plain, scatter, thinned

STAGES: tuple[Stage, ...] = ("cold_start", "grpo", "recursion")
STAGE_WORDS: Mapping[Stage, str] = {"cold_start": "Cold start", "grpo": "GRPO", "recursion": "Recursion"}


@dataclass(frozen=True)
class Span:
    stage: Stage
    offset: int
    end: int

    @property
    def length(self) -> int:
        return self.end - self.offset


@dataclass(frozen=True)
class Curve:
    """Points of one figure, ascending in ``x``, in a group per stage: smoothing never crosses a stage's boundary.

    With a ``mark``, Plotly's symbol, it is drawn as points, which are never smoothed.
    """

    name: str
    points: tuple[tuple[tuple[int, float], ...], ...]
    dash: str = "solid"
    colour: str = "@ink"
    mark: str | None = None

    def __bool__(self) -> bool:
        return any(self.points)

    @property
    def values(self) -> list[float]:
        return [value for part in self.points for _, value in part]

    @property
    def last(self) -> float:
        return self.values[-1]

    def smoothed(self, window: int) -> "Curve":
        """Returns the running mean over ``window`` points around each; over fewer at the ends."""
        half = window // 2
        smooth: list[tuple[tuple[int, float], ...]] = []
        for part in self.points:
            sums = [0.0, *accumulate(value for _, value in part)]
            ends = [(max(at - half, 0), min(at + half + 1, len(part))) for at in range(len(part))]
            means = ((sums[end] - sums[first]) / (end - first) for first, end in ends)
            smooth.append(tuple(zip((x for x, _ in part), means, strict=True)))
        return replace(self, points=tuple(smooth))


def stages_of(record: TrainingRecord) -> tuple[Stage, ...]:
    begun = {row.stage for row in record.iterations()} | {row.stage for row in record.taught()}
    return tuple(stage for stage in STAGES if stage in begun)


def spans(record: TrainingRecord, stages: Sequence[Stage]) -> tuple[Span, ...]:
    """Places the stages one after another, each as long as planned or as far as it got, whichever is longer."""
    found: list[Span] = []
    offset = 0
    for stage in stages:
        reached = max((row.iteration for row in record.iterations(stage)), default=0)
        end = offset + max(reached, _planned(record, stage) if record.ended is None else 0)
        found.append(Span(stage, offset, end))
        offset = end
    return tuple(found)


def _planned(record: TrainingRecord, stage: Stage) -> int:
    return record.started.planned.get(stage, 0) if record.started else 0


def curve(
    name: str,
    rows: Iterable[Iteration | HeldOut],
    spans: Sequence[Span],
    value: Callable[..., float | None],
    **look: str,
) -> Curve:
    parts: dict[Stage, list[tuple[int, float]]] = {span.stage: [] for span in spans}
    offsets = {span.stage: span.offset for span in spans}
    for row in rows:
        if row.stage in parts and (found := value(row)) is not None:
            parts[row.stage].append((offsets[row.stage] + row.iteration, found))
    return Curve(name, tuple(map(tuple, parts.values())), **look)


def by_name(
    rows: Sequence[Iteration | HeldOut], spans: Sequence[Span], field: str, names: Sequence[str] = ()
) -> list[Curve]:
    """Returns a curve for each key of a mapping ``field``: ``names`` in their order, then others as they appear."""
    here = {span.stage for span in spans}
    keys = dict.fromkeys([*names, *(key for row in rows if row.stage in here for key in getattr(row, field))])
    curves = [curve(key, rows, spans, lambda row, key=key: getattr(row, field).get(key)) for key in keys]
    return [each for each in curves if each]


def shares(rows: Sequence[Iteration], spans: Sequence[Span], field: str, names: Sequence[str] = ()) -> list[Curve]:
    """Returns curves like ``by_name``, with a point at each row that has any share: an absent key counts as zero."""
    filled = [row for row in rows if getattr(row, field)]
    keys = [each.name for each in by_name(filled, spans, field, names)]
    return [curve(key, filled, spans, lambda row, key=key: getattr(row, field).get(key, 0.0)) for key in keys]


def window(spans: Sequence[Span]) -> int:
    """Returns the points of the running mean: a twentieth of the longest stage's iterations, odd, from 3 to 31.

    A stage may have recorded only every tenth of its iterations.
    """
    longest = max((span.length for span in spans), default=0)
    return min(max(3, longest // 20 | 1), 31)


def splits(held: Iterable[HeldOut]) -> str:
    found = dict.fromkeys(row.split for row in held)
    return f"{' and '.join(found)} split" if found else ""


def to_csv(curves: Sequence[Curve], spans: Sequence[Span]) -> str:
    """Writes a row per iteration: stage, iteration within it, and each curve's value as recorded."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["stage", "iteration", *(each.name for each in curves)])
    for number, span in enumerate(spans):
        values = [dict(each.points[number]) for each in curves]
        for x in sorted({x for column in values for x in column}):
            writer.writerow([span.stage, x - span.offset, *(column.get(x, "") for column in values)])
    return file.getvalue()


def time_left_s(record: TrainingRecord, stage: Stage) -> float | None:
    """Returns the seconds left of ``stage`` at its mean pace so far; None if nothing tells."""
    rows, lessons = record.iterations(stage), [row for row in record.taught() if row.stage == stage]
    if lessons and not rows:
        last = lessons[-1]
        return last.seconds / last.rounds * (last.planned - last.rounds)
    if not rows or rows[-1].iteration == 0:
        return None
    left = _planned(record, stage) - rows[-1].iteration
    return rows[-1].seconds / rows[-1].iteration * left if left > 0 else None


def pace_s(record: TrainingRecord) -> float:
    """Returns the seconds from one row to the next in the record's latest stage; 0 if it has none yet."""
    rows, lessons = record.iterations(), record.taught()
    if lessons and rows and lessons[-1].stage != rows[-1].stage:
        return lessons[-1].seconds / len(lessons)
    return rows[-1].seconds / max(rows[-1].iteration, 1) if rows else 0.0


def grammar_in_words(record: TrainingRecord, stages: Iterable[Stage]) -> str:
    """Names those ``stages`` in which the grammar keeps rollouts valid, whatever the Conductor learned; empty: none."""
    asked = dict.fromkeys(stages)
    settings = {stage: _of(record, stage) for stage in asked}
    # TRL's own generation uses no grammar.
    held = [each for each, of in settings.items() if of.get("constrained") is True and of.get("rollout") != "trl"]
    if not held:
        return ""
    among = "" if len(held) == len(asked) else f" in {' and '.join(STAGE_WORDS[stage] for stage in held)}"
    return f"held by the grammar{among}"


def most_steps(record: TrainingRecord, stage: Stage) -> int | None:
    pool = _of(record, stage).get("pool")
    most = pool.get("most_steps") if isinstance(pool, Mapping) else None
    return most if isinstance(most, int) else None


def _of(record: TrainingRecord, stage: Stage) -> Mapping[str, Any]:
    found = record.started.config.get(stage) if record.started else None
    return found if isinstance(found, Mapping) else {}


HEIGHT_PX = 250
MOST_POINTS = 600
"""Of a curve: a figure, sent every few seconds, has no pixels for more."""
_About = tuple[str, str, str]  # the key, title and note of a panel
DASHES, SHADES = ("dot", "dash", "solid"), ("@muted", "@muted", "@ink")


@dataclass(frozen=True)
class Panel:
    """A figure with its words. ``curves`` are as recorded, for the table to download."""

    key: str
    title: str
    note: str
    alt: str
    figure: Figure
    curves: tuple[Curve, ...]


def panels(record: TrainingRecord, stages: Sequence[Stage], *, smooth: bool) -> list[Panel]:
    """Returns the figures for which those ``stages`` have data, in the order in which people read them."""
    axis, rows = _Axis(spans(record, stages), smooth), record.iterations()

    def of(name: str, field: str, **look: str) -> Curve:
        return curve(name, rows, axis.spans, attrgetter(field), **look)

    valid_in = [row.stage for row in rows if row.stage in stages and row.format_rate is not None]
    grammar = grammar_in_words(record, valid_in)
    valid = f"Mean over rollouts. Valid: parses and breaks no rule{'; ' if grammar else ''}{grammar}."
    names = record.started.agents if record.started else ()
    colours = {name: f"@agent-{number % 8}" for number, name in enumerate(names)}
    agents = [
        replace(each, colour=colours.get(each.name, "@agent-none"))
        for each in shares(rows, axis.spans, "agent_share", names)
    ]
    given = "Share of steps given to each agent; colours as on the Run page."
    steps = _by_difficulty(rows, axis, "steps_by_difficulty") or [of("steps", "steps")]
    open_ = "Nats per completion token: how open the next word still is."
    times = [of(name, f"{name}_s", colour=f"@tone-{at}") for at, name in enumerate(("update", "reward", "rollout"))]
    losses = [of("loss", "loss"), of("wording", "supervised_loss", dash="dot", colour="@muted")]
    optimised = "As optimised; each stage has a loss of its own. Wording: the term that guards it."
    biggest = sorted(shares(rows, axis.spans, "topology_share"), key=lambda each: -each.last)[:3]
    shapes = [replace(each, dash=DASHES[-1 - at], colour=SHADES[-1 - at]) for at, each in enumerate(biggest)]
    frequent = "Share of valid plans; the most frequent three at the end."
    rewards = [of("reward", "reward"), of("valid plans", "format_rate", dash="dot", colour="@muted")]
    made = (
        _panel(("reward", "Reward and valid plans", valid), rewards, axis, "%{y:.3f}"),
        _panel(("agents", "Agent choice", given), agents, axis, "%{y:.1%}", stacked=True),
        _accuracy(record, axis),
        _panel(("steps", "Steps per workflow", "Mean over valid plans."), steps, axis, "%{y:.2f}", top=None),
        _panel(("entropy", "Entropy", open_), [of("entropy", "entropy")], axis, "%{y:.3f}", top=None),
        _panel(
            ("time", "Where an iteration's time goes", "Seconds, one upon another."),
            times,
            axis,
            "%{y:.2f} s",
            top=None,
            stacked=True,
        ),
        _panel(("loss", "Loss", optimised), losses, axis, "%{y:.4f}", top=None, bottom=None),
        _panel(("shapes", "Shapes of workflows", frequent), shapes, axis, "%{y:.1%}"),
    )
    return [panel for panel in made if panel is not None]


def _accuracy(record: TrainingRecord, axis: "_Axis") -> Panel | None:
    rows, held = record.iterations(), record.held_out()
    drawn = _by_difficulty(rows, axis, "accuracy_by_difficulty")
    drawn = drawn or [curve("accuracy", rows, axis.spans, lambda row: row.accuracy)]
    held_out = by_name(held, axis.spans, "accuracy_by_difficulty", DIFFICULTIES)
    held_out = held_out or [curve("", held, axis.spans, lambda row: row.accuracy)]
    names = [each.name for each in held_out]
    drawn_as = marks(names)
    drawn += [
        replace(each, name=f"{each.name}, held out".lstrip(", "), mark=drawn_as[each.name].symbol) for each in held_out
    ]
    said = f" ({legend(names)})" if any(names) else ""
    note = f"Lines: rollouts. Marks{said}: held out, {splits(held)}." if held else "Mean over rollouts."
    return _panel(("accuracy", "Accuracy by difficulty", note), drawn, axis, "%{y:.3f}")


def _by_difficulty(rows: Sequence[Iteration], axis: "_Axis", field: str) -> list[Curve]:
    found = by_name(rows, axis.spans, field, DIFFICULTIES)
    return [replace(each, dash=DASHES[at % 3], colour=SHADES[at % 3]) for at, each in enumerate(found)]


@dataclass(frozen=True)
class _Axis:
    spans: tuple[Span, ...]
    smooth: bool

    def shown(self, curve: Curve) -> Curve:
        return curve.smoothed(window(self.spans)) if self.smooth and not curve.mark else curve

    def x(self) -> dict[str, Any]:
        end = self.spans[-1].end if self.spans else 1
        sizes = (factor * 10**power for power in count() for factor in (1, 2, 5))
        step = next(size for size in sizes if size >= end / 6)
        ticks = [(span.offset + at, at) for span in self.spans for at in range(0, span.length + 1, step)]
        # A stage's last tick would lie over the 0 of the next.
        begins = [span.offset for span in self.spans]
        kept = [(x, at) for x, at in ticks if at == 0 or not any(0 <= begin - x < step / 4 for begin in begins)]
        return {
            "range": [0, max(end, 1)],
            "tickvals": [x for x, _ in kept],
            "ticktext": [str(at) for _, at in kept],
            # Plotly knows only the axis' own number here; with several stages, a row of the hover names the stage.
            "unifiedhovertitle": {
                "text": f"{STAGE_WORDS[self.spans[0].stage]} · iteration %{{x}}" if len(self.spans) == 1 else " "
            },
            "showspikes": True,
            "spikemode": "across",
            "spikedash": "solid",
        }

    def edges(self) -> list[dict[str, Any]]:
        line = {
            "type": "line",
            "y0": 0,
            "y1": 1,
            "yref": "paper",
            "line": {"color": "@soft", "width": 1, "dash": "dot"},
        }
        return [{**line, "x0": span.offset, "x1": span.offset} for span in self.spans[1:]]

    def names(self) -> list[dict[str, Any]]:
        where = {"y": 1, "yref": "paper", "xanchor": "left", "yanchor": "bottom", "showarrow": False}
        where |= {"font": {"size": 12, "color": "@muted"}}
        return [{"text": STAGE_WORDS[span.stage], "x": span.offset, **where} for span in self.spans]

    def label(self, x: int) -> str:
        span = next((span for span in reversed(self.spans) if x > span.offset), self.spans[0])
        return f"{STAGE_WORDS[span.stage]} · iteration {x - span.offset}"


def _panel(
    about: _About, curves: Sequence[Curve], axis: _Axis, number: str, *, top: float | None = 1.0,
    bottom: float | None = 0.0, stacked: bool = False,
) -> Panel | None:  # fmt: skip
    """Draws ``curves`` as lines, or ``stacked`` as areas. ``top``, ``bottom``: what the axis reaches at least."""
    curves = [each for each in curves if each]
    if not curves:
        return None
    shown = [axis.shown(each) for each in curves]
    traces = [_trace(each, number, stacked=stacked) for each in shown]
    if stacked:
        floors = accumulate((each.last for each in shown), initial=0.0)
        ends = [(each.name, floor + each.last / 2) for each, floor in zip(shown, floors, strict=False)]
        highest = max(map(sum, zip(*(each.values for each in curves), strict=False)))
        y_range = 0.0, top or highest * 1.05 or 1.0
    else:
        if axis.smooth:
            traces = [*(_trace(each, number, raw=True) for each in curves if not each.mark), *traces]
        ends = [(each.name, each.last) for each in shown if not each.mark] or [(each.name, each.last) for each in shown]
        values = [value for each in curves for value in each.values]
        low = min(values) if bottom is None else min(bottom, *values)
        high = max(values) if top is None else max(top, *values)
        room = (high - low or 1.0) * 0.04
        y_range = low - room if bottom is None or low < bottom else low, high + room
    if len(axis.spans) > 1:
        longest, said = max(traces, key=lambda trace: len(trace["x"])), "%{customdata}<extra></extra>"
        unseen, labels = {"width": 0, "color": "rgba(0,0,0,0)"}, [axis.label(x) for x in longest["x"]]
        where = scatter("lines", longest["x"], longest["y"], line=unseen, customdata=labels, hovertemplate=said)
        # The hover lists stacked traces from the top, that is from the last one on.
        traces = [*traces, where] if stacked else [where, *traces]
    # Shades of grey tell areas apart, not their names.
    colours = {each.name: each.colour for each in curves if not each.colour.startswith("@tone")}
    notes = [*axis.names(), *names_beside(ends, y_range, HEIGHT_PX, colours)]
    y_axis = {"range": list(y_range)}
    shape = layout(HEIGHT_PX, xaxis=axis.x(), yaxis=y_axis, shapes=axis.edges(), annotations=notes)
    words = "; ".join(f"{each.name} from {each.values[0]:.3g} to {each.last:.3g}" for each in curves)
    alt = f"{about[1]} over iterations: {words}."
    return Panel(*about, alt, {"data": traces, "layout": shape}, tuple(curves))


def _trace(curve: Curve, number: str, *, raw: bool = False, stacked: bool = False) -> dict[str, Any]:
    """Draws ``curve`` with a gap between stages: the end of one does not lead to the next. ``raw``: behind another."""
    points: list[tuple[int, float | None]] = []
    for part in filter(None, curve.points):
        points += [*(part if curve.mark else thinned(part, MOST_POINTS)), (part[-1][0], None)]
    name, said = plain(curve.name), {"hovertemplate": f"{number}<extra>{plain(curve.name)}</extra>"}
    xs, ys = [x for x, _ in points], [value for _, value in points]
    if raw:
        return scatter("lines", xs, ys, name=name, line={"color": "@faint", "width": 1}, hoverinfo="skip")
    if curve.mark:
        marker = {"symbol": curve.mark, "size": 8, "color": curve.colour, "line": {"width": 1.6}}
        return scatter("markers", xs, ys, name=name, cliponaxis=False, marker=marker, **said)
    line = {"dash": curve.dash, "color": curve.colour, "width": 2}
    if stacked:
        line, said = {"width": 0.6, "color": "@surface"}, {**said, "stackgroup": "0", "fillcolor": curve.colour}
    return scatter("lines", xs, ys, name=name, line=line, **said)
