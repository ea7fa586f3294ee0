"""A training record as curves: points on one axis of iterations, smoothed, and as tables to download."""

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from conductor_core.lab.records.training import HeldOut, Iteration, Stage, TrainingRecord

STAGES: tuple[Stage, ...] = ("cold_start", "grpo", "recursion")
STAGE_WORDS: Mapping[Stage, str] = {"cold_start": "Cold start", "grpo": "GRPO", "recursion": "Recursion"}


@dataclass(frozen=True)
class Span:
    """A stage's place on the axis: its iteration ``i`` stands at ``offset + i``; it ends at ``end``."""

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
    """Returns the stages that have begun, in the order of training."""
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
    """Returns the points of those ``rows`` that have a ``value``."""
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
    """Says in words what the held-out tasks are, not escaped; empty where there are none."""
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
