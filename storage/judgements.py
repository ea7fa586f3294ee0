"""What people, graders and judges hold of runs. A judgement is only ever added, and goes with its run.

The log has a record of each with a digest of its row, so that ``conductor log verify`` finds one that was changed,
removed or invented. The record holds nothing of what was judged.
"""

import json
import secrets
import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError

from conductor_core.errors import BadInput, StoreDamaged
from conductor_core.privacy.masking import one_line
from conductor_core.run.actor import Caller
from conductor_core.run.judgement import MOST_NOTE, TAKEN_BACK, By, Judged, Judgement, Mark, Verdict, judge_of
from conductor_core.run.values import Path
from storage import encoding
from storage.database.connections import Change, Database
from storage.log.queries import JUDGED, LATEST_JUDGEMENT
from storage.log.reading import unknown_run
from storage.merkle.chain import Entries
from storage.privacy import KeyAway, Sealed

ADDED = "judgement.added"
"""The kind of their records."""
_COUNTED = "(?1 IS NULL OR purpose = ?1) AND purpose NOT IN (SELECT value FROM json_each(?2))"
COLUMNS = (
    "id", "run_id", "path", "mark", "score", "note", "judged_by", "judge", "source_run_id", "compared_with", "at_utc",
    "actor", "door", "salt",
)  # fmt: skip
_ALL = ", ".join(COLUMNS)
_ASKED = {
    "before": "j.id < :before",
    "run_ids": "j.run_id IN (SELECT value FROM json_each(:run_ids))",
    "mark": "j.mark = :mark",
    "by": "j.judged_by = :by",
    "since": "j.at_utc >= :since",
}


@dataclass(frozen=True)
class JudgementQuery:
    """Which judgements are asked for. ``counting``: only those that their judge has not replaced or taken back."""

    run_ids: tuple[str, ...] | None = None
    mark: Mark | None = None
    by: By | None = None
    since_utc: datetime | None = None
    counting: bool = False


