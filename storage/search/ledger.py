"""The egress ledger: which provider and host received which text, by calls of workers and of the Conductor."""

import sqlite3
from datetime import datetime
from typing import Any

from conductor_core.workflow.model import Frozen
from storage.encoding import count_of, read_time
from storage.search.filters import Filters
from storage.search.hits import matching_ids
from storage.search.query import Words

_MOST_TEXTS = 20_000
_CALLS = "FROM search_calls c CROSS JOIN search_runs s ON s.run = c.run CROSS JOIN runs r ON r.run_id = s.run_id"
_SUMS = (
    "c.provider, c.host, c.simulated, count(*), sum(c.ended = 'failed'), count(DISTINCT c.run), "
    f"{count_of('c.messages')}, {count_of('c.images')}, "
    "min(c.at_utc), max(c.at_utc), group_concat(DISTINCT c.agent)"
)


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
    first_utc: datetime | None
    last_utc: datetime | None
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
        purpose: ``step`` or ``plan``. how, ended: as in ``conductor_core.run.egress.Call``.
        imported: the run came as a file, and only that file says that the call was made.
    """

    call_id: int
    run_id: str
    event: int
    at_utc: datetime | None
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
    files = 0
    if not filters.imported:
        left_out = f"SELECT count(DISTINCT c.run) {_CALLS} WHERE {condition} AND c.ended <> 'announced' AND r.imported"
        ((files,),) = connection.execute(left_out, bound).fetchall()
        condition += " AND NOT r.imported"
    query = (
        f"SELECT {_SUMS} {_CALLS} WHERE {condition} AND c.ended <> 'announced' "
        "GROUP BY c.provider, c.host, c.simulated ORDER BY count(*) DESC, c.provider, c.host"
    )
    receivers = tuple(
        Receiver(
            provider=provider,
            host=host,
            simulated=bool(simulated),
            calls=calls,
            failed=failed,
            runs=runs,
            messages=messages,
            images=images,
            first_utc=read_time(first),
            last_utc=read_time(last),
            agents=str(agents).replace(",", ", "),
        )
        for provider, host, simulated, calls, failed, runs, messages, images, first, last, agents in connection.execute(
            query, bound
        ).fetchall()
    )
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
    condition += "" if filters.imported else " AND NOT r.imported"
    if receiver is not None:
        condition += " AND c.provider = :provider AND c.host = :host"
        bound |= {"provider": receiver[0], "host": receiver[1]}
    columns = (
        "c.id, r.run_id, c.event, c.at_utc, c.purpose, c.path, c.agent, c.provider, c.host, c.simulated, c.how, "
        "c.ended, c.messages, c.images, c.input_tokens, c.output_tokens, c.cost_usd, r.imported"
    )
    if before is not None:
        condition += " AND (c.event, c.id) < (SELECT event, id FROM search_calls WHERE id = :before)"
    query = f"SELECT {columns} {_CALLS} WHERE {condition} ORDER BY c.event DESC, c.id DESC LIMIT :limit"
    bound |= {"before": before, "limit": limit}
    names = list(LedgerCall.model_fields)
    return [
        LedgerCall(**dict(zip(names, row, strict=True)) | {"at_utc": read_time(row[3])})
        for row in connection.execute(query, bound).fetchall()
    ]


def _condition(
    connection: sqlite3.Connection, words: Words | None, filters: Filters
) -> tuple[str, dict[str, Any], bool]:
    condition, bound = filters.condition()
    if words is None:
        return condition, bound, False
    ids, more = matching_ids(connection, words, filters, _MOST_TEXTS)
    places = "FROM json_each(:texts) j CROSS JOIN search_places p ON p.text_id = j.value WHERE p.field"
    # Calls of one event have its messages in common, and each agent its own parameters.
    condition += (
        f" AND (c.purpose <> 'traces' AND c.event IN (SELECT p.event {places} = 'sent') "
        f"OR (c.event, c.agent) IN (SELECT p.event, p.agent {places} IN ('parameter', 'traced')))"
    )
    return condition, bound | {"texts": str(ids)}, more
