"""The simulated workers: they act on what they are given and on nothing else."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conductor_core.chat.messages import Finished, Message, TextDelta, WorkerSpec
from conductor_core.errors import PoolInvalid
from conductor_core.rehearsal import (
    DIFFICULTIES,
    EXAMPLES,
    FAMILIES,
    RehearsalWorker,
    generate,
    grade,
    rehearsal_specs,
)
from conductor_core.rehearsal.families import read_answer
from conductor_core.rehearsal.worker import CANNOT_ANSWER, token_count, token_pieces

SPECS = {spec.name: spec for spec in rehearsal_specs()}
TRAIN = EXAMPLES[3].task

Steps = Sequence[tuple[str, str, Sequence[int]]]


def respond(agent: str, messages: Sequence[Message], seed: int = 0) -> str:
    return RehearsalWorker(SPECS[agent], seed=seed, tokens_per_s=0).respond(messages)


def run(steps: Steps, seed: int = 0) -> list[str]:
    """Carries out (instruction, agent, reads) as an engine would: accessed steps as past turns, then its own."""
    outputs: list[str] = []
    for instruction, agent, reads in steps:
        messages = []
        for earlier in reads:
            messages.append(Message(role="user", content=steps[earlier][0]))
            messages.append(Message(role="assistant", content=outputs[earlier]))
        outputs.append(respond(agent, [*messages, Message(role="user", content=instruction)], seed))
    return outputs


def test_the_same_seed_and_messages_give_the_same_text_and_other_seeds_differ() -> None:
    asked = [Message(role="user", content=generate("algebra", "hard", 5).question)]
    assert respond("reasoner", asked, 3) == respond("reasoner", asked, 3)
    assert len({respond("reasoner", asked, seed) for seed in range(20)}) > 1


def test_a_verifier_without_the_solution_in_view_cannot_verify() -> None:
    steps: Steps = [
        (f"Solve: {TRAIN}", "reasoner", []),
        (f"Verify the solution of: {TRAIN}", "verifier", [0]),
        (f"Verify the solution of: {TRAIN}", "verifier", []),
    ]
    _, granted, withheld = run(steps)
    assert read_answer(granted, "time") is not None
    assert read_answer(withheld, "time") is None
    assert "nothing to verify" in withheld
    assert "access list" in withheld


def test_an_aggregator_without_answers_has_nothing_to_combine() -> None:
    _, output = run([("x", "writer", []), (f"Combine the answers to: {TRAIN}", "verifier", [])])
    assert read_answer(output, "time") is None
    assert "nothing to combine" in output


def test_an_aggregator_takes_the_majority_of_what_it_reads() -> None:
    messages = []
    for answer in ("10:00", "11:11", "10:00"):
        messages += [
            Message(role="user", content=f"Solve: {TRAIN}"),
            Message(role="assistant", content=f"**Answer: {answer}**"),
        ]
    output = respond(
        "verifier", [*messages, Message(role="user", content="Compare the answers and take the majority.")]
    )
    assert read_answer(output, "time") == "10:00"


def test_without_the_question_a_solver_says_so_and_a_writer_only_passes_on() -> None:
    outputs = run([("Solve it.", "reasoner", []), ("State the result.", "writer", [0])])
    assert all("simulated" in output or "simulation" in output for output in outputs)
    passed_on = respond(
        "writer",
        [
            Message(role="user", content="Solve it."),
            Message(role="assistant", content="**Answer: 13:37**"),
            Message(role="user", content="State the result."),
        ],
    )
    assert "**Answer: 13:37**" in passed_on
    assert "question itself is not in view" in passed_on


def test_a_check_without_the_question_is_called_unchecked() -> None:
    output = respond(
        "verifier",
        [
            Message(role="user", content="Solve it."),
            Message(role="assistant", content="**Answer: 13:37**"),
            Message(role="user", content="Check the result."),
        ],
    )
    assert "unchecked" in output


def _score(steps_for: Any, cases: Sequence[tuple[str, Any]], seeds: int = 40) -> float:
    right = total = 0
    for family, difficulty in cases:
        for seed in range(seeds):
            task = generate(family, difficulty, seed)
            right += grade(task, run(steps_for(task.question), seed)[-1])
            total += 1
    return right / total


def test_skill_shows_over_many_seeds() -> None:
    def alone(agent: str) -> Any:
        return lambda question: [(question, agent, [])]

    coding = [("code", difficulty) for difficulty in DIFFICULTIES]
    assert _score(alone("coder"), coding) > _score(alone("scientist"), coding) + 0.1
    facts = [("facts", difficulty) for difficulty in DIFFICULTIES]
    assert _score(alone("scientist"), facts) > _score(alone("writer"), facts) + 0.2
    strict = [("format", difficulty) for difficulty in DIFFICULTIES]
    assert _score(alone("writer"), strict) > _score(alone("coder"), strict) + 0.2


def test_a_plan_and_a_check_help_on_hard_tasks() -> None:
    hard = [(family, "hard") for family in FAMILIES]
    alone = _score(lambda q: [(q, "reasoner", [])], hard, 20)
    planned = _score(lambda q: [(f"Plan: {q}", "planner", []), ("Solve it by the plan.", "reasoner", [0])], hard, 20)
    checked = _score(
        lambda q: [
            (f"Plan: {q}", "planner", []),
            ("Solve it by the plan.", "reasoner", [0]),
            ("Check the solution and correct it.", "verifier", [0, 1]),
        ],
        hard,
        20,
    )
    blind = _score(
        lambda q: [
            (f"Plan: {q}", "planner", []),
            ("Solve it by the plan.", "reasoner", [0]),
            (f"Check the solution of {q}", "verifier", []),
        ],
        hard,
        5,
    )
    assert alone + 0.2 < planned < checked
    assert blind == 0


@pytest.mark.parametrize("family", FAMILIES)
def test_a_good_text_is_of_readable_length_and_carries_the_numbers_of_the_task(family: str) -> None:
    for difficulty in DIFFICULTIES:
        task = generate(family, difficulty, 11)
        for agent in SPECS:
            solved, planned, checked = run(
                [
                    (f"Solve this: {task.question}", agent, []),
                    (f"Plan how to solve this: {task.question}", agent, []),
                    ("Check the solution.", agent, [0]),
                ]
            )
            for text in (solved, planned, checked):
                assert 20 <= token_count(text) <= 320, text
            assert read_answer(solved, task.solution.kind) is not None
            assert "Answer:" not in planned


def test_outside_its_world_it_says_in_one_line_that_it_cannot_answer() -> None:
    steps: Steps = [
        ("Plan an answer to: Why is the sky blue?\nTake your time.", "planner", []),
        ("Answer from the plan.", "scientist", [0]),
    ]
    for text in run(steps):
        said, _, signature = text.partition("\n\n")
        assert said.startswith(CANNOT_ANSWER)
        assert "\n" not in said
        assert "simulated" in signature
        assert "**Answer" not in text


async def test_that_it_cannot_answer_it_says_at_once() -> None:
    slow = RehearsalWorker(SPECS["reasoner"], seed=0, tokens_per_s=0.001)
    asked = [Message(role="user", content="Why is the sky blue?")]
    async with asyncio.timeout(30):
        said = [chunk.text async for chunk in slow.answer(asked) if isinstance(chunk, TextDelta)]
    assert "".join(said).startswith(CANNOT_ANSWER)


@settings(max_examples=60)
@given(st.text(max_size=600), st.text(max_size=600), st.sampled_from(sorted(SPECS)))
def test_any_text_is_only_data(instruction: str, output: str, agent: str) -> None:
    text = respond(
        agent,
        [
            Message(role="system", content=output),
            Message(role="user", content=instruction),
            Message(role="assistant", content=output),
            Message(role="user", content=instruction),
        ],
    )
    assert text.strip()


def test_hostile_text_is_not_repeated() -> None:
    hostile = "````\n</script><script>alert(1)</script>\n![x](https://example.org/x.png)\x1b[31m\x00"
    text = respond("writer", [Message(role="user", content=hostile)])
    assert not [part for part in ("<script>", "example.org", "\x1b", "\x00") if part in text]


async def test_the_stream_is_the_text_with_its_usage_at_the_end() -> None:
    worker = RehearsalWorker(SPECS["reasoner"], seed=0, tokens_per_s=0)
    messages = [Message(role="user", content=TRAIN)]
    chunks = [chunk async for chunk in worker.answer(messages)]
    text = "".join(chunk.text for chunk in chunks if isinstance(chunk, TextDelta))
    assert text == worker.respond(messages)
    last = chunks[-1]
    assert isinstance(last, Finished)
    assert last.finish_reason == "stop"
    assert last.usage is not None
    assert last.usage.output_tokens == token_count(text)
    assert last.usage.input_tokens > token_count(TRAIN)
    assert not last.usage.estimated
    assert last.cost_usd == 0
    assert "simulated" in (last.model or "")
    await worker.aclose()


async def test_max_tokens_cuts_the_answer_and_says_so() -> None:
    spec = SPECS["reasoner"].model_copy(update={"params": {"max_tokens": 10}})
    chunks = [
        chunk
        async for chunk in RehearsalWorker(spec, seed=0, tokens_per_s=0).answer([Message(role="user", content=TRAIN)])
    ]
    last = chunks[-1]
    assert isinstance(last, Finished)
    assert last.finish_reason == "length"
    assert last.usage is not None
    assert last.usage.output_tokens == 10


async def test_the_pace_is_kept_by_waiting_and_zero_never_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []

    async def instead_of_sleep(delay: float) -> None:
        waited.append(delay)

    monkeypatch.setattr(asyncio, "sleep", instead_of_sleep)
    messages = [Message(role="user", content=TRAIN)]
    at_once = [c async for c in RehearsalWorker(SPECS["planner"], seed=0, tokens_per_s=0).answer(messages)]
    assert waited == []
    paced = [c async for c in RehearsalWorker(SPECS["planner"], seed=0, tokens_per_s=5).answer(messages)]
    pieces = [c for c in paced if isinstance(c, TextDelta)]
    assert len(waited) == len(pieces) > 20
    assert "".join(c.text for c in pieces) == "".join(c.text for c in at_once if isinstance(c, TextDelta))


async def test_a_paced_answer_can_be_cancelled() -> None:
    worker = RehearsalWorker(SPECS["planner"], seed=0, tokens_per_s=1e-3)

    async def drain() -> None:
        async for _ in worker.answer([Message(role="user", content=TRAIN)]):
            pass

    task = asyncio.create_task(drain())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_an_unknown_profile_is_a_fault_of_the_pool() -> None:
    spec = WorkerSpec(name="x", provider="rehearsal", model="rehearsal/oracle")
    with pytest.raises(PoolInvalid, match="oracle"):
        RehearsalWorker(spec, seed=0, tokens_per_s=0)


@given(st.text(max_size=300))
def test_tokens_join_to_the_text(text: str) -> None:
    assert "".join(token_pieces(text)) == text
    assert token_count(text) == len(token_pieces(text))
