"""What the endpoint keeps besides runs: service keys, and responses that their client deleted; their runs stay.

Of a key only its SHA-256 is stored. A slow hash protects words that people choose; a key is 256 bits by chance, which
nobody can guess, whatever a guess costs. Creation and revocation are records of the log with a digest of the row, so
that ``conductor log verify`` finds a row that was changed by hand.
"""

import hashlib
import hmac
import json
import math
import re
import secrets
import sqlite3
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from conductor_core.errors import BadInput, StoreDamaged, UnknownRun
from conductor_core.privacy import masking
from conductor_core.privacy.masking import one_line
from conductor_core.run.actor import Actor, Caller
from conductor_core.run.service_key import ServiceKey, check_providers
from storage.database.connections import Change, Database
from storage.encoding import add_rows, caller_columns, caller_fields, has_run, read_caller, read_time, row_digest
from storage.merkle.chain import add_record

PREFIX = "ci-"
CREATED, REVOKED = "service_key.created", "service_key.revoked"
"""The kinds of their records."""
FIXED = (
    "id", "name", "created_at_utc", "actor", "door", "models", "excluded_providers", "usd_per_day", "tokens_per_day",
    "requests_per_minute", "digest",
)  # fmt: skip
"""The columns of ``service_keys`` that never change."""
_COLUMNS = ", ".join((*FIXED, "revoked_at_utc"))
_OF_KEY = "json_valid(actor) AND json_extract(actor, '$.kind') = 'service' AND json_extract(actor, '$.id') = ?"
"""Runs of a key, in the words of the index ``ix_runs_service``."""
_SPENT = f"SELECT total(known_usd), sum(input_tokens + output_tokens) FROM runs WHERE {_OF_KEY} AND created_at_utc >= ?"  # noqa: S608  own text
_LAST = f"SELECT max(created_at_utc) FROM runs WHERE {_OF_KEY}"  # noqa: S608  own text
MOST_USD, MOST_NUMBER = 1e9, 10**12
_MOST_NAMES, _LONGEST = 100, 200


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode(errors="surrogatepass")).hexdigest()


