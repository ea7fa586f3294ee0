"""A fake provider on loopback that answers at an exact pace: the ideal against which overhead is measured.

Speaks OpenAI's streaming chat completions. The model's name is the pace: ``paced/1.0/20`` answers in 1.0 s, in 20
chunks, each at its own point of a schedule fixed when the request is read, so that lateness does not add up.

    python -m benchmarks.paced_provider        prints its base URL, serves until its stdin closes
"""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_HEADERS = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def _event(text: str | None) -> bytes:
    """One server-sent event in one HTTP chunk; None: the finish reason and the usage."""
    choice: dict[str, object] = {"index": 0, "delta": {"content": text}, "finish_reason": None}
    body: dict[str, object] = {"id": "paced", "object": "chat.completion.chunk", "choices": [choice]}
    if text is None:
        choice |= {"delta": {}, "finish_reason": "stop"}
        body["usage"] = {"prompt_tokens": 40, "completion_tokens": 40, "total_tokens": 80}
    data = f"data: {json.dumps(body)}\n\n".encode()
    if text is None:
        data += b"data: [DONE]\n\n"
    return b"%x\r\n%s\r\n" % (len(data), data) + (b"0\r\n\r\n" if text is None else b"")


_TEXT, _END = _event("another few words "), _event(None)


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    loop = asyncio.get_running_loop()
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            started = loop.time()
            length = next(
                int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")
            )
            model = json.loads(await reader.readexactly(length))["model"]
            _, seconds, chunks = model.split("/")
            writer.write(_HEADERS)
            for chunk in range(1, int(chunks) + 1):
                await asyncio.sleep(started + float(seconds) * chunk / int(chunks) - loop.time())
                writer.write(_END if chunk == int(chunks) else _TEXT)
    except (asyncio.IncompleteReadError, ConnectionError):
        return  # The client is done with this connection.
    finally:
        writer.close()


@contextmanager
def provider() -> Iterator[str]:
    """Runs the provider in a process of its own until the block is left. Gives its base URL."""
    command = [sys.executable, "-m", "benchmarks.paced_provider"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        if process.stdout is None or process.stdin is None:
            raise RuntimeError("the provider has no pipes")
        try:
            yield process.stdout.readline().strip()
        finally:
            process.stdin.close()


async def main() -> None:
    server = await asyncio.start_server(_serve, "127.0.0.1", 0, backlog=1024)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    server.close()


if __name__ == "__main__":
    asyncio.run(main())
