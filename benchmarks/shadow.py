"""What a shadow costs the clients whose requests are forwarded: nothing that they could notice.

    python -m benchmarks.shadow [--requests 100] [--blocks 10] [--recorded 10000] [--json]

A process of its own serves `conductor serve --pass-through URL#MODEL --shadow 1 --grader FILE`; the provider behind it,
also a process, answers after 300 ms, or after 50 ms. Blocks of ``--requests`` requests, four at once, alternate: with
the shadow off, and on. It is switched by a file, which the server's own process looks at, so that both kinds of block
have the same process. While it is on, every request is shadowed: by the shipped Conductor, which writes a plan on this
machine's processor; and, in place of the shadow's process, by one that crashes, one that hangs and one that writes
without end. Compared are medians and 99th percentiles of whole answers; the intervals (95 %, bootstrap) are of the mean
over the pairs of blocks of the ratio in each, and the target is the ratio over all.

Then ``--recorded`` requests are recorded, shadowed by a scripted Conductor and worker, and graded, with the resident
memory of the server and of the shadow's process after a fifth, three fifths and all of them. The clients wait while
more than 100 requests are not shadowed yet, so that the queue drops none.
"""

import argparse
import asyncio
import json
import os
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np

from benchmarks.endpoint import Server, _free_port, _session, started
from conductor_core.lab.evaluation.statistics import mean_interval

TASKS, AT_ONCE, WARM_UP, BEHIND, SEND_AT_ONCE = 2000, 4, 20, 100, 8
P50_TARGET, P99_TARGET = 1.05, 1.25
MODEL = "theirs"
MARKS = (0.2, 0.6, 1.0)
_BROKEN = {
    "crashes": "import sys; sys.stdin.readline(); sys.stdin.readline(); sys.exit(3)",
    "hangs": "import time; time.sleep(1e6)",
    "floods": "while True: print('x' * 1000)",
}


# The provider.


def _document(text: str) -> bytes:
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    usage = {"prompt_tokens": 40, "completion_tokens": 5, "total_tokens": 45}
    return json.dumps(
        {"id": "c1", "object": "chat.completion", "model": MODEL, "choices": [choice], "usage": usage}
    ).encode()


def _stream(text: str) -> bytes:
    delta = {"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": None}
    end = {"index": 0, "delta": {}, "finish_reason": "stop"}
    usage = {"choices": [], "usage": {"prompt_tokens": 40, "completion_tokens": 5, "total_tokens": 45}}
    events = ({"id": "c1", "choices": [delta]}, {"id": "c1", "choices": [end]}, usage)
    return b"".join(b"data: %s\n\n" % json.dumps(event).encode() for event in events) + b"data: [DONE]\n\n"


def _said(body: Mapping[str, Any]) -> str:
    """A plan for the Conductor; else the sum that the last turn asks for, of the forwarded model every third wrong."""
    if body["model"] == "planner":
        return 'model_id = [0]\nsubtasks = ["{question}"]\naccess_list = [[]]'
    numbers = [int(word) for word in body["messages"][-1]["content"].replace("?", " ").split() if word.isdigit()]
    wrong = body["model"] == MODEL and sum(numbers) % 3 == 0
    return str(sum(numbers) + wrong)


async def _provide(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, wait_s: float) -> None:
    with suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            lengths = [int(line[15:]) for line in head.split(b"\r\n") if line.startswith(b"content-length:")]
            body = json.loads(await reader.readexactly(lengths[0])) if lengths and lengths[0] else None
            kind, answer = b"application/json", b'{"data": []}'
            if body is not None:
                await asyncio.sleep(wait_s if body["model"] == MODEL else 0)
                streamed = body.get("stream")
                kind = b"text/event-stream" if streamed else kind
                answer = (_stream if streamed else _document)(_said(body))
            head = b"HTTP/1.1 200 OK\r\ncontent-type: %s\r\ncontent-length: %d\r\n\r\n" % (kind, len(answer))
            writer.write(head + answer)
    writer.close()


async def provide(port: int, wait_s: float) -> None:
    server = await asyncio.start_server(lambda come, go: _provide(come, go, wait_s), "127.0.0.1", port, backlog=2048)
    await server.serve_forever()


# The server.


def serve(switch: str, broken: str, options: list[str]) -> int:
    """Serves as the command does. The shadow is on while the file ``switch`` exists; ``broken``: what its process does
    instead."""
    from conductor_core.cli import serve as command
    from conductor_core.cli.main import main as conductor
    from conductor_core.serving.shadow import Shadow

    offer = Shadow.offer

    def switched(self: Shadow, made: Any) -> None:
        if os.path.exists(switch):
            offer(self, made)

    Shadow.offer = switched  # type: ignore[method-assign]
    if broken:
        command.COMMAND = (sys.executable, "-c", _BROKEN[broken])
    return conductor(["serve", *options])


