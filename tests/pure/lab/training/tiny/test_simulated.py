"""Plans carried out in a loop: the same texts and tokens as by the engine, step by step."""

from conductor_core.engine.pools import open_pool
from conductor_core.engine.runner import Engine
from conductor_core.lab.training.tiny.recursion import simulate
from conductor_core.rehearsal import generate
from conductor_core.run.request import RunRequest
from conductor_core.settings import Settings
from conductor_core.workflow.model import CONDUCTOR_AGENT, Step, Workflow
from tests.support.fakes import MemorySink

TASK = generate("journey", "medium", 3)
PLAN = Workflow(
    steps=(
        Step(instruction="Plan how to solve this, do not solve it: {question}", agent="planner"),
        Step(instruction="Solve this by the plan above: {question}", agent="reasoner", access_list=(0,)),
        Step(instruction="Solve this step by step: {question}", agent="calculator"),
        Step(instruction="Check the solutions above and correct them: {question}", agent="verifier", access_list="all"),
    )
)


async def test_texts_and_tokens_are_those_of_the_engine() -> None:
    settings = Settings(rehearsal_tokens_per_s=0)
    pool = open_pool("rehearsal", settings, seed=11)
    trace = await Engine(MemorySink(), settings).run(RunRequest(task=TASK.question, workflow=PLAN), None, pool)
    replies = simulate(TASK, PLAN, 11)
    assert [reply.text for reply in replies] == [step.output for step in trace.steps]
    assert sum(reply.tokens for reply in replies) == trace.usage.total_tokens
    assert replies[0].manner in ("complete plan", "poor plan")
    assert simulate(TASK, PLAN, 12) != replies


def test_it_stops_at_a_step_of_the_conductor_itself() -> None:
    recursive = Workflow(steps=(*PLAN.steps[:2], Step(instruction="Go on", agent=CONDUCTOR_AGENT, access_list=(1,))))
    assert simulate(TASK, recursive, 11) == simulate(TASK, PLAN, 11)[:2]
