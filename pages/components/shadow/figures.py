"""The figures of the Shadow page: the verdict in one sentence, the table of both sides, how long they took, parts."""

import json
import math
from collections.abc import Sequence
from typing import Any

import streamlit as st

from conductor_core.analysis import shadow
from conductor_core.analysis.intervals import Estimate
from conductor_core.analysis.shadow import Answer, Line, Report, Request, Traffic
from conductor_core.formats import UNKNOWN, plural, seconds
from conductor_core.serving.counts import losses
from pages.components.app.session import current
from pages.components.app.widgets import across, download, segments
from pages.components.style.figures import Figure, figure, layout, log_axis, panel, scatter, thinned
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

    def whole() -> str:
        return json.dumps(shadow.whole_document(traffic), ensure_ascii=False, indent=2)

    download("JSON", whole, "shadow.json", "application/json", "shadow-json", **how)


def reports(traffic: Traffic) -> dict[tuple[str, str], Report]:
    """Returns the figures of the whole and of each part, by what it was parted and the part's name."""
    found = {("all", ""): shadow.report(traffic)}
    return found | {(by, name): each for by in shadow.BREAKDOWNS for name, each in shadow.parts(traffic, by).items()}


# Both sides.

Cell = tuple[str, str]
"""What a cell says, and below it."""
Place = tuple[float, float, float]
"""Low end, value and high end."""


def table(found: Report) -> None:
    with panel("shadow-table", "Today beside the Conductor", "The line: 95 % interval of the difference."):
        places = [_place(line) for line in found.lines]
        # How far the axis goes to each side: of shares, and as a logarithm of ratios.
        reach = {True: _LEAST_POINTS, False: math.log(_LEAST_RATIO)}
        for line, place in zip(found.lines, places, strict=True):
            of_share = line.kind == "share"
            reach[of_share] = max(reach[of_share], *map(abs, place or ()), 0.0)
        drawn = []
        for line, place in zip(found.lines, places, strict=True):
            of = f"{plural(line.n, 'request')}{f' · {line.left_out:,} {line.why}' if line.left_out else ''}"
            # In percent of the axis.
            ends = [50 + 50 * end / (1.08 * reach[line.kind == "share"]) for end in place or ()]
            drawn.append((line.name, of, _cells(line), ends))
        st.html(html(TEMPLATE, "table", lines=drawn))
        if not found.endings:
            _note("Nothing failed, and no answer was refused, filtered, cut off or empty.")


def _note(said: str) -> None:
    st.html(html(TEMPLATE, "note", said=said))


def _cells(line: Line) -> tuple[Cell, Cell, Cell]:
    """Returns today's figure, the Conductor's, and how they differ."""
    apart, ratio = line.difference, line.ratio

    def signed(value: float) -> str:
        return shadow.written(value, line.kind, sign=True)

    differ = UNKNOWN, ""
    if apart is not None and line.kind == "share":
        differ = f"{signed(apart.value)} points", shadow.spread(apart, signed)
    elif ratio is not None:
        more = "" if apart is None else signed(apart.value), shadow.spread(ratio, shadow.times)
        differ = shadow.times(ratio.value), " · ".join(filter(None, more))
    elif apart is not None:
        same = apart.value == apart.low == apart.high == 0
        differ = ("the same", "") if same else (signed(apart.value), shadow.spread(apart, signed))
    return _estimate(line.forwarded, line), _estimate(line.shadow, line), differ


def _estimate(each: Estimate | None, line: Line) -> Cell:
    if each is None:
        return ("unknown" if line.left_out else UNKNOWN, "")
    said = shadow.written(each.value, line.kind)
    if line.kind == "share":
        return said, _interval(each)
    return said, shadow.spread(each, lambda end: shadow.written(max(0.0, end), line.kind))


def _place(line: Line) -> Place | None:
    """Returns where the difference is on the axis."""
    of = line.difference if line.kind == "share" else line.ratio
    if of is None:
        return None
    low, high = of.value if of.low is None else of.low, of.value if of.high is None else of.high
    return (low, of.value, high) if line.kind == "share" else (math.log(low), math.log(of.value), math.log(high))


# Verdicts, and how long it took.

_NAMES = {"better": ("▲", "Conductor better"), "same": ("=", "the same"), "worse": ("▼", "Conductor worse")}


