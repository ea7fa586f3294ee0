"""Two hundred answers streaming at once through one worker: wall time over ideal, and CPU.

    python -m benchmarks.provider_streams [--streams 200] [--chunks 100] [--rounds 3]

The provider (``paced_provider``) runs in a process of its own and says each answer in exactly one second, so the
ideal wall time is 1. Rows: httpx2 reading bytes and nothing else; our worker over httpx2's own connections; our worker
as it is, over aiohttp's; and, where ``httpx-aiohttp`` is installed (``pip install "httpx-aiohttp[httpx2]"``), over that
package's transport, its connection limit lifted. Each round runs every row once, in a process of its own; the median of
the rounds is shown.
"""

import argparse
import asyncio
import importlib
import importlib.util
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable

import httpx2

from benchmarks.paced_provider import provider
from conductor_core.chat.messages import Finished, Message, TextDelta, WorkerSpec
from conductor_core.providers.openai import OpenAIDialect
from conductor_core.providers.transport import AiohttpTransport, tls
from conductor_core.workers.pool import HttpWorker

QUESTION = (Message(role="user", content="What is 6 times 7?"),)
ROWS = {
    "bytes": "httpx2, bytes only",
    "httpx2": "worker over httpx2 alone",
    "worker": "worker as it is (aiohttp)",
    "published": "worker over httpx-aiohttp",
}


def _spec(base_url: str, streams: int, chunks: int) -> WorkerSpec:
    model = f"paced/1.0/{chunks}"
    return WorkerSpec(name="w", provider="openai", model=model, base_url=base_url, max_concurrency=streams)


def _bytes_only(spec: WorkerSpec) -> Callable[[], Awaitable[int]]:
    client, dialect = httpx2.AsyncClient(transport=_transport("httpx2", spec), timeout=60), OpenAIDialect()

    async def once() -> int:
        body = dialect.body(spec, QUESTION)
        async with client.stream("POST", dialect.url(spec), json=body) as response:
            return sum([part.count(b"data: ") async for part in response.aiter_raw()]) - 2

    return once


def _worker(spec: WorkerSpec, transport: httpx2.AsyncBaseTransport) -> Callable[[], Awaitable[int]]:
    worker = HttpWorker(spec, OpenAIDialect())
    worker.client._transport = transport

    async def once() -> int:
        chunks = [chunk async for chunk in worker.answer(QUESTION)]
        assert isinstance(chunks[-1], Finished)
        return sum(isinstance(chunk, TextDelta) for chunk in chunks)

    return once


def _transport(row: str, spec: WorkerSpec) -> httpx2.AsyncBaseTransport:
    if row == "worker":
        return AiohttpTransport(tls=tls())
    if row == "published":
        # Its connector takes 0 for no limit; None would leave aiohttp's default of 100.
        limits = httpx2.Limits(max_connections=0)
        published: httpx2.AsyncBaseTransport = importlib.import_module("httpx_aiohttp.httpx2").AiohttpTransport(
            limits=limits
        )
        return published
    return httpx2.AsyncHTTPTransport(limits=httpx2.Limits(max_keepalive_connections=spec.max_concurrency))


async def measure(row: str, base_url: str, streams: int, chunks: int) -> dict[str, float]:
    """Wall and CPU seconds of one warm round of ``streams`` answers."""
    spec = _spec(base_url, streams, chunks)
    once = _bytes_only(spec) if row == "bytes" else _worker(spec, _transport(row, spec))
    await asyncio.gather(*[once() for _ in range(streams)])
    started_s, cpu_s = time.perf_counter(), _cpu_s()
    received = await asyncio.gather(*[once() for _ in range(streams)])
    wall_s, cpu_s = time.perf_counter() - started_s, _cpu_s() - cpu_s
    if set(received) != {chunks - 1}:
        raise SystemExit(f"{row}: answers of {sorted(set(received))} chunks instead of {chunks - 1}")
    return {"wall_s": wall_s, "cpu_s": cpu_s}


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--chunks", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--row", choices=ROWS, help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.row:
        print(json.dumps(asyncio.run(measure(options.row, options.url, options.streams, options.chunks))))
        return
    rows = [row for row in ROWS if row != "published" or importlib.util.find_spec("httpx_aiohttp")]
    results: dict[str, list[dict[str, float]]] = {row: [] for row in rows}
    module = [sys.executable, "-m", "benchmarks.provider_streams"]
    with provider() as url:
        sizes = ["--streams", str(options.streams), "--chunks", str(options.chunks)]
        for _ in range(options.rounds):
            for row in rows:
                told = subprocess.run([*module, *sizes, "--row", row, "--url", url], capture_output=True, check=True)
                results[row].append(json.loads(told.stdout))
    print(f"{options.streams} streams of {options.chunks} chunks, ideal wall 1 s, median of {options.rounds}")
    for row in rows:
        wall_s, cpu_s = (statistics.median(found[key] for found in results[row]) for key in ("wall_s", "cpu_s"))
        print(f"{ROWS[row]:28} wall {wall_s:5.2f} s   CPU {cpu_s:5.2f} s")


if __name__ == "__main__":
    main()
