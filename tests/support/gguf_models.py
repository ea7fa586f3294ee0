"""Small but real GGUF files, and the folders in which Ollama, LM Studio and others keep theirs."""

import hashlib
import json
from pathlib import Path

import gguf
import numpy as np

LAYERS, EMBEDDING, HEADS, KV_HEADS = 3, 64, 4, 2


def write_model(
    path: Path,
    *,
    kind: str = "model",
    architecture: str = "llama",
    name: str = "A model",
    pooling: int | None = None,
    template: bool = True,
) -> Path:
    """Writes a small but real file: metadata, tokens, a template, and tensors of two types."""
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_type(kind)
    writer.add_name(name)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    if pooling is not None:
        writer.add_pooling_type(gguf.PoolingType(pooling))
    writer.add_block_count(LAYERS)
    writer.add_context_length(8192)
    writer.add_embedding_length(EMBEDDING)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_token_list([f"token{number}" for number in range(5000)])
    writer.add_token_scores([0.5] * 5000)
    if template:
        writer.add_chat_template("{{ messages }}")
    writer.add_tensor("a.weight", np.ones((8, EMBEDDING), dtype=np.float32))
    packed = gguf.quants.quantize(np.ones((16, EMBEDDING), dtype=np.float32), gguf.GGMLQuantizationType.Q8_0)
    writer.add_tensor("b.weight", packed, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def write_part(path: Path, number: int, of: int) -> Path:
    """Writes a part of a split model, from 1."""
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint16("split.no", number - 1)
    writer.add_uint16("split.count", of)
    writer.add_tensor(f"{number}.weight", np.ones((4, 8), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def into_ollama(models: Path, name: str, content: bytes, *, digest: str | None = None) -> Path:
    """Puts a model into a folder of Ollama's. ``name``: as ``HOST/NAMESPACE/MODEL/TAG``. ``digest``: a hostile one."""
    sha256 = hashlib.sha256(content).hexdigest()
    blob = models / "blobs" / f"sha256-{sha256}"
    blob.parent.mkdir(parents=True, exist_ok=True)
    blob.write_bytes(content)
    manifest = models / "manifests" / name
    manifest.parent.mkdir(parents=True, exist_ok=True)
    kinds = {"template": f"sha256:{'0' * 64}", "model": f"sha256:{sha256}" if digest is None else digest}
    layers = [{"mediaType": f"application/vnd.ollama.image.{kind}", "digest": each} for kind, each in kinds.items()]
    manifest.write_text(json.dumps({"schemaVersion": 2, "layers": layers}))
    return blob


def into_hub_cache(cache: Path, hub_id: str, name: str, content: bytes) -> Path:
    """Puts a file into a hub's cache, as its library does: a link in a snapshot to a blob."""
    repository = cache / f"models--{hub_id.replace('/', '--')}"
    blob = repository / "blobs" / hashlib.sha256(content).hexdigest()
    blob.parent.mkdir(parents=True, exist_ok=True)
    blob.write_bytes(content)
    link = repository / "snapshots" / ("c" * 40) / name
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(blob)
    return link
