"""Where the context of a run went: the matrix says what the messages hold, and the parts add up."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conductor_core.chat.messages import Message, Price
from conductor_core.chat.usage import estimate_input_tokens, estimate_tokens
from conductor_core.engine.estimates import what_if
from conductor_core.errors import WorkerRefused
from conductor_core.run.context_flow import Cell, RoundContext, context_flow, sent_messages, source_name
from conductor_core.run.trace import RunTrace, fold
from conductor_core.run.values import Limits, Path
from conductor_core.workflow.model import CONDUCTOR_AGENT, Workflow
from pages.components.context.page import matrix_data
from tests.support.fakes import ScriptedConductor, ScriptedWorker, lists_of, run, workflow_of
from tests.support.run_events import created, planned, step_started
from tests.support.workflows import AGENTS, workflows

TASK = "How many boxes are left?"
LIMITS = Limits(max_steps=12)


def cell(round_: RoundContext, source: Path | None, reader: int) -> Cell:
    found = round_.cell(source, (*round_.path, reader))
    assert found is not None
    return found


def ran(workflow: Workflow, *workers: ScriptedWorker, **request: Any) -> RunTrace:
    workers = workers or tuple(ScriptedWorker(name) for name in AGENTS)
    return asyncio.run(run(*workers, workflow=workflow, task=TASK, limits=LIMITS, **request))[0]


@settings(max_examples=100, deadline=None)
@given(workflow=workflows(), give_question=st.booleans(), turns=st.integers(0, 2))
def test_the_matrix_and_the_parts_say_exactly_what_was_sent(
    workflow: Workflow, give_question: bool, turns: int
) -> None:
    before = tuple(Message(role="user", content=f"turn {number}") for number in range(turns))
    trace = ran(workflow, turns_before=before)
    trace.give_question = give_question  # only read: the parts must add up either way
    (round_,) = context_flow(trace).rounds
    for step, read in zip(trace.steps, round_.steps, strict=True):
        sent = sent_messages(step)
        assert read.tokens == sum(part.tokens for part in read.parts) == estimate_input_tokens(sent)
        assert sum(part.share for part in read.parts) == pytest.approx(1)
        assert all(part.tokens >= 0 for part in read.parts)
        for earlier in trace.steps[: step.index]:
            found = cell(round_, earlier.path, step.index)
            if earlier.index in step.reads:
                assert found.message is not None
                assert (found.state, sent[found.message].text) == ("granted", earlier.output)
            else:
                assert found.state in ("withheld", "absent")
                assert found.message is None
                assert earlier.path not in [part.source for part in read.parts]
    if not give_question:
        for step in trace.steps:
            question = cell(round_, None, step.index)
            seen = any(TASK in message.text for message in step.messages)
            assert (question.state in ("granted", "passed_on")) == seen
            if seen:
                assert question.message is not None
                assert TASK in step.messages[question.message].text


@settings(max_examples=60, deadline=None)
@given(workflow=workflows(), system=st.sampled_from(("", "Be brief. Call the user Captain.")))
def test_the_plan_as_it_is_costs_what_its_messages_say_and_lies_between_none_and_all(
    workflow: Workflow, system: str
) -> None:
    trace = ran(workflow, system=system)
    found = what_if(trace)
    assert found is not None
    assert found.planned.usage.input_tokens == sum(estimate_input_tokens(step.messages) for step in trace.steps)
    read = [variant.usage.input_tokens for variant in found.variants]
    assert read == sorted(read)
    assert len({variant.usage.output_tokens for variant in found.variants}) == 1
    # Every worker of these tests costs 1 USD per million tokens read and 10 per million written.
    written = found.planned.usage.output_tokens
    assert [variant.cost_usd for variant in found.variants] == pytest.approx(
        [(tokens + 10 * written) / 1e6 for tokens in read]
    )


def test_a_cell_of_a_large_plan_is_found_without_looking_through_all_of_them() -> None:
    """The Context page looks for each of the 3,240 cells of a plan of 80 steps; each with each took seven seconds."""

    class Counted(tuple[Cell, ...]):
        looks = 0

        def __iter__(self) -> Iterator[Cell]:
            for each in tuple.__iter__(self):
                Counted.looks += 1
                yield each

    wide = workflow_of(*((AGENTS[0], f"part {number}", "all") for number in range(80)))
    round_ = context_flow(fold([created("r"), *planned("r", wide)])).rounds[0]
    counted = RoundContext.model_construct(**{**dict(round_), "cells": Counted(round_.cells)})
    drawn = matrix_data(counted, AGENTS)
    assert sum(cell is not None for row in drawn["rows"] for cell in row["cells"]) == len(round_.cells) == 80 * 81 // 2
    assert Counted.looks == len(round_.cells)


def test_an_unknown_price_stays_unknown_and_the_rest_is_a_least_cost() -> None:
    workers = ScriptedWorker("a"), ScriptedWorker("b", usd_per_mtok=None)
    found = what_if(ran(workflow_of(("a", "one", ()), ("b", "two", (0,))), *workers))
    assert found is not None
    assert found.everything.cost_usd is None
    assert str(found.everything.cost).startswith("at least $0.0")


def test_the_question_in_an_instruction_that_a_step_reads_has_reached_it() -> None:
    trace = ran(workflow_of(("a", "solve {question}", ()), ("b", "check it", (0,)), ("c", "be kind", ())))
    (round_,) = context_flow(trace).rounds
    states = [cell(round_, None, reader).state for reader in range(3)]
    assert states == ["granted", "passed_on", "withheld"]
    assert [part.kind for part in round_.steps[1].parts] == ["instruction", "output", "own"]


def test_a_step_that_started_before_an_output_was_there_is_not_said_to_have_been_denied_it() -> None:
    trace = ran(workflow_of(("a", "one", ()), ("b", "two", ())), ScriptedWorker("a"), ScriptedWorker("b"))
    (round_,) = context_flow(trace).rounds
    found = cell(round_, (0,), 1)
    assert (found.state, found.tokens) == ("absent", None)


def test_failed_and_skipped_steps_have_their_place_and_count_as_the_average() -> None:
    failing = ScriptedWorker("b", lambda _: WorkerRefused("no such model"))
    plan = workflow_of(("a", "solve {question}", ()), ("b", "check", (0,)), ("a", "conclude", (1,)))
    trace = ran(plan, ScriptedWorker("a"), failing)
    assert [step.status for step in trace.steps] == ["completed", "failed", "skipped"]
    flow = context_flow(trace)
    (round_,) = flow.rounds
    assert cell(round_, (0,), 1).state == "granted"
    assert [cell(round_, (index,), 2).state for index in (0, 1)] == ["unplanned", "planned"]
    assert not round_.steps[2].begun
    assert round_.steps[2].parts == ()
    found = what_if(trace)
    assert found is not None
    assert found.assumed == ((1,), (2,))
    assert found.planned.usage.output_tokens == 3 * trace.steps[0].usage.output_tokens


def test_a_run_without_an_answer_says_nothing_about_other_lists() -> None:
    trace = fold([created("r"), *planned("r"), step_started("r", 0, 30)])
    assert what_if(trace) is None
    assert context_flow(fold([created("r")])).rounds == ()


async def test_a_reused_step_is_said_to_have_been_sent_by_an_earlier_run() -> None:
    plan = workflow_of(("a", "solve {question}", ()), ("b", "check", (0,)))
    first, _ = await run(ScriptedWorker("a"), ScriptedWorker("b"), workflow=plan, task=TASK)
    after = workflow_of(("a", "solve {question}", ()), ("b", "check it well", (0,)))
    second, _ = await run(ScriptedWorker("a"), ScriptedWorker("b"), workflow=after, task=TASK, reuse_from=first)
    assert second.steps[0].reused_from is not None
    (server,) = context_flow(second).servers
    question, output, _ = server.received
    assert (question.times, question.reused) == (2, 1)
    assert (output.times, output.reused, output.wrote) == (1, 0, True)
    assert cell(context_flow(second).rounds[0], (0,), 1).state == "granted"


async def test_servers_are_told_apart_by_host_and_a_fallback_counts_as_asked() -> None:
    near = ScriptedWorker("a", base_url="http://127.0.0.1:9/v1")
    far = ScriptedWorker("b", lambda _: WorkerRefused("gone"), base_url="https://far.example/v1", fallback="c")
    other = ScriptedWorker("c", base_url="https://other.example:8443/v1", usd_per_mtok=Price(input=0, output=0))
    plan = workflow_of(("a", "solve {question}", ()), ("b", "check", (0,)))
    trace, _ = await run(near, far, other, workflow=plan, task=TASK)
    assert trace.steps[1].answered_by == "c"
    servers = context_flow(trace).servers
    assert [(server.host, server.agents) for server in servers] == [
        ("127.0.0.1:9", ("a",)),
        ("far.example", ("b",)),
        ("other.example:8443", ("c",)),
    ]
    got = [[(each.times, each.wrote) for each in server.received] for server in servers]
    # The question, step 0, step 1: the question is in the instruction of step 0, which step 1 reads.
    assert got == [
        [(1, False), (0, True), (0, False)],
        [(1, False), (1, False), (0, False)],
        [(1, False), (1, False), (0, True)],
    ]


async def test_a_recursive_step_has_the_conductors_prompt_and_its_round_a_matrix_of_its_own() -> None:
    inner = workflow_of(("b", "look again: {question}", ()), ("a", "conclude", (0,)))
    plan = workflow_of(("a", "solve {question}", ()), ("b", "aside", ()), (CONDUCTOR_AGENT, "improve it", (0,)))
    conductor = ScriptedConductor(lists_of(inner, ("a", "b")))
    trace, _ = await run(ScriptedWorker("a"), ScriptedWorker("b"), workflow=plan, conductor=conductor, task=TASK)
    flow = context_flow(trace)
    outer, below = flow.rounds
    assert (outer.path, below.path) == ((), (2,))
    assert [cell(outer, source, 2).state for source in (None, (0,), (1,))] == ["granted", "granted", "withheld"]
    assert [part.kind for part in outer.steps[2].parts] == ["task", "output", "conductor"]
    assert outer.steps[2].tokens == estimate_input_tokens(sent_messages(trace.steps[2]))
    assert outer.steps[2].parts[1].tokens == estimate_tokens(trace.steps[0].output)
    assert cell(below, (2, 0), 1).state == "granted"
    workers, asked = flow.servers
    assert asked.agents == (CONDUCTOR_AGENT,)
    # The recursive step's output was written where the last step of its round was.
    assert [(source_name(each.source), each.wrote) for each in workers.received if each.wrote] == [
        ("step 0", True),
        ("step 1", True),
        ("step 2", True),
        ("step 2.0", True),
        ("step 2.1", True),
    ]


def test_the_system_text_of_a_client_is_no_turn_of_the_conversation() -> None:
    told = (Message(role="system", content="Be brief."), Message(role="user", content="Hello."))
    begun = step_started("r", 0, 30)
    asked = begun.model_copy(update={"messages": (*told, *begun.messages)})
    flow = context_flow(fold([created("r", turns_before=told[1:], system="Be brief."), *planned("r"), asked]))
    assert [part.kind for part in flow.rounds[0].steps[0].parts][:2] == ["system", "conversation"]
