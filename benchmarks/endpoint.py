"""What `conductor serve` costs beside LiteLLM's proxy and a plain pass-through, and what 500 requests at once do to it.

    python -m benchmarks.endpoint [--litellm PYTHON] [--requests 80] [--blocks 8] [--flood 500] [--json]

PYTHON is that of an environment of its own with `pip install "litellm[proxy]"` (measured: 1.108.7); without it LiteLLM
is left out. All servers are processes of their own on 127.0.0.1, before the same provider, which waits 300 ms and then
streams 20 pieces 10 ms apart. Ours is asked for a given workflow of one step, so that no plan is written; all that it
does for a run it does: each event durable, with its evidence.

Blocks of ``--requests`` requests, eight at once, alternate between the servers. CPU is utime and stime of a server's
processes, a second after the block included: work that is put off counts, and so does idling. First byte: the first
one of the body as the client has it; first text: the first one with a piece of the answer. Ours sends a first event
before its worker answers. The intervals (95 %, bootstrap) are of the mean over the blocks of the ratio in each.

Last, ``--flood`` requests are opened at once against ours, four times: how many end whole, and the resident memory.
"""

import argparse
import asyncio
import json
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import httpx2
import numpy as np
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

from conductor_core.lab.evaluation.statistics import Interval, mean_interval

ROOT = Path(__file__).resolve().parents[1]
WAIT_S, PIECES, APART_S, PIECE = 0.3, 20, 0.01, "another few words "
AT_ONCE, WARM_UP, FLOODS = 8, 40, 4
SETTLE_S, PATIENCE_S, SAMPLE_S = 1.0, 180.0, 0.05
CPU_TARGET, FIRST_BYTE_TARGET = 0.25, 1.5
"""Of ours, in parts of LiteLLM's CPU, and of the pass-through's first byte."""
OURS, LITELLM, PLAIN = "conductor serve", "LiteLLM", "pass-through"
SECRET = f"sk-{secrets.token_hex(16)}"
"""LiteLLM does not start without one. Ours sends it to the provider, and so looks for it in all that it keeps."""
_TICKS_A_SECOND, _PAGE_BYTES = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")


# The provider, and the pass-through.


def _chunk(**fields: object) -> bytes:
    said = {"id": "c1", "object": "chat.completion.chunk", "created": 0, "model": "scripted", **fields}
    return f"data: {json.dumps(said)}\n\n".encode()


def _piece(delta: Mapping[str, str], finish: str | None = None) -> bytes:
    return _chunk(choices=[{"index": 0, "delta": delta, "finish_reason": finish}])


_USAGE = {"prompt_tokens": 40, "completion_tokens": 60, "total_tokens": 100}
_ANSWER = {"role": "assistant", "content": PIECE * PIECES}
_WHOLE = {
    "id": "c1",
    "object": "chat.completion",
    "created": 0,
    "model": "scripted",
    "choices": [{"index": 0, "message": _ANSWER, "finish_reason": "stop"}],
    "usage": _USAGE,
}
_END = _piece({}, "stop")
_SAYS_USAGE = _chunk(choices=[], usage=_USAGE)
_STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_DOCUMENT = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s"


