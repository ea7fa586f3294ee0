"""A plan as an AutoGen program."""

from conductor_core.chat.messages import WorkerSpec
from conductor_core.export.for_openai_agents import RUN_AS_TASKS
from conductor_core.export.plan import Plan
from conductor_core.export.script import Framework, call, key_expression, params_of, quoted, url_of, value

_RUN = f"""def as_autogen(message: dict[str, str]) -> UserMessage | AssistantMessage:
    if message["role"] == "user":
        return UserMessage(content=message["content"], source="user")
    return AssistantMessage(content=message["content"], source="assistant")


async def run_step(index: int, running: list[asyncio.Task[str]]) -> str:
    step = STEPS[index]
    outputs = {{earlier: await running[earlier] for earlier in step.reads}}
    *before, last = messages_of(index, outputs)
    agent = AssistantAgent(
        f"step_{{index}}",
        model_client=WORKERS[step.agent],
        model_context=UnboundedChatCompletionContext([as_autogen(message) for message in before]),
        system_message=None,  # else AutoGen adds one of its own
    )
    result = await agent.run(task=last["content"])
    print(f"step {{index}} ({{step.agent}}) is done", file=sys.stderr)
    return passed_on(result.messages[-1].to_text())


{RUN_AS_TASKS}"""

_SETUP = """# What AutoGen must know of a model that is not on its own list.
MODEL_INFO = {
    "family": "unknown",
    "vision": False,
    "function_calling": False,
    "json_output": False,
    "structured_output": False,
}
"""


def _worker(worker: WorkerSpec) -> str:
    params = params_of(worker)
    return call(
        "OpenAIChatCompletionClient",
        {
            "model": quoted(worker.model),
            "base_url": quoted(url_of(worker)),
            "api_key": key_expression(worker),
            "timeout": value(worker.timeout_s),
            "model_info": "MODEL_INFO",
            "include_name_in_message": "False",
            "extra_body": value(params) if params else None,
        },
    )


def _run(plan: Plan) -> str:
    return _RUN


AUTOGEN = Framework(
    title="AutoGen",
    requirements=("autogen-agentchat==0.7.5", "autogen-ext[openai]==0.7.5"),
    scheduling="A step starts as soon as the steps that it reads are done.",
    standard=("import asyncio",),
    imports="from autogen_agentchat.agents import AssistantAgent\n"
    "from autogen_core.model_context import UnboundedChatCompletionContext\n"
    "from autogen_core.models import AssistantMessage, UserMessage\n"
    "from autogen_ext.models.openai import OpenAIChatCompletionClient",
    setup=_SETUP,
    worker=_worker,
    run=_run,
)
