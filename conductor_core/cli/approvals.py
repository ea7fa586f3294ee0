"""Tells a person what a run waits for, and who decided what."""

from collections.abc import Iterator
from datetime import datetime

from conductor_core import events as ev
from conductor_core.actor import Caller
from conductor_core.cli.inputs import named_again
from conductor_core.cli.text import one_line
from conductor_core.run_trace import Approval, RunTrace
from conductor_core.spending import Cost


def lines(event: ev.ApprovalEvent, trace: RunTrace, db: str | None = None) -> list[str]:
    """Returns what the event means; ``trace`` is the run after it, ``db`` its database if that was named."""
    match event:
        case ev.ApprovalRequested():
            return [f"gate {', '.join(event.rules)} · {asked(trace.approvals[event.number - 1])}"]
        case ev.ApprovalGranted() | ev.ApprovalDenied():
            decided = [trace.approvals[number - 1] for number in event.numbers]
            what = ", ".join(each.what for each in decided)
            how = "denied" if isinstance(event, ev.ApprovalDenied) else "approved"
            rest = ", and all that follows," if isinstance(event, ev.ApprovalGranted) and event.rest else ""
            before = isinstance(event, ev.ApprovalGranted) and event.carried_from
            where = f" in run {before} already" if before else ""
            note = f": {one_line(event.note, 300)}" if event.note else ""
            return [f"{what}{rest} {how} by {one_line(event.caller.in_words, 60)}{where}{note}"]
        case ev.CommandRefused():
            return [f"refused to {event.asked}: {one_line(event.reason, 400)}"]
        case ev.RunWaiting():
            return [waits(trace, db)]


def asked(approval: Approval) -> str:
    """Says what an approval is asked for: what, whom, and at what cost at most."""
    to = f" to {one_line(approval.agent, 40)}" if approval.agent else ""
    cost = Cost(approval.most_usd, approval.most_usd or 0.0)
    most = "" if approval.of == "conductor" else f", at most {approval.most.total_tokens:,} tokens, {cost.in_line}"
    return f"{approval.what}{to}{most}"


def waits(trace: RunTrace, db: str | None = None) -> str:
    """Says that a run waits, and what to do. ``db``: its database, if that was named."""
    what = ", ".join(approval.what for approval in trace.asked_for)
    again = named_again(trace.run_id, db)
    return f"run {trace.run_id} waits for an approval of {what}: conductor approve {again}, or deny"


def record_lines(trace: RunTrace) -> Iterator[str]:
    """Yields a line for each request with its decision, and for each command that was refused."""
    for approval in trace.approvals:
        rules = ", ".join(approval.rules)
        yield f"{approval.number}  {_time(approval.requested_at_utc)}  {asked(approval)} · gate {rules}"
        if approval.decided_by is None or approval.decided_at_utc is None:
            yield f"   {'replaced by an edit' if approval.status == 'replaced' else approval.status}"
            continue
        rest = ", and all that follows" if approval.rest else ""
        where = f" in run {approval.carried_from}" if approval.carried_from else ""
        note = f": {one_line(approval.note, 300)}" if approval.note else ""
        how = "approved" if approval.status == "granted" else approval.status
        by = who(trace, approval.decided_by)
        taken_over = "taken over, " if approval.carried_from else ""
        yield f"   {_time(approval.decided_at_utc)}  {taken_over}{how}{rest} by {by}{where}{note}"
    for refused in trace.refused:
        by = who(trace, refused.by)
        yield f"-  {_time(refused.at_utc)}  refused to {refused.asked}, asked by {by}: {one_line(refused.reason, 300)}"


def who(trace: RunTrace, caller: Caller) -> str:
    """Returns who caused something in a run. Of an imported run that is its file's word, if it did not come with us."""
    own = trace.imported is None or trace.imported.recorded
    return f"{one_line(caller.in_words, 60)}{'' if own else ' (says the file)'}"


def _time(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"
