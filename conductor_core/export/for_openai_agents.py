"""A plan as a program for the OpenAI Agents SDK."""

from conductor_core.chat.messages import WorkerSpec
from conductor_core.export.plan import Plan
from conductor_core.export.script import Framework, call, key_expression, params_of, quoted, url_of, value

RUN_AS_TASKS = """async def main() -> None:
    running: list[asyncio.Task[str]] = []
    async with asyncio.TaskGroup() as group:
        for index in range(len(STEPS)):
            running.append(group.create_task(run_step(index, running)))
    print(running[-1].result())


if __name__ == "__main__":
    asyncio.run(main())
"""

_RUN = f"""async def run_step(index: int, running: list[asyncio.Task[str]]) -> str:
    step = STEPS[index]
    outputs = {{earlier: await running[earlier] for earlier in step.reads}}
    result = await Runner.run(WORKERS[step.agent], messages_of(index, outputs))
    print(f"step {{index}} ({{step.agent}}) is done", file=sys.stderr)
    return passed_on(str(result.final_output))


{RUN_AS_TASKS}"""


def _worker(worker: WorkerSpec) -> str:
    params = params_of(worker)
    client = {"base_url": quoted(url_of(worker)), "api_key": key_expression(worker), "timeout": value(worker.timeout_s)}
    model = {"model": quoted(worker.model), "openai_client": call("AsyncOpenAI", client, 12)}
    return call(
        "Agent",
        {
            "name": quoted(worker.name),
            "model": call("OpenAIChatCompletionsModel", model, 8),
            "model_settings": f"ModelSettings(extra_body={value(params)})" if params else None,
        },
    )


def _run(plan: Plan) -> str:
    return _RUN


OPENAI_AGENTS = Framework(
    title="the OpenAI Agents SDK",
    requirements=("openai-agents==0.24.0",),
    scheduling="A step starts as soon as the steps that it reads are done.",
    standard=("import asyncio",),
    imports="from agents import Agent, ModelSettings, OpenAIChatCompletionsModel, Runner, set_tracing_disabled\n"
    "from openai import AsyncOpenAI",
    setup="set_tracing_disabled(True)  # else the SDK sends every message to OpenAI as a trace\n",
    worker=_worker,
    run=_run,
)
