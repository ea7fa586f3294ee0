"""Every call of a worker and of the Conductor counts, with the server that received it; nothing else does."""

import pytest

from conductor_core.chat.messages import ConductorInfo, Message, ToolResultPart, Usage, WorkerSpec
from conductor_core.chat.tools import NOT_SENT, ToolOutcome
from conductor_core.run import events as ev
from conductor_core.run.egress import calls
from conductor_core.run.values import PoolInfo
from tests.support.run_events import created, planned, run_completed, step_completed, step_started
from tests.support.tool_runs import begun, tool_call, tool_ran, tool_sent, tools_called

POOL = PoolInfo(
    name="p",
    workers=(
        WorkerSpec(name="solver", provider="openai", model="m", base_url="http://one.example:81/v1", fallback="other"),
        WorkerSpec(name="other", provider="anthropic", model="m"),
    ),
)
REMOTE = ConductorInfo(name="http://two.example/v1#m", kind="remote", model="m")


def retried(then: str, agent: str | None = None, then_agent: str | None = None, code: str = "X") -> ev.StepRetried:
    return ev.StepRetried.model_validate(
        {
            "run_id": "r",
            "path": (0,),
            "attempt": 1,
            "error_code": code,
            "error": "e",
            "wait_ms": 0,
            "agent": agent,
            "then": then,
            "then_agent": then_agent,
        }
    )


def told(*events: ev.Event) -> list[tuple[str, str, str, str, str]]:
    first = created("r", pool=POOL, conductor=REMOTE)
    found = calls([first, *planned("r"), *events])
    return [(call.agent, call.provider, call.host, call.how, call.ended) for call in found]


PLAN = ("conductor", "openai", "two.example", "first", "completed")


def test_a_step_and_its_plan_are_a_call_each() -> None:
    assert told(step_started("r", 0, 30), step_completed("r", 0, "a", 40), run_completed("r")) == [
        PLAN,
        ("solver", "openai", "one.example:81", "first", "completed"),
    ]


def test_repeated_calls_and_fallbacks_count_each_at_its_server() -> None:
    events = (
        step_started("r", 0, 30),
        retried("again"),
        retried("fallback", None, "other"),
        retried("again", "other", "other", code="AnswerCut"),
        step_completed("r", 0, "a", 40),
    )
    assert told(*events) == [
        PLAN,
        ("solver", "openai", "one.example:81", "first", "failed"),
        ("solver", "openai", "one.example:81", "again", "failed"),
        ("other", "anthropic", "api.anthropic.com", "fallback", "cut"),
        ("other", "anthropic", "api.anthropic.com", "again", "completed"),
    ]


def test_an_answer_that_is_kept_is_no_further_call() -> None:
    events = (step_started("r", 0, 30), retried("again", code="AnswerEmpty"), retried("kept"))
    kept = step_completed("r", 0, "a", 40).model_copy(update={"usage": Usage()})
    assert [each[3:] for each in told(*events, kept)] == [PLAN[3:], ("first", "empty"), ("again", "failed")]


def test_a_call_that_no_event_ends_was_made_all_the_same() -> None:
    assert told(step_started("r", 0, 30))[-1][4] == "running"
    assert told(step_started("r", 0, 30), ev.RunInterrupted(run_id="r"))[-1][4] == "broken off"


def test_each_attempt_of_the_conductor_is_a_call_with_its_own_messages() -> None:
    def started(text: str) -> ev.PlanStarted:
        return ev.PlanStarted(run_id="r", messages=(Message(role="user", content=text),))

    failed = ev.PlanRetried(run_id="r", error_code="X", error="e", wait_ms=1)
    rejected = ev.PlanRejected(run_id="r", raw="?", faults=(), will_retry=True)
    plan = planned("r")[-1]
    found = calls([created("r", conductor=REMOTE), started("first"), failed, rejected, started("told why"), plan])
    assert [(call.how, call.ended, call.messages[0].text) for call in found] == [
        ("first", "failed", "first"),
        ("again", "rejected", "first"),
        ("first", "completed", "told why"),
    ]


def test_a_plan_that_was_given_and_an_answer_that_was_reused_are_no_calls() -> None:
    given = planned("r")[-1].model_copy(update={"source": "file", "raw": "", "usage": Usage()})
    reused = ev.StepReused(
        run_id="r",
        path=(0,),
        agent="solver",
        identity="i",
        messages=(Message(role="user", content="x"),),
        source_run_id="other",
        source_path=(0,),
        output="a",
        output_sha256="",
        finish_reason="stop",
        usage=Usage(),
    )
    assert calls([created("r", pool=POOL), given, reused, run_completed("r")]) == []


@pytest.mark.parametrize("begun", [False, True])
def test_a_call_that_was_announced_counts_once_an_event_shows_that_it_began(begun: bool) -> None:
    """The run was stopped while it waited, or while the other worker answered."""
    shown = [ev.StepDelta(run_id="r", path=(0,), text="a")] if begun else []
    found = told(step_started("r", 0, 30), retried("fallback", None, "other"), *shown, ev.RunCancelled(run_id="r"))
    ended = "broken off" if begun else "announced"
    assert found[1:] == [
        ("solver", "openai", "one.example:81", "first", "failed"),
        ("other", "anthropic", "api.anthropic.com", "fallback", ended),
    ]


