"""Counts what a search finds in all: how many runs of each status, their tokens and their cost."""

import sqlite3

from conductor_core.spending import Cost
from conductor_core.workflow.model import Frozen
from storage.encoding import count_of
from storage.queries import Search, condition

MOST_COUNTED = 100_000
"""The most runs that one search reads, newest first. More would take too long."""


class Totals(Frozen):
    """
    Attributes:
        statuses: how many runs there are of each. A run counts as waiting if anything of it waits for an approval. The
            search's status narrows all fields but this.
        more: whether there are more runs than were counted.
        cost_usd: None if a price is unknown, which holds for ``unpriced`` runs. known_usd: of what has a price.
    """

    statuses: dict[str, int]
    tokens: int
    cost_usd: float | None
    known_usd: float
    unpriced: int
    more: bool

    @property
    def runs(self) -> int:
        return sum(self.statuses.values())

    @property
    def cost(self) -> Cost:
        return Cost(self.cost_usd, self.known_usd)


def read_totals(connection: sqlite3.Connection, search: Search) -> Totals:
    """Returns the totals over all pages of ``search``."""
    status = "CASE WHEN asked_for IS NULL THEN status ELSE 'waiting' END AS status"
    columns = f"{status}, cost_usd, known_usd, input_tokens, output_tokens"
    some = f"SELECT {columns} FROM runs WHERE {condition(search)} ORDER BY sequence DESC LIMIT {MOST_COUNTED + 1}"  # noqa: S608
    tokens = count_of("input_tokens + output_tokens")
    sums = f"status, count(*), {tokens}, sum(known_usd), count(cost_usd)"
    query = f"SELECT {sums} FROM ({some}) GROUP BY status"  # noqa: S608  no value in it
    rows = connection.execute(query, vars(search)).fetchall()
    counts = {status: count for status, count, *_ in rows}
    rows = [row for row in rows if search.status in (None, row[0])]
    known_usd = sum(each or 0.0 for *_, each, _ in rows)
    unpriced = sum(count - priced for _, count, *_, priced in rows)
    return Totals(
        statuses=counts,
        tokens=sum(each or 0 for _, _, each, _, _ in rows),
        cost_usd=None if unpriced else known_usd,
        known_usd=known_usd,
        unpriced=unpriced,
        more=sum(counts.values()) > MOST_COUNTED,
    )
