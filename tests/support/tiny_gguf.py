"""GGUF files of random weights with a byte-level vocabulary, which llama.cpp really loads: a model and its adapter."""

from pathlib import Path

import numpy as np
from gguf import GGUFWriter, LlamaFileType, TokenType
from tokenizers.pre_tokenizers import ByteLevel

CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
HEADS, KV_HEADS = 4, 2


def tiny_gguf(
    file: Path,
    *,
    seed: int = 0,
    hidden: int = 32,
    layers: int = 2,
    context: int = 16384,
    template: str | None = CHAT_TEMPLATE,
    parts: int = 1,
    often: str = "",
) -> Path:
    """Writes a random Llama model and returns its file.

    Args:
        parts: of how many files it says that it is the first.
        often: a text that it writes often, and tokens of its template seldom.
    """
    draw = np.random.default_rng(seed)
    tokens = [*CONTROL, *sorted(ByteLevel.alphabet()), "Ġt", *filter(None, [often])]
    writer = GGUFWriter(file, "llama")
    writer.add_name("tiny")
    writer.add_file_type(LlamaFileType.ALL_F32)
    writer.add_context_length(context)
    writer.add_embedding_length(hidden)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(2 * hidden)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_dimension_count(hidden // HEADS)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([TokenType.CONTROL if token in CONTROL else TokenType.NORMAL for token in tokens])
    writer.add_token_merges(["Ġ t"])
    writer.add_eos_token_id(2)
    writer.add_bos_token_id(0)
    writer.add_add_bos_token(False)
    if template is not None:
        writer.add_chat_template(template)

    if parts > 1:
        writer.add_uint16("split.no", 0)
        writer.add_uint16("split.count", parts)

    def add(name: str, *shape: int) -> None:
        writer.add_tensor(name, draw.normal(0.0, 0.4, shape).astype(np.float32))

    ascii_only = np.array([[float(token.isascii() or token[0] in "ĠĊ")] for token in tokens], np.float32)
    embedding = draw.normal(0.0, 0.4, (len(tokens), hidden)).astype(np.float32)
    if often:
        embedding[-1] *= 4
        embedding[: len(CONTROL)] = 0.0
    writer.add_tensor("token_embd.weight", embedding * ascii_only)  # it writes no half characters
    writer.add_tensor("output_norm.weight", np.ones(hidden, np.float32))
    kv = hidden // HEADS * KV_HEADS
    for layer in range(layers):
        for name, rows, columns in (
            ("attn_q", hidden, hidden), ("attn_k", kv, hidden), ("attn_v", kv, hidden), ("attn_output", hidden, hidden),
            ("ffn_gate", 2 * hidden, hidden), ("ffn_up", 2 * hidden, hidden), ("ffn_down", hidden, 2 * hidden),
        ):  # fmt: skip
            add(f"blk.{layer}.{name}.weight", rows, columns)
        for name in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"blk.{layer}.{name}.weight", np.ones(hidden, np.float32))
    _write(writer)
    return file


def tiny_adapter(file: Path, *, seed: int = 0, hidden: int = 32, rank: int = 2) -> Path:
    """Writes a random LoRA adapter of the first layer of ``tiny_gguf`` and returns its file."""
    draw = np.random.default_rng(seed)
    writer = GGUFWriter(file, "llama")
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", 8.0)
    for end, shape in (("lora_a", (rank, hidden)), ("lora_b", (hidden, rank))):
        writer.add_tensor(f"blk.0.attn_q.weight.{end}", draw.normal(0.0, 1.0, shape).astype(np.float32))
    _write(writer)
    return file


def _write(writer: GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
