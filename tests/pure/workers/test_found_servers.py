"""Model servers on this machine as workers."""

import pytest

from conductor_core.workers.discovery import FoundServer, in_words, ready_workers


@pytest.mark.parametrize(
    ("parameters", "words"), [(7_615_616_512, "7.62 billion"), (10**9, "1 billion"), (494_000_000, "494 million")]
)
def test_a_size_is_told_in_words(parameters: int, words: str) -> None:
    assert in_words(parameters) == words


def test_a_found_model_is_asked_two_questions_at_once_and_given_time() -> None:
    [worker] = ready_workers([FoundServer("http://127.0.0.1:11434/v1", "Ollama", ("qwen2.5:7b",))])
    assert (worker.max_concurrency, worker.timeout_s) == (2, 300)
