"""The diamonds of ``engine_overhead`` in LangGraph with its SQLite checkpointer. Needs requirements-bench.txt, not us.

    python benchmarks/langgraph_diamond.py DURABILITY BASE_URL RUNS MODEL DATABASE

DURABILITY is LangGraph's own: "async" or "sync". Prints one JSON object. A node is one call to the provider by aiohttp,
the fastest client that was measured. The checkpointer keeps its defaults (WAL) but for ``synchronous``, which is FULL
on both sides. LangGraph checkpoints after each superstep, not each token: what streams in between is not on its record,
in ours it is.
"""

import asyncio
import json
import operator
import sys
import time
from typing import Annotated, Any, TypedDict

import aiohttp
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph


class State(TypedDict):
    outputs: Annotated[list[str], operator.add]


def node(session: aiohttp.ClientSession, url: str, model: str, called: list[float]) -> Any:
    async def call(state: State) -> State:
        called.append(time.perf_counter())
        messages = [{"role": "user", "content": text} for text in [*state["outputs"], "Solve the next part."]]
        text = []
        body = {"model": model, "messages": messages, "stream": True}
        async with session.post(f"{url}/chat/completions", json=body) as response:
            async for line in response.content:
                if line.startswith(b"data: {"):
                    for choice in json.loads(line[6:])["choices"]:
                        text.append(choice["delta"].get("content") or "")
        return {"outputs": ["".join(text)]}

    return call


async def main(durability: str, url: str, runs: int, model: str, database: str) -> None:
    called: dict[str, list[float]] = {name: [] for name in "abcde"}
    connector = aiohttp.TCPConnector(limit=0)
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        AsyncSqliteSaver.from_conn_string(database) as saver,
    ):
        await saver.setup()
        await saver.conn.execute("PRAGMA synchronous=FULL")

        def diamond(model: str) -> Any:
            graph = StateGraph(State)
            for name in "abcde":
                graph.add_node(name, node(session, url, model, called[name]))
            graph.add_edge(START, "a")
            for middle in "bcd":
                graph.add_edge("a", middle)
            graph.add_edge(["b", "c", "d"], "e")
            graph.add_edge("e", END)
            return graph.compile(checkpointer=saver)

        async def run(graph: Any, name: str) -> float:
            started = time.perf_counter()
            config = {"configurable": {"thread_id": name}}
            result = await graph.ainvoke({"outputs": []}, config, durability=durability)
            if len(result["outputs"]) != 5 or not all(result["outputs"]):
                raise RuntimeError(f"run {name} is not whole: {result}")
            return time.perf_counter() - started

        await run(diamond("paced/0.05/2"), "warm-up")
        graph = diamond(model)
        started, cpu = time.perf_counter(), time.process_time()
        walls_s = await asyncio.gather(*(run(graph, f"run {index}") for index in range(runs)))
        result = {
            "wall_s": time.perf_counter() - started,
            "run_s": sorted(walls_s)[len(walls_s) // 2],
            "cpu_s": time.process_time() - cpu,
            "begin_s": max(called["a"]) - started,
        }
        print(json.dumps(result))


if __name__ == "__main__":
    _, durability_, base_url, runs_, model_, database_ = sys.argv
    asyncio.run(main(durability_, base_url, int(runs_), model_, database_))
