"""Who is let in, and how much: service keys, what each may spend in a minute and in a day, and a place for its run.

While no key exists, only programs of this machine are answered. A key is looked up for each request. While a response
of it is being made, it is looked up every two seconds instead, so that a revoked one stops soon.
"""

import asyncio
import hashlib
import ipaddress
import re
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from time import monotonic
from typing import Any, NamedTuple, TypeVar

from starlette.requests import ClientDisconnect, HTTPConnection
from starlette.types import Receive

from conductor_core.engine.budgets import CostCap
from conductor_core.errors import StoreError
from conductor_core.privacy.masking import holds_a_key
from conductor_core.providers.model_files import is_secret_name
from conductor_core.run.actor import Caller, local_caller
from conductor_core.run.service_key import Keys, ServiceKey
from conductor_core.serving.errors import ApiError, until_midnight_s

AT_ONCE = 600
"""Responses that are made at once; further ones wait."""
QUEUED = 600
"""Requests that wait for that; further ones are refused."""
TOO_MUCH_AT_ONCE = "too_much_at_once"
MOST_HELD_BYTES = 2**30
"""Of all requests together until they are answered; what would be more is refused as it comes."""
RETRY_S = 5.0
"""When to come again after that."""
REVOKED_AFTER_S = 2.0
"""How often a key in use is looked up again."""
_MINUTE_S = 60.0
_LONGEST_KEY = 512
_FORM = re.compile(r"\bci-[A-Za-z0-9_-]{20,}")
"""Of the keys that ``conductor keys create`` makes."""
_HOPS = ("x-forwarded-for", "x-real-ip", "cf-connecting-ip", "true-client-ip")
"""Where a reverse proxy says on whose behalf it asks."""
_NEEDS_KEY = (
    "A valid service key is needed: send it as Authorization: Bearer KEY, or as x-api-key. On the machine of this "
    "server, `conductor keys create NAME` makes one."
)


def needs_key() -> ApiError:
    """The same for a missing, a wrong and a revoked key, so that nobody learns which it was."""
    return ApiError(401, _NEEDS_KEY, code="invalid_api_key")


class Held:
    """The bytes of one request that came so far, among those of all."""

    def __init__(self, admission: "Admission") -> None:
        self._admission = admission
        self.bytes = 0

    def add(self, count: int) -> None:
        """Raises: ApiError 503 if there are too many of all requests together."""
        self.bytes += count
        self._admission.held_bytes += count
        if self._admission.held_bytes > MOST_HELD_BYTES:
            message = "The requests that are being answered are too large together; ask again in a few seconds."
            raise ApiError(503, message, code=TOO_MUCH_AT_ONCE, retry_after_s=RETRY_S)


@dataclass(frozen=True, slots=True)
class Client:
    """Who asks. ``key`` None: a program of this machine, while no key exists."""

    key: ServiceKey | None
    caller: Caller


class Spent(NamedTuple):
    usd: float
    tokens: int


@dataclass(slots=True)
class _Use:
    """What is going on with one key.

    Attributes:
        asked: when its requests of the last minute came.
        going: responses that are being made. cap: what they and all others of ``day`` may spend together.
        revoked: set once the key is, while ``going``.
    """

    asked: deque[float] = field(default_factory=deque)
    going: int = 0
    day: date | None = None
    cap: CostCap | None = None
    revoked: asyncio.Event = field(default_factory=asyncio.Event)
    watch: "asyncio.Task[None] | None" = None


@dataclass(frozen=True, slots=True)
class Allowance:
    """What one response may spend with others, and what says that its key was revoked."""

    cap: CostCap | None
    revoked: asyncio.Event