def _framed(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


async def _provide(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers OpenAI's chat completions on one connection, each piece at its own point of a fixed schedule."""
    loop = asyncio.get_running_loop()
    with suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            started = loop.time()
            lengths = [int(line[15:]) for line in head.split(b"\r\n") if line.startswith(b"content-length:")]
            body = json.loads(await reader.readexactly(lengths[0])) if lengths and lengths[0] else {}
            if not body.get("stream"):
                if body:
                    await asyncio.sleep(WAIT_S + APART_S * (PIECES - 1))
                document = json.dumps(_WHOLE).encode()
                writer.write(_DOCUMENT % (len(document), document))
                continue
            for piece in range(PIECES):
                await asyncio.sleep(started + WAIT_S + APART_S * piece - loop.time())
                begin = b"" if piece else _STREAM
                writer.write(begin + _framed(_piece({"content": PIECE} | ({} if piece else {"role": "assistant"}))))
            usage = _SAYS_USAGE if (body.get("stream_options") or {}).get("include_usage") else b""
            writer.write(_framed(_END + usage + b"data: [DONE]\n\n") + b"0\r\n\r\n")
    writer.close()


async def provide(port: int) -> None:
    server = await asyncio.start_server(_provide, "127.0.0.1", port, backlog=2048)
    await server.serve_forever()


def pass_through(port: int, provider: str) -> None:
    """Serves what hands each request on, and each part of its answer back."""
    client = httpx2.AsyncClient(limits=httpx2.Limits(max_connections=None), timeout=PATIENCE_S, trust_env=False)

    async def hand_on(request: Request) -> StreamingResponse:
        kept = {name: value for name, value in request.headers.items() if name in ("content-type", "authorization")}
        url = provider.removesuffix("/v1") + request.url.path
        asked = client.build_request(request.method, url, headers=kept, content=await request.body())
        answer = await client.send(asked, stream=True)

        async def parts() -> AsyncIterator[bytes]:
            try:
                async for part in answer.aiter_raw():
                    yield part
            finally:
                await answer.aclose()

        return StreamingResponse(parts(), answer.status_code, media_type=answer.headers["content-type"])

    app = Starlette(routes=[Route("/{path:path}", hand_on, methods=["GET", "POST"])])
    uvicorn.run(app, host="127.0.0.1", port=port, log_config=None, access_log=False)


# Servers, and what the kernel counts of them.


@dataclass(frozen=True)
class Server:
    """``key``: as clients send it. ``asks``: what its requests have beside the messages."""

    name: str
    process: "subprocess.Popen[bytes]"
    port: int
    key: str = "none"
    asks: Mapping[str, Any] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def headers(self) -> Mapping[str, str]:
        return {"authorization": f"Bearer {self.key}"}

    def _processes(self) -> Iterator[Path]:
        left = [self.process.pid]
        while left:
            folder = Path(f"/proc/{left.pop()}")
            with suppress(OSError):  # it has ended
                for children in folder.glob("task/*/children"):
                    left += map(int, children.read_text().split())
                yield folder

    def cpu_s(self) -> float:
        """Seconds of a processor that the server and its processes have used, also those that have ended."""
        ticks = 0
        for folder in self._processes():
            with suppress(OSError):
                ticks += sum(map(int, (folder / "stat").read_text().rpartition(")")[2].split()[11:15]))
        return ticks / _TICKS_A_SECOND

    def resident_mb(self) -> float:
        pages = 0
        for folder in self._processes():
            with suppress(OSError):
                pages += int((folder / "statm").read_text().split()[1])
        return pages * _PAGE_BYTES / 2**20


@contextmanager
def started(name: str, command: list[str], port: int, folder: Path, **fields: Any) -> Iterator[Server]:
    """Starts a server and waits until it lists its models. Raises: SystemExit if it does not in time."""
    log, until_s = folder / f"{port}.log", time.monotonic() + PATIENCE_S
    with log.open("wb") as told:
        process = subprocess.Popen(command, cwd=ROOT, env=_environment(folder), stdout=told, stderr=subprocess.STDOUT)
    server = Server(name, process, port, **fields)
    try:
        while True:
            with suppress(httpx2.HTTPError):
                if httpx2.get(f"{server.url}/models", headers=server.headers, trust_env=False).status_code == 200:
                    break
            if process.poll() is not None or time.monotonic() > until_s:
                raise SystemExit(f"error: {name} did not start:\n{log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.1)
        yield server
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()


def _environment(folder: Path) -> dict[str, str]:
    clean = {known: os.environ[known] for known in ("PATH", "LANG", "TZ") if known in os.environ}
    ours = {"CONDUCTOR_DATA_FOLDER": str(folder / "data"), "CONDUCTOR_WARM_UP": "false"}
    # As LiteLLM's documentation advises for production. Without the second it fetches its prices.
    litellm = {"LITELLM_MODE": "PRODUCTION", "LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR"}
    keys = {"LITELLM_MASTER_KEY": SECRET, "PROVIDER_API_KEY": SECRET}
    return clean | ours | litellm | keys | {"HOME": str(folder)}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def start_all(stack: ExitStack, folder: Path, litellm: str | None) -> dict[str, Server]:
    def start(name: str, command: list[str], port: int, **fields: Any) -> Server:
        return stack.enter_context(started(name, command, port, folder, **fields))

    own, port = [sys.executable, "-m", "benchmarks.endpoint"], _free_port()
    provider = start("provider", [*own, "--provide", str(port)], port)
    pool, database = folder / "pool.toml", ["--db", f"sqlite:///{folder / 'runs.sqlite3'}"]
    pool.write_text(
        f'[[worker]]\nname = "scripted"\nprovider = "openai"\nmodel = "scripted"\nbase_url = "{provider.url}"\n'
        'api_key_env = "PROVIDER_API_KEY"\nmax_concurrency = 1000\n'
    )
    conductor, port = [sys.executable, "-m", "conductor_core"], _free_port()
    create = [*conductor, "keys", "create", "benchmark", "--json", *database]
    made = subprocess.run(create, cwd=ROOT, env=_environment(folder), stdout=subprocess.PIPE, check=True)
    workflow = {"steps": [{"agent": "scripted", "instruction": "{question}", "access_list": []}]}
    asks, key = {"model": "fugu", "conductor": {"workflow": workflow}}, json.loads(made.stdout)["key"]
    serve = [*conductor, "serve", "--port", str(port), "--pool", str(pool), *database]
    servers = {OURS: start(OURS, serve, port, asks=asks, key=key)}
    if litellm is not None:
        config, port = folder / "litellm.yaml", _free_port()
        behind = {"model": "openai/scripted", "api_base": provider.url, "api_key": SECRET}
        config.write_text(json.dumps({"model_list": [{"model_name": "scripted", "litellm_params": behind}]}))
        run = [litellm, "-c", "from litellm.proxy.proxy_cli import run_server; run_server()"]
        at = ["--config", str(config), "--host", "127.0.0.1", "--port", str(port)]
        servers[LITELLM] = start(LITELLM, [*run, *at], port, key=SECRET)
    port = _free_port()
    servers[PLAIN] = start(PLAIN, [*own, "--pass-through", str(port), provider.url], port)
    return servers


# Requests.


@dataclass(frozen=True)
class Answer:
    """``fault``: why it is not whole; empty: it is."""

    first_byte_ms: float
    first_text_ms: float
    fault: str


async def ask(session: aiohttp.ClientSession, server: Server, *, stream: bool) -> Answer:
    question = {"role": "user", "content": "Say a few words about each of twenty things."}
    body = {"model": "scripted", "messages": [question], "stream": stream, **server.asks}
    began_s, first_byte_s, first_text_s = time.perf_counter(), 0.0, 0.0
    came = b""
    try:
        async with session.post(f"{server.url}/chat/completions", json=body, headers=server.headers) as response:
            async for part in response.content.iter_any():
                now_s = time.perf_counter() - began_s
                first_byte_s = first_byte_s or now_s
                if not first_text_s and b"another" in part:
                    first_text_s = now_s
                came += part
        fault = "" if response.status == 200 else f"status {response.status}: {came[:200]!r}"
        fault = fault or _fault(came, stream=stream)
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        fault = f"{type(error).__name__}: {error}"
    return Answer(first_byte_s * 1000, first_text_s * 1000, fault)


def _fault(came: bytes, *, stream: bool) -> str:
    """Returns what an answer lacks. Raises: ValueError for what is not JSON."""
    if not stream:
        choice = json.loads(came)["choices"][0]
        return "" if choice["message"]["content"].strip() == (PIECE * PIECES).strip() else "another text"
    lines = [line[6:] for line in came.decode().splitlines() if line.startswith("data: ")]
    if lines[-1:] != ["[DONE]"]:
        return "no end"
    choices = [choice for line in lines[:-1] for choice in json.loads(line).get("choices", ())]
    text = "".join(choice["delta"].get("content") or "" for choice in choices)
    finished = [choice["finish_reason"] for choice in choices if choice.get("finish_reason")]
    return "" if (text.strip(), finished) == ((PIECE * PIECES).strip(), ["stop"]) else "another text"


def _session() -> aiohttp.ClientSession:
    timeout = aiohttp.ClientTimeout(total=PATIENCE_S)
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout)


@dataclass(frozen=True)
class Block:
    cpu_ms: float
    answers: list[Answer]

    def first(self, what: str, percent: float) -> float:
        return float(np.percentile([getattr(answer, f"first_{what}_ms") for answer in self.answers], percent))


async def block(server: Server, requests: int, *, stream: bool) -> Block:
    """Raises: RuntimeError if an answer is not whole."""
    left, answers = iter(range(requests)), []
    before_s = server.cpu_s()

    async def client(session: aiohttp.ClientSession) -> None:
        for _ in left:
            answers.append(await ask(session, server, stream=stream))

    async with _session() as session:
        await asyncio.gather(*(client(session) for _ in range(AT_ONCE)))
    await asyncio.sleep(SETTLE_S)
    if faults := [answer.fault for answer in answers if answer.fault]:
        raise RuntimeError(f"{server.name}: {len(faults)} of {requests} answers are not whole: {faults[0]}")
    return Block((server.cpu_s() - before_s) * 1000 / requests, answers)


Blocks = dict[tuple[str, bool], list[Block]]
"""By server, and whether they were streamed."""


async def measure(servers: Mapping[str, Server], requests: int, blocks: int) -> Blocks:
    found: Blocks = {(name, stream): [] for stream in (True, False) for name in servers}
    for name, stream in found:
        await block(servers[name], WARM_UP, stream=stream)
    for _ in range(blocks):
        for name, stream in found:
            found[name, stream].append(await block(servers[name], requests, stream=stream))
    return found


async def flood(server: Server, requests: int) -> dict[str, Any]:
    """Opens so many streams at once. Returns how many ended whole, and the server's memory meanwhile."""
    before_mb, most_mb = server.resident_mb(), 0.0

    async def watch() -> None:
        nonlocal most_mb
        while True:
            most_mb = max(most_mb, server.resident_mb())
            await asyncio.sleep(SAMPLE_S)

    watching, began_s = asyncio.create_task(watch()), time.perf_counter()
    before_s = server.cpu_s()
    async with _session() as session:
        answers = await asyncio.gather(*(ask(session, server, stream=True) for _ in range(requests)))
    wall_s = time.perf_counter() - began_s
    watching.cancel()
    await asyncio.sleep(2 * SETTLE_S)
    faults = [answer.fault for answer in answers if answer.fault]
    return {
        "requests": requests,
        "whole": requests - len(faults),
        "fault": faults[0] if faults else "",
        "wall_s": wall_s,
        "cpu_ms": (server.cpu_s() - before_s) * 1000 / requests,
        "before_mb": before_mb,
        "most_mb": most_mb,
        "after_mb": server.resident_mb(),
    }


# What it comes to.


def figures(found: Blocks) -> list[dict[str, Any]]:
    rows = []
    for (name, stream), blocks in found.items():
        everything = Block(0, [answer for each in blocks for answer in each.answers])
        row: dict[str, Any] = {"server": name, "streamed": stream, "cpu_ms": mean_interval([b.cpu_ms for b in blocks])}
        for what in ("byte", "text"):
            row |= {f"first_{what}_p{percent}_ms": everything.first(what, percent) for percent in (50, 99)}
        rows.append(row)
    return rows


def ratios(found: Blocks) -> list[dict[str, Any]]:
    """Returns ours divided by the others', with the target where there is one."""
    rows = []
    for other in (LITELLM, PLAIN):
        for stream in (True, False):
            pairs = list(zip(found[OURS, stream], found.get((other, stream), []), strict=False))
            if not pairs:
                continue
            cpu = mean_interval([own.cpu_ms / theirs.cpu_ms for own, theirs in pairs])
            rows.append(_ratio("CPU", other, cpu, CPU_TARGET if other == LITELLM else None, stream=stream))
            for what in ("byte", "text") if stream else ("byte",):
                first = mean_interval([own.first(what, 50) / theirs.first(what, 50) for own, theirs in pairs])
                target = FIRST_BYTE_TARGET if other == PLAIN and stream else None
                rows.append(_ratio(f"first {what}, p50", other, first, target, stream=stream))
    return rows


def _ratio(what: str, other: str, found: Interval, target: float | None, *, stream: bool) -> dict[str, Any]:
    return {"of": what, "to": other, "streamed": stream, "ratio": found, "target": target}


def show(result: Mapping[str, Any]) -> None:
    print(f"load {result['load']:.1f} before, {os.getloadavg()[0]:.1f} after\n")
    print("| server | answer | CPU, ms a request | first byte, p50 / p99, ms | first text |\n|---|---|---|---|---|")
    for row in result["servers"]:
        byte, text = ([row[f"first_{what}_p{percent}_ms"] for percent in (50, 99)] for what in ("byte", "text"))
        print(
            f"| {row['server']} | {_how(row)} | {_interval(row['cpu_ms'], 1)} "
            f"| {byte[0]:.0f} / {byte[1]:.0f} | {text[0]:.0f} / {text[1]:.0f} |"
        )
    print("\n| conductor serve, divided by | answer | of | ratio | target |\n|---|---|---|---|---|")
    for row in result["ratios"]:
        target = row["target"]
        said = "" if target is None else f"{target:g}, {'met' if row['ratio'].mean <= target else 'MISSED'}"
        print(f"| {row['to']} | {_how(row)} | {row['of']} | {_interval(row['ratio'], 2)} | {said} |")
    print(
        "\n| at once | whole | wall, s | CPU, ms a request | resident before, most, after, MB |\n|---|---|---|---|---|"
    )
    for row in result["floods"]:
        fault = f" ({row['fault']})" if row["fault"] else ""
        memory = ", ".join(f"{row[f'{when}_mb']:.0f}" for when in ("before", "most", "after"))
        print(f"| {row['requests']} | {row['whole']}{fault} | {row['wall_s']:.1f} | {row['cpu_ms']:.1f} | {memory} |")
    print(f"\nThe target, none lost, is {'met' if all(not row['fault'] for row in result['floods']) else 'MISSED'}.")


def _how(row: Mapping[str, Any]) -> str:
    return "streamed" if row["streamed"] else "whole"


def _interval(found: Interval, digits: int) -> str:
    return f"{found.mean:.{digits}f} ({found.low:.{digits}f} to {found.high:.{digits}f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--litellm", metavar="PYTHON", help="a Python with litellm[proxy]; without it LiteLLM is left out"
    )
    parser.add_argument("--requests", type=int, default=80, help="of a block; default 80")
    parser.add_argument("--blocks", type=int, default=8, help="of each server, streamed and not; default 8")
    parser.add_argument("--flood", type=int, default=500, help="requests at once; 0: none; default 500")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--provide", type=int, metavar="PORT", help=argparse.SUPPRESS)
    parser.add_argument("--pass-through", nargs=2, metavar=("PORT", "URL"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.provide:
        asyncio.run(provide(options.provide))
        return
    if options.pass_through:
        pass_through(int(options.pass_through[0]), options.pass_through[1])
        return
    result: dict[str, Any] = {"load": os.getloadavg()[0]}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        servers = start_all(stack, folder, options.litellm)
        found = asyncio.run(measure(servers, options.requests, options.blocks))
        result |= {"servers": figures(found), "ratios": ratios(found)}
        for name in (LITELLM, PLAIN):  # ours alone
            if name in servers:
                servers[name].process.terminate()
        result["floods"] = [
            asyncio.run(flood(servers[OURS], options.flood)) for _ in range(FLOODS if options.flood else 0)
        ]
    if options.json:
        print(json.dumps(result, default=lambda found: {name: getattr(found, name) for name in Interval.__slots__}))
    else:
        show(result)


if __name__ == "__main__":
    main()