class ServiceKeys:
    """The service keys of one database (``conductor_core.run.service_key.Keys``). Any thread may use it.

    All methods raise StoreError.
    """

    def __init__(self, database: Database, change: Change) -> None:
        self._database, self._change = database, change

    def create(
        self,
        name: str,
        caller: Caller,
        *,
        models: Sequence[str] | None = None,
        excluded_providers: Sequence[str] = (),
        usd_per_day: float | None = None,
        tokens_per_day: int | None = None,
        requests_per_minute: int | None = None,
    ) -> tuple[ServiceKey, str]:
        """Creates a key. Returns it with its text, which is kept nowhere. Raises: BadInput for a name that is in use
        or a limit that cannot be."""
        _check_limit("USD per day", usd_per_day, 0, MOST_USD)
        _check_limit("tokens per day", tokens_per_day, 1, MOST_NUMBER)
        _check_limit("requests per minute", requests_per_minute, 1, MOST_NUMBER)
        limits: dict[str, Any] = {
            "models": None if models is None else _names("model", models),
            "excluded_providers": _names("provider", excluded_providers),
            "usd_per_day": None if usd_per_day is None else float(usd_per_day),
            "tokens_per_day": tokens_per_day,
            "requests_per_minute": requests_per_minute,
        }
        check_providers(limits["excluded_providers"])
        key_id, now_utc = f"key-{secrets.token_hex(8)}", datetime.now(UTC)
        key = ServiceKey(id=key_id, name=_name(name), created_at_utc=now_utc, created_by=caller, **limits)
        text = PREFIX + secrets.token_urlsafe(32)
        masking.remember(text)
        actor, door = caller_columns(caller)
        row: dict[str, Any] = {"id": key.id, "name": key.name, "created_at_utc": now_utc.isoformat(), **limits}
        row |= {"actor": actor, "door": door, "digest": _digest(text)}
        row |= {"excluded_providers": json.dumps(key.excluded_providers)}
        row |= {"models": None if key.models is None else json.dumps(key.models)}
        said = {"key": key.id, "name": key.name, "at_utc": row["created_at_utc"], **limits, **caller_fields(caller)}

        def insert(cursor: sqlite3.Cursor) -> str | None:
            if _ids(cursor, key.name):
                return f"a key named {key.name!r} exists: revoke it first, or choose another name"
            add_rows(cursor, "service_keys", row)
            add_record(cursor, CREATED, None, **said, row_sha256=row_digest(row, FIXED))
            return None

        self._changed(insert)
        return key, text

    def revoke(self, named: str, caller: Caller) -> ServiceKey:
        """Revokes the key of this name or id, and returns it. Raises: BadInput if there is none, or it is revoked."""
        named = named.strip()
        if named.startswith(PREFIX):
            raise BadInput("this looks like a key itself: give its name or id, as in conductor keys list")
        now = datetime.now(UTC).isoformat()
        found: list[str] = []

        def update(cursor: sqlite3.Cursor) -> str | None:
            found[:] = _ids(cursor, named)
            if not found:
                before = cursor.execute("SELECT 1 FROM service_keys WHERE ? IN (id, name)", (named,)).fetchone()
                gone = f"the key {named!r} is already revoked"
                return f"unknown key {named!r}; see conductor keys list" if before is None else gone
            cursor.execute("UPDATE service_keys SET revoked_at_utc = ? WHERE id = ?", (now, found[0]))
            ((name,),) = cursor.execute("SELECT name FROM service_keys WHERE id = ?", found[:1])
            add_record(cursor, REVOKED, None, key=found[0], name=name, at_utc=now, **caller_fields(caller))
            return None

        self._changed(update)
        return next(key for key in self.list() if key.id == found[0])

    def list(self) -> tuple[ServiceKey, ...]:
        """Returns all keys, revoked ones included, the oldest first."""
        return self._read("1 ORDER BY created_at_utc, id")

    def any(self) -> bool:
        return self._database.row("SELECT 1 FROM service_keys LIMIT 1") is not None

    def find(self, key: str) -> ServiceKey | None:
        # It is looked for by its digest: how far that agrees with another tells nothing of any key.
        digest = _digest(key)
        query = "SELECT id, digest FROM service_keys WHERE digest = ? AND revoked_at_utc IS NULL"
        row = self._database.row(query, (digest,))
        if row is None or not hmac.compare_digest(str(row[1]).encode(errors="replace"), digest.encode()):
            return None
        return self.current(str(row[0]))

    def current(self, key_id: str) -> ServiceKey | None:
        return next(iter(self._read("id = ? AND revoked_at_utc IS NULL", key_id)), None)

    def spent_today(self, key_id: str) -> tuple[float, int]:
        usd, tokens = self._database.row(_SPENT, (key_id, datetime.now(UTC).date().isoformat()))
        return float(usd), int(tokens or 0)

    def last_used(self, key_id: str) -> datetime | None:
        """Returns when the key's newest run was created; None: it has none."""
        return read_time(self._database.row(_LAST, (key_id,))[0])

    def asked_for(self, run_id: str, key: Actor) -> bool:
        """Whether this service key asked for the run here, by its row; the run's own events are not read."""
        query = f"SELECT 1 FROM runs WHERE {_OF_KEY} AND run_id = ? AND NOT imported"  # noqa: S608  own text
        return self._database.row(query, (key.id, run_id)) is not None

    def _changed(self, work: Callable[[sqlite3.Cursor], str | None]) -> None:
        if (refusal := self._change(work)) is not None:
            raise BadInput(refusal)

    def _read(self, where: str, *bound: str) -> tuple[ServiceKey, ...]:
        rows = self._database.rows(f"SELECT {_COLUMNS} FROM service_keys WHERE {where}", bound)  # noqa: S608  own text
        try:
            return tuple(_key(dict(zip((*FIXED, "revoked_at_utc"), row, strict=True))) for row in rows)
        except (ValueError, TypeError, RecursionError) as error:
            raise StoreDamaged(
                f"a service key in the database {self._database.path} cannot be read: conductor log verify says more"
            ) from error


