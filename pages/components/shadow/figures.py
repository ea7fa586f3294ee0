"""The figures of the Shadow page: the verdict in one sentence, the table of both sides, how long they took, parts."""

import json
import math
from collections.abc import Mapping, Sequence

import streamlit as st

from conductor_core.analysis import shadow
from conductor_core.analysis.intervals import Estimate
from conductor_core.analysis.shadow import Answer, Forwarded, Line, Report, Request, Traffic
from conductor_core.formats import UNKNOWN, plural, seconds
from conductor_core.serving.counts import losses
from pages.components.app.session import current
from pages.components.app.widgets import across, download, segments
from pages.components.style.figures import Figure, figure, layout, panel, plain, scatter
from pages.components.style.formats import html

TEMPLATE = "shadow/shadow"
PART = "shadow-part"
_HEIGHT_PX = 190
_LEAST_POINTS = 0.1  # a share's axis reaches at least ten points to each side
_LEAST_RATIO = 2.0
_MOST_MARKS = 200
_MOST_PARTS = 31


def verdict(found: Report) -> None:
    """Draws the sentence, and below it what it is not of."""
    lost = losses(current().settings.data_folder)
    facts = [f"{found.forwarded:,} forwarded", f"{found.shadowed:,} with a shadow", *found.not_compared]
    facts += [f"ever {each}" for each in lost]
    facts += filter(None, [found.asked_judges])
    simulated = "" if not found.simulated else "simulated" if found.simulated == found.compared else "partly simulated"
    said = shadow.sentence(found) or "No shadow has come to its end yet."
    with st.container(border=True, key="shadow-verdict"):
        st.html(html(TEMPLATE, "verdict", said=said, facts=facts, simulated=simulated))


def downloads(traffic: Traffic) -> None:
    """Draws what saves all figures, of the whole and of each part."""
    how = {"type": "tertiary"}
    download("CSV", lambda: shadow.to_csv(reports(traffic)), "shadow.csv", "text/csv", "shadow-csv", **how)
    download("JSON", lambda: _json(traffic), "shadow.json", "application/json", "shadow-json", **how)


def reports(traffic: Traffic) -> dict[tuple[str, str], Report]:
    """Returns the figures of the whole and of each part, by what it was parted and the part's name."""
    found = {("all", ""): shadow.report(traffic)}
    return found | {(by, name): each for by in shadow.BREAKDOWNS for name, each in shadow.parts(traffic, by).items()}


def _json(traffic: Traffic) -> str:
    return json.dumps(shadow.whole_document(traffic), ensure_ascii=False, indent=2)


# Both sides.


def table(found: Report) -> None:
    with panel("shadow-table", "Today beside the Conductor", "The line: 95 % interval of the difference."):
        lines = [(line, *_cells(line)) for line in found.lines]
        reach = _reach(found.lines)
        drawn = [(line.name, _of(line), cells, _mark(line, reach)) for line, *cells in lines]
        st.html(html(TEMPLATE, "table", lines=drawn))
        if not found.endings:
            st.html(
                html(TEMPLATE, "note", said="Nothing failed, and no answer was refused, filtered, cut off or empty.")
            )


def _of(line: Line) -> str:
    return f"{plural(line.n, 'request')}{f' · {line.left_out:,} {line.why}' if line.left_out else ''}"


Cell = tuple[str, str]
"""What a cell says, and below it."""


def _cells(line: Line) -> tuple[Cell, Cell, Cell]:
    """Returns today's figure, the Conductor's, and how they differ."""
    both = _estimate(line.forwarded, line), _estimate(line.shadow, line)
    if line.difference is not None and line.kind == "share":
        apart = line.difference
        return (*both, (f"{_signed(apart.value, line)} points", shadow.spread(apart, lambda end: _signed(end, line))))
    if line.ratio is not None:
        ratio = line.ratio
        more = shadow.spread(ratio, shadow.times)
        by = "" if line.difference is None else f"{_signed(line.difference.value, line)} · "
        return (*both, (shadow.times(ratio.value), f"{by}{more}" if more else by.removesuffix(" · ")))
    if line.difference is not None:
        apart = line.difference
        if apart.value == apart.low == apart.high == 0:
            return (*both, ("the same", ""))
        return (*both, (_signed(apart.value, line), shadow.spread(apart, lambda end: _signed(end, line))))
    return (*both, (UNKNOWN, ""))


def _estimate(each: Estimate | None, line: Line) -> Cell:
    if each is None:
        return ("unknown" if line.left_out else UNKNOWN, "")
    said = shadow.written(each.value, line.kind)
    if line.kind == "share":
        return said, _interval(each)
    return said, shadow.spread(each, lambda end: shadow.written(max(0.0, end), line.kind))


