"""Writes a decision record as one HTML file, or as plain text.

The file has no script, fetches nothing, and its policy forbids both. The template escapes every value. What would steer
a page though it is escaped, such as a mark that reorders text, is written out. In the text, what people and models
wrote is set off by a bar, line by line, and inert.
"""

import base64
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from itertools import groupby, pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from conductor_core import __version__
from conductor_core.analysis import decision_record
from conductor_core.analysis.decision_record import ApprovalPart, DecisionRecord, Egress, PlanPart, StepPart
from conductor_core.analysis.text_diff import Shown, compare_texts, shortened
from conductor_core.chat.messages import data_url_of
from conductor_core.formats import plural, seconds
from conductor_core.text import plain

if TYPE_CHECKING:
    from jinja2 import Template


MADE_BY = f"conductor-inspector {__version__}"
_MOST_READERS = 12
"""A grid with more steps does not fit on a sheet. What each step saw is also shown with the step."""
_CELLS = {
    "granted": "saw it",
    "passed_on": "in a past turn",
    "withheld": "withheld",
    "absent": "not there yet",
    "planned": "was not asked",
    "unplanned": "was not asked",
    "unasked": "was not asked",
    "own": "",
}
_REASONS = {"edited": "a person changed it", "inputs": "it was given other text", "chance": "by chance", "none": ""}
_TONES = {"completed": ("good", "✓"), "planned": ("good", "✓"), "failed": ("bad", "✕"), "denied": ("bad", "✕")}
_COMMENT = re.compile(r"/\*.*?\*/\n?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class _Row:
    name: str
    cells: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Grid:
    """Who saw what in one round."""

    round: str
    readers: tuple[StepPart, ...]
    rows: tuple[_Row, ...]


def record_page(
    record: DecisionRecord,
    images: Mapping[str, tuple[str, bytes]],
    *,
    hidden: int = 0,
    now_utc: datetime | None = None,
) -> str:
    """Returns the page.

    Args:
        images: media type and bytes of the images that the task came with, by digest; the page holds them.
        hidden: how many passages were hidden in the texts.
        now_utc: when the page is made; default: now.
    """
    style = _style()
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"
    tone, glyph = _TONES.get(record.status, ("warn", "•"))
    return _template().render(
        r=record,
        policy=policy,
        style=style,
        tone=tone,
        glyph=glyph,
        grids=tuple(_grids(record.steps)),
        cells=_CELLS,
        reasons=_REASONS,
        settings=dict(record.settings),
        images={sha256: data_url_of(kind, data) for sha256, (kind, data) in images.items()},
        changed_by=_names([*(edit.by.words for edit in record.edits), *(part.by.words for part in record.given)]),
        approved_by=_names([each.by.words for each in record.approvals if each.by and "approved" in each.decision]),
        went_to=_went_to(record),
        difference=_difference,
        hidden=hidden,
        made_by=MADE_BY,
        now_utc=now_utc or datetime.now(UTC),
    )


def _names(said: Sequence[str]) -> str:
    return "; ".join(dict.fromkeys(said)) or "nobody"


def _went_to(record: DecisionRecord) -> str:
    hosts = [f"{each.provider} at {each.host}" for each in record.egress if each.host and not each.simulated]
    told = "; ".join(dict.fromkeys(hosts)) or "no other host: every call stayed in this process"
    return f"the imported file says: {told}" if any(each.of_file for each in record.egress) else told


def _grids(steps: Sequence[StepPart]) -> Iterator[_Grid]:
    """Yields who saw what, for each round whose steps fit on a sheet."""
    by_round = sorted(steps, key=_round_of)
    for round_, group in groupby(by_round, key=_round_of):
        readers = tuple(group)
        if len(readers) > _MOST_READERS:
            continue
        rows = [_Row("the task", tuple(step.question for step in readers))]
        for place, source in enumerate(readers[:-1]):
            cells = tuple("own" if at <= place else _cell(source, reader) for at, reader in enumerate(readers))
            rows.append(_Row(f"output of step {source.label}", cells))
        yield _Grid(round_, readers, tuple(rows))


def _round_of(step: StepPart) -> str:
    return step.label.rpartition(".")[0]


def _cell(source: StepPart, reader: StepPart) -> str:
    """Returns what ``reader`` got of the output of ``source``, a step before it."""
    if any(piece.source == source.label for piece in reader.granted):
        return "granted"
    if any(piece.source == source.label and piece.sha256 for piece in reader.withheld):
        return "withheld"
    return "absent" if reader.identity is not None else "unasked"


def _difference(before: str, after: str) -> list[Shown]:
    return shortened(compare_texts(before, after))


def _at(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def _took(duration_ms: float | None) -> str:
    return "not ended" if duration_ms is None else seconds(duration_ms)


def _shown(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


@cache
def _style() -> str:
    return _COMMENT.sub("", Path(__file__).with_name("record.css").read_text(encoding="utf-8"))


@cache
def _template() -> "Template":
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # when used: few commands write a page

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "plain": plain,
        "at": _at,
        "took": _took,
        "shown": _shown,
        "capital": _capital,
        "access": decision_record.access,
    }
    return environment.get_template("record.html")


_SEPARATORS = {0x2028: "\\u2028", 0x2029: "\\u2029"}
"""They end a line, too, in the eyes of some programs, and what follows would lack its bar."""
_QUESTION = {
    "granted": "it was told the task",
    "passed_on": "it was not told the task, but an earlier instruction that it was shown holds it",
    "withheld": "it was not told the task",
}


def record_text(record: DecisionRecord, hidden: int = 0) -> str:
    """Returns the record. ``hidden``: how many passages were hidden in the texts."""
    lines = list(_lines(record, hidden))
    return "".join(f"{line}\n" for before, line in pairwise(["", *lines]) if line or before)


def _lines(r: DecisionRecord, hidden: int) -> Iterator[str]:
    yield f"# Decision record of run {_one(r.run_id)}"
    yield ""
    yield from (f"! {_one(note.text)}" for note in r.notes)
    asked_for = "".join(f", {_one(each)}" for each in (r.purpose and f"for {r.purpose}", r.batch) if each)
    yield f"Status      {r.status}"
    yield f"Asked by    {_one(r.asked_by.words)}, {_at(r.created_at_utc)}{asked_for}"
    ended = "not yet" if r.ended_at_utc is None else f"{_at(r.ended_at_utc)}, {seconds(r.duration_ms)}"
    yield f"Ended       {ended}{'' if r.ended_by is None else f', by {_one(r.ended_by.words)}'}"
    yield f"Cost        {_one(r.cost)} {r.basis}".rstrip()
    yield f"Tokens      {r.usage.input_tokens:,} in, {r.usage.output_tokens:,} out"
    yield f"Read from   {r.events:,} events, written by version {_one(r.app_version)}"
    if hidden:
        yield f"Hidden      {hidden:,} passages, such as keys"
    for turn in r.turns_before:
        yield from _block(f"Before the task, {turn.role}", turn.text)
    yield from _block("## Task", r.task)
    yield from (f"with {_one(image.described)}, sha256 {image.sha256}" for image in r.images)
    if r.answer is None:
        yield from ("", "## Answer", "", "The run has no answer.")
    else:
        yield from _block(f"## Answer{f', from step {r.answer_from}' if r.answer_from else ''}", r.answer)
    yield from ("", "## The plan and who wrote it")
    for plan in r.plans:
        yield from _plan(plan)
    if not r.plans:
        yield from ("", "Nobody has written a plan.")
    yield from ("", "## What people changed")
    yield from _changes(r)
    yield from ("", "## Approvals", "")
    yield f"The run waits for an approval: {_one(dict(r.settings).get('Waits for approval', 'never'))}."
    for approval in r.approvals:
        yield from _approval(approval)
    for refused in r.refused:
        said = f"Refused to {_one(refused.asked)}, asked by {_one(refused.by.words)}, {_at(refused.at_utc)}"
        yield from _block(said, refused.reason)
    yield from ("", "## What went to which provider and host")
    for server in r.egress:
        yield from _egress(server)
    if not r.egress:
        yield from ("", "No prompt was sent anywhere.")
    yield from ("", "## Steps")
    for step in r.steps:
        yield from _step(step)
    yield from ("", "## Cost", "")
    for part in r.cost_parts:
        used = f"{part.usage.input_tokens:,} tokens in, {part.usage.output_tokens:,} out"
        yield f"- {part.what} ({_one(part.agent)}): {used}, {_one(part.cost)} {part.basis}".rstrip()
    yield f"- the run: {_one(r.cost)} {r.basis}".rstrip()
    yield from ("", "## What went wrong", "")
    for failure in r.failures:
        then = f"; {_one(failure.then)}" if failure.then else ""
        yield f"- {failure.place}: {_one(failure.code)} {_one(failure.error)}{then}"
    if not r.failures:
        yield "Nothing went wrong."
    yield from ("", "## Settings", "")
    yield from (f"- {name}: {_one(value)}" for name, value in r.settings)


def _plan(plan: PlanPart) -> Iterator[str]:
    which = f"the plan of step {plan.round}" if plan.round else "the plan"
    when = "" if plan.at_utc is None else f", {_at(plan.at_utc)}"
    yield from ("", f"### {which.capitalize()}{f', {plan.topology}' if plan.topology else ''}")
    yield from ("", f"By {_one(plan.written_by)}{when}.")
    for step in plan.steps:
        yield from _block(f"Step {step.label}, {_one(step.agent)}, access list {step.access}", step.instruction)
    for what, said in (("Repaired", plan.repairs), ("Warning", plan.warnings)):
        yield from (f"{what}: {_one(each)}" for each in said)
    for bad in plan.rejected:
        yield from _block(f"Attempt {bad.attempt}, rejected: {_one('; '.join(bad.faults))}", bad.raw)


def _changes(r: DecisionRecord) -> Iterator[str]:
    for edit in r.edits:
        of = f" of step {edit.round}" if edit.round else ""
        yield from ("", f"{_one(edit.by.words)} changed the plan{of}, {_at(edit.at_utc)}:")
        yield from (f"- {_one(each)}" for each in edit.changes)
        for each in edit.differences:
            for when, number, step in (("before", each.a, each.before), ("after", each.b, each.after)):
                if step is not None:
                    yield from _block(f"Step {number} {when} ({_one(step.agent)})", step.instruction)
    for part in r.given:
        how = "wrote" if part.how == "written" else "held fast"
        yield from ("", f"{_one(part.by.words)} {how} the output of step {part.step} ({_one(part.agent)}).")
        if part.before is not None:
            yield from _block("Before", part.before)
        yield from _block("After", part.after)
    if r.against is not None:
        how = "resumes" if r.against.resumed else "re-runs"
        yield from ("", f"It {how} run {_one(r.against.run_id)}.")
    if not (r.edits or r.given or r.against):
        yield from ("", "Nobody changed anything.")


def _approval(approval: ApprovalPart) -> Iterator[str]:
    by = "" if approval.by is None else f" by {_one(approval.by.words)}"
    when = "" if approval.decided_at_utc is None else f", {_at(approval.decided_at_utc)}"
    yield f"- {_one(approval.what)}, asked {_at(approval.requested_at_utc)}: {_one(approval.decision)}{by}{when}"
    if approval.note:
        yield from _block("  with the note", approval.note)


def _egress(server: Egress) -> Iterator[str]:
    place = f" at {_one(server.host)}" if server.host else ", in this process: nothing left it"
    yield from ("", f"### {_one(server.provider)}{place}{' (simulated)' if server.simulated else ''}", "")
    yield f"Asked there: {_one(', '.join(server.agents))}."
    for copy in server.received:
        earlier = f" ({copy.reused} of them sent by an earlier run)" if copy.reused else ""
        digest = f", sha256 {copy.sha256}" if copy.sha256 else ""
        yield f"- it got {copy.source}, in {plural(copy.times, 'prompt')}{earlier}{digest}"
    if server.wrote:
        yield f"- it wrote the output of {', '.join(server.wrote)}"
    if server.never:
        yield f"- it never got {', '.join(server.never)}"


def _step(step: StepPart) -> Iterator[str]:
    simulated = ", simulated" if step.simulated else ""
    yield from ("", f"### Step {step.label}, {_one(step.agent)}, {step.status}{simulated}", "")
    begun = "" if step.at_utc is None else f" Begun {_at(step.at_utc)}, {seconds(step.duration_ms)}."
    instead = f" {_one(step.instead)}." if step.instead else ""
    yield f"{_one(step.where)}.{begun}{instead}"
    yield from _block(f"It was told (access list {step.access})", step.instruction)
    if (said := _QUESTION.get(step.question)) is not None:
        yield f"- {said}"
    for what, pieces in (("it saw", step.granted), ("it was not shown", step.withheld)):
        for piece in pieces:
            if piece.sha256:
                size = f"{piece.characters:,} characters, sha256 {piece.sha256}"
                yield f"- {what} the output of step {piece.source} ({_one(piece.agent)}), {size}"
    for sent in step.sent:
        how = "It would have been sent" if step.instead else "It was sent"
        if sent.same_as:
            yield f"- {how.lower()}, as {sent.role}: {_one(sent.same_as)}"
        else:
            yield from _block(f"{how}, as {sent.role}", sent.text)
    digest = f", sha256 {step.output_sha256}" if step.output_sha256 else ""
    if step.output:
        yield from _block(f"Its output{digest}", step.output)
    else:
        yield from ("", "It has no output.")
    if step.reasoning:
        yield from _block("Its reasoning, which no other step saw", step.reasoning)


def _block(title: str, text: str) -> Iterator[str]:
    yield from ("", title, "")
    yield from (f"    | {line}" for line in _inert(text).split("\n"))
    yield ""


def _one(text: str) -> str:
    """Returns the text as a part of a line of ours."""
    return _inert(text).replace("\n", " ⏎ ")


def _inert(text: str) -> str:
    return plain(text).translate(_SEPARATORS)
