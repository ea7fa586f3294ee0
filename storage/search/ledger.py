"""What an auditor asks of the index: which provider and host received which text; what it cost; what failed."""

import re
import sqlite3
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any

from pydantic import BeforeValidator

from conductor_core.chat.messages import images_in
from conductor_core.chat.servers import UNKNOWN_HOST
from conductor_core.errors import BadInput
from conductor_core.formats import plural
from conductor_core.run.actor import Actor
from conductor_core.run.egress import Call
from conductor_core.run.values import label
from conductor_core.workflow.model import Frozen
from storage.encoding import Moment, Text, count_of, read_caller, read_models
from storage.privacy import Vault
from storage.records import ERASED
from storage.search.filters import ANY, Filters, Words, in_utc
from storage.search.hits import Texts
from storage.search.index import statements, write
from storage.search.reading import LEFT, Record, read_record

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


# Whether a provider ever received a text, from every call of every run that is asked about, and not from the index.

Reading = Callable[[], AbstractContextManager[sqlite3.Connection]]
"""Lends a connection for each run, so that a long look holds up no checkpoint."""

_RUNS = (
    "SELECT a.run_id FROM (SELECT run_id FROM runs UNION SELECT run_id FROM events) a "
    "LEFT JOIN runs r ON r.run_id = a.run_id ORDER BY r.sequence"
)
"""Also those whose row in ``runs`` is damaged or missing, or says that they were erased: their events may be whole."""
_ERASED = "SELECT run_id FROM deletions WHERE erased UNION SELECT run_id FROM runs WHERE status = ?"
_ROWS = (
    "CREATE TABLE runs (run_id TEXT PRIMARY KEY, created_at_utc TEXT, known_usd REAL, cost_usd REAL, imported, "
    "simulated, status TEXT, task TEXT)"
)


def each_run(
    reading: Reading,
    vault: Vault | None = None,
    since_utc: datetime | None = None,
    until_utc: datetime | None = None,
    notify: Callable[[int, int], None] | None = None,
) -> Iterator[Record]:
    """Reads each run that may have begun in the period, by its own first event. Runs that were erased are left out.

    Args:
        vault: opens encrypted runs; None: they come without what is in them.
        notify: called with the runs passed and all of them.

    Raises: StoreError.
    """
    with reading() as connection:
        run_ids = [str(run_id) for (run_id,) in connection.execute(_RUNS).fetchall()]
        erased = {str(run_id) for (run_id,) in connection.execute(_ERASED, (ERASED,)).fetchall()}
    for number, run_id in enumerate(run_ids):
        with reading() as connection:
            began = _began(connection, run_id, vault) if since_utc is not None or until_utc is not None else None
            early = began is not None and since_utc is not None and began < since_utc
            late = began is not None and until_utc is not None and began >= until_utc
            record = None if early or late else read_record(connection, run_id, vault)
        if record is not None and not (record.created is None and run_id in erased):
            yield record
        if notify is not None:
            notify(number + 1, len(run_ids))


def _began(connection: sqlite3.Connection, run_id: str, vault: Vault | None) -> datetime | None:
    """Returns when a run began, by its own first event; None: nobody knows."""
    ((first,),) = connection.execute("SELECT min(sequence) FROM events WHERE run_id = ?", (run_id,)).fetchall()
    created = read_record(connection, run_id, vault, to=first or 0).created
    return None if created is None else created.at_utc


def index_of(
    reading: Reading,
    vault: Vault | None,
    words: Words | None,
    filters: Filters,
    notify: Callable[[int, int], None] | None = None,
) -> sqlite3.Connection:
    """Returns an index in memory of the runs of ``filters`` that hold the words; without words, of their calls alone.

    Close it. Raises: StoreError.
    """
    memory = sqlite3.connect(":memory:", check_same_thread=False)
    cursor = memory.cursor()
    for statement in (_ROWS, *statements()):
        cursor.execute(statement)
    for record in each_run(reading, vault, filters.since_utc, filters.until_utc, notify):
        wanted = filters.run_id in (None, record.run_id) and all(
            any(kind == has and value in (ANY, of) for has, of in record.facets)
            for kind, value in filters.values.items()
        )
        if record.created is None or not wanted:
            continue
        if words is None:
            record.texts.clear()
        cursor.execute("SAVEPOINT run")
        write(cursor, record)
        if words is not None and not _holds(cursor, record, words):
            cursor.execute("ROLLBACK TO run")
            continue
        cursor.execute("RELEASE run")
        costs = [call.cost_usd for _, call in record.calls]
        known = sum(cost or 0.0 for cost in costs)
        cost_usd = None if None in costs else known
        imported = record.created.imported is not None
        row = (record.run_id, in_utc(record.created.at_utc), known, cost_usd, imported, record.created.simulated)
        cursor.execute("INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?, '', '')", row)
    return memory


