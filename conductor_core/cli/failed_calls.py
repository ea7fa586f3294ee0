"""Tells a person about a call that brought no whole answer, and what was done about it."""

from conductor_core.chat.messages import IN_WORDS, Ending
from conductor_core.cli.text import one_line
from conductor_core.formats import seconds
from conductor_core.run import events as ev
from conductor_core.run.trace import RunTrace, StepTrace


def retried(step: StepTrace, attempt: ev.StepRetried) -> str:
    """Says what was wrong with a call of ``step``, and what followed it."""
    who = f"{one_line(attempt.agent, 40)}: " if attempt.agent else ""
    if attempt.loading:
        return f"{who}the server is loading its model, asked again until it answers: {one_line(attempt.error, 400)}"
    failed = "" if attempt.error_code.startswith("Answer") else " failed"
    said = f" ({one_line(attempt.refusal, 400)})" if attempt.refusal else ""
    return f"{who}attempt {attempt.attempt}{failed}: {one_line(attempt.error, 400)}{said}; {_then(step, attempt)}"


def plan_retried(attempt: ev.PlanRetried) -> str:
    """Says how a call of a Conductor failed before it was made again."""
    if attempt.loading:
        return f"the server is loading its model, asked again until it answers: {one_line(attempt.error, 400)}"
    return f"the call failed: {one_line(attempt.error, 400)}; again in {seconds(attempt.wait_ms)}"


def _then(step: StepTrace, attempt: ev.StepRetried) -> str:
    match attempt.then:
        case "more_tokens":
            return f"again, with up to {attempt.then_max_tokens:,} tokens"
        case "fallback":
            return f"{one_line(attempt.then_agent or step.agent, 40)} is asked instead"
        case "kept":
            return "the earlier answer is kept"
        case "again":
            return f"again in {seconds(attempt.wait_ms)}"


def ended(step: StepTrace) -> str:
    """Says how the answer of ``step`` ended, unless it is whole, and who gave it, if another worker did."""
    parts = [f"by {one_line(step.answered_by, 40)}"] if step.answered_by else []
    if step.ending != "completed":
        parts.append(in_words(step.ending, step))
    return " · ".join(parts)


def in_words(ending: Ending, step: StepTrace | None) -> str:
    """Says how an answer ended, and what was said or called in its place."""
    if step is None:
        return IN_WORDS[ending]
    said = f": {one_line(step.refusal, 1000)}" if step.refusal else ""
    called = ", ".join(f"{one_line(tool.name, 80)}({one_line(tool.arguments, 400)})" for tool in step.tool_calls)
    return f"{IN_WORDS[ending]}{said}{f'; it called {called}, and nothing was called' if called else ''}"


def why_no_answer(trace: RunTrace) -> str:
    """Says how the last answer of a run ended; empty if it is whole, or if there are no steps."""
    last = trace.last
    return "" if last is None or last.ending == "completed" else in_words(last.ending, last)
