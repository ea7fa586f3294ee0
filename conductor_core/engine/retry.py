"""Decides when a failed call is repeated, by one rule for workers and Conductors."""

from tenacity import AsyncRetrying, RetryCallState, wait_exponential_jitter

from conductor_core.engine.state import RunState
from conductor_core.errors import CallError
from conductor_core.settings import Settings

LOADING_WAIT_S = 2.0
"""Between two calls of a server that loads its model, unless it says otherwise: loading takes seconds to minutes."""


def left_s(state: RunState) -> float | None:
    """Returns the seconds until the run's time is up; None: it has no limit."""
    most_s = state.request.limits.max_seconds
    return None if most_s is None else max(0.0, most_s - state.recorder.now_ms() / 1000)


def wait_before_retry_s(error: CallError, attempt: int, settings: Settings, left_s: float | None) -> float | None:
    """Returns the seconds to wait after failed attempt ``attempt`` (from 1); None: waiting is useless.

    It follows the provider (Retry-After), and is useless if that is longer than the run has left (``left_s``). Without
    a wait from the provider, or with one of zero, it is exponential with jitter, up to the settings' longest wait. A
    server that loads its model is asked again after a fixed time.
    """
    if _beyond(error, left_s):
        return None
    if error.retry_after_s is not None and error.retry_after_s > 0:
        return error.retry_after_s
    if error.loading:
        return min(LOADING_WAIT_S, settings.retry_max_s)
    state = RetryCallState(AsyncRetrying(), None, (), {})
    state.attempt_number = attempt
    initial_s = settings.retry_initial_s
    return wait_exponential_jitter(multiplier=initial_s, max=settings.retry_max_s, jitter=initial_s)(state)


def name_the_limit(error: CallError, state: RunState) -> None:
    """Adds to ``error`` that the run's time limit is shorter than the wait that its server asks for."""
    if error.retryable and _beyond(error, left_s(state)):
        limit_s = state.request.limits.max_seconds
        error.args = (
            f"{error}; it asks to wait {error.retry_after_s:.0f} s, and this run may take {limit_s:g} s in all: "
            "try again later, or raise the run's time limit (max_seconds)",
        )


def _beyond(error: CallError, left_s: float | None) -> bool:
    return error.retry_after_s is not None and left_s is not None and error.retry_after_s >= left_s