def _holds(cursor: sqlite3.Cursor, record: Record, words: Words) -> bool:
    if words.match is None:
        return True  # the texts themselves are read for such words
    query = (
        f"SELECT 1 FROM search_texts t JOIN {words.table} w ON w.rowid = t.id "  # noqa: S608  own names
        f"WHERE t.run = ? AND {words.table} MATCH ? LIMIT 1"
    )
    return bool(cursor.execute(query, (record.run, words.match)).fetchall())


_DELETED = "SELECT count(*) FROM deletions WHERE ifnull(created_at_utc >= ? AND created_at_utc < ?, true)"
_BEGINNING, _END = "0000", "9999"
MOST_LISTED = 100


class Received(Frozen):
    """A call in which the text was sent. ``ended``: as in ``conductor_core.run.egress.Call``.

    ``imported``: the run came as a file, and only that file says that the call was made.
    """

    run_id: str
    path: str
    purpose: str
    at_utc: datetime
    agent: str
    provider: str
    host: str
    ended: str
    imported: bool = False

    @property
    def in_words(self) -> str:
        """Returns what call it was, without its run and time."""
        what = "traces" if self.purpose == "traces" else f"{self.purpose} {self.path}".strip()
        said = ", says the imported file" if self.imported else ""
        return f"{what}, {self.agent} at {self.host or 'this process'}, {self.ended}{said}"


class SentTo(Frozen):
    """A server to which the text was sent: in how many calls, and how many of these failed. No host: this process."""

    provider: str
    host: str
    calls: int
    failed: int

    @property
    def in_words(self) -> str:
        where = f"at {self.host}" if self.host else "in this process"
        calls = "1 call" if self.calls == 1 else f"{self.calls:,} calls"
        failed = f"{self.failed:,} failed"
        if self.failed == self.calls:
            failed = "which failed" if self.calls == 1 else "all of which failed"
        return f"{self.provider} {where} in {calls}{f', {failed}' if self.failed else ''}"


