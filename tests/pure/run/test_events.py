"""Every event can be written as JSON and read again, and nothing else can be read as one."""

import json
from pathlib import Path
from typing import get_args

import pytest
from pydantic import ValidationError

from conductor_core.chat.messages import ToolCall, ToolResultPart, ToolSpec, Usage
from conductor_core.chat.progress import Progress
from conductor_core.chat.tools import OfferedTool, ToolListing
from conductor_core.run import events as ev
from conductor_core.run.events import EVENT, FINAL_KINDS, KINDS, VOCABULARY, Event, TakenOut
from conductor_core.run.request import Given
from conductor_core.run.values import SharedOutput
from conductor_core.workflow.model import Fault
from tests.support.run_events import TWO_STEPS, created, planned, run_completed, step_completed, step_started

SHARED = SharedOutput(path=(0,), agent="solver", sha256="ab", characters=2, tokens=1)
FAULT = Fault(code="unknown_agent", message="no agent 9", step=1, field="agent", line=2, column=3)
READ = OfferedTool(server="files", tool="read", spec=ToolSpec(name="files__read"), effects=False)
EXAMPLES: list[Event] = [
    created("r"),
    *planned("r"),
    ev.PlanRetried(run_id="r", attempt=1, error_code="ConductorFailed", error="503", wait_ms=5, partial="model_id"),
    ev.PlanRejected(run_id="r", raw="[", faults=(FAULT,), will_retry=True),
    ev.PlanEdited(run_id="r", door="page", before=TWO_STEPS, after=TWO_STEPS, origins=(0, 1)),
    step_started("r", 0, 1).model_copy(update={"granted": (SHARED,), "withheld": (SHARED,)}),
    ev.ToolsListed(run_id="r", listing=ToolListing(server="files", kind="stdio", where="files-server", tools=(READ,))),
    ev.ToolSent(run_id="r", path=(0,), call_id="call_r_0", server="files", tool="read", effects=False),
    ev.ToolRan(
        run_id="r",
        path=(0,),
        server="files",
        tool="read",
        effects=False,
        outcome="returned",
        result=ToolResultPart(call_id="call_r_0", text="x"),
    ),
    ev.PlanProgress(run_id="r", progress=Progress(phase="loading", done=1, total=2)),
    ev.StepProgress(run_id="r", path=(0,), progress=Progress(phase="writing", done=1, total=2, per_s=3.5)),
    ev.StepDelta(run_id="r", path=(0, 1), text="x\x00</script>\u2028", reasoning=True),
    ev.StepRetried(run_id="r", path=(0,), attempt=1, error_code="WorkerFailed", error="500", wait_ms=5, partial="x"),
    ev.ToolCalled(run_id="r", path=(0,), text="x", calls=(ToolCall(name="f", arguments="{}", call_id="call_r_0"),)),
    ev.ToolReturned(run_id="r", results=(ToolResultPart(call_id="call_r_0", text="1"),), said="y", command=5),
    step_completed("r", 0, "42", 40),
    ev.StepFailed(run_id="r", path=(0,), error_code="WorkerRefused", error="401"),
    ev.StepSkipped(run_id="r", path=(1,), because=((0,),)),
    ev.StepReused(
        run_id="r",
        path=(0,),
        agent="solver",
        identity="i",
        messages=(),
        source_run_id="q",
        source_path=(0,),
        output="42",
        output_sha256="ab",
        finish_reason="stop",
        usage=Usage(input_tokens=1, output_tokens=1),
    ),
    ev.StepGiven(
        run_id="r", path=(0,), agent="solver", output="42", output_sha256="ab", given=Given(how="written", door="page")
    ),
    ev.RecursionEntered(run_id="r", path=(1,), depth=1),
    ev.RecursionLeft(run_id="r", path=(1,), how="answered"),
    run_completed("r"),
    ev.RunFailed(run_id="r", error_code="LimitReached", error="too dear"),
    ev.RunCancelled(run_id="r", door="page"),
    ev.RunInterrupted(run_id="r"),
    ev.RunTaken(run_id="r"),
    ev.ApprovalRequested(
        run_id="r", number=1, of="step", path=(0,), rules=("usd:0.5",), identity="i", agent="solver", most_usd=0.7
    ),
    ev.ApprovalGranted(run_id="r", numbers=(1, 2), rest=True, note="go", command=3, door="cli", carried_from="q"),
    ev.ApprovalDenied(run_id="r", numbers=(1,), note="no", command=3, door="page"),
    ev.CommandRefused(run_id="r", command=4, asked="edit", reason="step 0 has begun", door="api"),
    ev.RunWaiting(run_id="r"),
    ev.TextRedacted(run_id="r", of="run.created", taken_out=(TakenOut(what="mail", count=2, digests=("ab", "cd")),)),
    ev.RunDenied(run_id="r", error="no", door="page"),
]


def vocabulary() -> list[str]:
    """Every kind of event and every field of it, however deep, by name."""
    schema = EVENT.json_schema()
    named = {**schema["$defs"], "Event": {}}
    return sorted(f"{name}.{field}" for name, shape in named.items() for field in shape.get("properties", ()))


def test_the_vocabulary_has_a_version() -> None:
    """A field or kind of event was added: add it to vocabulary.json, under a new VOCABULARY if the last is released."""
    known: dict[str, list[str]] = json.loads(Path(__file__).with_name("vocabulary.json").read_text())
    assert list(known)[-1] == str(VOCABULARY)
    so_far: list[str] = []
    for added in known.values():
        so_far += (name for name in added if not name.startswith("-"))
        # What only old databases hold: reading it has a test of its own.
        so_far = [name for name in so_far if f"-{name}" not in added]
    assert sorted(so_far) == vocabulary(), "nothing is taken away or renamed without a way to read it"


def test_there_is_an_example_of_every_kind() -> None:
    assert {type(event) for event in EXAMPLES} == set(get_args(Event))
    assert len({event.kind for event in EXAMPLES}) == len(get_args(Event))
    assert {event.kind for event in EXAMPLES} == KINDS


@pytest.mark.parametrize("event", EXAMPLES, ids=lambda event: event.kind)
def test_an_event_is_read_as_it_was_written(event: Event) -> None:
    written = event.model_dump_json()
    read = EVENT.validate_json(written)
    assert read == event
    assert type(read) is type(event)
    assert read.model_dump_json() == written, "the bytes that a digest is taken over do not depend on the reader"


@pytest.mark.parametrize(
    "text",
    [
        '{"run_id": "r"}',
        '{"run_id": "r", "kind": "run.exploded"}',
        '{"run_id": "r", "kind": "run.interrupted", "extra": 1}',
        '{"kind": "run.interrupted"}',
        '{"run_id": "r", "kind": "run.interrupted", "at_ms": -1}',
        "[]",
    ],
)
def test_what_is_no_event_is_refused(text: str) -> None:
    with pytest.raises(ValidationError):
        EVENT.validate_json(text)


def test_an_event_cannot_be_changed() -> None:
    with pytest.raises(ValidationError):
        created("r").request = created("r").request  # type: ignore[misc]


def test_the_final_kinds_are_the_ends_of_a_run() -> None:
    kinds = {event.kind for event in EXAMPLES}
    assert kinds >= FINAL_KINDS
    assert {kind for kind in kinds if kind.startswith("run.")} - FINAL_KINDS == {
        "run.created",
        "run.taken",
        "run.waiting",
    }
