"""Causal language models of a few thousand random weights, with a byte-level tokenizer trained on the spot."""

import functools
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_TEXT = [
    'model_id = [0, 1, 2]\nsubtasks = ["Solve {question}", "Check the answer above", "Write it"]\n',
    'access_list = [[], [0], "all"]\nA model reads the task and plans the steps, then each worker answers.',
    "Ein kurzer Weg, ein langes Wort, größer als zuvor: 17 * 24 = 408.",
]


@functools.cache
def tokenizer() -> PreTrainedTokenizerFast:
    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    raw.train_from_iterator(
        _TEXT,
        trainers.BpeTrainer(
            vocab_size=384,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
            show_progress=False,
        ),
    )
    made = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=raw, eos_token="<|im_end|>", pad_token="<|endoftext|>"
    )
    made.chat_template = CHAT_TEMPLATE
    return made


def random_model(folder: Path, *, seed: int = 0, context: int = 4096, chat: bool = True, hidden: int = 32) -> Path:
    """Writes a random Qwen2 model with its tokenizer into ``folder`` and returns it."""
    words = tokenizer()
    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=len(words),
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=context,
        tie_word_embeddings=True,
        initializer_range=0.5,
        eos_token_id=words.eos_token_id,
        bos_token_id=None,
    )
    Qwen2ForCausalLM(config).save_pretrained(folder)
    words.save_pretrained(folder)
    if not chat:
        (folder / "chat_template.jinja").unlink()
    return folder