class Receipt(Frozen):
    """The answer, and what it rests on.

    Attributes:
        provider: as it was asked for: a provider's name, a host, or a host with its port. Empty: any.
        servers: those to which the text was sent, most calls first. files: the same, as imported files say it; empty
            unless these were asked for.
        received: calls in which the text was sent, the first ``MOST_LISTED``. times: how many of our own there are.
        runs, calls, messages: what was read. to_provider: how many of the calls went there.
        images: parts of messages to the provider that are images: their content was not read.
        hidden: calls to the provider of which passages were hidden before they were stored.
        hidden_in_files: imported runs with calls to the provider, in whose files passages were hidden.
        announced: calls that would have sent the text there, but of which no event shows that they were made.
        unread: runs that cannot be read to their end, or of which it is not known when they began.
        running: runs that have not ended.
        imported: runs that came as files, of which only the file says what was sent. asked_files: whether they were
            read; they are in no figure and in no answer otherwise.
        unnamed: calls whose server the record does not name.
        deleted: runs of the period that were deleted or erased, of which nothing can be said.
    """

    provider: str
    text: str
    since_utc: datetime | None
    until_utc: datetime | None
    servers: tuple[SentTo, ...] = ()
    files: tuple[SentTo, ...] = ()
    received: tuple[Received, ...] = ()
    times: int = 0
    runs: int = 0
    calls: int = 0
    to_provider: int = 0
    messages: int = 0
    images: int = 0
    hidden: int = 0
    hidden_in_files: int = 0
    announced: int = 0
    unread: tuple[str, ...] = ()
    running: int = 0
    imported: int = 0
    asked_files: bool = False
    unnamed: int = 0
    deleted: int = 0

    @property
    def in_words(self) -> str:
        """The answer in a sentence or two."""
        if not self.asked_files:
            return self._own_words
        if not self.files:
            return f"{self._own_words} Nor does an imported file say so."
        files = "; to ".join(each.in_words for each in self.files)
        return f"{self._own_words} The imported file says that it was sent to {files}."

    @property
    def _own_words(self) -> str:
        if self.servers:
            return f"This text was sent to {'; to '.join(each.in_words for each in self.servers)}."
        if self.announced:
            return f"No call to {self._receiver} is shown to have begun that held this text."
        if not self.to_provider:
            return f"No recorded call went to {self._receiver}."
        if self.hidden:
            return f"It cannot be said: what is stored of the calls to {self._receiver} lacks hidden passages."
        return f"No recorded call to {self._receiver} held this text."

    @property
    def _receiver(self) -> str:
        return self.provider or "any server"

    @property
    def rests_on(self) -> tuple[str, ...]:
        """What was read, in sentences."""
        bounds = [
            f"{name} {at.astimezone(UTC).replace(tzinfo=None).isoformat(' ')} UTC"
            for name, at in (("from", self.since_utc), ("up to", self.until_utc))
            if at
        ]
        period = f"{' '.join(bounds)}, with all their calls, whenever these were made" if bounds else "at any time"
        return (
            f"Runs that began {period}.",
            f"Read from the events themselves: {self.runs:,} runs, {self.calls:,} calls, of which {self.to_provider:,} "
            f"went to {self._receiver} with {self.messages:,} messages.",
            "Of a call its messages, model, path and parameters; of OpenTelemetry traces all that they held.",
            "A provider is the protocol that the pool names, such as openai; the host says which server it was.",
            "Compared letter by letter, apart from case, white space and the form of signs. A call that failed "
            "counts, because nothing says how much of it arrived. Calls that were repeated or went to a fallback "
            "count, too, and so do the Conductor's.",
        )

    @property
    def _files_not_seen(self) -> list[str]:
        if not self.imported:
            return []
        runs = plural(self.imported, "imported run")
        if not self.asked_files:
            return [f"{runs}, left out: nobody carried a run out here of which only a file says what was sent."]
        said = [f"Whether what the files of {runs} say is true: nobody signed them."]
        if self.hidden_in_files:
            files = plural(self.hidden_in_files, "imported file")
            said.append(f"Passages hidden in {files} with calls to {self._receiver}; they may have held this text.")
        return said

    @property
    def not_seen(self) -> tuple[str, ...]:
        """What the answer cannot exclude, in sentences."""
        said = ["The text in other words, translated, encoded, or split over several messages or parameters."]
        calls = partial(plural, word="call")
        runs = partial(plural, word="run")
        if self.images:
            said.append(f"What {plural(self.images, 'image')} show that went to {self._receiver}.")
        if self.announced:
            said.append(
                f"{calls(self.announced)} with this text followed a failed one: no event shows whether it was made."
            )
        if self.hidden:
            said.append(
                f"{calls(self.hidden)} held passages that were hidden before they were stored, perhaps this text."
            )
        if self.unnamed:
            said.append(f"{calls(self.unnamed)} to servers that the record does not name.")
        if self.unread:
            names = ", ".join(self.unread[:5])
            said.append(f"{runs(len(self.unread))} that cannot be read to their end, or have no date: {names}.")
        if self.running:
            said.append(f"What {runs(self.running)} still send that have not ended.")
        said += self._files_not_seen
        if self.deleted:
            said.append(f"{runs(self.deleted)} of the period that were deleted or erased.")
        said.append(
            "The key and the headers of a request, which hold the name and version of this program; headers of traces, "
            "which count as keys; and the form that a Conductor's plan must have."
        )
        said.append("Evaluations, trainings, checks of servers and downloads of models: they are not runs.")
        return (*said, "What other programs sent there, or what was passed on to others.")


