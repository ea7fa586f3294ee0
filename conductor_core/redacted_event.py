"""The event that notes what was taken out of a record before it was stored."""

from typing import Literal

from pydantic import PositiveInt

from conductor_core.event_base import RunEvent
from conductor_core.workflow.model import Frozen


class TakenOut(Frozen):
    """Passages of one kind.

    Attributes:
        what: ``secrets`` are configured keys; else as in ``conductor_core.sensitive``.
        count: how many there were.
        digests: of each, in order, by a key that is not in the database. Empty if no digests are asked for.
    """

    what: Literal["secrets", "keys", "cards", "mail", "phones", "names"]
    count: PositiveInt
    digests: tuple[str, ...] = ()


class TextRedacted(RunEvent):
    """Passages were hidden in another event, which follows; in ``run.created``, which is before it.

    ``of``: the kind of that event. Streamed text is counted once, in the event that ends it.
    """

    kind: Literal["text.redacted"] = "text.redacted"
    of: str
    taken_out: tuple[TakenOut, ...]
