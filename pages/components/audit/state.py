"""The state of the log's integrity in plain words: what is protected, what is not, and what the last check found."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from pages.components.style.formats import ago, plural, seconds
from storage.evidence.anchoring import Evidence
from storage.evidence.checking import CheckedLog
from storage.evidence.history import counted

Kind = Literal["good", "signed", "waiting", "failing", "damaged", "none"]
LATE_S = 10.0
"""Events that wait longer than this, and longer than the anchor's own pace, are late, whatever the reason."""
_WITNESS_S = 60.0
"""After so long without the newest checkpoint, a witness is late."""
SIGNS: dict[Kind, str] = {"good": "●", "signed": "◐", "waiting": "◔", "failing": "▲", "damaged": "✕", "none": "–"}
_OF_ONE_KIND = {
    "anchor": "The anchor is not as it was published",
    "derived": "Lists or the search index do not say what the events say",
}
"""What is wrong if all findings are of one class, and none is about the events themselves."""


@dataclass(frozen=True)
class State:
    kind: Kind
    words: str

    @property
    def sign(self) -> str:
        return SIGNS[self.kind]


def state_of(evidence: Evidence, last: CheckedLog | None, now_utc: datetime, every_s: float = 0.0) -> State:
    """Returns the state, the worst first.

    ``last``: the last check; None: there was none. ``every_s``: the shortest time between two publications.
    """
    if last is not None and (last.findings or last.more):
        many = len(last.findings) + last.more
        kinds = {each.kind for each in last.findings} if not last.more else set()
        what = _OF_ONE_KIND.get(kinds.pop() if len(kinds) == 1 else "", "The record is not as it was written")
        return State("damaged", f"{what}: {plural(many, 'finding')}")
    if evidence.begun_again is not None:
        return State("damaged", "A log began again: the key has signed another log than this one")
    if not evidence.origin:
        return State("none", "No evidence: the database does not name its log")
    if evidence.doubt is not None and evidence.fault is None:
        return State("failing", "It cannot be confirmed how far the log is published")
    if evidence.unanchored_events:
        waiting = f"{plural(evidence.unanchored_events, 'event')} not anchored yet, for {waited(evidence, now_utc)}"
        if evidence.fault is not None:
            return State("failing", f"{waiting}: publishing has stopped")
        since = evidence.unanchored_since_utc
        late = since is not None and _passed_s(since, now_utc) > LATE_S + every_s
        return State("failing" if late else "waiting", waiting)
    if evidence.fault is not None:
        return State("failing", "Publishing has stopped")
    if evidence.entries <= 1:
        return State("none", "No event yet")
    if last is not None and last.weak is not None:
        return State("failing", f"The last verification lacked {last.weak}: it says little")
    if not evidence.witness.witnessed:
        return State("signed", "Signed here, not witnessed")
    size = evidence.witness_size
    if size is not None and size < evidence.anchored:
        at_utc = evidence.anchored_at_utc
        late = at_utc is not None and _passed_s(at_utc, now_utc) > _WITNESS_S
        entries = counted(evidence.anchored - size, "entry", "entries")
        return State("failing" if late else "waiting", f"{entries} not kept by the witness yet")
    return State("good", "All events are anchored")


def waited(evidence: Evidence, now_utc: datetime) -> str:
    """Returns how long the oldest event has not been anchored: ``4.2 s``, or ``an unknown time``."""
    since = evidence.unanchored_since_utc
    return "an unknown time" if since is None else seconds(1000 * max(0.0, _passed_s(since, now_utc)))


def _passed_s(since_utc: datetime, now_utc: datetime) -> float:
    return (now_utc - since_utc).total_seconds()


def why(evidence: Evidence, state: State) -> str:
    """Returns why events are not anchored, and what to do; empty if all are."""
    if evidence.begun_again is not None:
        return f"{_begun(evidence.begun_again)}. Nothing is published until then."
    if evidence.fault is not None:
        known = evidence.doubt is None or evidence.doubt in evidence.fault
        return (
            f"{_begun(evidence.fault)}. {'' if known else f'Also: {evidence.doubt}. '}Runs continue, and nothing is "
            "lost: everything is published once that is mended. Until then nothing protects these events."
        )
    if evidence.doubt is not None:
        return f"{_begun(evidence.doubt)}. Press Verify: it says whether anything was changed."
    if state.kind == "signed":
        return (
            f"{_begun(evidence.witness.why)}: whoever can write the database can sign and publish another history. "
            "Choose a witness, as Integrity says."
        )
    if "witness" in state.words:
        return "The process of the witness pulls every second or so while it runs: conductor log witness."
    if state.kind == "waiting":
        return "They are published a second after the event, with a git repository after 30."
    if evidence.unanchored_events:
        return (
            "The program that wrote them could not reach the anchor, or ended before it published them. The next event "
            "or the next start of this program publishes them."
        )
    return ""


def _begun(said: str) -> str:
    return said[:1].upper() + said[1:]


def last_words(last: CheckedLog | None, run_id: str | None, now_utc: datetime, first: int | None = None) -> str:
    """Returns the last check in a few words, of the log or of one run.

    ``first``: the sequence of the run's first event; None: there is no such run.
    """
    if last is None:
        return "Never verified here"
    when = ago(last.at_utc, now_utc)
    many = len(last.findings) + last.more if run_id is None else len(last.of(run_id))
    of = "" if run_id is None else " about this run" if not many else " about this run or the log"
    if run_id is not None and not many and not knows(last, first):
        return f"Verified {when}: nothing known{of}"
    return f"Verified {when}: {plural(many, 'finding') if many else 'nothing found'}{of}"


def knows(last: CheckedLog, first: int | None) -> bool:
    """Whether a check without a finding about the run that begins at ``first`` says anything about it."""
    return not last.more and first is not None and first <= last.newest


def rests_on(last: CheckedLog) -> list[str]:
    """Returns what a check compared, and what its answer rests on."""
    said = [
        f"{plural(last.verified_events, 'event')} compared with a signed checkpoint, and the lists with the events."
    ]
    if last.fingerprint is None:
        said.append("The signing key is missing, so no checkpoint could be compared.")
    else:
        said.append(
            f"The public key with the fingerprint {last.fingerprint[:16]}…, which is this machine's own: whoever "
            "controls the machine could have changed it."
        )
    if last.anchor is None:
        said.append("No anchor: whoever can write the database could have rewritten it all.")
    elif last.witnessed:
        said.append(f"The anchor {last.anchor}, which the user of this program cannot rewrite.")
    else:
        said.append(f"The anchor {last.anchor}, not witnessed: whoever can write the database can rewrite both.")
    if last.unanchored_events:
        said.append(f"{plural(last.unanchored_events, 'event')} not anchored at that moment: nothing protected them.")
    if last.deleted_runs:
        said.append(f"{plural(last.deleted_runs, 'run')} deleted or erased by the program, on record.")
    return [*said, *last.notes]
