"""A simulated worker: acts on the messages it is given and on nothing else, deterministic by seed."""

import asyncio
import hashlib
import json
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from random import Random

from conductor_core.chat import Chunk, Finished, Message, TextDelta, Usage, WorkerSpec
from conductor_core.errors import PoolInvalid
from conductor_core.rehearsal import profiles, writing
from conductor_core.rehearsal.families import RehearsalTask
from conductor_core.rehearsal.families.reading import answer_key
from conductor_core.rehearsal.profiles import Profile
from conductor_core.rehearsal.view import Given, View, read_messages

_DEAL = 1
"""Deals every chance anew when changed; otherwise without meaning."""
_MESSAGE_OVERHEAD_TOKENS = 4
"""Counted for each message besides its text, as chat formats do."""


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
        found = profiles.profile(name)
        if found is None:
            known = ", ".join(each.name for each in profiles.PROFILES)
            fault = f"worker {spec.name!r}: no rehearsal profile {spec.model!r}; there are: {known}"
            raise PoolInvalid(fault, [fault])
        self._spec, self._profile, self._seed, self._tokens_per_s = spec, found, seed, tokens_per_s

    @property
    def spec(self) -> WorkerSpec:
        return self._spec

    def respond(self, messages: Sequence[Message]) -> str:
        """The whole answer as text."""
        return _Answerer(self._profile, self._seed, messages).text()

    async def answer(self, messages: Sequence[Message]) -> AsyncIterator[Chunk]:
        """Streams the answer at the worker's pace. Cancelling it between two words leaves nothing behind."""
        pieces = writing.token_pieces(self.respond(messages))
        limit = self._spec.params.get("max_tokens")
        cut = isinstance(limit, int) and 0 < limit < len(pieces)
        if cut:
            pieces = pieces[:limit]
        if self._tokens_per_s > 0:
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
        """Nothing to release."""


def open_rehearsal_worker(spec: WorkerSpec, *, seed: int, tokens_per_s: float) -> RehearsalWorker:
    """Raises: PoolInvalid if ``spec`` names no rehearsal profile."""
    return RehearsalWorker(spec, seed=seed, tokens_per_s=tokens_per_s)


def input_tokens(messages: Sequence[Message]) -> int:
    """Tokens of a prompt by the rehearsal pool's own rule (see ``writing.token_pieces``)."""
    return sum(writing.token_count(message.content) + _MESSAGE_OVERHEAD_TOKENS for message in messages)