class Admission:
    """Lets requests in. Belongs to one event loop.

    Attributes:
        held_bytes: of all requests that are being answered.
    """

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._needed = False
        self._uses: dict[str, _Use] = {}
        self._found: dict[bytes, ServiceKey] = {}
        self._places = asyncio.Semaphore(AT_ONCE)
        self._waiting = 0
        self.held_bytes = 0

    async def client(self, request: HTTPConnection) -> Client:
        """Raises: ApiError 401; StoreError."""
        # A key that exists is never forgotten, so this is looked up until there is one.
        self._needed = self._needed or await asyncio.to_thread(self._keys.any)
        if not self._needed:
            if not _is_of_this_machine(request):
                raise needs_key()
            return Client(None, local_caller("api"))
        for sent in _sent_keys(request):
            digest = hashlib.sha256(sent.encode(errors="surrogatepass")).digest()
            key = self._watched(digest) or await asyncio.to_thread(self._keys.find, sent)
            if key is not None:
                self._found[digest] = key
                return Client(key, Caller(actor=key.actor, door="api"))
        raise needs_key()

    def _watched(self, digest: bytes) -> ServiceKey | None:
        """Returns the key with this digest if its watch looks it up again and again anyway."""
        key = self._found.get(digest)
        use = None if key is None else self._uses.get(key.id)
        return None if use is None or use.watch is None or use.revoked.is_set() else key

    def count(self, client: Client) -> None:
        """Counts one request of a key. Raises: ApiError 429 if it had too many in the last minute."""
        if client.key is None or (most := client.key.requests_per_minute) is None:
            return
        asked, now = self._use(client.key).asked, monotonic()
        while asked and asked[0] <= now - _MINUTE_S:
            asked.popleft()
        if len(asked) >= most:
            message = f"This key may ask {most} times a minute; ask again later."
            raise ApiError(429, message, code="rate_limit_exceeded", retry_after_s=asked[0] + _MINUTE_S - now)
        asked.append(now)

    @property
    def full(self) -> bool:
        """Whether ``enter`` would wait, or refuse."""
        return self._places.locked()

    async def enter(self) -> None:
        """Waits for a place among the responses that are made at once. Raises: ApiError 503."""
        if self._places.locked() and self._waiting >= QUEUED:
            message = "Too many requests wait already; ask again in a few seconds."
            raise ApiError(503, message, code="overloaded", retry_after_s=RETRY_S)
        self._waiting += 1
        try:
            await self._places.acquire()
        finally:
            self._waiting -= 1

    def leave(self) -> None:
        self._places.release()

    @contextmanager
    def holding(self) -> Iterator[Held]:
        held = Held(self)
        try:
            yield held
        finally:
            self.held_bytes -= held.bytes

    @asynccontextmanager
    async def allowance(self, client: Client) -> AsyncIterator[Allowance]:
        """Holds what a response may spend, and watches its key. Raises: ApiError 429 if the day's limit is reached."""
        if client.key is None:
            yield Allowance(None, asyncio.Event())
            return
        key, use = client.key, self._use(client.key)
        cap = await self._cap(key, use)
        use.going += 1
        if use.watch is None:
            use.revoked = asyncio.Event()
            use.watch = asyncio.create_task(self._watch(key.id, use.revoked))
        try:
            yield Allowance(cap, use.revoked)
        finally:
            use.going -= 1
            if use.going == 0 and use.watch is not None:
                use.watch.cancel()
                use.watch = None

    def _use(self, key: ServiceKey) -> _Use:
        return self._uses.setdefault(key.id, _Use())

    async def _cap(self, key: ServiceKey, use: _Use) -> CostCap | None:
        """Returns what all runs of the key share today; None: it has no limit of a day.

        The record also knows what other processes spent, and this process's cap what is not on record yet.
        """
        if key.usd_per_day is None and key.tokens_per_day is None:
            return None
        usd, tokens = await asyncio.to_thread(self._keys.spent_today, key.id)
        today, cap = datetime.now(UTC).date(), use.cap
        if cap is not None and use.day == today:
            usd, tokens = max(usd, cap.usd), max(tokens, cap.tokens)
        if (key.usd_per_day is not None and 0 < usd >= key.usd_per_day) or (
            key.tokens_per_day is not None and tokens >= key.tokens_per_day
        ):
            raise day_is_spent()
        same_limits = cap is not None and (cap.max_usd, cap.max_tokens) == (key.usd_per_day, key.tokens_per_day)
        # A cap that was reached lets no call through any more, not even a smaller one; but nothing of it is under way.
        if cap is None or use.day != today or use.going == 0 or cap.reached is not None or not same_limits:
            cap = CostCap(
                Spent(usd, tokens),
                max_usd=key.usd_per_day,
                max_tokens=key.tokens_per_day,
                then="ask again, or ask again tomorrow: it is what this service key may spend in a day",
            )
            use.cap, use.day = cap, today
        return cap

    async def _watch(self, key_id: str, revoked: asyncio.Event) -> None:
        while True:
            await asyncio.sleep(REVOKED_AFTER_S)
            with suppress(StoreError):  # it is locked for a moment
                if await asyncio.to_thread(self._keys.current, key_id) is None:
                    revoked.set()
                    return


