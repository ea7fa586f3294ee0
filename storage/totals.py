"""What a search finds in all: how many runs of each status, and what they took."""

from sqlalchemy import Connection, func, select

from conductor_core.spending import Cost
from conductor_core.workflow.model import Frozen
from storage.queries import Search, filtered
from storage.tables import RUNS

MOST_COUNTED = 100_000
"""Runs that are looked at for one figure, newest first: more would be waited for."""


class Totals(Frozen):
    """
    Attributes:
        statuses: how many runs of each; the search's own status narrows all but this.
        more: there are more than were counted.
        cost_usd: None: some price is unknown, of ``unpriced`` runs. known_usd: of what has a price.
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


def read_totals(connection: Connection, search: Search) -> Totals:
    """Of all pages of ``search``."""
    columns = (RUNS.c.status, RUNS.c.cost_usd, RUNS.c.known_usd, RUNS.c.input_tokens, RUNS.c.output_tokens)
    some = filtered(select(*columns), search).order_by(RUNS.c.sequence.desc()).limit(MOST_COUNTED + 1).subquery()
    tokens = func.sum(some.c.input_tokens + some.c.output_tokens)
    known = func.sum(some.c.known_usd)
    query = select(some.c.status, func.count(), tokens, known, func.count(some.c.cost_usd))
    rows = list(connection.execute(query.group_by(some.c.status)))
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
