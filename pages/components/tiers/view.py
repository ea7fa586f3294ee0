"""What the Tiers page shows: which classifiers there are, what a threshold would have done, and what was routed."""

import os
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from pathlib import Path
from shlex import quote
from typing import Any

import streamlit as st

from conductor_core.errors import InspectorError, StoreError
from conductor_core.formats import dollars, plural
from conductor_core.run.costs import Cost
from conductor_core.run.request import TIER_REASONS
from conductor_core.tiers import outcomes
from conductor_core.tiers.classifier import Classifier, read_classifier
from conductor_core.tiers.curve import Point, Standing, Unit, at, curve, in_unit, suggested, unit_of, went_wrong
from conductor_core.tiers.outcomes import LEAST_OF_A_CLASS, LEAST_OUTCOMES, Found
from pages.components.app.session import current
from pages.components.app.widgets import fault_box
from pages.components.style.figures import Figure, figure, layout, panel, plain, scatter, thinned, whiskers
from pages.components.style.formats import html, inert
from storage.judgements import JudgementQuery

TEMPLATE = "tiers/tiers"
CHOSEN, THRESHOLD = "tiers-file", "tiers-threshold"
MOST_WRONG, MOST_COUNTED, MOST_JUDGED = 8, 1000, 4000
HEIGHT_PX = 380
_MOST_POINTS = 300
_FOLDER = "tiers"
_ENOUGH = "yes"
_RECORD = "conductor serve --pass-through CHEAP_WORKER --shadow 0.2 --judge OTHER_WORKER"


def files() -> list[str]:
    """Returns the classifiers of the served models, then those in the data folder."""
    served = [model.tiers.file for model in current().served.all if model.tiers is not None]
    folder = current().settings.data_folder / _FOLDER
    found = sorted(str(path.absolute()) for path in folder.glob("*.json")) if folder.is_dir() else []
    return list(dict.fromkeys([*served, *found]))


def choose() -> str | None:
    offered = files()
    if len(offered) > 1:
        return st.selectbox("Classifier", offered, key=CHOSEN, format_func=lambda file: inert(Path(file).name))
    return offered[0] if offered else None


@lru_cache(maxsize=4)
def _read(file: str, _mark: object) -> tuple[Classifier, str]:
    """Reads a file once for each ``_mark`` that it has."""
    return read_classifier(file)


def _mark(file: str) -> object:
    with suppress(OSError, ValueError):
        found = os.stat(file)
        return found.st_mtime_ns, found.st_size, found.st_ino
    return None


@st.fragment
def show_file(file: str) -> None:
    """Draws what the classifier's thresholds do. A move of the slider draws this alone."""
    try:
        classifier, sha256 = _read(file, _mark(file))
    except InspectorError as error:
        fault_box(error)
        return
    all_ = classifier.outcomes
    st.html(html(TEMPLATE, "fitted", classifier=classifier, easy=sum(each.easy for each in all_)))
    unit = unit_of(all_)
    served = next(
        (m.tiers.threshold for m in current().served.all if m.tiers is not None and m.tiers.file == file), None
    )
    usual = suggested(all_, unit) if served is None else served
    left, right = st.columns([3, 2], gap="small")
    with right, panel("tiers-choice", "Threshold", "From this probability on a request is easy."):
        key = f"{THRESHOLD}-{sha256[:12]}"
        decimals = 2 if usual == round(usual, 2) else 4
        how = {"step": 10**-decimals, "format": f"%.{decimals}f"}
        chosen = st.slider("Threshold", 0.0, 1.0, usual, key=key, label_visibility="collapsed", **how)
        standing = at(all_, chosen, unit)
        amount = dollars if unit == "usd" else "{:,.0f}".format
        st.html(html(TEMPLATE, "standing", found=standing, in_unit=partial(in_unit, unit=unit), amount=amount))
    points = curve(all_, unit)
    with left, panel("tiers-curve", "Cost against quality", "The mark: your threshold, with 95 % intervals."):
        worker = classifier.worker
        alt = curve_in_words(points, standing, unit, worker)
        figure(curve_figure(points, standing, unit, worker), key="tiers-figure", alt=alt)
    left, right = st.columns([3, 2], gap="small")
    note = "Sent to the cheap worker, though only the Conductor was right."
    with left, panel("tiers-wrong", "Would have gone wrong", note):
        _wrong(classifier, chosen)
    with right, panel("tiers-lines", "Lines for the served-models file", "Restart the endpoint after a change there."):
        st.code(served_lines(file, classifier.worker, chosen), language="toml", wrap_lines=True)
    _left_out(classifier.fit.left_out, "left out of the fit")


