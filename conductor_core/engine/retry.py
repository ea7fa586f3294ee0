"""When a failed call is made again: the same rule for workers and Conductors."""

from tenacity import AsyncRetrying, RetryCallState, wait_exponential_jitter

from conductor_core.engine.state import RunState
from conductor_core.errors import CallError
from conductor_core.settings import Settings

LOADING_WAIT_S = 2.0
"""Between two calls of a server that loads its model, unless it says otherwise: loading takes seconds to minutes."""


def left_s(state: RunState) -> float | None:
    """Seconds until the run's time is up; None: it has no limit."""
    most_s = state.request.limits.max_seconds
    return None if most_s is None else max(0.0, most_s - state.recorder.now_ms() / 1000)


def wait_before_retry_s(error: CallError, attempt: int, settings: Settings, left_s: float | None) -> float | None:
    """Seconds to wait after failed attempt number ``attempt`` (from 1); None: waiting is in vain.

    What the provider asked for (Retry-After), if it did: in vain if that is more than the run has left (``left_s``).
    Else exponential with jitter, at most the settings' longest wait; a server that loads its model is asked again after
    a fixed time.
    """
    if error.retry_after_s is not None:
        asked_s = max(error.retry_after_s, 0.0)
        return None if left_s is not None and asked_s >= left_s else asked_s
    if error.loading:
        return min(LOADING_WAIT_S, settings.retry_max_s)
    state = RetryCallState(AsyncRetrying(), None, (), {})
    state.attempt_number = attempt
    initial_s = settings.retry_initial_s
    return wait_exponential_jitter(multiplier=initial_s, max=settings.retry_max_s, jitter=initial_s)(state)
