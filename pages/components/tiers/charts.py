"""The drawn curve of cost against quality, with its ends, the mix by chance, and the chosen threshold."""

from collections.abc import Sequence

from conductor_core.tiers.curve import Point, Standing, Unit, in_unit
from pages.components.style.figures import Figure, layout, plain, scatter

HEIGHT_PX = 380
_MOST_POINTS = 300


def thinned(points: Sequence[Point], most: int = _MOST_POINTS) -> list[Point]:
    """Returns at most ``most`` points, spread evenly, with both ends."""
    if len(points) <= most:
        return list(points)
    return [points[round(place * (len(points) - 1) / (most - 1))] for place in range(most)]


def curve_figure(points: Sequence[Point], chosen: Standing, unit: Unit, worker: str) -> Figure:
    first, last, shown = points[0], points[-1], thinned(points)
    said = [
        f"{'no threshold' if each.threshold is None else f'threshold {each.threshold:.2f}'}: {each.easy:.0%} easy<br>"
        f"{in_unit(each.cost, unit)}, {100 * each.quality:.1f} % good<extra></extra>"
        for each in shown
    ]
    by_chance = scatter(
        "lines",
        [first.cost, last.cost],
        [100 * first.quality, 100 * last.quality],
        line={"color": "@soft", "width": 1.4, "dash": "dot"},
        hoverinfo="skip",
    )
    line = scatter(
        "lines",
        [each.cost for each in shown],
        [100 * each.quality for each in shown],
        line={"color": "@ink", "width": 2},
        hovertemplate=said,
    )
    ends = scatter(
        "markers",
        [first.cost, last.cost],
        [100 * first.quality, 100 * last.quality],
        marker={"size": 8, "symbol": "circle-open", "color": "@ink", "line": {"width": 1.6}},
        hoverinfo="skip",
    )
    rate = 100 * chosen.quality.rate
    mark = scatter("markers", [chosen.cost], [rate], marker={"size": 12, "color": "@agent-0"}, hoverinfo="skip")
    reach = {"type": "data", "symmetric": False, "color": "@agent-0", "thickness": 1.6, "width": 4}
    higher, lower = 100 * chosen.quality.high - rate, rate - 100 * chosen.quality.low
    mark["error_y"] = {**reach, "array": [higher], "arrayminus": [lower]}
    mark["error_x"] = {
        **reach,
        "array": [chosen.cost_high - chosen.cost],
        "arrayminus": [chosen.cost - chosen.cost_low],
    }
    costs, rates = [each.cost for each in points], [100 * each.quality for each in points]
    low, high = min(*rates, 100 * chosen.quality.low), max(*rates, 100 * chosen.quality.high)
    room, wide = max((high - low) * 0.12, 1.0), max((max(costs) - min(costs)) * 0.12, max(costs) * 0.02)
    side = 1 if last.cost <= first.cost else -1
    above = 1 if first.quality >= last.quality else -1
    near = abs(first.cost - chosen.cost) < 0.4 * abs(first.cost - last.cost)  # the mark would lie on the name
    names = [
        _name("all to the Conductor", first, -side, -5 * above if near else above),
        _name(f"all to {worker[:30]}", last, side, -above),
    ]
    between = Point(None, 0.5, (first.cost + last.cost) / 2, (first.quality + last.quality) / 2)
    names.append({**_name("by chance", between, side, -above), "font": {"size": 12, "color": "@muted"}})
    what = "USD a request" if unit == "usd" else "tokens a request"
    shape = layout(
        HEIGHT_PX,
        hovermode="closest",
        margin={"l": 52, "r": 18, "t": 12, "b": 46},
        annotations=names,
        xaxis={
            "range": [max(min(costs) - wide, 0), max(costs) + wide],
            "showgrid": True,
            "gridcolor": "@line",
            "nticks": 7,
            "tickprefix": "$" if unit == "usd" else "",
            "exponentformat": "none",  # $0.00005, not $50µ
            "title": {"text": what, "standoff": 6},
        },
        yaxis={
            "range": [max(low - room, 0), min(high + room, 102)],
            "title": {"text": "good answers, %", "standoff": 4},
        },
    )
    return {"data": [by_chance, line, ends, mark], "layout": shape}


def _name(text: str, point: Point, side: int, above: int) -> dict[str, object]:
    """``side``: 1 writes to the right of the point, -1 to its left. ``above``: 1 above it, -1 below it."""
    return {
        "text": plain(text),
        "x": point.cost,
        "y": 100 * point.quality,
        "xanchor": "left" if side > 0 else "right",
        "xshift": 10 * side,
        "yshift": 12 * above,
        "bgcolor": "@surface",
        "borderpad": 1,
        "showarrow": False,
        "font": {"size": 12, "color": "@ink"},
    }


def curve_in_words(points: Sequence[Point], chosen: Standing, unit: Unit, worker: str) -> str:
    def said(point: Point) -> str:
        return f"{100 * point.quality:.1f} % good at {in_unit(point.cost, unit)}"

    return (
        f"Good answers against cost. All to the Conductor: {said(points[0])}; all to {worker}: {said(points[-1])}; at "
        f"the threshold {chosen.threshold:.2f}: {100 * chosen.quality.rate:.1f} % good at {in_unit(chosen.cost, unit)}."
    )
