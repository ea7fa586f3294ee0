"""Sums for an audit: tokens and cost by agent, person and day; and which failures there are, how often and where."""

import sqlite3
from itertools import islice
from typing import Any

from conductor_core.run.actor import Actor
from conductor_core.workflow.model import Frozen
from storage.encoding import count_of, read_caller, read_text
from storage.search.filters import Filters

_CALLS = "FROM search_calls c CROSS JOIN search_runs s ON s.run = c.run CROSS JOIN runs r ON r.run_id = s.run_id"
_MOST_TASKS = 3


class Spending(Frozen):
    """What one agent used on one day for one person.

    Attributes:
        day: in UTC, as ``2026-01-31``. actor: None in older records.
        known_usd: of the calls with a price. unpriced: calls without one, also those that broke off.
    """

    day: str
    agent: str
    actor: Actor | None
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


class Failure(Frozen):
    """A kind of failure: how many runs had it, how often in all, what was last said of it, and tasks that had it.

    ``run_ids``: of each of the tasks, the newest run that had it.
    """

    code: str
    runs: int
    times: int
    said: str
    tasks: tuple[str, ...]
    run_ids: tuple[str, ...]


def read_spending(connection: sqlite3.Connection, filters: Filters) -> list[Spending]:
    """Returns the sums over all calls of these runs, by day, agent and person.

    Imported runs are left out, unless they are asked for. Traces are no calls of a model.
    """
    condition, bound = filters.condition()
    condition += "" if filters.imported else " AND NOT r.imported"
    sums = (
        f"substr(c.at_utc, 1, 10), c.agent, r.actor, c.simulated, count(*), {count_of('c.input_tokens')}, "
        f"{count_of('c.output_tokens')}, total(c.cost_usd), sum(c.cost_usd IS NULL)"
    )
    query = (
        f"SELECT {sums} {_CALLS} WHERE {condition} AND c.ended <> 'announced' AND c.purpose <> 'traces' "
        "GROUP BY substr(c.at_utc, 1, 10), c.agent, r.actor, c.simulated ORDER BY 1, 2"
    )
    return [_spending(row) for row in connection.execute(query, bound).fetchall()]


def _spending(row: tuple[Any, ...]) -> Spending:
    day, agent, actor, simulated, calls, read, written, known_usd, unpriced = row
    try:
        who = read_caller(actor, "").actor
    except ValueError:  # damaged
        who = None
    return Spending(
        day=read_text(day),
        agent=read_text(agent),
        actor=who,
        simulated=bool(simulated),
        calls=calls,
        input_tokens=read,
        output_tokens=written,
        known_usd=known_usd,
        unpriced=unpriced,
    )


def read_failures(connection: sqlite3.Connection, filters: Filters) -> list[Failure]:
    """Returns the kinds of failures in these runs, the most frequent first.

    Imported runs are left out, unless they are asked for.
    """
    condition, bound = filters.condition()
    condition += "" if filters.imported else " AND NOT r.imported"
    query = (
        f"SELECT f.value, count(*), {count_of('f.times')} FROM search_facets f "  # noqa: S608  no value in it
        "CROSS JOIN search_runs s ON s.run = f.run CROSS JOIN runs r ON r.run_id = s.run_id "
        f"WHERE f.kind = 'failure' AND {condition} GROUP BY f.value ORDER BY count(*) DESC, f.value"
    )
    found = []
    for code, runs, times in connection.execute(query, bound).fetchall():
        newest = _newest(connection, code, condition, bound)
        said = _said(connection, code)
        tasks, run_ids = tuple(newest), tuple(newest.values())
        found.append(Failure(code=code, runs=runs, times=times, said=said, tasks=tasks, run_ids=run_ids))
    return found


def _said(connection: sqlite3.Connection, code: str) -> str:
    query = (
        "SELECT substr(t.text, 1, 300) FROM search_places p JOIN search_texts t ON t.id = p.text_id "
        "WHERE p.field = 'error' AND p.detail = ? ORDER BY p.run DESC, p.path = '' LIMIT 1"
    )
    rows = connection.execute(query, (code,)).fetchall()
    return read_text(rows[0][0]) if rows else ""


def _newest(connection: sqlite3.Connection, code: str, condition: str, bound: dict[str, Any]) -> dict[str, str]:
    """Returns some tasks with this failure, each with the newest run that had it; newest first."""
    query = (
        "SELECT substr(r.task, 1, 200), r.run_id FROM search_facets g CROSS JOIN search_runs s ON s.run = g.run "  # noqa: S608  no value in it
        f"CROSS JOIN runs r ON r.run_id = s.run_id WHERE g.kind = 'failure' AND g.value = :code AND {condition} "
        "ORDER BY g.run DESC LIMIT :most"
    )
    rows = connection.execute(query, bound | {"code": code, "most": 10 * _MOST_TASKS}).fetchall()
    newest: dict[str, str] = {}
    for task, run_id in rows:
        newest.setdefault(read_text(task), read_text(run_id))
    return dict(islice(newest.items(), _MOST_TASKS))