class _Answerer:
    """One answer: chances decided by a hash of seed, worker and the exact messages, then put into words."""

    def __init__(self, profile: Profile, seed: int, messages: Sequence[Message]) -> None:
        exact = json.dumps([_DEAL, seed, profile.name, [[message.role, message.content] for message in messages]])
        self._digest = hashlib.sha256(exact.encode(errors="surrogatepass")).hexdigest()
        self._profile = profile
        self._view = read_messages(messages)
        self._voice = Random(f"{self._digest}/voice")  # noqa: S311 - a choice of words, not a secret

    def text(self) -> str:
        view = self._view
        if view.task is None and not view.given:
            return writing.receipt_text(view, self._profile.name, self._voice)
        match view.role:
            case "plan" if view.task is not None:
                return self._plan(view.task)
            case "verify":
                return self._verify()
            case "aggregate":
                return self._aggregate()
            case "write" | "format" if view.given:
                last = view.given[-1]
                return self._pass_on(last)
            case _ if view.task is not None:
                return self._solve(view.task)
            case _:
                return writing.receipt_text(view, self._profile.name, self._voice)

    def _succeeds(self, what: str, chance: float) -> bool:
        drawn = hashlib.sha256(f"{self._digest}/{what}".encode()).digest()
        return int.from_bytes(drawn[:7], "big") / 2**56 < chance

    def _slip(self, task: RehearsalTask) -> tuple[str, tuple[str, ...]]:
        slip = Random(f"{self._digest}/slip").choice(task.solution.slips)  # noqa: S311 - a choice of mistake
        return slip.answer, slip.working

    def _solve(self, task: RehearsalTask) -> str:
        chance = profiles.solve_chance(self._profile, task.family, task.difficulty, help_logits=help_logits(self._view))
        right = self._succeeds("solve", chance)
        answer, working = (task.answer, task.solution.working) if right else self._slip(task)
        style = "figures" if self._view.role == "compute" else self._profile.style
        return writing.solution_text(task, answer, working, self._view, style, self._voice)

    def _plan(self, task: RehearsalTask) -> str:
        lines = list(task.solution.plan)
        complete = self._succeeds("plan", profiles.plan_chance(self._profile, task.difficulty))
        if not complete:
            lines[self._voice.randrange(min(1, len(lines) - 1), len(lines))] = "Work out what is left."
        return writing.plan_text(task, lines, complete, self._voice)

    def _verify(self) -> str:
        view = self._view
        if not view.given:
            return writing.nothing_text("verify", view)
        if view.task is None:
            return writing.unchecked_text(view.given)
        task, worker = view.task, self._profile
        right = answer_key(task.answer, task.solution.kind)
        subject = _prevailing(view.given)
        # Another answer that is right makes a mistake easier to see.
        other_is_right = any(each.key == right for each in view.given)
        if subject.key == right:
            stands = self._succeeds("keep", profiles.keep_chance(worker, task.family, task.difficulty))
            if stands:
                return writing.check_text(task, view.given, "confirmed", task.answer, task.solution.working)
            answer, working = self._slip(task)
            return writing.check_text(task, view.given, "corrected", answer, working)
        chance = profiles.mend_chance(
            worker, task.family, task.difficulty, help_logits=profiles.ANCHOR_RIGHT_LOGITS if other_is_right else 0.0
        )
        if self._succeeds("mend", chance):
            return writing.check_text(task, view.given, "corrected", task.answer, task.solution.working)
        working = next(
            (slip.working for slip in task.solution.slips if slip.answer == subject.answer), ("The working holds.",)
        )
        return writing.check_text(task, view.given, "unnoticed", subject.answer, working)

    def _aggregate(self) -> str:
        given = self._view.given
        if not given:
            return writing.nothing_text("aggregate", self._view)
        task = self._view.task
        counts = Counter(each.key for each in given)
        most = max(counts.values())
        tied = [key for key in counts if counts[key] == most]
        checked = [each.key for each in given if each.checked and each.key in tied]
        if len(given) == 1:
            chosen, reason = tied[0], "It is the only one, so there is nothing to weigh it against."
        elif len(counts) == 1:
            chosen, reason = tied[0], "All say the same."
        elif len(tied) == 1:
            chosen, reason = tied[0], f"{most} of {len(given)} agree; I take the majority."
        elif checked:
            chosen, reason = checked[-1], "There is no majority; I take the one that was checked."
        else:
            right = answer_key(task.answer, task.solution.kind) if task else None
            picks_right = right in tied and self._succeeds("aggregate", self._profile.aggregate)
            wrong = [key for key in tied if key != right] or tied
            chosen = right if picks_right and right is not None else wrong[0]
            reason = "There is no majority; going through the working, this one convinces me most."
        answer = next(each.answer for each in given if each.key == chosen)
        return writing.combined_text(task, given, answer, reason)

    def _pass_on(self, last: Given) -> str:
        task = self._view.task
        if task is not None and not self._succeeds("write", self._profile.write):
            answer, _ = self._slip(task)
            return writing.final_text(task, answer, last.checked, self._voice)
        return writing.final_text(task, last.answer, last.checked, self._voice)


def _prevailing(given: Sequence[Given]) -> Given:
    """The answer that a check is about: the most frequent one, the last of those where several are."""
    counts = Counter(each.key for each in given)
    return max(reversed(given), key=lambda each: counts[each.key])


def help_logits(view: View) -> float:
    """What the context adds to a solver's chance: a plan, earlier answers, the wording of the instruction."""
    added = {"good": profiles.GOOD_PLAN_LOGITS, "poor": profiles.POOR_PLAN_LOGITS, None: 0.0}[view.plan]
    added += {"clear": profiles.CLEAR_LOGITS, "plain": 0.0, "vague": profiles.VAGUE_LOGITS}[view.wording]
    if view.task is not None and view.given:
        right = answer_key(view.task.answer, view.task.solution.kind)
        share = sum(each.key == right for each in view.given) / len(view.given)
        added += profiles.ANCHOR_RIGHT_LOGITS if share > 0.5 else profiles.ANCHOR_WRONG_LOGITS
    return added
