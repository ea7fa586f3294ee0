"""A plan as a CrewAI flow.

A flow and not a crew: a crew writes prompts of its own around each task, so its steps would not get the exact messages.
"""

from conductor_core.chat.messages import WorkerSpec
from conductor_core.export.plan import Plan
from conductor_core.export.script import Framework, call, fill, key_expression, params_of, quoted, url_of, value

_RUN = """class State(BaseModel):
    outputs: dict[int, str] = {}


class Workflow(Flow[State]):
    async def run_step(self, index: int) -> None:
        step = STEPS[index]
        answer = await WORKERS[step.agent].acall(messages_of(index, self.state.outputs))
        print(f"step {index} ({step.agent}) is done", file=sys.stderr)
        self.state.outputs[index] = passed_on(str(answer))
<<methods>>

async def main() -> None:
    workflow = Workflow(tracing=False, suppress_flow_events=True)
    await workflow.kickoff_async()
    print(workflow.state.outputs[len(STEPS) - 1])


if __name__ == "__main__":
    asyncio.run(main())
"""

_IMPORTS = """os.environ.setdefault("CREWAI_DISABLE_TELEMETRY", "true")  # before CrewAI is imported
os.environ.setdefault("CREWAI_TRACING_ENABLED", "false")

from crewai import LLM  # noqa: E402
from crewai.flow.flow import Flow, and_, listen, start  # noqa: E402
from pydantic import BaseModel  # noqa: E402"""


def _worker(worker: WorkerSpec) -> str:
    params = params_of(worker)
    return call(
        "LLM",
        {
            "model": quoted(worker.model),
            "custom_openai": "True",
            "base_url": quoted(url_of(worker)),
            "api_key": key_expression(worker),
            "timeout": value(worker.timeout_s),
            "additional_params": f'{{"extra_body": {value(params)}}}' if params else None,
        },
    )


def _run(plan: Plan) -> str:
    methods = []
    for index, reads in enumerate(plan.workflow.all_reads):
        sources = ", ".join(f"step_{earlier}" for earlier in reads)
        waits = f"listen(and_({sources}))" if len(reads) > 1 else f"listen({sources})" if reads else "start()"
        methods.append(
            f"\n    @{waits}\n    async def step_{index}(self) -> None:\n        await self.run_step({index})\n"
        )
    return fill(_RUN, {"methods": "".join(methods)})


CREWAI = Framework(
    title="CrewAI",
    requirements=("crewai==1.15.30",),
    scheduling="A step starts as soon as the steps that it reads are done.",
    standard=("import asyncio", "import os"),
    imports=_IMPORTS,
    worker=_worker,
    run=_run,
)
