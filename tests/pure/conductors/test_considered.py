"""What else a Conductor considered: its tokens' probabilities, read as choices of agents and access lists."""

import json

from conductor_core.chat.messages import PlanFinished, PlanRequest, TextDelta, TokenChoice
from conductor_core.conductors.alternatives import TokenLog, read_alternatives
from conductor_core.conductors.catalogue import open_conductor
from conductor_core.conductors.roles import agents_by_ordinal
from conductor_core.engine.models import EXAMPLES
from conductor_core.engine.pools import pool_info
from conductor_core.settings import Settings
from conductor_core.workflow.parser import parse_completion

AGENTS = ("planner", "reasoner", None, "coder")
PLAN = """Think first.
model_id = [0, 1]
subtasks = ["a", "b"]
access_list = [[], [0]]
"""


def choice(text: str, before: str, picked: str, *options: tuple[str, float]) -> TokenChoice:
    """A choice of the token that follows ``before``."""
    at = text.index(before + picked) + len(before)
    return TokenChoice(at=at, picked=picked, options=((picked, 1 - sum(p for _, p in options)), *options))


def told(text: str, *choices: TokenChoice, agents: tuple[str | None, ...] = AGENTS) -> list[tuple[object, ...]]:
    steps = parse_completion(text).steps or ()
    return [
        (each.step, each.field, [(option.value, option.probability) for option in each.options])
        for each in read_alternatives(text, steps, choices, agents)
    ]


def test_an_agent_is_a_token_of_model_id() -> None:
    choices = choice(PLAN, "[", "0", ("3", 0.2), ("1", 0.1)), choice(PLAN, "0, ", "1", ("4", 0.25))
    assert told(PLAN, *choices) == [
        (0, "agent", [("planner", 0.7), ("coder", 0.2), ("reasoner", 0.1)]),
        (1, "agent", [("reasoner", 0.75), ("conductor", 0.25)]),
    ]


def test_a_token_may_begin_before_the_agent() -> None:
    assert told(PLAN, choice(PLAN, "0,", " 1", (" 3", 0.3), ("]", 0.2))) == [
        (1, "agent", [("reasoner", 0.5), ("coder", 0.3), ("other", 0.2)]),
    ]


def test_an_access_list_is_none_all_or_some() -> None:
    assert told(PLAN, choice(PLAN, "[],", " [", (' "', 0.3), (" []", 0.15))) == [
        (1, "access_list", [("some", 0.55), ("all", 0.3), ("none", 0.15)]),
    ]


def test_what_is_certain_or_nearly_impossible_is_not_told() -> None:
    assert told(PLAN, choice(PLAN, "[", "0")) == []
    (only,) = told(PLAN, choice(PLAN, "[", "0", ("3", 0.3), ("1", 0.004), ("x", 0.003)))
    assert only[2] == [("planner", 0.693), ("coder", 0.3), ("other", 0.007)]


def test_ordinals_that_begin_alike_are_not_told_apart() -> None:
    many = tuple(f"w{ordinal}" for ordinal in range(12))
    (only,) = told(PLAN, choice(PLAN, "[", "0", ("1", 0.4), ("2", 0.1)), agents=many)
    assert only[2] == [("w0", 0.5), ("w2", 0.1), ("other", 0.4)]


def test_a_line_of_thought_that_casts_is_where_the_choice_is_made() -> None:
    text = PLAN.replace("Think first.", "A hard problem: planned by model 0, solved by model 1.")
    assert told(text, choice(text, "solved by model ", "1", ("3", 0.4))) == [
        (1, "agent", [("reasoner", 0.6), ("coder", 0.4)]),
    ]


def test_a_token_elsewhere_is_no_choice_of_the_plan() -> None:
    assert told(PLAN, choice(PLAN, "", "Think", ("Plan", 0.4)), choice(PLAN, '"', "a", ("b", 0.4))) == []


async def test_the_shipped_conductor_tells_what_it_considered() -> None:
    settings = Settings()
    conductor, agents = open_conductor("tiny", settings), pool_info("rehearsal", settings).workers
    request = PlanRequest(task=EXAMPLES[-1].task, agents=agents, max_steps=5)
    pieces = [piece async for piece in conductor.write(request)]
    finished, text = pieces[-1], "".join(piece.text for piece in pieces if isinstance(piece, TextDelta))
    assert isinstance(finished, PlanFinished)
    assert all(text.startswith(each.picked, each.at) for each in finished.choices)
    for each in finished.choices:
        probabilities = [probability for _, probability in each.options]
        assert probabilities == sorted(probabilities, reverse=True)
        assert 0 < sum(probabilities) < 1.001
    steps = parse_completion(text).steps or ()
    names = agents_by_ordinal(conductor.info, agents)
    of_agents = [each for each in read_alternatives(text, steps, finished.choices, names) if each.field == "agent"]
    assert of_agents
    for taken in of_agents:
        agent = steps[taken.step].agent
        assert isinstance(agent, int)
        # It decodes greedily: what it took is what it held likeliest.
        assert taken.options[0].value == names[agent]


def test_whole_numbers_beyond_every_float_are_impossible_tokens() -> None:
    told = f'{{"content": [{{"token": "a", "logprob": -1{"0" * 400}}}, {{"token": "b", "logprob": 1{"0" * 400}}}]}}'
    log = TokenLog()
    log.feed(json.loads(told))
    (choice,) = log.choices("ab")
    assert (choice.picked, choice.options) == ("a", (("a", 0.0),))
