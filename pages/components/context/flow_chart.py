"""The Sankey of a round: tokens from the question and each output to the steps that read them."""

from collections.abc import Sequence

from conductor_core.engine.prompts import Answer
from conductor_core.run.context_flow import RoundContext, source_name
from conductor_core.run.trace import RunTrace
from conductor_core.run.values import Path, label
from conductor_core.text import isolated
from pages.components.style.figures import Figure, layout, plain

ROW_PX, LEAST_PX, MOST_PX = 56, 220, 520
MOST_NAMED = 16
"""Steps whose nodes have room for the name of the agent."""


def sankey(round_: RoundContext, trace: RunTrace, agents: Sequence[str]) -> Figure | None:
    """Returns the figure; None: nothing has flowed yet."""
    begun = [step for step in round_.steps if step.begun]
    if not begun:
        return None
    places: dict[Path | None, int] = {None: 0} | {step.path: number for number, step in enumerate(begun, start=1)}
    agent_of: dict[Path | None, str] = {step.path: step.agent for step in begun}
    links = [
        (places[cell.source], places[cell.reader], cell.tokens or 0, cell)
        for cell in round_.cells
        if cell.state in ("granted", "passed_on") and cell.source in places and cell.reader in places
    ]
    names = ["the task", *(f"{label(step.path)} · {plain(isolated(step.agent))}" for step in begun)]
    colours = ["@tone-1", *(f"@{_colour(step.agent, agents)}" for step in begun)]
    flows = [
        (source, target, tokens, _soft(agent_of.get(cell.source), agents)) for source, target, tokens, cell in links
    ]
    said = [
        f"{source_name(cell.source)} to step {label(cell.reader)}: {cell.tokens or 0:,} tokens" for *_, cell in links
    ]
    last = (None if round_.path else trace.last) or trace.step_at(round_.steps[-1].path)
    if last.path in places and last.output_sha256:
        tokens = _written(trace, last.path)
        names.append("the answer" if not round_.path else f"answer of step {label(round_.path)}")
        colours.append("@tone-0")
        flows.append((places[last.path], len(names) - 1, tokens, _soft(last.agent, agents)))
        said.append(f"{names[-1]}: {tokens:,} tokens")
    if not any(tokens for *_, tokens, _ in flows):
        return None
    trace_ = {
        "type": "sankey",
        "arrangement": "fixed",
        "textfont": {"color": "@ink", "size": 12},
        "node": {
            "label": names if len(begun) <= MOST_NAMED else [name.partition(" · ")[0] for name in names],
            "customdata": names,
            "color": colours,
            "pad": 22,
            "thickness": 14,
            "line": {"width": 0},
            "hovertemplate": "%{customdata}: %{value:,} tokens<extra></extra>",
        },
        "link": {
            "source": [source for source, *_ in flows],
            "target": [target for _, target, *_ in flows],
            "value": [tokens for *_, tokens, _ in flows],
            "color": [colour for *_, colour in flows],
            "customdata": said,
            "hovertemplate": "%{customdata}<extra></extra>",
        },
    }
    height = min(MOST_PX, max(LEAST_PX, ROW_PX * len(names)))
    return {"data": [trace_], "layout": layout(height, right=12, margin={"l": 12, "r": 12, "t": 12, "b": 12})}


def sankey_in_words(round_: RoundContext) -> str:
    """Returns what the figure shows, for who cannot see it."""
    flows = [
        f"{source_name(cell.source)} to step {label(cell.reader)} {cell.tokens or 0:,}"
        for cell in round_.cells
        if cell.state in ("granted", "passed_on")
    ]
    return f"Tokens from step to step: {'; '.join(flows)}"


def _written(trace: RunTrace, path: Path) -> int:
    """Returns the tokens of an output as those that read it would count them."""
    workflow = trace.round_at(path[:-1]).workflow
    if workflow is None:
        raise ValueError(f"step {label(path)} has no plan")
    return Answer.recorded(trace.step_at(path), workflow.steps[path[-1]], trace.task).tokens


def _colour(agent: str, agents: Sequence[str]) -> str:
    return f"agent-{agents.index(agent) % 8}" if agent in agents else "agent-none"


def _soft(agent: str | None, agents: Sequence[str]) -> str:
    return "@faint" if agent is None else f"@soft-{_colour(agent, agents)}"
