"""A simulated worker acts on the messages that it is given and on nothing else. Its seed decides what it draws."""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Sequence
from functools import cached_property
from random import Random

from conductor_core.chat.messages import Chunk, Finished, Message, TextDelta, Usage, WorkerSpec
from conductor_core.errors import PoolInvalid
from conductor_core.rehearsal import skills, writing
from conductor_core.rehearsal.families import DIFFICULTIES, FAMILIES, RehearsalTask
from conductor_core.rehearsal.families.reading import answer_key
from conductor_core.rehearsal.reading import SIGNATURE, read_messages
from conductor_core.rehearsal.skills import RIGHT, Branch, Manner, Profile, decide

_DEAL = 1
"""Another number would change every draw; it has no other meaning."""
_MESSAGE_OVERHEAD_TOKENS = 4
"""Tokens that each message counts besides its text, as in chat formats."""


class RehearsalWorker:
    """One worker of the rehearsal pool.

    Args:
        spec: its ``model`` (``rehearsal/NAME``) says which profile it has; ``params["max_tokens"]`` cuts its answers.
        seed: the same seed, worker and messages give the same text.
        tokens_per_s: pace of the stream; 0: at once, without a single wait.
    Raises: PoolInvalid if there is no such profile.
    """

    def __init__(self, spec: WorkerSpec, *, seed: int, tokens_per_s: float) -> None:
        name = spec.model.removeprefix("rehearsal/")
        found = skills.BY_NAME.get(name)
        if found is None:
            known = ", ".join(each.name for each in skills.PROFILES)
            fault = f"worker {spec.name!r}: no rehearsal profile {spec.model!r}; there are: {known}"
            raise PoolInvalid(fault, [fault])
        self._spec, self._profile, self._seed, self._tokens_per_s = spec, found, seed, tokens_per_s

    @property
    def spec(self) -> WorkerSpec:
        return self._spec

    def respond(self, messages: Sequence[Message]) -> str:
        """Returns the whole answer as text."""
        return _Answerer(self._profile, self._seed, messages).text()

    def manner(self, messages: Sequence[Message]) -> Manner:
        """Returns the kind of ``respond``'s text: what a reader can tell of it without knowing the right answer."""
        return _Answerer(self._profile, self._seed, messages).manner

    def drawn(self, messages: Sequence[Message]) -> Branch:
        """Returns what was drawn for ``respond``'s text, among all that may happen."""
        return _Answerer(self._profile, self._seed, messages).drawn

    async def answer(self, messages: Sequence[Message]) -> AsyncIterator[Chunk]:
        """Streams the answer at the worker's pace. Cancelling it between two words leaves nothing behind.

        That it cannot answer it says at once.
        """
        answerer = _Answerer(self._profile, self._seed, messages)
        pieces = writing.token_pieces(answerer.text())
        limit = self._spec.params.get("max_tokens")
        cut = isinstance(limit, int) and 0 < limit < len(pieces)
        if cut:
            pieces = pieces[:limit]
        if self._tokens_per_s > 0 and answerer.manner != "receipt":
            async for piece in self._paced(pieces):
                yield TextDelta(text=piece)
        else:
            yield TextDelta(text="".join(pieces))
        yield Finished(
            finish_reason="length" if cut else "stop",
            usage=Usage(input_tokens=input_tokens(messages), output_tokens=len(pieces)),
            cost_usd=0.0,
            model=f"rehearsal/{self._profile.name} (simulated)",
        )

    async def _paced(self, pieces: Sequence[str]) -> AsyncIterator[str]:
        """Waits before the first piece and between pieces, on a schedule, so that small delays do not add up."""
        rng = Random(f"{self._seed}/{self._profile.name}/pace/{len(pieces)}")  # noqa: S311 - a rhythm, not a secret
        rate = self._tokens_per_s * self._profile.pace
        loop = asyncio.get_running_loop()
        due = loop.time() + self._profile.thinking_tokens / rate * rng.uniform(0.7, 1.3)
        for piece in pieces:
            wait = due - loop.time()
            if wait > 0:
                await asyncio.sleep(wait)
            yield piece
            due += rng.uniform(0.6, 1.4) / rate

    async def aclose(self) -> None:
        """Releases nothing."""


