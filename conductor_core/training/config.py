"""Settings of a training run, from a TOML file; the checked-in ones lie in ``training/configs``."""

import tomllib
from pathlib import Path

from pydantic import Field, ValidationError

from conductor_core.errors import BadInput
from conductor_core.workflow.model import Frozen

CONFIGS = Path(__file__).with_name("configs")


class ModelShape(Frozen):
    """Sizes of the Qwen2 architecture; embeddings are tied."""

    vocab_size: int = Field(ge=512)
    hidden_size: int = Field(ge=8)
    intermediate_size: int = Field(ge=8)
    num_hidden_layers: int = Field(ge=1)
    num_attention_heads: int = Field(ge=1)
    num_key_value_heads: int = Field(ge=1)
    max_position_embeddings: int = Field(ge=256)


class Optimiser(Frozen):
    """AdamW with a linear warm-up and a cosine to zero.

    Attributes:
        batch_size: examples a step.
        warmup_share: part of all steps.
    """

    batch_size: int = Field(ge=1)
    learning_rate: float = Field(gt=0)
    warmup_share: float = Field(ge=0, lt=1)
    weight_decay: float = Field(ge=0)
    adam_beta2: float = Field(gt=0, lt=1)
    max_grad_norm: float = Field(gt=0)
    bf16: bool


class ColdStartConfig(Frozen):
    """A supervised cold start.

    Attributes:
        seed: of corpus, weights and order: one seed, one model (on one machine and one version of torch).
        threads: of torch.
        examples: drawn from the corpus, each seen once.
        tokenizer_examples: of those, how many the tokenizer is trained on.
        thought_only: share of examples that end after the line of thought (see ``cold_start.example_rows``).
        casting: casting exercises for each example (see ``corpus.castings``).
    """

    seed: int
    threads: int = Field(ge=1)
    examples: int = Field(ge=1)
    tokenizer_examples: int = Field(ge=1)
    thought_only: float = Field(ge=0, lt=1)
    casting: float = Field(ge=0, le=1)
    model: ModelShape
    optimiser: Optimiser


def read_config(ref: str) -> ColdStartConfig:
    """A TOML file, or the name of a checked-in one. Raises: BadInput naming the file and the field."""
    path = Path(ref) if ref.endswith(".toml") else CONFIGS / f"{ref}.toml"
    try:
        return ColdStartConfig.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} is not TOML: {error}") from error
    except ValidationError as error:
        fault = error.errors()[0]
        raise BadInput(f"{path}: {'.'.join(map(str, fault['loc']))}: {fault['msg']}") from error
