"""The figures of a training run, after figures 3, 7 and 8 of the paper (arXiv 2512.04388), all on one axis.

What is said of the stages comes from the training's configuration. Nothing checks that on reading; odd parts do not
count.
"""

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, count
from operator import attrgetter
from typing import Any

from conductor_core.lab.records import DIFFICULTIES
from conductor_core.lab.records.training import HeldOut, Iteration, Stage, TrainingRecord
from pages.components.style.figures import Figure, layout, legend, marks, names_beside, plain, scatter

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
    """Points of one figure, ascending in ``x``, in a group per stage: smoothing never crosses a stage's boundary."""

    name: str
    points: tuple[tuple[tuple[int, float], ...], ...]

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
        return Curve(self.name, tuple(_running_mean(part, window) for part in self.points))


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
    name: str, rows: Iterable[Iteration | HeldOut], spans: Sequence[Span], value: Callable[..., float | None]
) -> Curve:
    parts: dict[Stage, list[tuple[int, float]]] = {span.stage: [] for span in spans}
    offsets = {span.stage: span.offset for span in spans}
    for row in rows:
        if row.stage in parts and (found := value(row)) is not None:
            parts[row.stage].append((offsets[row.stage] + row.iteration, found))
    return Curve(name, tuple(tuple(part) for part in parts.values()))


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


def _running_mean(part: Sequence[tuple[int, float]], window: int) -> tuple[tuple[int, float], ...]:
    half = window // 2
    sums = [0.0, *accumulate(value for _, value in part)]
    means = []
    for at, (x, _) in enumerate(part):
        first, end = max(at - half, 0), min(at + half + 1, len(part))
        means.append((x, (sums[end] - sums[first]) / (end - first)))
    return tuple(means)


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
_About = tuple[str, str, str]  # the key, title and note of a panel
DASHES = ("dot", "dash", "solid")


@dataclass(frozen=True)
class Panel:
    """A figure with its words. ``curves`` are as recorded, for the table to download."""

    key: str
    title: str
    note: str
    alt: str
    figure: Figure
    curves: tuple[Curve, ...]


@dataclass(frozen=True)
class Line:
    """How one curve is drawn. With ``marks`` it has only points, which are never smoothed."""

    curve: Curve
    dash: str = "solid"
    colour: str = "@ink"
    marks: str | None = None


def panels(record: TrainingRecord, stages: Sequence[Stage], *, smooth: bool) -> list[Panel]:
    """Returns the figures for which those ``stages`` have data, in the order in which people read them."""
    axis = _Axis(spans(record, stages), smooth)
    rows = record.iterations()
    entropy = [Line(curve("entropy", rows, axis.spans, lambda row: row.entropy))]
    open_ = "Nats per completion token: how open the next word still is."
    steps = _by_difficulty(rows, axis, "steps_by_difficulty")
    steps = steps or [Line(curve("steps", rows, axis.spans, lambda row: row.steps))]
    losses = [
        Line(curve("loss", rows, axis.spans, lambda row: row.loss)),
        Line(curve("wording", rows, axis.spans, lambda row: row.supervised_loss), "dot", "@muted"),
    ]
    optimised = "As optimised; each stage has a loss of its own. Wording: the term that guards it."
    made = (
        _reward(record, axis),
        _agents(record, axis),
        _accuracy(record, axis),
        _lines(("steps", "Steps per workflow", "Mean over valid plans."), steps, axis, "%{y:.2f}", top=None),
        _lines(("entropy", "Entropy", open_), entropy, axis, "%{y:.3f}", top=None),
        _time(record, axis),
        _lines(("loss", "Loss", optimised), losses, axis, "%{y:.4f}", top=None, bottom=None),
        _shapes(record, axis),
    )
    return [panel for panel in made if panel is not None]


@dataclass(frozen=True)
class _Axis:
    spans: tuple[Span, ...]
    smooth: bool

    def shown(self, curve: Curve) -> Curve:
        return curve.smoothed(window(self.spans)) if self.smooth else curve

    def x(self) -> dict[str, Any]:
        end = self.spans[-1].end if self.spans else 1
        step = _nice(end / 6)
        ticks = [(span.offset + at, at) for span in self.spans for at in range(0, span.length + 1, step)]
        # A stage's last tick would lie over the 0 of the next.
        kept = [(x, at) for x, at in ticks if at == 0 or not any(0 < span.offset - x < step / 4 for span in self.spans)]
        kept = [(x, at) for x, at in kept if not (at and any(span.offset == x for span in self.spans))]
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

    def marks(self) -> dict[str, Any]:
        dotted = {"color": "@soft", "width": 1, "dash": "dot"}
        edges = [
            {"type": "line", "x0": span.offset, "x1": span.offset, "y0": 0, "y1": 1, "yref": "paper", "line": dotted}
            for span in self.spans[1:]
        ]
        where = {"y": 1, "yref": "paper", "xanchor": "left", "yanchor": "bottom", "showarrow": False}
        where |= {"font": {"size": 12, "color": "@muted"}}
        names = [{"text": STAGE_WORDS[span.stage], "x": span.offset, **where} for span in self.spans]
        return {"shapes": edges, "annotations": names}

    def label(self, x: int) -> str:
        span = next((span for span in reversed(self.spans) if x > span.offset), self.spans[0])
        return f"{STAGE_WORDS[span.stage]} · iteration {x - span.offset}"