def _key(row: dict[str, Any]) -> ServiceKey:
    """Raises: ValueError, TypeError, RecursionError if the row is damaged."""
    fields = {name: row[name] for name in ServiceKey.model_fields if name in row}
    fields["models"] = None if row["models"] is None else json.loads(row["models"])
    fields["excluded_providers"] = json.loads(row["excluded_providers"])
    return ServiceKey.model_validate(fields | {"created_by": read_caller(row["actor"], row["door"])})


def _ids(cursor: sqlite3.Cursor, named: str) -> list[str]:
    """Returns the id of the key of this id or name that is not revoked, if there is one."""
    query = "SELECT id FROM service_keys WHERE ? IN (id, name) AND revoked_at_utc IS NULL ORDER BY name = ?"
    return [key_id for (key_id,) in cursor.execute(query, (named, named))][:1]


def _name(given: str) -> str:
    name = " ".join(given.split())
    if not name:
        raise BadInput("the key's name is empty")
    if len(name) > 80 or not name.isprintable():
        raise BadInput("the key's name may have at most 80 characters, and none that cannot be printed")
    if name.startswith(PREFIX):
        raise BadInput(f"the key's name may not begin with {PREFIX}: keys themselves do")
    return name


def _names(what: str, given: Sequence[str]) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in given))
    if len(names) > _MOST_NAMES:
        raise BadInput(f"{len(names)} {what}s: a key names at most {_MOST_NAMES}")
    for name in names:
        if not name or len(name) > _LONGEST or not name.isprintable():
            raise BadInput(f"the name of a {what} is empty, too long or cannot be printed")
    return names


def _check_limit(what: str, limit: float | None, least: int, most: float) -> None:
    if limit is not None and not (math.isfinite(limit) and least <= limit <= most):
        raise BadInput(f"{what}: expected {least} to {most:,.0f}")


DELETED = "response.deleted"
"""The kind of their records."""
_IS_DELETED = "SELECT 1 FROM deleted_responses WHERE response_id = ?"
RESPONSE_COLUMNS = ("response_id", "run_id", "at_utc", "actor", "door")
_ID = re.compile(r"resp_([0-9a-f]{12})([0-9a-f]{16})_\d{1,6}")


class DeletedResponses:
    """The deleted responses of one database. Any thread may use it. All methods raise StoreError."""

    def __init__(self, database: Database, change: Change) -> None:
        self._database, self._change = database, change

    def deleted(self, response_id: str) -> bool:
        return self._database.row(_IS_DELETED, (response_id,)) is not None

    def delete(self, response_id: str, caller: Caller) -> None:
        """Notes, on record, that ``caller`` deleted the response. Raises: UnknownRun if there is no run of it."""
        found = _ID.fullmatch(response_id)
        run_id = "" if found is None else f"{found[1]}-{found[2]}"
        now, (actor, door) = datetime.now(UTC).isoformat(), caller_columns(caller)
        row = {"response_id": response_id, "run_id": run_id, "at_utc": now, "actor": actor, "door": door}

        def insert(cursor: sqlite3.Cursor) -> bool:
            """Returns whether a run has this response."""
            if not has_run(cursor, run_id):
                return False
            if cursor.execute(_IS_DELETED, (response_id,)).fetchone() is None:
                add_rows(cursor, "deleted_responses", row)
                said = {"response": response_id, "at_utc": now, "row_sha256": row_digest(row, RESPONSE_COLUMNS)}
                add_record(cursor, DELETED, run_id, **said, **caller_fields(caller))
            return True

        if not self._change(insert):
            raise UnknownRun(f"no run in this database has the response {one_line(response_id, limit=80)}")
