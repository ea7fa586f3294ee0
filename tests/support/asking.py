"""One call of a worker, for tests: its chunks, or its error and what arrived before it."""

import pytest

from conductor_core.chat.messages import Chunk, Finished, Message, TextDelta, WorkerSpec
from conductor_core.errors import (
    WorkerError,
)
from conductor_core.settings import Settings
from conductor_core.workers.pool import HttpWorker, open_worker

QUESTION = (Message(role="user", content="What is 6 times 7?"),)
KEY = "sk-test-0123456789abcdef"


def opened(spec: WorkerSpec) -> HttpWorker:
    worker = open_worker(spec, Settings())
    assert isinstance(worker, HttpWorker)
    return worker


async def ask(spec: WorkerSpec, messages: tuple[Message, ...] = QUESTION) -> list[Chunk]:
    worker = opened(spec)
    try:
        return [chunk async for chunk in worker.answer(messages)]
    finally:
        await worker.aclose()


async def fails(spec: WorkerSpec, kind: type[WorkerError]) -> tuple[WorkerError, str]:
    """The error of a call, and the text that arrived before it."""
    worker = opened(spec)
    partial = ""
    with pytest.raises(kind) as caught:  # noqa: PT012 - what arrives before the error is part of the promise
        async for chunk in worker.answer(QUESTION):
            assert isinstance(chunk, TextDelta)
            partial += chunk.text
    await worker.aclose()
    message = str(caught.value)
    assert f"worker {spec.name}" in message, message
    assert "\n" not in message
    assert len(message) < 600
    return caught.value, partial


def text_of(chunks: list[Chunk]) -> str:
    return "".join(chunk.text for chunk in chunks if isinstance(chunk, TextDelta))


def finished(chunks: list[Chunk]) -> Finished:
    assert isinstance(chunks[-1], Finished)
    assert sum(isinstance(chunk, Finished) for chunk in chunks) == 1
    return chunks[-1]
