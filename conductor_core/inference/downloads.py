"""Downloads models in the background of this process, one after the other; users can watch, pause and resume them.

A person who closes the page, or the program, loses nothing: the part of a model that is here is on disk (``hub``), and
the next ``begin`` goes on from there.

A download is named by a hub id, by ``owner/name:TAG`` for a GGUF file of the hub, or, of the base of ``small``, by the
path where it will lie.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Literal

from conductor_core.inference import small_base
from conductor_core.inference.found import cached_gguf
from conductor_core.inference.generation import InferenceError
from conductor_core.inference.source import GGUF_REF, HUB_ID, cached_folder, hub_cache

State = Literal["absent", "waiting", "running", "paused", "here", "failed"]
_RATE_OVER_S = 5.0


@dataclass(frozen=True)
class Download:
    """The progress of a model's download.

    Attributes:
        here_bytes, all_bytes: bytes of its weights; ``all_bytes`` is 0 if only the hub knows and was not asked yet.
        bytes_per_s: the rate of the last seconds; 0 while nothing comes.
        reason: a sentence that says why it failed and what to do.
        elsewhere: whether another program on this machine downloads it, which cannot be paused here.
    """

    ref: str
    state: State
    here_bytes: int = 0
    all_bytes: int = 0
    bytes_per_s: float = 0.0
    reason: str = ""
    elsewhere: bool = False

    @property
    def moving(self) -> bool:
        return self.state in ("waiting", "running")


class _Stopped(Exception):
    """Ends a download that somebody paused."""


class _Job:
    def __init__(self, ref: str, before: "_Job | None" = None) -> None:
        """``before``: the job of an earlier try, whose bytes are here."""
        self.ref = ref
        self.state: State = "waiting"
        self.reason = ""
        self.discarded = False
        self.here_bytes: int = 0 if before is None else before.here_bytes
        self.all_bytes: int = 0 if before is None else before.all_bytes
        self.stop = threading.Event()
        self._seen: deque[tuple[float, int]] = deque()

    def report(self, here_bytes: int, all_bytes: int) -> None:
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
        if self.discarded or state == "absent":
            return Download(self.ref, "absent", 0, self.all_bytes)
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
        """Downloads those of ``refs`` that are not here, in their order. Returns at once."""
        with self._lock:
            for ref in refs:
                job = self._jobs.get(ref)
                if is_here(ref):
                    continue
                if job is not None and job.state in ("waiting", "running"):
                    job.stop.clear()
                    if job.discarded:  # its part goes, or is gone; where it is not, the next bytes say what is here
                        job.discarded, job.here_bytes = False, 0
                    continue
                self._jobs[ref] = job = _Job(ref, job)
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

    def cancel(self, ref: str) -> None:
        """Stops a download and deletes its part: at once, or as soon as the thread hears of it.

        Raises: ModelUnavailable if the part cannot be deleted.
        """
        self.pause([ref])
        with self._lock:
            job = self._jobs.get(ref)
            if job is not None and job.state == "running":
                job.discarded = True
                return
            self._jobs.pop(ref, None)
        _discard(ref)

    def forget(self, ref: str) -> None:
        """Forgets how a download went that is over: its model was deleted."""
        with self._lock:
            if ref in self._jobs and self._jobs[ref].state not in ("waiting", "running"):
                del self._jobs[ref]

    def state(self, ref: str) -> Download:
        """Returns the progress of ``ref``, whoever began with it. A part that an ended program left is ``paused``."""
        with self._lock:
            job = self._jobs.get(ref)
            shown = job.shown() if job is not None else Download(ref, "absent")
        if shown.moving or (job is not None and job.discarded):
            return shown
        if is_here(ref):
            return Download(ref, "here", shown.all_bytes, shown.all_bytes)
        if shown.state == "here":  # it was deleted since
            shown = Download(ref, "absent")
        here, elsewhere = _part_of(ref)
        if shown.state == "failed":
            return replace(shown, here_bytes=here)
        if shown.state == "absent" and (here or elsewhere):
            return Download(ref, "running" if elsewhere else "paused", here, elsewhere=elsewhere)
        return shown

    def refs(self) -> list[str]:
        """Returns what was begun in this process."""
        with self._lock:
            return list(self._jobs)

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._queue:
                    self._at_work = False
                    return
                job = self._queue.popleft()
                job.state = "running"
            state, reason = self._run_job(job)
            if job.discarded and state != "here":
                state, reason = "absent", ""
                try:
                    _discard(job.ref)
                except InferenceError as error:
                    state, reason = "failed", str(error)
            with self._lock:
                if state == "absent":
                    job.here_bytes = 0
                    # Somebody began it again while its part was deleted, and paused it perhaps.
                    state = "absent" if job.discarded else "paused"
                job.discarded = False
                if state in ("paused", "absent") and not job.stop.is_set():
                    # Somebody began it again before the pause was heard.
                    job.state = "waiting"
                    self._queue.appendleft(job)
                else:
                    job.state, job.reason = state, reason

    def _run_job(self, job: _Job) -> tuple[State, str]:
        try:
            (self._download or fetch)(job.ref, job.report)
        except _Stopped:
            return "paused", ""
        except InferenceError as error:
            return "failed", str(error)
        except Exception as error:  # noqa: BLE001 the thread has nobody above it: the page must say it
            return "failed", f"{job.ref} could not be downloaded: {type(error).__name__}: {error}"
        return "here", ""


def fetch(ref: str, notify: Callable[[int, int], None]) -> Path:
    """Downloads what is not here of ``ref``, and returns where it lies. Blocks. See ``hub.download``."""
    if _is_base(ref):
        return small_base.fetch(Path(ref).parent, notify)
    # When used: it brings in the hub's client.
    from conductor_core.inference import hub

    return hub.download(ref, notify)


def is_here(ref: str) -> bool:
    if _is_base(ref):
        return small_base.small_base(Path(ref).parent) is not None
    if GGUF_REF.fullmatch(ref):
        return cached_gguf(ref, hub_cache()) is not None
    return cached_folder(ref) is not None


def _is_base(ref: str) -> bool:
    return ref.endswith(f"/{small_base.NAME}")


def _part_of(ref: str) -> tuple[int, bool]:
    """Returns the bytes of a stopped download that are here, and whether another program goes on with it."""
    from conductor_core.inference.hub import is_downloaded_elsewhere, partly_here_bytes

    if _is_base(ref):
        return 0, small_base.is_fetched_elsewhere(Path(ref).parent)
    hub_id = ref.partition(":")[0]
    if not HUB_ID.fullmatch(hub_id) or not (here := partly_here_bytes(hub_id)):
        return 0, False
    return here, is_downloaded_elsewhere(hub_id)


def _discard(ref: str) -> None:
    from conductor_core.inference.hub import discard_part

    if _part_of(ref)[0]:
        discard_part(ref.partition(":")[0])


@cache
def downloads() -> Downloads:
    """Returns the downloads of this process."""
    return Downloads()
