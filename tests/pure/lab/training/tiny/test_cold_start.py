"""The cold start: loss on the completion only, batches of like length, the same seed the same weights."""

import itertools
from pathlib import Path

from conductor_core.lab.records import weights_sha256
from conductor_core.lab.records.training import read_record
from conductor_core.lab.training.corpus.plans import examples
from conductor_core.lab.training.supervised import IGNORED, Batched, LeftPadded
from conductor_core.lab.training.tiny.cold_start import example_rows, train_tokenizer
from conductor_core.lab.training.tiny.run import train
from tests.support.trainings import toy_config


def test_the_loss_is_on_the_completion_only() -> None:
    batch = LeftPadded(pad_id=1)([([5, 6], [7, 0]), ([5], [8, 9, 0])])
    width = batch["input_ids"].shape[1]
    assert width % 32 == 0
    assert batch["input_ids"][0, -4:].tolist() == [5, 6, 7, 0]
    assert batch["attention_mask"].sum(dim=1).tolist() == [4, 4]
    assert batch["labels"].shape[1] == batch["logits_to_keep"]
    assert batch["labels"][0].tolist()[-3:] == [IGNORED, 7, 0]
    assert batch["labels"][1].tolist()[-3:] == [8, 9, 0]
    assert (batch["labels"] != IGNORED).sum(dim=1).tolist() == [2, 3]


def test_batches_are_of_like_length_and_some_examples_end_after_the_thought() -> None:
    drawn = list(itertools.islice(examples(0), 64))
    tokenizer = train_tokenizer((each.prompt + each.completion for each in drawn), 600)
    rows = example_rows(drawn, tokenizer, thought_only=0.5)
    data = Batched(rows, 8)
    assert sorted(rows) == sorted(data.rows)
    lengths = [len(prompt) + len(completion) for prompt, completion in data.rows]
    spans = [max(lengths[i : i + 8]) - min(lengths[i : i + 8]) for i in range(0, 64, 8)]
    assert sum(spans) < 8 * (max(lengths) - min(lengths)) / 2
    whole = sum(completion[-1] == tokenizer.eos_token_id for _, completion in rows)
    assert 16 < whole < 48
    assert all(completion[-1] == tokenizer.eos_token_id for _, completion in example_rows(drawn, tokenizer))


def test_a_run_lowers_the_loss_and_comes_again_by_its_seed(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        train(toy_config(grpo=False), tmp_path / folder)
    assert weights_sha256(tmp_path / "one") == weights_sha256(tmp_path / "two")
    rows = read_record(tmp_path / "one").iterations("cold_start")
    assert rows[-1].iteration == 6
    losses = [row.loss for row in rows if row.loss is not None]
    assert losses[-1] < losses[0]
    assert rows[-1].supervised_loss is not None
