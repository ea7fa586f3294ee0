"""The words of a decision record: who, where, when and how, as page, file and command line say it."""

from collections.abc import Sequence

from conductor_core.actor import Caller
from conductor_core.chat import ConductorInfo
from conductor_core.decision.record import Who
from conductor_core.endings import IN_WORDS
from conductor_core.run_facts import Path, label
from conductor_core.servers import server_of, server_of_conductor
from conductor_core.trace import Attempt, PlanAttempt, RunTrace, StepTrace
from conductor_core.workflow.model import CONDUCTOR_AGENT, AccessList


def who(trace: RunTrace, caller: Caller | None) -> Who:
    """Returns who caused something in a run. Of an imported run that is its file's word, if it did not come with us."""
    caller = caller or Caller()
    own = trace.imported is None or trace.imported.recorded
    return Who(words=f"{caller.in_words}{'' if own else ' (says the file)'}", caller=caller)


def access(access_list: AccessList) -> str:
    """Returns an access list as it is written: ``all``, ``none`` or ``0, 2``."""
    if access_list == "all":
        return "all"
    return ", ".join(map(str, access_list)) or "none"


def of_step(path: Path) -> str:
    """Returns ``the plan``, or ``the plan of step 2`` for a round that a step opened."""
    return f"the plan of step {label(path)}" if path else "the plan"


def conductor(info: ConductorInfo | None) -> str:
    """Returns which Conductor wrote a plan, and where it ran."""
    if info is None:
        return "a Conductor that the record does not name"
    host = server_of_conductor(info)
    device = f" {info.runs_in}" if info.device else ""
    where = f"in this process{device}" if info.kind == "local" else f"at {host or 'a server'}"
    prompt = f", with a prompt of its own (sha256 {info.prompt_sha256})" if info.prompt_sha256 else ""
    named = "" if info.model == info.name else f", model {info.model}"
    return f"the Conductor {info.name}{named}, {where}{prompt}"


def where(trace: RunTrace, agent: str) -> str:
    """Returns the provider, the model and the host of an agent: ``openai gpt-5 at api.openai.com``."""
    if agent == CONDUCTOR_AGENT:
        return conductor(trace.conductor)
    spec = next((spec for spec in trace.pool.workers if spec.name == agent), None)
    if spec is None:
        return "a worker that the pool of the run does not name"
    host = server_of(spec)
    place = f"at {host}" if host else "in this process"
    return f"{'simulated, ' if spec.simulated else ''}{spec.provider}, model {spec.model}, {place}"


def instead(trace: RunTrace, step: StepTrace) -> str:
    """Says why no worker was asked for a step; empty: one was, or the step did not begin."""
    if step.given is not None:
        return step.given.in_words
    if step.reused_from is not None:
        source = step.reused_from
        if trace.imported is not None:
            run = f"run {source.run_id} (says the file)"
        else:
            run = f"{'imported ' if source.imported else ''}run {source.run_id}"
        return f"reused from step {label(source.path)} of {run}; nothing was sent and nothing was paid here"
    if step.because:
        return f"skipped because of step {', '.join(map(label, step.because))}"
    return ""


def after(attempt: PlanAttempt, agent: str) -> str:
    """Says what followed a call that failed."""
    if attempt.loading:
        return "asked again until its model was loaded"
    if not isinstance(attempt, Attempt) or attempt.then == "again":
        return "asked again"
    match attempt.then:
        case "more_tokens":
            return f"asked again, with up to {attempt.then_max_tokens:,} tokens"
        case "fallback":
            return f"{attempt.then_agent or agent} was asked instead"
        case _:
            return "what came before stands"


def ended(step: StepTrace) -> str:
    """Says how an answer ended that is no whole one."""
    said = f": {step.refusal}" if step.refusal else ""
    called = ", ".join(tool.name for tool in step.tool_calls)
    tools = f"; it called {called}, and nothing was called" if called else ""
    kept = "" if step.passed_on else "; it was not passed on"
    return f"{IN_WORDS[step.ending]}{said}{tools}{kept}"


def steps(paths: Sequence[Path]) -> str:
    """Returns ``step 2``, or ``steps 0, 2``."""
    return f"step{'' if len(paths) == 1 else 's'} {', '.join(map(label, paths))}"