def verdicts(found: Report) -> None:
    note = f"{plural(found.judged, 'request')} of {found.compared:,} judged" if found.judged else ""
    with panel("shadow-verdicts", "Which answer is better", note):
        if not found.judged:
            _note("No answer is judged yet. Judge some below, or let a judge or a grader say it.")
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
            _note("No request has an answer of both yet.")
            return
        halves = [seconds(times[len(times) // 2]) for times in both]
        alt = (
            f"How long requests took. Half are answered within {halves[0]} today, by the Conductor within {halves[1]}."
        )
        figure(_latency(*both), key="figure-latency", alt=alt)


def _timed(answer: Answer) -> bool:
    return answer.status in ("completed", shadow.CALLED, "refused", "cut") and answer.duration_ms is not None


def _latency(today: Sequence[float], conductor: Sequence[float]) -> Figure:
    least = max(1.0, min(today[0], conductor[0])) / 1000
    most = max(today[-1], conductor[-1], 2.0) / 1000
    traces: list[dict[str, Any]] = []
    names: list[dict[str, Any]] = []
    for name, times, colour, at in (("today", today, "@soft", 62), ("Conductor", conductor, "@ink", 38)):
        ranks = thinned(range(len(times)), _MOST_MARKS + 1)
        xs = [max(times[rank] / 1000, least) for rank in ranks]
        ys = [100 * (rank + 1) / len(times) for rank in ranks]
        said = f"{name}: %{{y:.0f}} % within %{{x:.2f}} s<extra></extra>"
        line = {"color": colour, "width": 2, "shape": "hv"}
        traces.append(scatter("lines", xs, ys, line=line, hovertemplate=said))
        where = {"x": math.log10(xs[len(xs) // 2]), "y": at, "yanchor": "middle", "showarrow": False}
        names.append({"text": name, "font": {"color": colour, "size": 12}, **where})
    quicker, slower = sorted(names, key=lambda name: name["x"])  # each on the side where the other is not
    quicker |= {"xanchor": "right", "xshift": -8}
    slower |= {"xanchor": "left", "xshift": 8}
    shape = layout(
        _HEIGHT_PX,
        x="seconds (logarithmic)",
        y="%",
        hovermode="closest",
        annotations=names,
        margin={"l": 48, "r": 16, "t": 8, "b": 50},
        xaxis=log_axis(least * 0.85, most * 1.15, "{:g}"),
        yaxis={"range": [0, 101]},
    )
    return {"data": traces, "layout": shape}


# Parts.

_PARTS = {"day": "By day", "forwarded model": "By model", "Conductor": "By Conductor"}


def parts(traffic: Traffic) -> None:
    with st.container(border=True, key="shadow-parts", gap="xsmall"):
        with across("shadow-parts-head"):
            st.html(html("style/parts", "title", name="Broken down", note=""), width="content")
            by = segments("Part", _PARTS, PART, default="day", required=True, format_func=_PARTS.__getitem__)
        found = shadow.parts(traffic, by or "day")
        rows = [(name, _part(each)) for name, each in found.items() if each.shadowed]
        head = _PARTS[by or "day"].removeprefix("By ").capitalize()
        st.html(html(TEMPLATE, "parts", head=head, rows=rows[:_MOST_PARTS]))
        if len(rows) > _MOST_PARTS:
            _note(f"The first {_MOST_PARTS} of {len(rows):,}; the downloads have all.")


def _part(found: Report) -> list[Cell]:
    """Returns the cells of a part: what they say, and their interval."""
    of = found.right
    right = ("not judged", "") if of is None else _cells(of)[2]
    better = "", ""
    if found.preferred is not None:
        better = f"{found.verdicts['better']:,} ▲ {found.verdicts['worse']:,} ▼", f"of {found.judged:,}"
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
    simulated = ", simulated" if whole.simulated == whole.requests else ""
    said = f"{plural(whole.requests, 'request')}, {whole.tokens:,} tokens, {whole.cost.in_line}{simulated}"
    with panel("shadow-today", "Forwarded traffic", said):
        left, right = st.columns(2, gap="large")
        for column, by, head in ((left, "forwarded model", "Model"), (right, "day", "Day")):
            found = shadow.forwarded_by(requests, by)
            most = max((each.requests for each in found.values()), default=1)
            column.html(html(TEMPLATE, "traffic", head=head, parts=list(found.items())[:_MOST_PARTS], most=most))
            if len(found) > _MOST_PARTS:
                column.html(html(TEMPLATE, "note", said=f"The first {_MOST_PARTS} of {len(found):,}."))