def _left_out(left_out: Mapping[str, int], where: str) -> None:
    rows = [(f"{count:,}", reason) for reason, count in left_out.items() if count]
    if rows:
        with st.expander(f"{plural(sum(left_out.values()), 'recorded request')} {where}"):
            st.html(html(TEMPLATE, "table", heads=("Requests", "Why"), rows=rows))


def served_lines(file: str, worker: str, threshold: float) -> str:
    """Returns TOML. A name from a file may hold anything, so each text is written as TOML's basic string."""
    return (
        f'[[model]]\nid = "tiered"\n\n[model.tiers]\nfile = {_quoted(file)}\nworker = {_quoted(worker)}\n'
        f"threshold = {threshold:g}\n"
    )


def _quoted(text: str) -> str:
    plain = "".join(
        char if char.isprintable() else f"\\u{ord(char):04X}" if ord(char) < 0x10000 else "?"
        for char in text.replace("\\", "\\\\").replace('"', '\\"')
    )
    return f'"{plain}"'


def _wrong(classifier: Classifier, threshold: float) -> None:
    found = went_wrong(classifier.outcomes, threshold)
    if not found:
        st.caption("None of the recorded requests.")
        return
    rows = []
    for each in found[:MOST_WRONG]:
        try:
            task = current().store.created(each.cheap_run_id).request.task
        except InspectorError:
            task = ""
        rows.append((each.probability, task, each.cheap_run_id, each.conductor_run_id))
    st.html(html(TEMPLATE, "wrong", rows=rows))
    if len(found) > MOST_WRONG:
        st.caption(f"The {MOST_WRONG} with the highest probability of {len(found):,}.")


# The curve.


def curve_figure(points: Sequence[Point], chosen: Standing, unit: Unit, worker: str) -> Figure:
    """Draws cost against quality, with both ends, the mix by chance, and the chosen threshold."""
    first, last, shown = points[0], points[-1], thinned(points, _MOST_POINTS)

    def drawn(mode: str, at: Sequence[Point], **how: object) -> dict[str, Any]:
        return scatter(mode, [each.cost for each in at], [100 * each.quality for each in at], **how)

    said = [
        f"{'no threshold' if each.threshold is None else f'threshold {each.threshold:.2f}'}: {each.easy:.0%} easy<br>"
        f"{in_unit(each.cost, unit)}, {100 * each.quality:.1f} % good<extra></extra>"
        for each in shown
    ]
    dotted, open_ = {"color": "@soft", "width": 1.4, "dash": "dot"}, {"size": 8, "symbol": "circle-open"}
    ends = {**open_, "color": "@ink", "line": {"width": 1.6}}
    rate, low_rate, high_rate = (100 * each for each in (chosen.quality.rate, chosen.quality.low, chosen.quality.high))
    look = {"color": "@agent-0", "thickness": 1.6, "width": 4}
    mark = scatter("markers", [chosen.cost], [rate], marker={"size": 12, "color": "@agent-0"}, hoverinfo="skip")
    mark["error_y"] = whiskers([low_rate], [rate], [high_rate], **look)
    mark["error_x"] = whiskers([chosen.cost_low], [chosen.cost], [chosen.cost_high], **look)
    costs, rates = [each.cost for each in points], [100 * each.quality for each in points]
    low, high = min(*rates, low_rate), max(*rates, high_rate)
    room, wide = max((high - low) * 0.12, 1.0), max((max(costs) - min(costs)) * 0.12, max(costs) * 0.02)
    side = 1 if last.cost <= first.cost else -1
    above = 1 if first.quality >= last.quality else -1
    near = abs(first.cost - chosen.cost) < 0.4 * abs(first.cost - last.cost)  # the mark would lie on the name
    between = Point(None, 0.5, (first.cost + last.cost) / 2, (first.quality + last.quality) / 2)
    names = [
        _name("all to the Conductor", first, -side, -5 * above if near else above),
        _name(f"all to {worker[:30]}", last, side, -above),
        _name("by chance", between, side, -above, "@muted"),
    ]
    shape = layout(
        HEIGHT_PX,
        x="USD a request" if unit == "usd" else "tokens a request",
        y="good answers, %",
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
        },
        yaxis={"range": [max(low - room, 0), min(high + room, 102)]},
    )
    traces = [
        drawn("lines", (first, last), line=dotted, hoverinfo="skip"),
        drawn("lines", shown, line={"color": "@ink", "width": 2}, hovertemplate=said),
        drawn("markers", (first, last), marker=ends, hoverinfo="skip"),
        mark,
    ]
    return {"data": traces, "layout": shape}


def _name(text: str, point: Point, side: int, above: int, colour: str = "@ink") -> dict[str, object]:
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
        "font": {"size": 12, "color": colour},
    }