class Judgements:
    """The judgements of one database. Any thread may use it. All methods raise StoreError."""

    def __init__(self, database: Database, change: Change, redacted: Callable[[str, str], str]) -> None:
        """``redacted``: returns a note about a run as it may be stored."""
        self._database, self._change, self._redacted = database, change, redacted

    def add(
        self,
        run_id: str,
        caller: Caller,
        *,
        path: Path | None = None,
        mark: Mark | None = None,
        score: float | None = None,
        note: str = "",
        by: By = "person",
        source_run_id: str | None = None,
        compared_with: str | None = None,
    ) -> Judgement:
        """Keeps, on record, what ``caller`` holds of the run, or of its step at ``path``.

        Raises: UnknownRun, also for an erased run; BadInput for what is no judgement.
        """
        try:
            verdict = Verdict(
                run_id=run_id, path=path, mark=mark, score=score, note=note, by=by, source_run_id=source_run_id,
                compared_with=compared_with,
            )  # fmt: skip
        except ValidationError as error:
            raise BadInput(_in_words(error)) from None
        return self.add_all([verdict], caller)[0]

    def take_back(self, judgement: Judgement, caller: Caller) -> Judgement:
        """Keeps that ``caller``, who judged so, does not hold it any more. Raises: as ``add``."""
        return self.add(
            judgement.run_id, caller, path=judgement.path, note=TAKEN_BACK, by=judgement.by,
            compared_with=judgement.compared_with,
        )  # fmt: skip

    def add_all(self, verdicts: Sequence[Verdict], caller: Caller) -> tuple[Judgement, ...]:
        """Keeps all of these, or none, in their order. Raises: UnknownRun."""
        now_utc, (actor, door) = datetime.now(UTC), encoding.caller_columns(caller)
        said = {"at_utc": now_utc.isoformat(), **encoding.caller_fields(caller)}
        # Outside of the transaction: to find names takes time.
        notes = [self._redacted(each.run_id, each.note)[:MOST_NOTE] if each.note else "" for each in verdicts]
        kept: list[Judgement] = []

        def insert(cursor: sqlite3.Cursor) -> str | None:
            """Returns the first run that is not there."""
            kept.clear()
            named = {run for each in verdicts for run in (each.run_id, each.compared_with) if run is not None}
            for run_id in sorted(named):
                if not encoding.has_run(cursor, run_id):
                    return run_id
            number = encoding.last_number(cursor, "judgements") + 1
            entries, rows = Entries(cursor), []
            for verdict, note in zip(verdicts, notes, strict=True):
                is_text = note not in ("", TAKEN_BACK)
                vault = self._database.vault
                row: dict[str, object] = {
                    "id": number,
                    "run_id": verdict.run_id,
                    "path": None if verdict.path is None else json.dumps(verdict.path),
                    "mark": verdict.mark,
                    "score": None if verdict.score is None else verdict.score + 0.0,  # SQLite keeps no -0.0
                    "note": vault.seal(verdict.run_id, note_place(number), note) if is_text else note,
                    "judged_by": verdict.by,
                    "judge": judge_of(verdict.by, caller),
                    "source_run_id": verdict.source_run_id,
                    "compared_with": verdict.compared_with,
                    "at_utc": said["at_utc"],
                    "actor": actor,
                    "door": door,
                    "salt": secrets.token_hex(16),
                }
                rows.append(row)
                entries.add_record(
                    ADDED, verdict.run_id, judgement=number, row_sha256=encoding.row_digest(row, COLUMNS), **said
                )
                fields = {**dict(verdict), "note": note, "id": number, "at_utc": now_utc}
                kept.append(Judgement.model_validate({**fields, "actor": caller.actor, "door": caller.door}))
                number += 1
            encoding.add_rows(cursor, "judgements", *rows)
            entries.save()
            return None

        if verdicts and (missing := self._change(insert)) is not None:
            raise unknown_run(one_line(missing, limit=80))
        return tuple(kept)

    def of(self, run_id: str) -> tuple[Judgement, ...]:
        """Returns all judgements of the run, the oldest first, replaced ones included."""
        return self._read("j.run_id = :run_id ORDER BY j.id", {"run_id": run_id})

    def latest(self, run_ids: Collection[str]) -> dict[str, tuple[Judgement, ...]]:
        """Returns what counts of these runs: the last judgement of each judge on each thing, the oldest first.

        Leaves out what was taken back, and runs of which nothing counts.
        """
        asked = JudgementQuery(run_ids=tuple(run_ids), counting=True)
        found: dict[str, tuple[Judgement, ...]] = {}
        for judgement in reversed(self.list(asked)):
            found[judgement.run_id] = (*found.get(judgement.run_id, ()), judgement)
        return found

    def list(
        self, asked: JudgementQuery = JudgementQuery(), limit: int | None = None, before: int | None = None
    ) -> tuple[Judgement, ...]:
        """Returns judgements, the newest first. ``before``: the ``id`` of the last one of the page before this."""
        bound = {
            "before": before,
            "run_ids": None if asked.run_ids is None else json.dumps(asked.run_ids),
            "mark": asked.mark,
            "by": asked.by,
            "since": None if asked.since_utc is None else asked.since_utc.astimezone(UTC).isoformat(),
        }
        where = [_ASKED[name] for name, value in bound.items() if value is not None]
        if asked.counting:
            where += [LATEST_JUDGEMENT, f"(j.mark IS NOT NULL OR j.score IS NOT NULL OR j.note <> '{TAKEN_BACK}')"]
        bound["limit"] = -1 if limit is None else limit
        return self._read(f"{' AND '.join(where) or '1'} ORDER BY j.id DESC LIMIT :limit", bound)

    def counts(self, purpose: str | None = None, without: Collection[str] = ()) -> dict[Judged, int]:
        """Returns how many runs there are of each kind: of one purpose (None: of any), but not of those ``without``."""
        counted = ", ".join(f"total({which})" for which in JUDGED.values())
        query = f"SELECT {counted} FROM runs WHERE {_COUNTED}"  # noqa: S608  own text
        found = self._database.row(query, (purpose, json.dumps(list(without))))
        return {which: int(count) for which, count in zip(JUDGED, found, strict=True)}

    def _read(self, where: str, bound: Mapping[str, Any]) -> tuple[Judgement, ...]:
        rows = self._database.rows(f"SELECT {_ALL} FROM judgements j WHERE {where}", bound)  # noqa: S608  own text
        try:
            return tuple(self._judgement(dict(zip(COLUMNS, row, strict=True))) for row in rows)
        except (ValueError, TypeError, RecursionError) as error:
            raise StoreDamaged(
                f"a judgement in the database {self._database.path} cannot be read: conductor log verify says more"
            ) from error

    def _judgement(self, row: Mapping[str, Any]) -> Judgement:
        """Raises: ValueError, TypeError, RecursionError if the row is damaged."""
        fields = {name: row[name] for name in Judgement.model_fields if name in row}
        fields["path"] = None if row["path"] is None else json.loads(row["path"])
        caller = encoding.read_caller(row["actor"], row["door"])
        note = row["note"]
        if isinstance(note, bytes):
            try:
                note = self._database.vault.open(row["run_id"], note_place(row["id"]), note).decode()
            except KeyAway:
                note = UNREADABLE
            except Sealed as error:
                raise ValueError(f"note: {error}") from error
        more = {"note": note, "by": row["judged_by"], "actor": caller.actor, "door": caller.door}
        return Judgement.model_validate(fields | more | {"at_utc": encoding.read_time(row["at_utc"])})


UNREADABLE = "(encrypted, and its key is away)"
"""Stands for a note whose run's key is not here."""


def note_place(number: int) -> str:
    return f"judgement {number}"


def _in_words(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    match first["loc"][:1]:
        case ("score",):
            return "the score must be a number from 0 (bad) to 1 (good)"
        case ("note",):
            return f"the note has more than {MOST_NOTE:,} characters"
        case (name, *_):
            return f"{name}: {first['msg']}"
    return str(first["msg"]).removeprefix("Value error, ")
