"""Records the answers for which no worker is asked: recorded ones that are reused, and those that a person gives."""

from conductor_core import events as ev
from conductor_core.chat import Usage
from conductor_core.engine.context import Answer
from conductor_core.engine.identity import digest_text
from conductor_core.engine.state import RunState
from conductor_core.engine.step_input import StepInput
from conductor_core.overrides import GivenOutput
from conductor_core.trace import StepTrace
from conductor_core.workflow.model import Step


def give(state: RunState, output: GivenOutput, step: Step) -> Answer:
    """Records that a person gave the output of a step of the first round, and returns it as the step's answer."""
    recorder, digest = state.recorder, digest_text(output.text)
    recorder.send(
        ev.StepGiven(
            run_id=recorder.run_id,
            at_ms=recorder.now_ms(),
            path=(output.step,),
            agent=step.agent,
            output=output.text,
            output_sha256=digest,
            given=output.given,
        )
    )
    return Answer.of((output.step,), step, state.request.task, output.text, digest, Usage(), given=output.given.how)


def reuse(state: RunState, path: ev.Path, step: Step, step_input: StepInput, recorded: StepTrace) -> Answer:
    """Records that an earlier answer stands in for the step at ``path``, and returns it."""
    recorder = state.recorder
    source = state.source.origin(recorded)
    digest = recorded.output_sha256 or digest_text(recorded.output)
    recorder.send(
        ev.StepReused(
            run_id=recorder.run_id,
            at_ms=recorder.now_ms(),
            path=path,
            agent=step.agent,
            identity=step_input.identity,
            messages=step_input.context.messages,
            granted=step_input.context.granted,
            withheld=step_input.context.withheld,
            source_run_id=source.run_id,
            source_path=source.path,
            source_imported=source.imported,
            output=recorded.output,
            output_sha256=digest,
            finish_reason=recorded.finish_reason or "other",
            incomplete=recorded.incomplete,
            usage=recorded.usage,
            cost_usd=recorded.cost_usd,
            cost_estimated=recorded.at_list_price,
            model=recorded.model,
            duration_ms=recorded.duration_ms or 0.0,
            ending=recorded.ending,
            refusal=recorded.refusal,
            tool_calls=recorded.tool_calls,
            answered_by=recorded.answered_by,
            passed_on=recorded.ending == "completed" or state.on_incomplete == "allow",
            reasoning=recorded.reasoning,
        )
    )
    task, ending, by = state.request.task, recorded.ending, recorded.answered_by
    reasoned = bool(recorded.reasoning)
    return Answer.of(path, step, task, recorded.output, digest, recorded.usage, ending=ending, by=by, reasoned=reasoned)
