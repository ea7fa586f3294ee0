"""``/v1/judgements``: what a client holds of the runs that it caused, in our own words: no API has such a call."""

from typing import Any

from conductor_core.errors import BadInput, UnknownRun
from conductor_core.privacy.masking import one_line
from conductor_core.run.judgement import MOST_NOTE, Judgement
from conductor_core.run.trace import RunTrace
from conductor_core.run.values import Path, label
from conductor_core.serving.admission import Client
from conductor_core.serving.errors import ApiError
from conductor_core.serving.gateway import Gateway
from conductor_core.serving.outcome import named
from conductor_core.serving.reading import Fields, read_json


def judge(gateway: Gateway, client: Client, body: bytes) -> dict[str, Any]:
    """Keeps what a request says, and returns it. Blocks. Raises: ApiError, StoreError."""
    fields = read_json(body)
    ids = [name for name in ("run_id", "response_id") if fields.get(name) is not None]
    if len(ids) != 1:
        raise ApiError(400, "Give run_id or response_id, not both.", code="missing_required_parameter", param="run_id")
    trace = _run(gateway, client, fields.name(ids[0]), of_response=ids == ["response_id"])
    mark: Any = fields.choice("mark", ("right", "wrong"))
    by: Any = fields.choice("by", ("person", "grader")) or "person"
    score, note = fields.number("score"), fields.text("note") or ""
    if score is not None and not 0 <= score <= 1:
        raise fields.refused("score", "expected 0 (bad) to 1 (good)")
    if len(note) > MOST_NOTE:
        raise fields.refused("note", f"expected at most {MOST_NOTE:,} characters, got {len(note):,}")
    path = _step(fields, trace)
    try:
        kept = gateway.judgements.add(trace.run_id, client.caller, path=path, mark=mark, score=score, note=note, by=by)
    except UnknownRun:  # it was deleted meanwhile
        raise _unknown(trace.run_id) from None
    except BadInput as error:
        raise ApiError(400, one_line(str(error), limit=200), code="invalid_value") from None
    return _told(kept)


def counting(gateway: Gateway, client: Client, run_id: str) -> dict[str, Any]:
    """Returns what counts of the client's own judgements of a run. Blocks. Raises: as ``judge``."""
    if not run_id:
        raise ApiError(400, "Give run_id in the address.", code="missing_required_parameter", param="run_id")
    trace = _run(gateway, client, run_id)
    found = gateway.judgements.latest([trace.run_id]).get(trace.run_id, ())
    own = [each for each in found if client.key is None or _is_of(each, client)]
    return {"object": "list", "data": [_told(each) for each in own]}


def _is_of(judgement: Judgement, client: Client) -> bool:
    actor = None if client.key is None else client.key.actor
    return actor is not None and judgement.actor is not None and judgement.actor.account == actor.account


def _run(gateway: Gateway, client: Client, given: str, *, of_response: bool = False) -> RunTrace:
    """Returns the run of this id, or of the response of this id, if this client caused it. Raises: ApiError 404."""
    unknown = _unknown(given)
    if of_response:
        found = named(given)
        if found is None or gateway.deletions.deleted(given):
            raise unknown
        given = found.run_id
    try:
        trace = gateway.turns.run(given)
    except UnknownRun:
        raise unknown from None
    foreign = client.key is not None and (trace.actor is None or trace.actor.id != client.key.actor.id)
    if foreign:
        raise unknown
    return trace


def _unknown(given: str) -> ApiError:
    return ApiError(404, f"Run or response '{one_line(given, limit=80)}' not found.", code="run_not_found")


def _step(fields: Fields, trace: RunTrace) -> Path | None:
    value = fields.get("step")
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise fields.wrong_type("step", "a number, or a string such as 2.0")
    path = next((step.path for step in trace.walk() if label(step.path) == str(value)), None)
    if path is None:
        raise fields.refused("step", "the run has no such step", "step_not_found")
    return path


def _told(judgement: Judgement) -> dict[str, Any]:
    return {
        "id": f"judgement_{judgement.id}",
        "object": "judgement",
        "created_at": int(judgement.at_utc.timestamp()),
        "run_id": judgement.run_id,
        "step": None if judgement.path is None else label(judgement.path),
        "mark": judgement.mark,
        "score": judgement.score,
        "note": judgement.note,
        "by": judgement.by,
        "judge": None if judgement.actor is None else judgement.actor.name,
    }
