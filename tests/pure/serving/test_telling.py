"""What a client is told of a run whose worker calls tools of its pool before it answers."""

import pytest

from conductor_core.chat.messages import ToolCall, ToolResultPart
from conductor_core.run import events as ev
from conductor_core.run.request import ClientRequest
from conductor_core.serving.outcome import Ended, Outcome, Part, Telling, Text
from conductor_core.workflow.model import Step, Workflow
from tests.support.run_events import created, planned, run_completed, step_completed, step_started

ALONE = Workflow(steps=(Step(instruction="Solve it.", agent="solver"),))
CALL = ToolCall(call_id="call_r_0", name="files__read", arguments="{}")


def told(*, stream: bool, said: str = "Let me look.") -> tuple[str, Outcome]:
    """Returns the pieces of the answer as they are sent, and the response, of a run that looks before it answers."""
    ran = {"server": "files", "tool": "read", "effects": False}
    telling = Telling(created("r", client=ClientRequest(api="chat", model="fugu", stream=stream)))
    events: list[ev.Event] = [
        *planned("r", ALONE),
        step_started("r", 0, 30),
        ev.StepDelta(run_id="r", at_ms=31, path=(0,), text=said),
        ev.ToolCalled(run_id="r", at_ms=32, path=(0,), text=said, calls=(CALL,), ours=(CALL.call_id,)),
        ev.ToolSent(run_id="r", at_ms=33, path=(0,), call_id=CALL.call_id, **ran),
        ev.ToolRan(
            run_id="r",
            at_ms=34,
            path=(0,),
            outcome="returned",
            result=ToolResultPart(call_id="call_r_0", text="x"),
            **ran,
        ),
        ev.StepDelta(run_id="r", at_ms=35, path=(0,), text="42"),
        step_completed("r", 0, "42", 36),
        run_completed("r"),
    ]
    parts: list[Part] = [part for event in events for part in telling.feed(event)]
    ended = parts[-1]
    assert isinstance(ended, Ended)
    return "".join(part.text for part in parts if isinstance(part, Text)), ended.outcome


@pytest.mark.parametrize("stream", [True, False])
def test_what_is_said_before_a_tool_breaks_no_answer(*, stream: bool) -> None:
    sent, outcome = told(stream=stream)
    assert (outcome.status, outcome.finish, outcome.calls) == ("completed", "stop", ())
    if stream:
        assert sent == outcome.text == "Let me look.\n\n42", "what was sent cannot be taken back"
    else:
        assert outcome.text == "42"


def test_silence_before_a_tool_adds_nothing() -> None:
    sent, outcome = told(stream=True, said="")
    assert sent == outcome.text == "42"