def _signed(value: float, line: Line) -> str:
    return shadow.written(value, line.kind, sign=True)


def _reach(lines: Sequence[Line]) -> dict[bool, float]:
    """Returns how far the axis goes to each side: of shares, and as a logarithm of ratios."""
    ends: dict[bool, list[float]] = {True: [_LEAST_POINTS], False: [math.log(_LEAST_RATIO)]}
    for line in lines:
        if (at := _place(line)) is not None:
            ends[line.kind == "share"] += [abs(end) for end in at]
    return {of_share: max(found) * 1.08 for of_share, found in ends.items()}


def _place(line: Line) -> tuple[float, float, float] | None:
    """Returns low end, value and high end on the axis."""
    of = line.difference if line.kind == "share" else line.ratio
    if of is None:
        return None
    low, high = of.value if of.low is None else of.low, of.value if of.high is None else of.high
    return (low, of.value, high) if line.kind == "share" else (math.log(low), math.log(of.value), math.log(high))


def _mark(line: Line, reach: Mapping[bool, float]) -> tuple[float, float, float] | None:
    """Returns from where to where the interval goes, and where the value is, in percent of the axis."""
    if (at := _place(line)) is None:
        return None
    low, value, high = (50 + 50 * end / reach[line.kind == "share"] for end in at)
    return low, high - low, value


# Verdicts, and how long it took.

_NAMES = {"better": ("▲", "Conductor better"), "same": ("=", "the same"), "worse": ("▼", "Conductor worse")}


def verdicts(found: Report) -> None:
    note = f"{plural(found.judged, 'request')} of {found.compared:,} judged" if found.judged else ""
    with panel("shadow-verdicts", "Which answer is better", note):
        if not found.judged:
            said = "No answer is judged yet. Judge some below, or let a judge or a grader say it."
            st.html(html(TEMPLATE, "note", said=said))
            return
        parts = [
            (verdict, *_NAMES[verdict], share.value, shadow.written(share.value, "share"), _interval(share))
            for verdict, share in found.shares.items()
        ]
        st.html(html(TEMPLATE, "verdicts", parts=parts))


def _interval(share: Estimate) -> str:
    said = shadow.spread(share, lambda end: f"{100 * end:.0f}")
    return said and f"{said} %"


def latency(requests: Sequence[Request]) -> None:
    pairs = [(each.forwarded, each.shadow) for each in requests if each.whole and each.shadow is not None]
    both = [sorted(side[which].duration_ms or 0.0 for side in pairs if all(map(_timed, side))) for which in (0, 1)]
    with panel("shadow-latency", "How long it took", "Share of requests that were answered within so many seconds."):
        if not both[0]:
            st.html(html(TEMPLATE, "note", said="No request has an answer of both yet."))
            return
        figure(_latency(*both), key="figure-latency", alt=_latency_in_words(*both))


def _timed(answer: Answer) -> bool:
    return answer.status in ("completed", shadow.CALLED, "refused", "cut") and answer.duration_ms is not None


