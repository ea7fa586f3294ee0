"""What an auditor asks of the index: which provider and host received which text; what it cost; what failed."""

import sqlite3
from contextlib import suppress
from typing import Annotated, Any

from pydantic import BeforeValidator

from conductor_core.run.actor import Actor
from conductor_core.workflow.model import Frozen
from storage.encoding import Moment, Text, count_of, read_caller, read_models
from storage.search.filters import Filters, Words
from storage.search.hits import Texts
from storage.search.reading import LEFT

_MOST_TEXTS = 20_000
_CALLS = "FROM search_calls c CROSS JOIN search_runs s ON s.run = c.run CROSS JOIN runs r ON r.run_id = s.run_id"
_SUMS = (
    "c.provider, c.host, c.simulated, count(*), sum(c.ended = 'failed'), count(DISTINCT c.run), "
    f"{count_of('c.messages')}, {count_of('c.images')}, "
    "min(c.at_utc), max(c.at_utc), replace(group_concat(DISTINCT c.agent), ',', ', ')"
)
_OF_RUN = {"call_id": "c.id", "run_id": "r.run_id", "imported": "r.imported"}


class Receiver(Frozen):
    """A server that was sent something, or that was sent a text that holds the words.

    Attributes:
        host: empty: this process. failed: how many of the calls failed. agents: who was asked there, as one text.
        messages: how many, over all calls. images: how many of their parts were images, whose content is not searched.
    """

    provider: str
    host: str
    simulated: bool
    calls: int
    failed: int
    runs: int
    messages: int
    images: int
    first_utc: Moment
    last_utc: Moment
    agents: str

    @property
    def name(self) -> str:
        return f"{self.provider} · {self.host}" if self.host else f"{self.provider} · this process"


class Receivers(Frozen):
    """Attributes:
    more: only the newest texts with the words were looked at.
    of_files: whether the runs are imported ones, of which only their files say what was sent.
    files: how many imported runs were left out whose files say that such a text was sent.
    from_events: whether the events were read, because the index has nobody.
    """

    receivers: tuple[Receiver, ...]
    more: bool = False
    of_files: bool = False
    files: int = 0
    from_events: bool = False

    @property
    def in_words(self) -> tuple[str, ...]:
        """Returns what is to be said beside the receivers, in sentences."""
        said = []
        if not self.receivers:
            by = "the events themselves, read one by one" if self.from_events else "the index"
            said.append(f"By {by}: no server received such a text.")
        if self.of_files and self.receivers:
            said.append("Imported runs are among these: of them, only the imported files say what was sent.")
        if self.files:
            runs = "1 imported run is" if self.files == 1 else f"{self.files:,} imported runs are"
            said.append(f"{runs} left out: only the file says what was sent. The filter origin shows it.")
        return tuple(said)


class LedgerCall(Frozen):
    """A call in the ledger.

    Attributes:
        call_id: the cursor of the next page. event: sequence of the event that holds the messages.
        purpose: ``step``, ``plan``, ``tool`` or ``traces``. how, ended: as in ``conductor_core.run.egress.Call``.
        imported: the run came as a file, and only that file says that the call was made.
    """

    call_id: int
    run_id: str
    event: int
    at_utc: Moment
    purpose: str
    path: str
    agent: str
    provider: str
    host: str
    simulated: bool
    how: str
    ended: str
    messages: int
    images: int
    input_tokens: int
    output_tokens: int
    cost_usd: float | None
    imported: bool


def read_receivers(connection: sqlite3.Connection, words: Words | None, filters: Filters) -> Receivers:
    """Returns each server that was sent anything, or with ``words`` a text that holds them; most calls first.

    Calls that were only announced do not count: no event shows that they were made.
    """
    condition, bound, more = _condition(connection, words, filters)
    condition += " AND c.ended <> 'announced'"
    files = 0
    if not filters.imported:
        left_out = f"SELECT count(DISTINCT c.run) {_CALLS} WHERE {condition} AND r.imported"
        ((files,),) = connection.execute(left_out, bound).fetchall()
    query = (
        f"SELECT {_SUMS} {_CALLS} WHERE {condition}{filters.own} "
        "GROUP BY c.provider, c.host, c.simulated ORDER BY count(*) DESC, c.provider, c.host"
    )
    receivers = tuple(read_models(Receiver, connection, query, bound))
    return Receivers(receivers=receivers, more=more, files=files, of_files=filters.imported)


