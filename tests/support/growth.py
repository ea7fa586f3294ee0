"""How the work of a function grows with its input: for code that hostile text must not slow down by its square."""

import time
import timeit
from collections.abc import Callable

TIMES = 8
_NOISE_S = 0.02


def grows_with_length(work: Callable[[str], object], piece: str, characters: int) -> bool:
    """Returns whether ``TIMES`` as many characters of repeated pieces take at most three times that much longer.

    The quickest of several counts: collecting the garbage of a whole suite takes longer than the work.
    """

    def least_s(length: int) -> float:
        text = piece * (length // len(piece))
        return min(timeit.repeat(lambda: work(text), timer=time.thread_time, number=1, repeat=3))

    return least_s(TIMES * characters) < 3 * TIMES * least_s(characters) + _NOISE_S