def curve_in_words(points: Sequence[Point], chosen: Standing, unit: Unit, worker: str) -> str:
    said = [f"{100 * each.quality:.1f} % good at {in_unit(each.cost, unit)}" for each in (points[0], points[-1])]
    return (
        f"Good answers against cost. All to the Conductor: {said[0]}; all to {worker}: {said[1]}; at "
        f"the threshold {chosen.threshold:.2f}: {100 * chosen.quality.rate:.1f} % good at {in_unit(chosen.cost, unit)}."
    )


# Without a classifier.


def nothing_fitted() -> None:
    """Says how many outcomes there are for which worker, and what is missing."""
    store = current().store
    try:
        with st.spinner("Reading the verdicts"):
            judgements = store.judgements.list(JudgementQuery(counting=True), limit=MOST_JUDGED)
            by_worker = {name: outcomes.find(store, judgements, name) for name in outcomes.alone(store, judgements)}
    except StoreError as error:
        fault_box(error)
        return
    usable = {name: found for name, found in by_worker.items() if found.rows}
    if not usable:
        st.info(
            "**No outcomes yet.** An outcome is a request that one worker alone and the Conductor have answered, with "
            "verdicts about both: right or wrong, or which is better.",
            icon=":material/alt_route:",
        )
        st.markdown(
            "The endpoint records them: it forwards requests to a worker of the pool, has the Conductor answer a share "
            "of them, too, and asks a judge which answer is better."
        )
        st.code(_RECORD, language="bash")
        return
    rows = [(name, f"{len(found.rows):,}", f"{_easy(found):,}", _missing(found)) for name, found in usable.items()]
    note = "Requests that the worker alone and the Conductor have answered, with verdicts about both."
    with panel("tiers-outcomes", "Recorded outcomes", note):
        st.html(html(TEMPLATE, "table", heads=("Cheap worker", "Outcomes", "Easy", "Enough to fit?"), rows=rows))
    best = max(usable, key=lambda name: (_missing(usable[name]) == _ENOUGH, len(usable[name].rows)))
    if _missing(usable[best]) == _ENOUGH:
        out = current().settings.data_folder.absolute() / _FOLDER / "easy.json"
        st.markdown("This command fits a classifier; it then appears here:")
        st.code(f"conductor tiers fit --cheap {quote(best)} --out {quote(str(out))}", language="bash", wrap_lines=True)
    _left_out(usable[best].left_out, f"give no outcome for {inert(best)}")


def _easy(found: Found) -> int:
    return sum(row.outcome.easy for row in found.rows)


def _missing(found: Found) -> str:
    count, easy = len(found.rows), _easy(found)
    if count < LEAST_OUTCOMES:
        return f"no: {count:,} of {LEAST_OUTCOMES}"
    if easy in (0, count):
        return f"no: all are {'easy' if easy else 'not easy'}, so there is nothing to tell apart"
    if min(easy, count - easy) < LEAST_OF_A_CLASS:
        return f"no: {LEAST_OF_A_CLASS} easy ones and {LEAST_OF_A_CLASS} others are needed"
    return _ENOUGH


# What was routed.


def routed() -> None:
    """Draws how many of the newest requests each tiered model sent where, and what they cost."""
    if all(model.tiers is None for model in current().served.all):
        return
    counts: dict[tuple[str, str], list[Cost]] = defaultdict(list)
    asked: Sequence[object] = ()
    try:
        asked = runs = [run for run in current().store.runs(MOST_COUNTED) if run.caller.door == "api"]
        for run in runs:
            try:
                request = current().store.created(run.run_id).request
            except InspectorError:  # erased, or damaged
                continue
            if request.tier is not None and request.client is not None:
                why = TIER_REASONS.get(request.tier.reason, request.tier.reason)
                to = f"{request.tier.worker} (easy)" if request.tier.easy else f"Conductor{f': {why}' if why else ''}"
                counts[request.client.model, to].append(run.cost)
    except StoreError as error:
        fault_box(error)
        return
    with panel("tiers-routed", "Requests of tiered models", f"Among the newest {len(asked):,} runs of the endpoint."):
        if not counts:
            st.caption("None yet.")
            return
        totals: Counter[str] = Counter()
        for (model, _), of in counts.items():
            totals[model] += len(of)
        rows = [
            (model, to, f"{len(of):,}", f"{len(of) / totals[model]:.0%}", str(sum(of, Cost())))
            for (model, to), of in sorted(counts.items())
        ]
        st.html(html(TEMPLATE, "table", heads=("Model", "Went to", "Requests", "Share", "Cost"), rows=rows))
