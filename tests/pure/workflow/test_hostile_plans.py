"""A short search of ``benchmarks.hostile_plans``, always the same: bounds only, for a test's machine may be busy."""

from itertools import islice

from benchmarks.hostile_plans import MAKERS, check, hostile_texts


def test_no_hostile_text_raises_or_is_read_beyond_the_bounds() -> None:
    for seed in range(3):
        for text in islice(hostile_texts(seed, most=20_000), 100):
            check(text)


def test_the_search_is_repeatable_and_varied() -> None:
    first, again = (list(islice(hostile_texts(5, most=2000), 60)) for _ in range(2))
    assert first == again
    assert len(set(first)) > 55
    assert len(MAKERS) == 4
    assert any("model_id" in text for text in first)
    assert any("\ud800" in text for text in first)