def day_is_spent() -> ApiError:
    message = "This key has spent what it may spend in a day; ask again after midnight UTC."
    return ApiError(429, message, code="insufficient_quota", retry_after_s=until_midnight_s(), may_retry=False)


def holds_service_key(text: str) -> bool:
    """Whether there is, by its form, a service key in a text."""
    return _FORM.search(text) is not None


def refuse_key_in_address(request: HTTPConnection) -> None:
    """Raises: ApiError 400. Addresses are logged and kept on their way; the answer repeats nothing of it."""
    for name, value in request.query_params.multi_items():
        if is_secret_name(name) or any(holds_service_key(each) or holds_a_key(each, ()) for each in (name, value)):
            raise ApiError(
                400,
                "A key must never be part of an address: send it as Authorization: Bearer KEY, or as x-api-key. If it "
                "was a real one, revoke it.",
                code="key_in_url",
            )


def _sent_keys(request: HTTPConnection) -> list[str]:
    """Returns the keys that came in headers, at most two: some clients send one in each."""
    sent = []
    for value in request.headers.getlist("authorization"):
        scheme, _, rest = value.strip().partition(" ")
        if scheme.lower() == "bearer":
            sent.append(rest.strip())
    sent += [value.strip() for value in request.headers.getlist("x-api-key")]
    different = dict.fromkeys(each for each in sent if 0 < len(each) <= _LONGEST_KEY)
    return list(different) if len(different) <= 2 else []


def _is_of_this_machine(request: HTTPConnection) -> bool:
    """Whether a program of this machine asks, and none on behalf of another machine (a reverse proxy)."""
    if request.client is None:
        return False
    on_behalf_of = [value for name in _HOPS for value in request.headers.getlist(name)]
    if "forwarded" in request.headers or "via" in request.headers:
        return False
    hops = [hop.strip() for value in on_behalf_of for hop in value.split(",")]
    return all(map(_is_loopback, [request.client.host, *hops]))


def _is_loopback(address: str) -> bool:
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None)
    return (mapped or found).is_loopback


# Work that ends with the client's connection, or when its key is revoked.


_T = TypeVar("_T")


async def unless_left(
    work: Coroutine[Any, Any, _T],
    receive: Receive,
    allowance: Allowance,
    gone: Callable[[bool], None] = lambda revoked: None,
) -> _T:
    """Returns the result of ``work``, which is cancelled if the client leaves or its key is revoked.

    ``gone`` is told first, with whether the key was revoked. Raises: ClientDisconnect, ApiError 401.
    """
    working = asyncio.create_task(work)
    leaving, revoked = asyncio.create_task(left(receive)), asyncio.create_task(allowance.revoked.wait())
    try:
        await asyncio.wait({working, leaving, revoked}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        gone(revoked.done())
        raise needs_key() if revoked.done() else ClientDisconnect
    finally:
        await ended(working, leaving, revoked)


async def left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def ended(*tasks: "asyncio.Future[Any]") -> None:
    """Cancels tasks and waits until they are over."""
    for task in tasks:
        task.cancel()
    if going := [task for task in tasks if not task.done()]:
        await asyncio.wait(going)
    for task in tasks:
        if not task.cancelled():
            task.exception()  # heard: whoever waited for it was told