def _nice(rough: float) -> int:
    """Returns the least number from ``rough`` on that is 1, 2 or 5 times a power of ten."""
    sizes = (factor * int(10**power) for power in count() for factor in (1, 2, 5))
    return next(size for size in sizes if size >= rough)


def _reward(record: TrainingRecord, axis: _Axis) -> Panel | None:
    rows = record.iterations()
    reward = curve("reward", rows, axis.spans, lambda row: row.reward)
    valid = curve("valid plans", rows, axis.spans, lambda row: row.format_rate)
    lines = [Line(reward), Line(valid, "dot", "@muted")]
    here = {span.stage for span in axis.spans}
    grammar = grammar_in_words(record, [row.stage for row in rows if row.stage in here and row.format_rate is not None])
    note = f"Mean over rollouts. Valid: parses and breaks no rule{'; ' if grammar else ''}{grammar}."
    return _lines(("reward", "Reward and valid plans", note), lines, axis, "%{y:.3f}")


def _accuracy(record: TrainingRecord, axis: _Axis) -> Panel | None:
    rows, held = record.iterations(), record.held_out()
    lines = _by_difficulty(rows, axis, "accuracy_by_difficulty")
    lines = lines or [Line(curve("accuracy", rows, axis.spans, lambda row: row.accuracy))]
    held_out = by_name(held, axis.spans, "accuracy_by_difficulty", DIFFICULTIES)
    held_out = held_out or [curve("", held, axis.spans, lambda row: row.accuracy)]
    names = [each.name for each in held_out]
    drawn_as = marks(names)
    lines += [
        Line(Curve(f"{each.name}, held out".lstrip(", "), each.points), marks=drawn_as[each.name].symbol)
        for each in held_out
    ]
    said = f" ({legend(names)})" if any(names) else ""
    note = f"Lines: rollouts. Marks{said}: held out, {splits(held)}." if held else "Mean over rollouts."
    return _lines(("accuracy", "Accuracy by difficulty", note), lines, axis, "%{y:.3f}")


def _by_difficulty(rows: Sequence[Any], axis: _Axis, field: str) -> list[Line]:
    found = by_name(rows, axis.spans, field, DIFFICULTIES)
    colours = ("@muted", "@muted", "@ink")
    return [Line(each, DASHES[at % 3], colours[at % 3]) for at, each in enumerate(found)]


def _agents(record: TrainingRecord, axis: _Axis) -> Panel | None:
    names = record.started.agents if record.started else ()
    found = shares(record.iterations(), axis.spans, "agent_share", names)
    colours = {name: f"@agent-{number % 8}" for number, name in enumerate(names)}
    lines = [Line(each, colour=colours.get(each.name, "@agent-none")) for each in found]
    note = "Share of steps given to each agent; colours as on the Run page."
    return _areas(("agents", "Agent choice", note), lines, axis, "%{y:.1%}", agents=True)


def _shapes(record: TrainingRecord, axis: _Axis) -> Panel | None:
    found = shares(record.iterations(), axis.spans, "topology_share")
    biggest = sorted(found, key=lambda each: -each.last)[: len(DASHES)]
    lines = [Line(each, DASHES[-1 - at], ("@ink", "@muted", "@muted")[at]) for at, each in enumerate(biggest)]
    note = "Share of valid plans; the most frequent three at the end."
    return _lines(("shapes", "Shapes of workflows", note), lines, axis, "%{y:.1%}")


def _time(record: TrainingRecord, axis: _Axis) -> Panel | None:
    rows = record.iterations()
    names = ("update", "reward", "rollout")
    parts = [curve(name, rows, axis.spans, attrgetter(f"{name}_s")) for name in names]
    lines = [Line(each, colour=f"@tone-{at}") for at, each in enumerate(parts) if each]
    return _areas(("time", "Where an iteration's time goes", "Seconds, one upon another."), lines, axis, "%{y:.2f} s")


