"""A worker that runs in this process: any causal language model of a folder or the hub, shared with the Conductors.

Imports no torch: that happens when the model is loaded for the first answer.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from conductor_core.chat.messages import Chunk, Finished, Message, TextDelta, WorkerSpec
from conductor_core.errors import (
    PoolInvalid,
    WorkerContextOverflow,
    WorkerModelUnknown,
    WorkerOutputTooLarge,
    WorkerRefused,
)
from conductor_core.inference.generation import Done, Generation, InferenceError, ModelNotHere, PromptTooLong, Sampling
from conductor_core.inference.shared import shared_model
from conductor_core.providers.answer_text import AnswerText
from conductor_core.providers.model_files import sampling_fault
from conductor_core.workers.pool_file import LocalParams


class LocalWorker:
    """Answers steps with ``spec.model``, a folder or hub id. Nothing is loaded before the first answer."""

    def __init__(self, spec: WorkerSpec, idle_s: float | None = None, *, drafts: bool = True) -> None:
        """Loads nothing.

        Args:
            idle_s: seconds after which a model that nobody asks leaves memory; None: what it was before.
            drafts: whether it may guess its next tokens and check several in one pass.

        Raises: PoolInvalid if ``spec.params`` holds something that a local model does not know."""
        if fault := sampling_fault(spec.params, LocalParams):
            raise PoolInvalid(f"worker {spec.name}: params: {fault}", [fault])
        self.spec = spec
        self._drafts = drafts
        self._model = shared_model(spec.model)
        if idle_s is not None:
            self._model.idle_s = idle_s
        self._params = LocalParams.model_validate(dict(spec.params))

    async def answer(self, messages: Sequence[Message]) -> AsyncGenerator[Chunk, None]:
        """See ``Worker.answer``. Answers of one model wait for each other: it writes one at a time."""
        params = self._params
        generation = Generation(
            prompt=tuple(messages),
            max_tokens=params.max_tokens,
            sampling=Sampling(params.temperature, params.top_p, params.top_k, params.seed),
            thinking=params.thinking,
            drafts=self._drafts,
        )
        allowed = self.spec.max_output_bytes
        answer = AnswerText(messages, passed=self.spec.pass_reasoning)
        try:
            async with aclosing(self._model.stream(generation)) as pieces:
                async for piece in pieces:
                    if isinstance(piece, Done):
                        for chunk in answer.rest():
                            yield chunk
                        yield Finished(
                            finish_reason=piece.finish_reason,
                            usage=piece.usage,
                            model=self.spec.model,
                            departures=answer.departures,
                        )
                        return
                    allowed -= len(piece.encode())
                    if allowed < 0:
                        raise WorkerOutputTooLarge(
                            f"worker {self.spec.name}: wrote over the {self.spec.max_output_bytes:,} bytes it may"
                        )
                    for chunk in answer.feed(TextDelta(text=piece)):
                        yield chunk
        except InferenceError as error:
            raise _kind_of(error)(f"worker {self.spec.name}: {error}") from error

    async def aclose(self) -> None:
        """Nothing to release: the model stays with the process, for all who share it."""


def _kind_of(error: InferenceError) -> type[WorkerRefused]:
    if isinstance(error, PromptTooLong):
        return WorkerContextOverflow
    return WorkerModelUnknown if isinstance(error, ModelNotHere) else WorkerRefused