def test_a_plan_that_was_to_be_asked_for_again_is_announced_only() -> None:
    started = ev.PlanStarted(run_id="r", messages=(Message(role="user", content="plan"),))
    failed = ev.PlanRetried(run_id="r", error_code="X", error="e", wait_ms=1)
    found = calls([created("r", conductor=REMOTE), started, failed, ev.RunCancelled(run_id="r")])
    assert [(call.how, call.ended) for call in found] == [("first", "failed"), ("again", "announced")]


def test_waiting_for_a_server_that_loads_its_model_is_no_new_call() -> None:
    started = ev.PlanStarted(run_id="r", messages=(Message(role="user", content="plan"),))
    loads = ev.PlanRetried(run_id="r", error_code="X", error="e", wait_ms=1, loading=True)
    found = calls([created("r", conductor=REMOTE), started, loads, planned("r")[-1]])
    assert [(call.how, call.ended) for call in found] == [("first", "completed")]
    step = retried("again").model_copy(update={"loading": True})
    assert [each[3:] for each in told(step_started("r", 0, 30), step, step_completed("r", 0, "a", 40))] == [
        PLAN[3:],
        ("first", "completed"),
    ]


def sent_in(*events: ev.Event) -> list[tuple[str, str, str, str]]:
    return [(call.agent, call.provider, call.host, call.ended) for call in calls([*begun("r"), *events])][1:]


ONE = "one.example:81"
SEARCH, WRITE, RUN = (
    tool_call("r", number, name, '{"text": "Paris\\nFrance"}')
    for number, name in enumerate(("web__search", "files__write", "python__run"))
)


def test_a_call_of_a_tool_server_is_sent_when_it_leaves_and_not_when_the_worker_asks_for_it() -> None:
    asked = tools_called("r", [SEARCH, WRITE])
    assert sent_in(asked) == [("writer", "openai", ONE, "called tools")]
    assert sent_in(asked, tool_sent("r", WRITE))[1:] == [
        ("files.write", "mcp", "this machine: mcp-files", "running"),
    ]


def test_each_tool_server_is_named_by_where_it_is_and_the_sandbox_is_none() -> None:
    sent = (tool_sent("r", each) for each in (SEARCH, WRITE, RUN))
    found = sent_in(tools_called("r", [SEARCH, WRITE, RUN]), *sent, ev.RunInterrupted(run_id="r"))
    assert found[1:] == [
        ("web.search", "mcp", "tools.example:82", "broken off"),
        ("files.write", "mcp", "this machine: mcp-files", "broken off"),
        ("python.run", "python", "", "broken off"),
    ]


@pytest.mark.parametrize(
    ("outcome", "ended"),
    [("returned", "completed"), ("error", "failed"), ("timed_out", "timed out"), ("unknown", "unknown")],
)
def test_a_call_that_left_counts_whatever_became_of_it(outcome: ToolOutcome, ended: str) -> None:
    events = (tools_called("r", [WRITE]), tool_sent("r", WRITE), tool_ran("r", WRITE, "x", outcome))
    assert sent_in(*events)[1] == ("files.write", "mcp", "this machine: mcp-files", ended)


@pytest.mark.parametrize("outcome", sorted(NOT_SENT))
def test_a_call_of_which_nothing_was_sent_is_no_call(outcome: ToolOutcome) -> None:
    events = (tools_called("r", [WRITE]), tool_sent("r", WRITE), tool_ran("r", WRITE, "x", outcome))
    assert [each[0] for each in sent_in(*events)] == ["writer", "writer"]
    assert [each[0] for each in sent_in(events[0], events[2])] == ["writer", "writer"]


def test_what_tools_brought_is_received_by_the_next_call_of_the_worker() -> None:
    events = [*begun("r"), tools_called("r", [SEARCH, WRITE])]
    events += [tool_sent("r", SEARCH), tool_ran("r", SEARCH, "found it"), tool_sent("r", WRITE)]
    assert [call.ended for call in calls(events)][-1] == "running"  # one result is missing, and no call was announced
    events += [tool_ran("r", WRITE, "wrote it"), step_completed("r", 0, "a", 400)]
    again = calls(events)[-1]
    assert (again.agent, again.how, again.ended) == ("writer", "again", "completed")
    assert all(any(words in text for text in again.texts) for words in ("step 0", "found it", "wrote it"))


def test_results_of_the_client_and_of_tool_servers_go_to_the_next_call_together() -> None:
    clients = tool_call("r", 7, "clock")
    said = ev.ToolReturned(run_id="r", results=(ToolResultPart(call_id="call_r_7", text="noon"),), said="Hurry.")
    ran = tool_ran("r", WRITE, "wrote it")
    both: tuple[tuple[ev.Event, ev.Event], ...] = ((said, ran), (ran, said))
    for results in both:
        asked = [*begun("r"), tools_called("r", [WRITE], clients=[clients]), tool_sent("r", WRITE), *results]
        found = calls(asked)
        assert [(call.agent, call.provider) for call in found[2:4]] == [("clock", "client"), ("files.write", "mcp")]
        again = " ".join(found[-1].texts)
        assert all(words in again for words in ("noon", "wrote it", "Hurry."))
        assert found[-1].ended == "announced"


def test_arguments_are_found_as_they_are_written_and_as_their_escapes_read() -> None:
    tool = calls([*begun("r"), tools_called("r", [WRITE]), tool_sent("r", WRITE)])[-1]
    assert any("Paris\nFrance" in text for text in tool.texts)
