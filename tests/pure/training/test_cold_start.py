"""The cold start: loss on the completion only, the same seed the same weights, a folder that loads."""

import itertools
import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from conductor_core.errors import BadInput
from conductor_core.training.cold_start import IGNORED, Batched, LeftPadded, example_rows, main, train, weights_sha256
from conductor_core.training.config import ColdStartConfig, ModelShape, Optimiser, read_config
from conductor_core.training.corpus import examples
from conductor_core.training.tokenizer import train_tokenizer

SMALL = ColdStartConfig(
    seed=3,
    threads=1,
    examples=24,
    tokenizer_examples=24,
    thought_only=0.5,
    casting=0.5,
    model=ModelShape(
        vocab_size=600,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=1024,
    ),
    optimiser=Optimiser(
        batch_size=8,
        learning_rate=1e-2,
        warmup_share=0.1,
        weight_decay=0.0,
        adam_beta2=0.98,
        max_grad_norm=1.0,
        bf16=False,
    ),
)


def test_the_loss_is_on_the_completion_only() -> None:
    batch = LeftPadded(pad_id=1)([{"prompt": [5, 6], "completion": [7, 0]}, {"prompt": [5], "completion": [8, 9, 0]}])
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
    assert sorted(rows) == sorted((data[i]["prompt"], data[i]["completion"]) for i in range(len(data)))
    lengths = [len(data[i]["prompt"]) + len(data[i]["completion"]) for i in range(len(data))]
    spans = [max(lengths[i : i + 8]) - min(lengths[i : i + 8]) for i in range(0, 64, 8)]
    assert sum(spans) < 8 * (max(lengths) - min(lengths)) / 2
    whole = sum(completion[-1] == tokenizer.eos_token_id for _, completion in rows)
    assert 16 < whole < 48
    assert all(completion[-1] == tokenizer.eos_token_id for _, completion in example_rows(drawn, tokenizer))


def test_a_run_lowers_the_loss_writes_a_folder_and_comes_again_by_its_seed(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        train(SMALL, tmp_path / folder, held_out=8)
    assert weights_sha256(tmp_path / "one") == weights_sha256(tmp_path / "two")
    log = [json.loads(line) for line in (tmp_path / "one" / "training_log.jsonl").read_text().splitlines()]
    losses = [line["loss"] for line in log if "loss" in line]
    assert losses[-1] < losses[0]
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "one", use_safetensors=True, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "one")
    assert model.config.model_type == "qwen2"
    assert model.config.vocab_size == len(tokenizer)
    assert json.loads((tmp_path / "one" / "conductor.json").read_text())["prompt"] == "short"


def test_the_checked_in_config_is_read() -> None:
    config = read_config("tiny-cold-start")
    assert config.model.hidden_size % config.model.num_attention_heads == 0


def test_a_config_that_cannot_be_used_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = tmp_path / "bad.toml"
    bad.write_text("seed = 'x'")
    with pytest.raises(BadInput, match="seed"):
        read_config(str(bad))
    bad.write_text("seed = [")
    with pytest.raises(BadInput, match="not TOML"):
        read_config(str(bad))
    assert main(["no-such-config", "--out", str(tmp_path / "out")]) == 2
    assert "no-such-config.toml" in capsys.readouterr().err
