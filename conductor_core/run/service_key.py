"""Service keys: who may use the endpoint, and how much. Only a key's digest is kept."""

import re
from collections.abc import Iterable
from datetime import datetime
from typing import Protocol, get_args

from pydantic import Field, NonNegativeFloat, PositiveInt

from conductor_core.chat.messages import Provider
from conductor_core.errors import BadInput
from conductor_core.privacy.masking import one_line
from conductor_core.run.actor import Actor, Caller
from conductor_core.workflow.model import Frozen

_HOST = re.compile(r"localhost(:\d{1,5})?|[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)+(:\d{1,5})?|[0-9a-f]*(:[0-9a-f.]*){2,}")


class ServiceKey(Frozen):
    """A key, without what it is.

    Attributes:
        id: never given twice; the actor's id in records.
        models: served models that it may ask; None: all. excluded_providers: kinds or hosts of workers and Conductors
            that its requests never reach.
        usd_per_day, tokens_per_day: what its runs may spend in a day of UTC; None: no limit.
        requests_per_minute: None: no limit.
    """

    id: str
    name: str = Field(min_length=1, max_length=80)
    created_at_utc: datetime
    revoked_at_utc: datetime | None = None
    created_by: Caller = Caller()
    models: tuple[str, ...] | None = None
    excluded_providers: tuple[str, ...] = ()
    usd_per_day: NonNegativeFloat | None = None
    tokens_per_day: PositiveInt | None = None
    requests_per_minute: PositiveInt | None = None

    @property
    def actor(self) -> Actor:
        return Actor(kind="service", id=self.id, name=self.name)


def check_providers(names: Iterable[str]) -> None:
    """Raises: BadInput for a name that is neither a kind of provider nor a host: it would keep nothing out."""
    for name in names:
        if name not in get_args(Provider) and not _HOST.fullmatch(name):
            kinds = ", ".join(get_args(Provider))
            raise BadInput(
                f"no provider is called {one_line(name, limit=60)!r}: name a kind ({kinds}), or a host such as "
                "api.openai.com or 127.0.0.1:9100"
            )


class Keys(Protocol):
    """Where keys are kept. Each method blocks and raises StoreError."""

    def any(self) -> bool:
        """Whether a key was ever created, revoked ones included: then a request needs one."""

    def find(self, key: str) -> ServiceKey | None:
        """Returns the key that reads so and is not revoked, in a time that does not tell how much of it is right."""

    def current(self, key_id: str) -> ServiceKey | None:
        """Returns the key as it is now; None once it is revoked."""

    def spent_today(self, key_id: str) -> tuple[float, int]:
        """Returns the known USD and the tokens of the key's runs of this day of UTC, of ended and running ones."""
