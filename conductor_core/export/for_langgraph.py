"""A plan as a LangGraph program."""

from conductor_core.chat.messages import WorkerSpec
from conductor_core.export.plan import Plan
from conductor_core.export.script import Framework, call, key_expression, params_of, quoted, url_of, value

_RUN = """class State(TypedDict):
    outputs: Annotated[dict[int, str], operator.or_]


def node(index: int):
    async def run_step(state: State) -> State:
        answer = await WORKERS[STEPS[index].agent].ainvoke(messages_of(index, state["outputs"]))
        print(f"step {index} ({STEPS[index].agent}) is done", file=sys.stderr)
        return {"outputs": {index: passed_on(answer.text)}}

    return run_step


def build():
    graph = StateGraph(State)
    for index in range(len(STEPS)):
        graph.add_node(f"step_{index}", node(index))
    for index, step in enumerate(STEPS):
        if step.reads:
            # A list of sources: the step waits for all of them.
            graph.add_edge([f"step_{earlier}" for earlier in step.reads], f"step_{index}")
        else:
            graph.add_edge(START, f"step_{index}")
    return graph.compile()


async def main() -> None:
    state = await build().ainvoke({"outputs": {}}, {"recursion_limit": len(STEPS) + 1})
    print(state["outputs"][len(STEPS) - 1])


if __name__ == "__main__":
    asyncio.run(main())
"""


def _worker(worker: WorkerSpec) -> str:
    params = params_of(worker)
    return call(
        "ChatOpenAI",
        {
            "model": quoted(worker.model),
            "base_url": quoted(url_of(worker)),
            "api_key": key_expression(worker),
            "timeout": value(worker.timeout_s),
            "use_responses_api": "False",
            "extra_body": value(params) if params else None,
        },
    )


def _run(plan: Plan) -> str:
    return _RUN


LANGGRAPH = Framework(
    title="LangGraph",
    requirements=("langgraph==1.2.22", "langchain-openai==1.7.3"),
    scheduling="Steps that LangGraph puts into one super-step run at once.",
    standard=("import asyncio", "import operator", "from typing import Annotated, TypedDict"),
    imports="from langchain_openai import ChatOpenAI\nfrom langgraph.graph import START, StateGraph",
    worker=_worker,
    run=_run,
)