def read_calls(
    connection: sqlite3.Connection,
    words: Words | None,
    filters: Filters,
    receiver: tuple[str, str] | None = None,
    before: int | None = None,
    limit: int = 20,
) -> list[LedgerCall]:
    """Returns calls, newest first by their events. ``receiver``: only those to this provider and host.

    Calls of imported runs only if these are asked for.
    """
    condition, bound, _ = _condition(connection, words, filters)
    condition += filters.own
    if receiver is not None:
        condition += " AND c.provider = :provider AND c.host = :host"
        bound |= {"provider": receiver[0], "host": receiver[1]}
    columns = ", ".join(f"{_OF_RUN.get(name, 'c.' + name)}" for name in LedgerCall.model_fields)
    if before is not None:
        condition += " AND (c.event, c.id) < (SELECT event, id FROM search_calls WHERE id = :before)"
    query = f"SELECT {columns} {_CALLS} WHERE {condition} ORDER BY c.event DESC, c.id DESC LIMIT :limit"
    return read_models(LedgerCall, connection, query, bound | {"before": before, "limit": limit})


def _condition(
    connection: sqlite3.Connection, words: Words | None, filters: Filters
) -> tuple[str, dict[str, Any], bool]:
    condition, bound = filters.condition()
    if words is None:
        return condition, bound, False
    ids, more = Texts(connection, words, filters, LEFT).ids(_MOST_TEXTS)  # that were sent to a server
    places = "FROM json_each(:texts) j CROSS JOIN search_places p ON p.text_id = j.value WHERE p.field"
    # Calls of one event and step have its messages in common, and each agent its own parameters.
    condition += (
        f" AND (c.purpose <> 'traces' AND (c.event, c.path) IN (SELECT p.event, p.path {places} = 'sent') "
        f"OR (c.event, c.agent) IN (SELECT p.event, p.agent {places} IN ('parameter', 'traced')))"
    )
    return condition, bound | {"texts": str(ids)}, more


def _read_actor(stored: object) -> Actor | None:
    with suppress(ValueError):  # damaged
        return read_caller(stored, "").actor
    return None


class Spending(Frozen):
    """What one agent used on one day for one person.

    Attributes:
        day: in UTC, as ``2026-01-31``. actor: None: it cannot be read.
        known_usd: of the calls with a price. unpriced: calls without one, also those that broke off.
    """

    day: Text
    agent: Text
    actor: Annotated[Actor | None, BeforeValidator(_read_actor)]
    simulated: bool
    calls: int
    input_tokens: int
    output_tokens: int
    known_usd: float
    unpriced: int

    @property
    def person(self) -> str:
        return "not recorded" if self.actor is None else self.actor.in_words

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens


def read_spending(connection: sqlite3.Connection, filters: Filters) -> list[Spending]:
    """Returns the sums over all calls of these runs, by day, agent and person.

    Imported runs are left out, unless they are asked for. Traces and tools are no calls of a model.
    """
    condition, bound = filters.condition()
    sums = (
        f"substr(c.at_utc, 1, 10), c.agent, r.actor, c.simulated, count(*), {count_of('c.input_tokens')}, "
        f"{count_of('c.output_tokens')}, total(c.cost_usd), sum(c.cost_usd IS NULL)"
    )
    query = (
        f"SELECT {sums} {_CALLS} WHERE {condition}{filters.own} AND c.ended <> 'announced' "
        "AND c.purpose NOT IN ('traces', 'tool') "
        "GROUP BY substr(c.at_utc, 1, 10), c.agent, r.actor, c.simulated ORDER BY 1, 2"
    )
    return read_models(Spending, connection, query, bound)
