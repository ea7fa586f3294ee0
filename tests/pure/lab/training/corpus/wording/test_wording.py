"""The template language of the corpus."""

import random

from conductor_core.lab.training.corpus.wording import choose, fill, table


def test_one_alternative_of_each_choice_is_taken_innermost_first() -> None:
    texts = {choose("[a[1|2]|b] c", random.Random(seed)) for seed in range(40)}
    assert texts == {"a1 c", "a2 c", "b c"}


def test_brackets_without_alternatives_are_text() -> None:
    assert choose("a[0] = [x|x]", random.Random(0)) == "a[0] = x"


def test_slots_are_drawn_from_those_given_and_from_the_banks() -> None:
    text = fill("<own>: <city>; <script>", random.Random(0), {"own": lambda: "mine"})
    own, city, rest = text.replace(":", ";").split("; ")
    assert (own, rest) == ("mine", "<script>")
    assert city in table("banks")["city"]


def test_slots_within_a_drawn_entry_are_drawn_too() -> None:
    texts = [fill("<event>", random.Random(seed), {"n": lambda: "5"}) for seed in range(60)]
    assert not any("<city>" in text or "<country>" in text for text in texts)
