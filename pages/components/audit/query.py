"""What the Audit page is asked: all of it is in the browser's address, so a view is kept or sent as a link."""

from dataclasses import dataclass
from datetime import UTC, date, datetime, time

from pages.components.app import address
from storage.access_log import KINDS as ACCESS_KINDS
from storage.search.filters import ANY, KINDS, Filters, end_of
from storage.search.reading import FIELDS

FOUND, LEDGER, COST, FAILURES = "found", "ledger", "cost", "failures"
ACCESS, INTEGRITY = "looks", "integrity"
VIEWS = {
    FOUND: "Found",
    LEDGER: "Who received it",
    COST: "Tokens and cost",
    FAILURES: "Failures",
    ACCESS: "Access log",
    INTEGRITY: "Integrity",
}
_OF_ACCESS = ("looked-by", "looked-how", "looked-at")
OWN = ("q", "view", "in", "since", "until", "over", "before", "provider-of-calls", "run", *_OF_ACCESS, *KINDS)
CURSORS = ("before", "run")


@dataclass(frozen=True)
class AuditQuery:
    """The address, read. ``fault``: what of it cannot be read."""

    typed: str
    view: str
    field: str | None
    filters: Filters
    before: int | None
    receiver: tuple[str, str] | None
    run_id: str | None
    viewed_by: str | None
    access_kind: str | None
    viewed_run: str | None
    fault: str

    @property
    def blank(self) -> bool:
        """Whether nothing is asked."""
        return not self.typed and not self.filters and self.field is None


def read() -> AuditQuery:
    """Reads the address. Call it once, at the script's start."""
    given = {name: address.read(name) for name in OWN}
    faults: list[str] = []
    receiver = (given["provider-of-calls"] or "").partition("@")
    return AuditQuery(
        typed=(given["q"] or "").strip(),
        view=given["view"] if given["view"] in VIEWS else FOUND,
        field=given["in"] if given["in"] in FIELDS else None,
        filters=Filters(
            values={kind: value for kind in KINDS if (value := given[kind])},
            since_utc=_day(given["since"], faults),
            until_utc=_day(given["until"], faults, whole=True),
            least_usd=_amount(given["over"], faults),
        ),
        before=int(before) if (before := given["before"] or "").isdecimal() and len(before) < 19 else None,
        receiver=(receiver[0], receiver[2]) if receiver[1] else None,
        run_id=given["run"],
        viewed_by=given["looked-by"],
        access_kind=given["looked-how"] if given["looked-how"] in ACCESS_KINDS else None,
        viewed_run=given["looked-at"],
        fault="; ".join(faults),
    )


def _day(given: str | None, faults: list[str], *, whole: bool = False) -> datetime | None:
    if not given:
        return None
    try:
        day = date.fromisoformat(given)
    except ValueError:
        faults.append(f"{given[:20]!r} in the address is not a date (2026-01-31)")
        return None
    return end_of(day) if whole else datetime.combine(day, time(), UTC)


def _amount(given: str | None, faults: list[str]) -> float | None:
    if not given:
        return None
    try:
        usd = float(given)
        if 0 <= usd < 1e12:
            return usd
    except ValueError:
        pass
    faults.append(f"{given[:20]!r} in the address is not an amount in USD")
    return None


def go(**changes: str | None) -> None:
    """Changes parts of the address; a page that was turned to, and a run that was open, belong to what was asked."""
    for name, value in {"before": None, "run": None, **changes}.items():
        address.write(name.replace("_", "-"), value)


def change_address(**changes: str | None) -> None:
    """Asks only this: all else leaves the address."""
    for name in OWN:
        address.write(name, changes.get(name))


def value_words(kind: str, value: str) -> str:
    """Returns ``edited by: anybody`` or ``agent: solver``."""
    return f"{KINDS[kind]}: {'any' if value == ANY else value}"