def _latency(today: Sequence[float], conductor: Sequence[float]) -> Figure:
    named = (("today", today, "@soft"), ("Conductor", conductor, "@ink"))
    traces, notes = [], []
    least = max(1.0, min(today[0], conductor[0])) / 1000
    most = max(today[-1], conductor[-1], 2.0) / 1000
    for name, times, colour in named:
        ranks = sorted({round(rank * (len(times) - 1) / _MOST_MARKS) for rank in range(_MOST_MARKS + 1)})
        xs = [max(times[rank] / 1000, least) for rank in ranks]
        ys = [100 * (rank + 1) / len(times) for rank in ranks]
        line = {"color": colour, "width": 2, "shape": "hv"}
        said = f"{name}: %{{y:.0f}} % within %{{x:.2f}} s<extra></extra>"
        traces.append(scatter("lines", xs, ys, line=line, hovertemplate=said))
        middle, at = xs[len(xs) // 2], 62 if name == "today" else 38
        notes.append((name, middle, at, colour))
    place = {"showarrow": False, "xref": "x", "yref": "y", "yanchor": "middle"}
    quicker = min(notes, key=lambda note: note[1])
    words = []
    for name, at_s, at, colour in notes:  # each on the side where the other is not
        side = {"xanchor": "right", "xshift": -8} if name == quicker[0] else {"xanchor": "left", "xshift": 8}
        font = {"color": colour, "size": 12}
        words.append({"text": plain(name), "x": math.log10(at_s), "y": at, "font": font, **place, **side})
    ticks = [size * factor for size in (0.001, 0.01, 0.1, 1, 10, 100, 1000) for factor in (1, 2, 5)]
    return {
        "data": traces,
        "layout": layout(
            _HEIGHT_PX,
            right=16,
            hovermode="closest",
            annotations=words,
            margin={"l": 48, "r": 16, "t": 8, "b": 50},
            xaxis={
                "type": "log",
                "range": [math.log10(least * 0.85), math.log10(most * 1.15)],
                "tickvals": ticks,
                "ticktext": [f"{tick:g}" for tick in ticks],
                "title": {"text": "seconds (logarithmic)", "standoff": 6},
            },
            yaxis={"range": [0, 101], "title": {"text": "%", "standoff": 4}},
        ),
    }


def _latency_in_words(today: Sequence[float], conductor: Sequence[float]) -> str:
    halves = [seconds(times[len(times) // 2]) for times in (today, conductor)]
    return f"How long requests took. Half are answered within {halves[0]} today, by the Conductor within {halves[1]}."


# Parts.

_PARTS = {"day": "By day", "forwarded model": "By model", "Conductor": "By Conductor"}


def parts(traffic: Traffic) -> None:
    with st.container(border=True, key="shadow-parts", gap="xsmall"):
        with across("shadow-parts-head"):
            st.html(html("style/parts", "title", name="Broken down", note=""), width="content")
            by = segments("Part", _PARTS, PART, default="day", required=True, format_func=_PARTS.__getitem__)
        found = shadow.parts(traffic, by or "day")
        rows = [(name, _part(each)) for name, each in found.items() if each.shadowed]
        st.html(
            html(TEMPLATE, "parts", head=_PARTS[by or "day"].removeprefix("By ").capitalize(), rows=rows[:_MOST_PARTS])
        )
        if len(rows) > _MOST_PARTS:
            st.html(html(TEMPLATE, "note", said=f"The first {_MOST_PARTS} of {len(rows):,}; the downloads have all."))


def _part(found: Report) -> list[Cell]:
    """Returns the cells of a part: what they say, and their interval."""
    of = found.right
    right = ("not judged", "") if of is None else _cells(of)[2]
    better = (
        ("", "")
        if found.preferred is None
        else (f"{found.verdicts['better']:,} ▲ {found.verdicts['worse']:,} ▼", f"of {found.judged:,}")
    )
    lines = {line.name: line for line in (*found.times, *found.amounts)}
    ratios = []
    for name in ("Median time", "Tokens", "Cost"):
        line = lines.get(name)
        if line is None or line.ratio is None:
            same = line is not None and line.forwarded is not None and line.shadow is not None
            ratios.append(("unknown" if line is not None and line.left_out else "$0" if same else UNKNOWN, ""))
        else:
            ratios.append((shadow.times(line.ratio.value), shadow.spread(line.ratio, shadow.times)))
    return [(f"{found.compared:,}", f"of {found.forwarded:,}"), right, better, *ratios]


# Today's traffic.


def today(requests: Sequence[Request]) -> None:
    """Draws what was forwarded, by model and by day: useful without any comparison, too."""
    whole = shadow.forwarded(requests)
    simulated = whole.simulated == whole.requests
    said = f"{plural(whole.requests, 'request')}, {whole.tokens:,} tokens, {whole.cost.in_line}"
    with panel("shadow-today", "Forwarded traffic", f"{said}{', simulated' if simulated else ''}"):
        left, right = st.columns(2, gap="large")
        for column, by, head in ((left, "forwarded model", "Model"), (right, "day", "Day")):
            found = shadow.forwarded_by(requests, by)
            most = max((each.requests for each in found.values()), default=1)
            rows = [(name, each.requests / most, _traffic(each)) for name, each in list(found.items())[:_MOST_PARTS]]
            column.html(html(TEMPLATE, "traffic", head=head, rows=rows))
            if len(found) > _MOST_PARTS:
                column.html(html(TEMPLATE, "note", said=f"The first {_MOST_PARTS} of {len(found):,}."))


def _traffic(found: Forwarded) -> list[Cell]:
    otherwise = sum(found.ended.values())
    ended = ", ".join(f"{number:,} {status}" for status, number in sorted(found.ended.items()))
    unpriced = f"{found.unpriced:,} of unknown price" if found.unpriced else ""
    times = [UNKNOWN if each is None else seconds(each.value) for each in (found.median_ms, found.p95_ms)]
    return [
        (f"{found.requests:,}", ""),
        (f"{found.tokens:,}", ""),
        (str(found.cost), unpriced),
        (times[0], ""),
        (times[1], ""),
        (f"{otherwise:,}" if otherwise else "0", ended),
    ]