def _lines(
    about: _About, lines: Sequence[Line], axis: _Axis, number: str, *, top: float | None = 1.0,
    bottom: float | None = 0.0,
) -> Panel | None:  # fmt: skip
    drawn = [line for line in lines if line.curve]
    if not drawn:
        return None
    traces: list[Mapping[str, Any]] = []
    if axis.smooth:
        traces += [_trace(line, line.curve, number, raw=True) for line in drawn if not line.marks]
    traces += [_trace(line, line.curve if line.marks else axis.shown(line.curve), number) for line in drawn]
    ends = [(line.curve.name, axis.shown(line.curve).last) for line in drawn if not line.marks]
    ends = ends or [(line.curve.name, line.curve.last) for line in drawn]
    colours = {line.curve.name: line.colour for line in drawn}
    values = [value for line in drawn for value in line.curve.values]
    low = min(values) if bottom is None else min(bottom, *values)
    high = max(values) if top is None else max(top, *values)
    room = (high - low or 1.0) * 0.04
    y_range = (low - room if bottom is None or low < bottom else low, high + room)
    return _panel(about, drawn, traces, ends, colours, y_range, axis)


def _areas(about: _About, lines: Sequence[Line], axis: _Axis, number: str, *, agents: bool = False) -> Panel | None:
    """Stacks areas. Those of ``agents`` are shares, whose names have the agents' colours."""
    if not lines:
        return None
    shown = [axis.shown(line.curve) for line in lines]
    border = {"width": 0.6, "color": "@surface"}
    traces = [
        {**_trace(line, curve, number), "stackgroup": "0", "line": border, "fillcolor": line.colour}
        for line, curve in zip(lines, shown, strict=True)
    ]
    ends, floor = [], 0.0
    for curve in shown:
        ends.append((curve.name, floor + curve.last / 2))
        floor += curve.last
    highest = [sum(values) for values in zip(*(line.curve.values for line in lines), strict=False)]
    y_range = (0.0, 1.0 if agents else max(highest) * 1.05 or 1.0)
    colours = {line.curve.name: line.colour for line in lines} if agents else {}
    return _panel(about, lines, traces, ends, colours, y_range, axis)


def _panel(
    about: _About,
    lines: Sequence[Line],
    traces: Sequence[Mapping[str, Any]],
    ends: Sequence[tuple[str, float]],
    colours: Mapping[str, str],
    y_range: tuple[float, float],
    axis: _Axis,
) -> Panel:
    marks = axis.marks()
    if len(axis.spans) > 1:
        longest = max(traces, key=lambda trace: len(trace["x"]))
        # The hover lists stacked traces from the top, that is from the last one on.
        stacked = "stackgroup" in longest
        traces = [*traces, _where(longest, axis)] if stacked else [_where(longest, axis), *traces]
    annotations = [*marks["annotations"], *names_beside(ends, y_range, HEIGHT_PX, colours)]
    shape = layout(
        HEIGHT_PX, xaxis=axis.x(), yaxis={"range": list(y_range)}, shapes=marks["shapes"], annotations=annotations
    )
    curves = tuple(line.curve for line in lines)
    words = "; ".join(f"{curve.name} from {curve.values[0]:.3g} to {curve.last:.3g}" for curve in curves)
    drawn = {"data": list(traces), "layout": shape}
    return Panel(*about, f"{about[1]} over iterations: {words}.", drawn, curves)


def _trace(line: Line, curve: Curve, number: str, *, raw: bool = False) -> dict[str, Any]:
    """Draws ``curve`` as ``line`` says, with a gap between stages: the end of one does not lead to the next."""
    points: list[tuple[int, float | None]] = []
    for part in curve.points:
        drawn = part if line.marks else thinned(part)
        points += [*drawn, *([(drawn[-1][0], None)] if drawn else [])]
    name, said = plain(curve.name), {"hovertemplate": f"{number}<extra>{plain(curve.name)}</extra>"}
    xs, ys = [x for x, _ in points], [value for _, value in points]
    if raw:
        return scatter("lines", xs, ys, name=name, line={"color": "@faint", "width": 1}, hoverinfo="skip")
    if line.marks:
        marker = {"symbol": line.marks, "size": 8, "color": line.colour, "line": {"width": 1.6}}
        return scatter("markers", xs, ys, name=name, cliponaxis=False, marker=marker, **said)
    return scatter("lines", xs, ys, name=name, line={"dash": line.dash, "color": line.colour, "width": 2}, **said)


def _where(trace: Mapping[str, Any], axis: _Axis) -> dict[str, Any]:
    unseen = {"width": 0, "color": "rgba(0,0,0,0)"}
    labels = [axis.label(x) for x in trace["x"]]
    said = "%{customdata}<extra></extra>"
    return scatter("lines", trace["x"], trace["y"], line=unseen, customdata=labels, hovertemplate=said)


def thinned(part: Sequence[tuple[int, float]]) -> Sequence[tuple[int, float]]:
    """Returns points at even distances, and the last: a figure, sent every few seconds, has no pixels for more."""
    stride = -(-len(part) // MOST_POINTS)
    return part if stride <= 1 else [*part[:-1][::stride], part[-1]]
