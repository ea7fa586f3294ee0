"""The vocabulary of models in this process: requests, results, errors, and progress with a pace. It imports no torch.

InspectorError
└── InferenceError
    ├── ModelUnavailable    cannot be found, downloaded, trusted or held in memory
    │   ├── ModelNotHere        is not on this machine
    │   └── Unreachable         no hub or package index answers, or their use is forbidden
    ├── PromptTooLong       more tokens than the model's context has room for
    └── ProcessEnded        the process that runs the model ended in the middle of an answer; another is started

The errors are those of a model as a Conductor and as a worker. ``Meter`` and ``WritingMeter`` turn counts of bytes and
tokens into a pace and an estimate of the time left.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from pydantic import Field

from conductor_core.chat.messages import FinishReason, Message, Sampling, TokenChoice, Usage
from conductor_core.chat.progress import Notify, Phase, Progress
from conductor_core.errors import InspectorError
from conductor_core.workflow.model import Frozen


@dataclass(frozen=True)
class Generation:
    """One completion.

    Attributes:
        prompt: messages for the model's own chat template, or a text taken as it is.
        static_messages: how many leading messages are the same in many calls; the model keeps their attention cache.
        grammar: GBNF text with a rule ``root`` that the completion will match, or None.
        thinking: whether a hybrid model is asked to think before it answers.
        keep_choices: whether to note which other tokens were likely.
        answer_begins: a text with which what is asked for begins: before it the model thinks. None: it begins at once.
        usual_tokens: how long such completions are until some were written; None: they are not alike.
    """

    prompt: str | tuple[Message, ...]
    max_tokens: int
    sampling: Sampling = field(default_factory=Sampling)
    seed: int = 0
    static_messages: int = 0
    grammar: str | None = None
    thinking: bool = False
    keep_choices: bool = False
    answer_begins: str | None = None
    usual_tokens: int | None = None


@dataclass(frozen=True)
class Done:
    """The end of a completion. ``finish_reason`` ``length``: cut off by ``max_tokens`` or the model's context."""

    finish_reason: FinishReason
    usage: Usage
    choices: tuple[TokenChoice, ...] = ()


@dataclass(frozen=True, eq=False)
class Call:
    """A completion that somebody waits for.

    ``notify`` takes its pieces, and at last ``Done`` or what went wrong, unless it was cancelled; ``progress`` takes
    how far it is.
    """

    generation: Generation
    notify: Callable[[str | Done | Exception], None]
    cancelled: threading.Event
    progress: Notify


class IdleTimer:
    """Calls ``leave`` once a model was idle for some time. ``leave`` finds out whether somebody uses it again."""

    def __init__(self, leave: Callable[[], None]) -> None:
        self._leave = leave
        self._timer: threading.Timer | None = None

    def begin(self, idle_s: float | None) -> None:
        """Counts from now on; None: the model stays. The caller holds a lock of its own."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if idle_s is None else threading.Timer(idle_s, self._leave)
        if self._timer is not None:
            self._timer.daemon = True
            self._timer.start()


# Errors.


class InferenceError(InspectorError):
    pass


class ModelUnavailable(InferenceError):
    pass


class ModelNotHere(ModelUnavailable):
    pass


class Unreachable(ModelUnavailable):
    pass


class PromptTooLong(InferenceError):
    pass


class ProcessEnded(InferenceError):
    pass


class Interrupted(Exception):
    """Nobody waits for the model any more. No failure, so no InspectorError: whoever starts the work catches it."""


# Progress.

REPORT_EVERY_S = 0.25


def sparingly(notify: Notify | None) -> Notify:
    """Returns what tells ``notify`` at most every ``REPORT_EVERY_S``, but always the beginning and end of a phase."""
    last: list[tuple[str, float]] = []

    def tell(made: Progress) -> None:
        now_s = time.monotonic()
        ends = not made.writes and made.done >= made.total
        lately = bool(last) and last[0][0] == made.phase and now_s - last[0][1] < REPORT_EVERY_S
        if notify is None or (lately and not ends):
            return
        last[:] = [(made.phase, now_s)]
        notify(made)

    return tell


_FIRST_TOKENS = 4
"""The first passes are slower than the later ones: they find nothing in the processor's caches."""
_TELLING_S = 0.2
"""A pace of less time than this is noise."""


class RecentPace(Frozen):
    """How quick a model was of late on this machine; None where nothing was measured.

    Attributes:
        read_per_s, written_per_s: tokens of the prompt and of completions, a second.
        written: tokens of its completions, a mean that forgets.
    """

    read_per_s: float | None = Field(None, gt=0)
    written_per_s: float | None = Field(None, gt=0)
    written: float | None = Field(None, gt=0)


class Meter:
    """Measures one phase: ``done`` of ``total``, and how quickly."""

    def __init__(self, phase: Phase, total: int, notify: Notify, *, known_per_s: float | None = None) -> None:
        """``known_per_s``: the pace until one is measured."""
        self._phase, self._total, self._notify = phase, total, notify
        self._known_per_s = known_per_s
        self._first: float | None = None
        self._began_s = self._clock()
        self._done = 0.0

    _clock: Callable[[], float] = staticmethod(time.monotonic)

    def at(self, done: float) -> None:
        """Tells that ``done`` is done. What was done at the first call took its time for something else."""
        if self._first is None:
            self._first, self._began_s = done, self._clock()
        self._done = done
        left_s = max(0.0, self._total - done) / self.per_s if self.per_s else None
        self._notify(
            Progress(
                phase=self._phase, done=min(int(done), self._total), total=self._total, per_s=self.per_s, left_s=left_s
            )
        )

    @property
    def measured_per_s(self) -> float | None:
        """The pace so far; None while it says nothing."""
        took_s = self._clock() - self._began_s
        return self.counted / took_s if took_s >= _TELLING_S and self.counted > 0 else None

    @property
    def counted(self) -> float:
        """What was done since the first call."""
        return self._done - (self._first or 0.0)

    @property
    def per_s(self) -> float | None:
        return self.measured_per_s or self._known_per_s


class WritingMeter:
    """Measures a completion: at most ``limit`` tokens, of which ``usual`` are expected (None: nobody knows)."""

    def __init__(self, limit: int, usual: float | None, notify: Notify, *, known_per_s: float | None = None) -> None:
        """``known_per_s``: the pace of late, for estimates until this one tells more."""
        self._limit, self.usual, self._notify = limit, usual, notify
        self._known_per_s = known_per_s
        self._began_s = time.monotonic()
        self.per_s: float | None = None

    def at(self, written: int, *, thinking: bool) -> None:
        """Tells of ``written`` tokens. The first comes with the reading of the prompt, so it has no pace."""
        took_s = time.monotonic() - self._began_s
        self.per_s = (written - 1) / took_s if written > 1 and took_s > 0 else None
        left_s, pace = None, self.per_s if written > _FIRST_TOKENS else self._known_per_s
        if pace and self.usual is not None and written < self.usual:
            left_s = (min(self.usual, self._limit) - written) / pace
        self._notify(
            Progress(
                phase="thinking" if thinking else "writing",
                done=written, total=self._limit, per_s=self.per_s, left_s=left_s,
            )
        )  # fmt: skip


def mean_of_late(before: float | None, now: float) -> float:
    """Returns a mean in which the newest value counts a third."""
    return now if before is None else (2 * before + now) / 3