@dataclass(frozen=True)
class Bench:
    """A running server before its provider. ``switch``: turns the shadow on. ``tasks``: of the suite."""

    server: Server
    switch: Path
    database: Path
    tasks: list[str]

    def compared(self) -> int:
        with closing(sqlite3.connect(f"file:{self.database}?mode=ro", uri=True)) as connection, suppress(sqlite3.Error):
            # Its runs end before they are compared, at most two at once.
            query = "SELECT count(*) FROM runs WHERE purpose = 'shadow' AND status <> 'running'"
            return int(connection.execute(query).fetchone()[0])
        return 0


@contextmanager
def running(
    folder: Path, wait_s: float, *, broken: str = "", scripted: bool = False, tasks: int = 2000
) -> Iterator[Bench]:
    folder.mkdir()
    own, port = [sys.executable, "-m", "benchmarks.shadow"], _free_port()
    with started("provider", [*own, "--provide", str(port), str(wait_s)], port, folder) as provider:
        pool, suite, switch, port = folder / "pool.toml", folder / "suite.jsonl", folder / "on", _free_port()
        pool.write_text(
            f'[[worker]]\nname = "worker"\nprovider = "openai"\nmodel = "worker"\nbase_url = "{provider.url}"\n'
            'description = "Adds numbers"\nmax_concurrency = 100\n'
        )
        asked = [f"What is {number} plus {number * 7 % 1000} ?" for number in range(TASKS)]
        rows = [
            {"question": task, "reference": str(number + number * 7 % 1000), "grader": "numeric"}
            for number, task in enumerate(asked)
        ]
        suite.write_text("".join(json.dumps(row) + "\n" for row in rows))
        database = folder / "runs.sqlite3"
        options = ["--port", str(port), "--pool", str(pool), "--db", f"sqlite:///{database}"]
        options += ["--pass-through", f"{provider.url}#{MODEL}", "--pass-through-key-env", "PROVIDER_API_KEY"]
        options += ["--shadow", "1", "--grader", str(suite), "--shadow-at-once", "2" if scripted else "1"]
        options += ["--conductor", f"{provider.url}#planner"] if scripted else []
        with started("server", [*own, "--serve", str(switch), broken, *options], port, folder) as server:
            yield Bench(server, switch, database, asked)


# Requests.


async def ask(session: aiohttp.ClientSession, server: Server, task: str) -> float:
    """Returns the milliseconds of a whole answer. Raises: RuntimeError if it is none."""
    body = {"model": MODEL, "messages": [{"role": "user", "content": task}]}
    began_s = time.perf_counter()
    async with session.post(f"{server.url}/chat/completions", json=body) as response:
        document = json.loads(await response.read())
    took_ms = (time.perf_counter() - began_s) * 1000
    if response.status != 200 or not document["choices"][0]["message"]["content"].isdigit():
        raise RuntimeError(f"status {response.status}: {document}")
    return took_ms


async def block(bench: Bench, requests: int, *, on: bool) -> list[float]:
    if on:
        bench.switch.touch()
    else:
        bench.switch.unlink(missing_ok=True)
    left, took = iter(range(requests)), []

    async def client(session: aiohttp.ClientSession) -> None:
        for number in left:
            took.append(await ask(session, bench.server, bench.tasks[number % len(bench.tasks)]))

    async with _session() as session:
        await asyncio.gather(*(client(session) for _ in range(AT_ONCE)))
    return took


async def compare(bench: Bench, requests: int, blocks: int) -> dict[str, Any]:
    for on in (False, True):
        await block(bench, WARM_UP, on=on)
    pairs: list[tuple[list[float], list[float]]] = []
    for number in range(blocks):
        order = (False, True) if number % 2 == 0 else (True, False)
        found = {on: await block(bench, requests, on=on) for on in order}
        pairs.append((found[False], found[True]))
    row: dict[str, Any] = {}
    for percent, target in ((50, P50_TARGET), (99, P99_TARGET)):
        off_ms, on_ms = (float(np.percentile(np.concatenate(each), percent)) for each in zip(*pairs, strict=True))
        ratios = [float(np.percentile(b, percent) / np.percentile(a, percent)) for a, b in pairs]
        interval = mean_interval(ratios)
        row[f"p{percent}"] = {
            "off_ms": off_ms,
            "on_ms": on_ms,
            "ratio": on_ms / off_ms,
            "low": interval.low,
            "high": interval.high,
            "target": target,
        }
    return row


