"""The prompt of each step as a bar of its parts, and what other access lists would cost."""

from collections.abc import Sequence
from html import escape

from conductor_core.engine.estimates import Variant, WhatIf
from conductor_core.run.context_flow import Part, RoundContext, StepContext
from conductor_core.run.trace import RunTrace
from conductor_core.run.values import label
from conductor_core.text import isolated
from pages.components.context.labels import LISTS, part_name
from pages.components.style.figures import agent_colour, agent_dot
from pages.components.style.formats import listed

_LEAST_LABELLED = 0.1  # a narrower part has no room for its number


def prompts_html(round_: RoundContext, agents: Sequence[str]) -> str:
    """Returns a row for each step: its prompt as a bar as long as its share of the longest prompt, then the parts."""
    longest = max((step.tokens for step in round_.steps), default=0)
    names = {step.path: step.agent for step in round_.steps}
    rows = "".join(_prompt(step, longest, names, agents) for step in round_.steps)
    return f'<div class="context-prompts">{rows}</div>'


def _prompt(step: StepContext, longest: int, names: dict[tuple[int, ...], str], agents: Sequence[str]) -> str:
    head = f"{agent_dot(step.agent, agents)}<b>{label(step.path)} · {escape(isolated(step.agent))}</b>"
    if not step.parts:
        return f'<div class="context-prompt"><div>{head} <span class="muted">nothing was sent</span></div></div>'
    counted = "" if step.counted_tokens is None else f", {step.counted_tokens:,} by the provider's count"
    width = 100 * step.tokens / longest
    bar = "".join(_piece(part, names, agents) for part in step.parts if part.tokens)
    listed_parts = "".join(
        f"<li><span>{escape(part_name(part))}</span><span>{part.tokens:,}</span><span>{part.share:.0%}</span></li>"
        for part in step.parts
        if part.tokens
    )
    return (
        f'<div class="context-prompt"><div>{head} <span class="muted">≈ {step.tokens:,} tokens{counted}</span></div>'
        f'<div class="context-bar" style="width: {width:.1f}%">{bar}</div><ul>{listed_parts}</ul></div>'
    )


def _piece(part: Part, names: dict[tuple[int, ...], str], agents: Sequence[str]) -> str:
    """Returns a piece of a bar. What comes from a step has the colour of its agent; all else is ink."""
    said = f"{part_name(part)}: {part.tokens:,} tokens, {part.share:.0%}"
    colours = ""
    if part.kind == "output" and part.source is not None:
        light, dark = (agent_colour(names.get(part.source, ""), agents, dark=dark) for dark in (False, True))
        colours = f"; background: light-dark({light}, {dark})"
    number = f"{label(part.source)}" if part.source is not None and part.share >= _LEAST_LABELLED else ""
    return (
        f'<span class="context-piece {part.kind}" style="flex-grow: {part.tokens}{colours}" title="{escape(said)}">'
        f"{number}</span>"
    )


def what_ifs_html(trace: RunTrace, found: WhatIf | None) -> str:
    """Returns a table: the plan's worker calls without access, as planned, and with every access list ``"all"``."""
    if found is None:
        return '<p class="muted">No step has an answer yet. Estimates of other access lists need one.</p>'
    most = max(variant.usage.input_tokens for variant in found.variants)
    rows = "".join(_variant(variant, found.planned, most) for variant in found.variants)
    notes = ["Worker calls only, by estimate; every output is taken to stay as it is."]
    if trace.simulated:
        notes.append("These workers are simulated.")
    if found.assumed:
        steps = listed([label(path) for path in found.assumed], 5)
        notes.append(f"Without an answer, and so counted as the average of the others: step {steps}.")
    return (
        '<table class="context-table costs"><thead><tr><th></th><th scope="col">tokens read</th><th></th>'
        '<th scope="col">written</th><th scope="col">cost</th></tr></thead>'
        f'<tbody>{rows}</tbody></table><p class="muted context-note">{escape(" ".join(notes))}</p>'
    )


def _variant(variant: Variant, planned: Variant, most: int) -> str:
    read, base = variant.usage.input_tokens, planned.usage.input_tokens
    against = "" if variant is planned or not base else f"{read / base - 1:+.0%}".replace("-", "−")
    width = 100 * read / most if most else 0
    return (
        f'<tr class="{variant.lists}"><th scope="row">{escape(LISTS[variant.lists])}</th><td>≈ {read:,} '
        f'<span class="muted">{against}</span></td><td class="track-cell"><div class="context-track">'
        f'<div style="width: {width:.1f}%"></div></div></td><td>{variant.usage.output_tokens:,}</td>'
        f"<td>{escape(str(variant.cost))}</td></tr>"
    )
