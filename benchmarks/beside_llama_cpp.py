"""Benchmark: a local Conductor's model beside llama.cpp, with the same random weights and the same threads.

    python -m venv .venv-bench && .venv-bench/bin/pip install -r requirements-bench.txt
    python -m benchmarks.beside_llama_cpp --other .venv-bench/bin/python [--size 0.5b|7b] [--model FOLDER]
        [--threads N] [--read N] [--written N] [--rounds N] [--data-folder DIR]

llama.cpp runs through ``xllamacpp``, in an environment of its own, on a GGUF file in Q4_0 that is written from the
checkpoint, tensor by tensor. Ours runs in int4, int8 and bf16. Each is a process of its own, one after the other, in
rounds, in one run. All read the same token ids and then write greedily; reported are tokens a second of both, by wall
time and, beside it, by processor time, which other work on the machine disturbs less.

The GGUF file has embedding and output layer in Q8_0, as ours has the output layer in int8.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.given_checkpoint import given_or_random

OURS = ("int4", "int8", "bf16")
_NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}


def gguf_name(name: str) -> str:
    """Returns what llama.cpp calls a tensor of Qwen2."""
    whole = {
        "model.embed_tokens.weight": "token_embd.weight",
        "model.norm.weight": "output_norm.weight",
        "lm_head.weight": "output.weight",
    }
    if name in whole:
        return whole[name]
    _, _, layer, rest = name.split(".", 3)
    part, _, last = rest.rpartition(".")
    return f"blk.{layer}.{_NAMES[part]}.{last}"


def tensors(folder: Path) -> Iterator[tuple[str, tuple[int, ...], Any]]:
    """Yields name, shape and a function that reads a tensor as float32 numpy array, from bfloat16 safetensors."""
    import numpy as np

    for path in sorted(folder.glob("*.safetensors")):
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(length))
        header.pop("__metadata__", None)
        for name, entry in header.items():
            first, end = entry["data_offsets"]
            shape = tuple(entry["shape"])

            def read(
                path: Path = path, at: int = 8 + length + first, size: int = end - first, shape: Any = shape
            ) -> Any:
                halves = np.fromfile(path, dtype=np.uint16, count=size // 2, offset=at)
                return (halves.astype(np.uint32) << 16).view(np.float32).reshape(shape)

            yield name, shape, read


def write_gguf(folder: Path, path: Path) -> None:
    """Writes a Qwen2 checkpoint in bfloat16 as GGUF in Q4_0, one tensor in memory at a time."""
    import gguf
    import numpy as np
    from gguf.quants import quantize

    config = json.loads((folder / "config.json").read_text())
    words = json.loads((folder / "tokenizer.json").read_text())
    writer = gguf.GGUFWriter(path, "qwen2")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base((config.get("rope_parameters") or config).get("rope_theta", 1e6))
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_0)
    known = {index: token for token, index in words["model"]["vocab"].items()}
    known |= {each["id"]: each["content"] for each in words["added_tokens"]}
    special = {each["id"] for each in words["added_tokens"]}
    size = config["vocab_size"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([known.get(index, f"[unused {index}]") for index in range(size)])
    writer.add_token_types([gguf.TokenType.CONTROL if i in special else gguf.TokenType.NORMAL for i in range(size)])
    writer.add_token_merges([" ".join(each) if isinstance(each, list) else each for each in words["model"]["merges"]])
    writer.add_eos_token_id(config["eos_token_id"])
    kinds = {}
    for name, shape, _ in tensors(folder):
        large = name in ("model.embed_tokens.weight", "lm_head.weight")
        kind = gguf.GGMLQuantizationType.Q8_0 if large else gguf.GGMLQuantizationType.Q4_0
        kinds[name] = kind if len(shape) == 2 else gguf.GGMLQuantizationType.F32
        bytes_shape = gguf.quant_shape_to_byte_shape(shape, kinds[name]) if len(shape) == 2 else shape
        dtype = np.dtype(np.uint8 if len(shape) == 2 else np.float32)
        nbytes = int(np.prod(bytes_shape)) * dtype.itemsize
        writer.add_tensor_info(gguf_name(name), bytes_shape, dtype, nbytes, raw_dtype=kinds[name])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for name, _, read in tensors(folder):
        writer.write_tensor_data(quantize(read(), kinds[name]))
    writer.close()


def ids_of(count: int) -> list[int]:
    """Returns token ids that every tokenizer of ``random_checkpoint`` has."""
    return [100 + (7919 * place) % 10_000 for place in range(count)]


def run_llama(path: Path, threads: int, read: int, written: int) -> dict[str, float]:
    import xllamacpp

    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(path)
    parameters.n_ctx, parameters.n_parallel = 2048, 1
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = threads
    parameters.warmup = True
    server = xllamacpp.Server(parameters)
    found: dict[str, float] = {}
    for count, more in ((16, 2), (read, 1), (read, written)):
        asked = {"prompt": ids_of(count), "n_predict": more, "temperature": 0, "cache_prompt": False}
        began = time.process_time()
        answer = server.handle_completions({**asked, "ignore_eos": True, "timings_per_token": True})
        took = time.process_time() - began
        timings = _timings(answer)
        if count == read and more == 1:
            found |= {"read_per_s": timings["prompt_per_second"], "read_processor_s": took / count}
        elif count == read:
            left = took - found["read_processor_s"] * count
            found |= {"written_per_s": timings["predicted_per_second"], "token_processor_s": left / (more - 1)}
    return found


def _timings(answer: Any) -> dict[str, float]:
    document = json.loads(answer) if isinstance(answer, str | bytes) else answer
    if isinstance(document, list):
        document = document[-1]
    timings: dict[str, float] = document["timings"]
    return timings


def run_ours(
    folder: Path, data_folder: Path, precision: str, threads: int, read: int, written: int
) -> dict[str, float]:
    import torch

    from conductor_core.inference import model as model_module
    from conductor_core.inference.generation import Packing
    from conductor_core.inference.source import inspect_folder

    model_module.choose_threads = lambda parameters: threads
    packing = Packing(precision, data_folder / "packed")  # type: ignore[arg-type]
    model = model_module.LoadedModel(inspect_folder(folder), packing=packing)
    ids = ids_of(read)
    with torch.inference_mode():
        model.model(input_ids=torch.tensor([ids[:16]]))
        began, began_cpu = time.perf_counter(), time.process_time()
        output = model.model(input_ids=torch.tensor([ids]), use_cache=True, logits_to_keep=1)
        read_s, read_cpu = time.perf_counter() - began, time.process_time() - began_cpu
        began, began_cpu = time.perf_counter(), time.process_time()
        for _ in range(written - 1):
            token = output.logits[:, -1:].argmax(-1)
            output = model.model(input_ids=token, past_key_values=output.past_key_values, use_cache=True)
        written_s, written_cpu = time.perf_counter() - began, time.process_time() - began_cpu
    return {
        "read_per_s": read / read_s,
        "read_processor_s": read_cpu / read,
        "written_per_s": (written - 1) / written_s,
        "token_processor_s": written_cpu / (written - 1),
    }


def in_a_process(
    python: str, what: str, model: Path, data_folder: Path, options: argparse.Namespace
) -> dict[str, float]:
    command = [python, "-m", "benchmarks.beside_llama_cpp", "--child", what, "--model", str(model)]
    command += ["--data-folder", str(data_folder), "--threads", str(options.threads)]
    command += ["--read", str(options.read), "--written", str(options.written)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    measured: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    print(what, measured, file=sys.stderr, flush=True)
    return measured


def measure(model: Path, data_folder: Path, options: argparse.Namespace) -> dict[str, dict[str, float]]:
    gguf = data_folder / f"{model.name}.gguf"
    if not gguf.exists():
        in_a_process(options.other, "write", model, data_folder, options)
    told: dict[str, list[dict[str, float]]] = {name: [] for name in ("llama.cpp Q4_0", *OURS)}
    for _ in range(options.rounds):
        told["llama.cpp Q4_0"].append(in_a_process(options.other, "llama", gguf, data_folder, options))
        for precision in OURS:
            told[precision].append(in_a_process(sys.executable, precision, model, data_folder, options))
    return {name: {key: median(each[key] for each in all_) for key in all_[0]} for name, all_ in told.items()}


def table(found: dict[str, dict[str, float]], options: argparse.Namespace) -> str:
    lines = [
        f"| threads: {options.threads}; {options.read} tokens read, {options.written} written | read/s | written/s | "
        "processor ms a token read | processor ms a token written |",
        "|---|---|---|---|---|",
    ]
    for name, each in found.items():
        lines.append(
            f"| {name} | {each['read_per_s']:.1f} | {each['written_per_s']:.2f} | "
            f"{1000 * each['read_processor_s']:.1f} | {1000 * each['token_processor_s']:.0f} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--other", default=sys.executable, help="the Python that has xllamacpp and gguf")
    parser.add_argument("--size", choices=["0.5b", "7b"], default="0.5b")
    parser.add_argument("--model", type=Path, help="a checkpoint of that size; default: one of random weights is made")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--read", type=int, default=512, help="tokens that are read")
    parser.add_argument("--written", type=int, default=48, help="tokens that are written")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--data-folder", type=Path, help="keeps packed weights and GGUF; default: a temporary folder")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child is not None:
        _child(options)
        return
    with given_or_random(options.model, options.size) as model:
        given = options.data_folder
        with nullcontext(str(given)) if given is not None else tempfile.TemporaryDirectory() as folder:
            found = measure(model, Path(folder), options)
    print(table(found, options))


def _child(options: argparse.Namespace) -> None:
    result: dict[str, float] = {}
    if options.child == "write":
        path = options.data_folder / f"{options.model.name}.gguf"
        unfinished = path.with_suffix(".unfinished")
        write_gguf(options.model, unfinished)
        unfinished.replace(path)
    elif options.child == "llama":
        result = run_llama(options.model, options.threads, options.read, options.written)
    else:
        result = run_ours(
            options.model, options.data_folder, options.child, options.threads, options.read, options.written
        )
    print(json.dumps(result))


if __name__ == "__main__":
    main()