def open_rehearsal_worker(spec: WorkerSpec, *, seed: int, tokens_per_s: float) -> RehearsalWorker:
    """Opens a worker. Raises: PoolInvalid if ``spec`` names no rehearsal profile."""
    return RehearsalWorker(spec, seed=seed, tokens_per_s=tokens_per_s)


def input_tokens(messages: Sequence[Message]) -> int:
    """Counts the tokens of a prompt by the rehearsal pool's own rule (see ``writing.token_pieces``)."""
    return sum(writing.token_count(message.text) + _MESSAGE_OVERHEAD_TOKENS for message in messages)


class _Answerer:
    """One answer: drawn by a hash of seed, worker and the exact messages from what may happen, then put into words."""

    def __init__(self, profile: Profile, seed: int, messages: Sequence[Message]) -> None:
        exact = json.dumps([_DEAL, seed, profile.name, [[message.role, message.text] for message in messages]])
        self._digest = hashlib.sha256(exact.encode(errors="surrogatepass"))
        self._profile = profile
        self._view = read_messages(messages)
        self._voice = Random(self._digest.digest())  # noqa: S311 - a choice of words, not a secret

    def text(self) -> str:
        # No two calls sign alike, so that what is drawn for a step that reads one says nothing about another.
        signature = SIGNATURE.format(name=self._profile.name, digest=self._digest.hexdigest()[:6])
        return f"{self._words()}\n\n{signature}"

    @property
    def manner(self) -> Manner:
        return self.drawn.manner

    def _words(self) -> str:
        view = self._view
        task, drawn = view.task, self.drawn
        if drawn.manner == "receipt":
            return writing.receipt_text(view)
        if drawn.manner == "nothing":
            return writing.nothing_text(view)
        if task is not None and drawn.manner in ("complete plan", "poor plan"):
            return self._plan(task, complete=drawn.manner == "complete plan")
        answer = view.answers()[drawn.answer or RIGHT]
        if drawn.manner == "unchecked":
            return writing.unchecked_text(view.given)
        if drawn.manner == "passed on":
            return writing.final_text(task, answer, view.given[-1].checked, self._voice)
        if drawn.manner in writing.REASONS:
            # The wording of an answer in view is kept.
            return writing.combined_text(task, view.given, self._as_given(answer), drawn.manner)
        if task is None:
            raise AssertionError(f"{drawn.manner} without the question in view")
        working = _working(task, drawn.answer)
        if drawn.manner in ("solution", "doubted solution"):
            style = "figures" if view.role == "compute" else self._profile.style
            doubted = drawn.manner == "doubted solution"
            return writing.solution_text(task, answer, working, view, style, doubted=doubted, rng=self._voice)
        return writing.check_text(task, view.given, drawn.manner, answer, working)

    @cached_property
    def drawn(self) -> Branch:
        view = self._view
        task = view.task
        # Without the question neither family nor difficulty is looked at.
        family, difficulty, slips = (
            (task.family, task.difficulty, len(task.solution.slips)) if task else (FAMILIES[0], DIFFICULTIES[0], 1)
        )
        branches = decide(self._profile.name, family, difficulty, slips, view.sight(self._profile.name))
        left = int.from_bytes(self._digest.digest()[:7], "big") / 2**56
        for branch in branches:
            left -= branch.chance
            if left < 0:
                return branch
        return branches[-1]

    def _as_given(self, answer: str) -> str:
        kind = self._view.task.solution.kind if self._view.task else "exact"
        key = answer_key(answer, kind)
        return next((each.answer for each in self._view.given if each.key == key), answer)

    def _plan(self, task: RehearsalTask, *, complete: bool) -> str:
        lines = list(task.solution.plan)
        if not complete:
            lines[self._voice.randrange(min(1, len(lines) - 1), len(lines))] = "Work out what is left."
        return writing.plan_text(task, lines, complete, self._voice)


def _working(task: RehearsalTask, answer: int | None) -> tuple[str, ...]:
    """Returns the working that leads to an answer, by its number (see ``skills``)."""
    if not answer:
        return task.solution.working
    slips = task.solution.slips
    return slips[answer - 1].working if answer <= len(slips) else ("The working in view leads to this.",)
