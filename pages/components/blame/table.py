"""The ranking as rows, and the replays behind one of them."""

from collections.abc import Sequence
from html import escape

import streamlit as st

from conductor_core.answers.conclusion import conclude
from conductor_core.blame.carrying_out import Blame
from conductor_core.blame.effects import Effect, Flips
from conductor_core.blame.experiments import Arm, Change, Experiment, Replay
from conductor_core.blame.words import FINDINGS, change_words, finding_words, sentence, signed
from conductor_core.workflow.model import Workflow
from pages.components.look.words import inert
from pages.components.shell import places

CHOSEN = "blame-chosen"
_SHOWN = 60


def ranking_rows(ranking: Sequence[Effect], plan: Workflow, chosen: Change | None) -> None:
    """Draws a row for each change; its name is a button that shows the replays behind it."""
    with st.container(key="blame-rows", gap=None):
        st.html(
            '<div class="blame-cells head"><span>Finding</span><span>With</span><span>Without</span>'
            "<span>Effect in points (95 %)</span></div>"
        )
        for effect in ranking:
            mark = "-chosen" if effect.change == chosen else ""
            with st.container(
                key=f"blame-row-{effect.rank}{mark}",
                horizontal=True,
                vertical_alignment="center",
                gap="small",
                wrap=False,
            ):
                st.button(
                    inert(f"{effect.rank} · {change_words(effect.change, plan)}"),
                    key=f"blame-{effect.change.key}",
                    type="tertiary",
                    on_click=_choose,
                    args=(effect.change.key,),
                )
                st.html(_cells(effect))


def _choose(key: str) -> None:
    st.session_state[CHOSEN] = key


def _cells(effect: Effect) -> str:
    sign, said = FINDINGS[effect.finding]
    return (
        f'<div class="blame-cells {effect.finding.replace(" ", "-")}"><span>{sign} {said}</span>'
        f"<span>{_counted(effect.with_it)}</span><span>{_counted(effect.without)}</span>{_bar(effect)}</div>"
    )


def _counted(flips: Flips | None) -> str:
    return "—" if flips is None else f"{flips.flipped}/{flips.replays}"


def _bar(effect: Effect) -> str:
    """Draws an axis from -100 to 100 points with the interval as a band and the effect as a mark."""
    if effect.with_it is None:
        return "<span>—</span>"
    low, high, mean = (50 * (1 + value) for value in (effect.low, effect.high, effect.effect))
    words = f"{signed(effect.effect)} ({signed(effect.low)} to {signed(effect.high)})"
    return (
        '<span class="blame-axis" aria-hidden="true">'
        f'<i style="left: {low:.1f}%; width: {max(1.0, high - low):.1f}%"></i>'
        f'<b style="left: {mean:.1f}%"></b></span><span class="blame-points">{words}</span>'
    )


def replays_of(effect: Effect, experiment: Experiment, blame: Blame) -> None:
    """Draws the sentence of a change, and its replays in pairs, each of which opens."""
    plan = blame.experiments.plan
    st.markdown(f"**{inert(change_words(effect.change, plan).capitalize())}**")
    st.markdown(inert(f"{sentence(effect, plan)} {finding_words(effect)}"))
    pairs = [
        (number, _cell(blame, experiment.with_it, number), _cell(blame, experiment.without, number))
        for number in range(blame.count)
    ]
    rows = "".join(f"<tr><th>{number}</th><td>{a}</td><td>{b}</td></tr>" for number, a, b in pairs)
    st.html(
        '<div class="blame-scroll" tabindex="0"><table class="blame-pairs"><thead><tr><th>Pair</th><th>With</th>'
        f"<th>Without</th></tr></thead><tbody>{rows}</tbody></table></div>"
    )
    st.caption("↷ flipped, = stayed. Both runs of a pair have the same seeds; each opens.")


def _cell(blame: Blame, arm: Arm, number: int) -> str:
    if not arm.fresh:
        return _answer(blame.experiments.source.run_id, blame.experiments.source.answer or "", blame, flips=False)
    key = Replay(arm=arm, number=number).key
    if (trace := blame.known.done.get(key)) is not None and trace.answer is not None:
        return _answer(trace.run_id, trace.answer, blame, flips=blame.verdicts.flips(trace.answer))
    ended = blame.known.begun.get(key)
    if ended:
        last = ended[-1]
        return f'<a href="{_address(last.run_id)}" target="_self">{escape(last.status)}</a>'
    return "…" if key in blame.known.running else "—"


def _answer(run_id: str, answer: str, blame: Blame, *, flips: bool) -> str:
    said = conclude(answer, blame.experiments.source.task).text or "an empty answer"
    shown = said if len(said) <= _SHOWN else f"{said[: _SHOWN - 1]}…"
    sign = "↷" if flips else "="
    return f'<a href="{_address(run_id)}" target="_self" title="run {escape(run_id)}">{sign} {escape(shown)}</a>'


def _address(run_id: str) -> str:
    return f"{places.RUN.stem}?run={escape(run_id, quote=True)}"
