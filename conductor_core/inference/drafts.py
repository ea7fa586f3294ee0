"""Guesses the next tokens of a completion from what the prompt, this completion and earlier ones say. No model needed.

The model reads a guess together with what it must read anyway, and what it would have written differently is dropped:
a draft changes how long a completion takes, and no token of it. How long a draft may be follows from what passes took
and from how often the guesses were right of late.
"""

from collections import deque
from collections.abc import Callable, Sequence
from math import inf

MOST_DRAFTED = 4
"""Packed weights of four bits read four tokens in 1.8 times the time of one, and eight in 3.7 times."""
LONGEST_WITH_DRAFT = 8
"""A pass that has more tokens to read anyway gets no draft."""
LONGEST_MATCH = 4
KEPT_COMPLETIONS = 16
FADING = 0.9
"""What a guess counts for after each later one."""
DOUBT = 2.0
"""Guesses, half of them right, that count as made before the first one."""


class Phrases:
    """Which tokens followed which: looks up a continuation by up to ``LONGEST_MATCH`` tokens before it."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self._after: dict[tuple[int, ...], int] = {}

    def extend(self, ids: Sequence[int]) -> None:
        for token in ids:
            end = len(self.ids)
            for length in range(1, min(LONGEST_MATCH, end) + 1):
                self._after[tuple(self.ids[end - length :])] = end
            self.ids.append(token)

    def following(self, last: Sequence[int]) -> tuple[int, list[int]]:
        """Returns how many of the tokens ``last`` were found together, and what followed them most recently."""
        for length in range(min(LONGEST_MATCH, len(last)), 0, -1):
            at = self._after.get(tuple(last[len(last) - length :]))
            if at is not None:
                return length, self.ids[at : at + MOST_DRAFTED]
        return 0, []


class Earlier:
    """The last completions of a model. ``phrases`` is their index."""

    def __init__(self) -> None:
        self._kept: deque[list[int]] = deque(maxlen=KEPT_COMPLETIONS)
        self._stale = 0
        self.phrases = Phrases()

    def add(self, ids: Sequence[int]) -> None:
        """Keeps a completion. An old one leaves, but its place in the index only after a few more."""
        self._stale += len(self._kept) == KEPT_COMPLETIONS
        self._kept.append(list(ids))
        if self._stale < KEPT_COMPLETIONS:
            return self.phrases.extend(ids)
        self._stale, self.phrases = 0, Phrases()
        for each in self._kept:
            self.phrases.extend(each)
        return None


class PassTimes:
    """What a pass takes by its number of tokens: a running mean over the passes of this process."""

    def __init__(self, tried_s: Sequence[float]) -> None:
        """``tried_s``: what 1, 2, ... tokens took in a trial, to ``LONGEST_WITH_DRAFT`` at most.

        Only their proportions count.
        """
        self._seconds = list(tried_s)
        self._scaled = False

    def took(self, tokens: int, seconds: float) -> None:
        """Counts a pass. One that was held up, by other work on the machine, counts for twice its mean at most."""
        if tokens > len(self._seconds):
            return
        if not self._scaled:
            scale = seconds / self._seconds[tokens - 1]
            self._seconds, self._scaled = [each * scale for each in self._seconds], True
        mean = self._seconds[tokens - 1]
        self._seconds[tokens - 1] += 0.1 * (min(seconds, 2 * mean) - mean)

    def seconds(self, tokens: int) -> float:
        """Returns the seconds of a pass of ``tokens``; infinite for more than were tried.

        A pass takes no longer than one of more tokens: where it seems so, it was held up.
        """
        return min(self._seconds[tokens - 1 :], default=inf)


class Drafts:
    """The guesses of one completion. Without ``times`` it makes none."""

    def __init__(self, prompt: Sequence[int], earlier: Earlier, times: PassTimes | None) -> None:
        self._times = times
        self._earlier = earlier
        self._here = Phrases()
        self._right = DOUBT / 2
        self._made = DOUBT
        self._guess: Sequence[int] = ()
        if times is not None:
            self._here.extend(prompt)

    def learn(self, new: Sequence[int]) -> None:
        """Takes the tokens that were written: one that was drawn, and those that could only follow."""
        if self._times is None:
            return
        if self._guess:
            # What was guessed and not read counts, too: so the chance is known without paying for it.
            self._right = self._right * FADING + (self._guess[0] == new[0])
            self._made = self._made * FADING + 1
        written = len(new)
        self._guess = self._guess[written:] if list(self._guess[:written]) == list(new) else ()
        self._here.extend(new)

    def next(self, pending: int, allowed: Callable[[Sequence[int]], Sequence[int]], room: int) -> Sequence[int]:
        """Returns the tokens to read after ``pending`` others, at most ``room``; often none.

        ``allowed`` returns as much of a guess as the grammar allows.
        """
        if self._times is None:
            return ()
        last = self._here.ids[-LONGEST_MATCH:]
        here, guess = self._here.following(last)
        before, other = self._earlier.phrases.following(last)
        self._guess = allowed((other if before > here else guess)[:room])
        return self._guess[: self._worth(pending, self._times)]

    def _worth(self, pending: int, times: PassTimes) -> int:
        """Returns the length of draft with which a written token takes least time."""
        chance = self._right / self._made
        best, least_s = 0, times.seconds(pending)
        if least_s == inf:
            return 0
        tokens = likely = 1.0
        for length in range(1, len(self._guess) + 1):
            likely *= chance
            tokens += likely
            each_s = times.seconds(pending + length) / tokens
            if each_s < least_s:
                best, least_s = length, each_s
        return best