async def record(bench: Bench, requests: int) -> dict[str, Any]:
    """Sends requests so that none is dropped. Returns how many were compared, and the memory on the way."""
    bench.switch.touch()
    sent, memory, began_s = 0, [], time.perf_counter()
    marks = [round(requests * mark) for mark in MARKS]

    async def settle(most_behind: int) -> None:
        last, since_s = -1, time.monotonic()
        while (compared := await asyncio.to_thread(bench.compared)) < sent - most_behind:
            if compared != last:
                last, since_s = compared, time.monotonic()
            elif time.monotonic() - since_s > 60:
                return
            await asyncio.sleep(0.2)

    async with _session() as session:
        for mark in marks:
            while sent < mark:
                count = min(100, mark - sent)
                tasks = iter([bench.tasks[(sent + number) % len(bench.tasks)] for number in range(count)])

                async def client(tasks: Iterator[str] = tasks) -> None:
                    for task in tasks:
                        await ask(session, bench.server, task)

                await asyncio.gather(*(client() for _ in range(SEND_AT_ONCE)))
                sent += count
                await settle(BEHIND)
            await settle(0)
            memory.append({"requests": mark, "server_mb": _own_mb(bench.server), "both_mb": bench.server.resident_mb()})
    wall_s = time.perf_counter() - began_s
    with closing(sqlite3.connect(f"file:{bench.database}?mode=ro", uri=True)) as connection:
        rows = connection.execute("SELECT purpose, status, count(*) FROM runs GROUP BY 1, 2").fetchall()
        marks_of = connection.execute(
            "SELECT r.purpose, j.mark, count(*) FROM judgements j JOIN runs r USING (run_id) GROUP BY 1, 2"
        ).fetchall()
    return {"requests": requests, "wall_s": wall_s, "runs": rows, "marks": marks_of, "memory": memory}


def _own_mb(server: Server) -> float:
    with suppress(OSError):
        return (
            int(Path(f"/proc/{server.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
        )
    return 0.0


def show(result: Mapping[str, Any]) -> None:
    print(f"load {result['load']:.1f} before, {os.getloadavg()[0]:.1f} after\n")
    print("| shadow | provider | | off, ms | on, ms | ratio (95 % of the pairs' mean) | target |")
    print("|---|---|---|---|---|---|---|")
    for row in result["compared"]:
        for percent in ("p50", "p99"):
            found = row[percent]
            said = "met" if found["ratio"] <= found["target"] else "MISSED"
            print(
                f"| {row['shadow']} | {row['wait_ms']} ms | {percent} | {found['off_ms']:.1f} | {found['on_ms']:.1f} "
                f"| {found['ratio']:.3f} ({found['low']:.3f} to {found['high']:.3f}) | {found['target']:g}, {said} |"
            )
    if (recorded := result.get("recorded")) is not None:
        print(f"\n{recorded['requests']:,} requests in {recorded['wall_s']:.0f} s: runs {recorded['runs']}")
        print(f"marks {recorded['marks']}\n\n| after | server, MB | with the shadow's process |\n|---|---|---|")
        for row in recorded["memory"]:
            print(f"| {row['requests']:,} | {row['server_mb']:.0f} | {row['both_mb']:.0f} |")


def main() -> None:
    if sys.argv[1:2] == ["--serve"]:
        sys.exit(serve(sys.argv[2], sys.argv[3], sys.argv[4:]))
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--requests", type=int, default=100, help="of a block; default 100")
    parser.add_argument("--blocks", type=int, default=10, help="pairs of blocks; default 10")
    parser.add_argument("--recorded", type=int, default=10_000, help="requests to record and compare; 0: none")
    parser.add_argument("--only", help="ours, crashes, hangs or floods")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--provide", nargs=2, metavar=("PORT", "SECONDS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.provide:
        asyncio.run(provide(int(options.provide[0]), float(options.provide[1])))
        return
    result: dict[str, Any] = {"load": os.getloadavg()[0], "compared": []}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        kinds = [(shadow, wait_s) for wait_s in (0.3, 0.05) for shadow in ("", *_BROKEN)]
        for shadow, wait_s in kinds if options.blocks else ():
            if options.only and options.only != (shadow or "ours"):
                continue
            with running(folder / f"{shadow or 'ours'}-{wait_s}", wait_s, broken=shadow) as bench:
                row = asyncio.run(compare(bench, options.requests, options.blocks))
            row |= {"shadow": shadow or "runs", "wait_ms": round(wait_s * 1000)}
            result["compared"].append(row)
            print(f"{row['shadow']} {row['wait_ms']} ms: done", file=sys.stderr)
        if options.recorded:
            with running(folder / "recorded", 0.01, scripted=True) as bench:
                result["recorded"] = asyncio.run(record(bench, options.recorded))
    if options.json:
        print(json.dumps(result))
    else:
        show(result)


if __name__ == "__main__":
    main()
