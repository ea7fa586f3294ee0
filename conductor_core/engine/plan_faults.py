"""Names what a Conductor wrote in place of a plan, and keeps it."""

from conductor_core.chat import PlanFinished
from conductor_core.workflow.parsed import Parsed
from conductor_core.workflow.source import Notes, SourceText, shorten


def as_written(text: str, finished: PlanFinished) -> str:
    """Returns the whole completion: its text, else what came instead."""
    if finished.refusal:
        return f"{text}{finished.refusal}"
    if text.strip():
        return text
    calls = "\n".join(f"{call.name}({call.arguments})" for call in finished.tool_calls)
    return calls or finished.reasoning or text


def not_a_plan(text: str, finished: PlanFinished, most_tokens: int) -> Parsed | None:
    """Returns why a completion of ``text`` that ended so holds no plan; None: the text can be read.

    ``most_tokens``: the Conductor's token limit.
    """
    found = _why(text, finished, most_tokens)
    if found is None:
        return None
    notes = Notes(SourceText(as_written(text, finished)))
    notes.fault(*found, 0)
    return notes.parsed(None)


def _why(text: str, finished: PlanFinished, most_tokens: int) -> tuple[str, str] | None:
    said = f": {shorten(finished.refusal, 200)}" if finished.refusal else "."
    if finished.finish_reason == "content_filter":
        return "plan_filtered", f"A filter of the Conductor's server took the plan away{said}"
    if finished.refusal or finished.finish_reason == "refusal":
        return "plan_refused", f"The Conductor refused to write a plan{said}"
    if text.strip():
        return None
    if finished.tool_calls:
        names = shorten(", ".join(call.name for call in finished.tool_calls), 80)
        return (
            "tool_call_for_a_plan",
            f"The Conductor called the tool {names} instead of writing a plan; it has no tools.",
        )
    if finished.finish_reason == "length":
        return "plan_cut", (
            f"The completion reached its limit of {most_tokens:,} tokens before there was a plan: raise "
            "CONDUCTOR_PLAN_MAX_TOKENS, or choose a Conductor that thinks less."
        )
    if finished.reasoning.strip():
        return "plan_in_reasoning", (
            "All that was written came as reasoning_content, none of it as an answer: turn the server's reasoning "
            "parser off for this model, or choose another."
        )
    return "empty_completion", "The Conductor wrote nothing."
