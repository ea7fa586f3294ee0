"""Downloads models in the background of this process, one after the other; users can watch, pause and resume them.

A person who closes the page, or the program, loses nothing: the part of a model that is here is on disk (``hub``), and
the next ``begin`` goes on from there.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from conductor_core.inference.errors import InferenceError
from conductor_core.inference.source import HUB_ID, cached_folder

State = Literal["absent", "waiting", "running", "paused", "here", "failed"]
_RATE_OVER_S = 5.0


@dataclass(frozen=True)
class Download:
    """The progress of a model's download.

    Attributes:
        here_bytes, all_bytes: bytes of its weights; ``all_bytes`` is 0 if only the hub knows and was not asked yet.
        bytes_per_s: the rate of the last seconds; 0 while nothing comes.
        reason: a sentence that says why it failed and what to do.
    """

    ref: str
    state: State
    here_bytes: int = 0
    all_bytes: int = 0
    bytes_per_s: float = 0.0
    reason: str = ""


class _Stopped(Exception):
    """Ends a download that somebody paused."""


class _Job:
    def __init__(self, ref: str) -> None:
        self.ref = ref
        self.state: State = "waiting"
        self.reason = ""
        self.here_bytes = self.all_bytes = 0
        self.stop = threading.Event()
        self._seen: deque[tuple[float, int]] = deque()

    def told(self, here_bytes: int, all_bytes: int) -> None:
        """Notes the bytes that are here. Raises: _Stopped after a pause."""
        self.here_bytes, self.all_bytes = here_bytes, all_bytes
        now_s = time.monotonic()
        self._seen.append((now_s, here_bytes))
        while self._seen[0][0] < now_s - _RATE_OVER_S:
            self._seen.popleft()
        if self.stop.is_set():
            raise _Stopped

    def shown(self) -> Download:
        seen = list(self._seen)
        took_s = seen[-1][0] - seen[0][0] if seen else 0.0
        # A hub that sends nothing lets the thread hear of a pause only at its next byte, or when it gives up.
        state = "paused" if self.state == "running" and self.stop.is_set() else self.state
        rate = (seen[-1][1] - seen[0][1]) / took_s if took_s and state == "running" else 0.0
        return Download(self.ref, state, self.here_bytes, self.all_bytes, rate, self.reason)


class Downloads:
    """See the module. Any thread may use it. ``download`` takes the place of ``hub.download`` in tests."""

    def __init__(self, download: Callable[[str, Callable[[int, int], None]], object] | None = None) -> None:
        self._download = download
        self._jobs: dict[str, _Job] = {}
        self._queue: deque[_Job] = deque()
        self._lock = threading.Lock()
        self._at_work = False

    def begin(self, refs: Sequence[str]) -> None:
        """Downloads those of ``refs`` (hub ids) that are not here, in their order. Returns at once."""
        with self._lock:
            for ref in refs:
                job = self._jobs.get(ref)
                if cached_folder(ref) is not None:
                    continue
                if job is not None and job.state in ("waiting", "running"):
                    job.stop.clear()
                    continue
                self._jobs[ref] = job = _Job(ref)
                self._queue.append(job)
            if self._queue and not self._at_work:
                self._at_work = True
                threading.Thread(target=self._work, name="downloads", daemon=True).start()

    def pause(self, refs: Sequence[str]) -> None:
        """Stops those of ``refs`` that wait or run; they are ``paused`` at once. ``begin`` goes on with them."""
        with self._lock:
            for job in (self._jobs[ref] for ref in refs if ref in self._jobs):
                job.stop.set()
                if job.state == "waiting":
                    self._queue.remove(job)
                    job.state = "paused"

    def state(self, ref: str) -> Download:
        """Returns the progress of ``ref``, whoever began with it. A part that an ended program left is ``paused``."""
        from conductor_core.inference.hub import partly_here_bytes

        with self._lock:
            job = self._jobs.get(ref)
            shown = job.shown() if job is not None else Download(ref, "absent")
        if shown.state in ("waiting", "running"):
            return shown
        if HUB_ID.fullmatch(ref) and cached_folder(ref) is not None:
            return Download(ref, "here", shown.all_bytes, shown.all_bytes)
        if shown.state == "absent" and (here := partly_here_bytes(ref)):
            return Download(ref, "paused", here)
        return shown

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._queue:
                    self._at_work = False
                    return
                job = self._queue.popleft()
                job.state = "running"
            state, reason = self._run_job(job)
            with self._lock:
                if state == "paused" and not job.stop.is_set():
                    # Somebody began it again before the pause was heard.
                    job.state = "waiting"
                    self._queue.appendleft(job)
                else:
                    job.state, job.reason = state, reason

    def _run_job(self, job: _Job) -> tuple[State, str]:
        from conductor_core.inference import hub

        try:
            (self._download or hub.download)(job.ref, job.told)
        except _Stopped:
            return "paused", ""
        except InferenceError as error:
            return "failed", str(error)
        except Exception as error:  # noqa: BLE001 the thread has nobody above it: the page must say it
            return "failed", f"{job.ref} could not be downloaded: {type(error).__name__}: {error}"
        return "here", ""


_downloads = Downloads()


def downloads() -> Downloads:
    """Returns the downloads of this process."""
    return _downloads