def receipt(
    reading: Reading,
    vault: Vault | None,
    provider: str,
    text: str,
    since_utc: datetime | None = None,
    until_utc: datetime | None = None,
    notify: Callable[[int, int], None] | None = None,
    *,
    imported: bool = False,
) -> Receipt:
    """Looks whether ``provider`` was sent ``text`` by a run that began in the period.

    Args:
        reading: lends a connection for each run, so that a long look holds up no checkpoint.
        vault: opens encrypted runs; None: they count as unread.
        provider: a provider (``openai``), a host, or a host with its port; empty: any.
        notify: called with the runs read and all of them.
        imported: also say what the files of imported runs say.

    Raises: BadInput for an empty text; StoreError.
    """
    provider, wanted = provider.strip().lower(), _plain(text)
    if not wanted:
        raise BadInput("give the text that somebody may have received")
    begin = _BEGINNING if since_utc is None else in_utc(since_utc)
    end = _END if until_utc is None else in_utc(until_utc)
    with reading() as connection:
        ((deleted,),) = connection.execute(_DELETED, (begin, end)).fetchall()
    finder = _Finder(provider, wanted, imported=imported)
    for record in each_run(reading, vault, since_utc, until_utc, notify):
        finder.at(record)
    return Receipt(
        provider=provider,
        text=text,
        since_utc=since_utc,
        until_utc=until_utc,
        servers=finder.servers(files=False),
        files=finder.servers(files=True),
        asked_files=imported,
        received=tuple(finder.received),
        unread=tuple(finder.unread),
        deleted=deleted,
        **finder.counts,
    )


class _Finder:
    def __init__(self, provider: str, wanted: str, *, imported: bool) -> None:
        self._provider = provider
        self._wanted = wanted
        self._imported = imported
        self.received: list[Received] = []
        self.unread: list[str] = []
        self._sent: dict[tuple[bool, str, str], list[str]] = {}
        self.counts: Counter[str] = Counter()

    def servers(self, *, files: bool) -> tuple[SentTo, ...]:
        """Returns those to which the text was sent, by our record or by that of ``files``."""
        found = [
            SentTo(provider=provider, host=host, calls=len(ended), failed=ended.count("failed"))
            for (of_file, provider, host), ended in self._sent.items()
            if of_file == files
        ]
        return tuple(sorted(found, key=lambda each: (-each.calls, each.provider, each.host)))

    def at(self, record: Record) -> None:
        created = record.created
        asked = [(at, call) for at, call in record.calls if self._asks_for(call.provider.lower(), call.host.lower())]
        if created is not None and created.imported is not None:
            self.counts["imported"] += 1
            if self._imported:
                self.counts["hidden_in_files"] += bool(asked and created.imported.redactions)
                for _, call in asked:
                    if call.ended != "announced" and self._holds(call):
                        self._keep(record.run_id, call, imported=True)
            return
        self.counts["runs"] += 1
        if record.fault or record.encrypted or created is None:
            self.unread.append(record.run_id)
        elif any(("status", status) in record.facets for status in ("running", "queued", "waiting")):
            self.counts["running"] += 1
        made = [call for _, call in record.calls if call.ended != "announced"]
        self.counts["calls"] += len(made)
        if created is not None:
            self.counts["unnamed"] += sum(call.host == UNKNOWN_HOST or call.provider == "unknown" for call in made)
        for at, call in asked:
            if call.ended == "announced":
                self.counts["announced"] += self._holds(call)
                continue
            self.counts["hidden"] += at in record.hidden
            self.counts["to_provider"] += 1
            self.counts["messages"] += len(call.messages)
            self.counts["images"] += sum(len(images_in(message.content)) for message in call.messages)
            if self._holds(call):
                self.counts["times"] += 1
                self._keep(record.run_id, call, imported=False)

    def _asks_for(self, provider: str, host: str) -> bool:
        return self._provider in ("", provider, host, host.rpartition(":")[0])

    def _keep(self, run_id: str, call: Call, *, imported: bool) -> None:
        self._sent.setdefault((imported, call.provider, call.host), []).append(call.ended)
        if len(self.received) < MOST_LISTED:
            fields = {name: getattr(call, name) for name in ("at_utc", "agent", "provider", "host", "ended")}
            place = {"run_id": run_id, "path": label(call.path), "purpose": call.of, "imported": imported}
            self.received.append(Received.model_validate(fields | place))

    def _holds(self, call: Call) -> bool:
        return any(self._wanted in _plain(text) for text in call.texts)


def _plain(text: str) -> str:
    return re.sub(r"\s+", " ", unicodedata.normalize("NFKC", text).casefold()).strip()
