"""A model of a few thousand random weights that sees images: Llava's shape, with the tokenizer of ``tiny_models``."""

import copy
from pathlib import Path
from typing import Any

import torch
from transformers import CLIPVisionConfig, LlavaConfig, LlavaForConditionalGeneration, LlavaProcessor, Qwen2Config
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

from tests.support.tiny_models import tokenizer

_IMAGE = "<image>"
_SIDE, _PATCH = 28, 14
_CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{% if m['content'] is string %}{{ m['content'] }}{% else %}"
    "{% for part in m['content'] %}{% if part['type'] == 'image' %}<image>{% else %}{{ part['text'] }}{% endif %}"
    "{% endfor %}{% endif %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def random_vision_model(folder: Path) -> Path:
    """Writes a random model with its processor into ``folder`` and returns it. An image is four tokens."""
    words = copy.deepcopy(tokenizer())
    words.add_special_tokens({"additional_special_tokens": [_IMAGE]})
    words.image_token = _IMAGE
    side = {"height": _SIDE, "width": _SIDE}
    processor = LlavaProcessor(  # type: ignore[no-untyped-call]
        image_processor=CLIPImageProcessorPil(size={"shortest_edge": _SIDE}, crop_size=side),
        tokenizer=words,
        patch_size=_PATCH,
        vision_feature_select_strategy="default",
        chat_template=_CHAT_TEMPLATE,
        image_token=_IMAGE,
        num_additional_image_tokens=1,
    )
    shape: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 64}
    shape |= {"num_hidden_layers": 2, "num_attention_heads": 4}
    torch.manual_seed(0)
    config = LlavaConfig(
        vision_config=CLIPVisionConfig(**shape, image_size=_SIDE, patch_size=_PATCH, projection_dim=32),
        text_config=Qwen2Config(
            **shape,
            vocab_size=len(words),
            num_key_value_heads=2,
            max_position_embeddings=4096,
            initializer_range=0.5,
            eos_token_id=words.eos_token_id,
            bos_token_id=None,
            pad_token_id=words.pad_token_id,
        ),
        image_token_index=words.get_vocab()[_IMAGE],
        vision_feature_layer=-1,
    )
    LlavaForConditionalGeneration(config).save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder
