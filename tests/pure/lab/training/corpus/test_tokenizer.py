"""The tokenizer: nothing is unknown to it, and what the short prompt marks is one token each."""

import itertools
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import Qwen2Tokenizer

from conductor_core.conductors.prompts import MARKERS
from conductor_core.lab.training.corpus.plans import examples
from conductor_core.lab.training.tiny.cold_start import END, train_tokenizer
from conductor_core.workflow.model import QUESTION


@pytest.fixture(scope="module")
def tokenizer() -> Qwen2Tokenizer:
    drawn = itertools.islice(examples(0), 150)
    return train_tokenizer((example.prompt + example.completion for example in drawn), 700)


def test_size_markers_and_digits(tokenizer: Qwen2Tokenizer) -> None:
    assert len(tokenizer) == 700
    for token in (*MARKERS, QUESTION, END):
        assert len(tokenizer.encode(token, add_special_tokens=False)) == 1
    assert tokenizer.tokenize("1234") == ["1", "2", "3", "4"]


def test_markers_vanish_in_decoding_but_the_macro_stays(tokenizer: Qwen2Tokenizer) -> None:
    ids = tokenizer.encode(f"{MARKERS[0]}Solve {QUESTION}{END}", add_special_tokens=False)
    assert tokenizer.decode(ids, skip_special_tokens=True) == f"Solve {QUESTION}"


@settings(deadline=None)
@given(text=st.text(st.characters(codec="utf-8"), max_size=80))
def test_any_text_comes_back(tokenizer: Qwen2Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert tokenizer.decode(ids) == unicodedata.normalize("NFC", text)
