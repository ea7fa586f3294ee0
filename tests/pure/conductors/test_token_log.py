"""What a server tells of its tokens, in numbers that no server means."""

import json

from conductor_core.conductors.alternatives import TokenLog


def test_whole_numbers_beyond_every_float_are_impossible_tokens() -> None:
    told = f'{{"content": [{{"token": "a", "logprob": -1{"0" * 400}}}, {{"token": "b", "logprob": 1{"0" * 400}}}]}}'
    log = TokenLog()
    log.feed(json.loads(told))
    (choice,) = log.choices("ab")
    assert (choice.picked, choice.options) == ("a", (("a", 0.0),))
