"""Runs the whole path of a training of real size in a minute or two, without a GPU, a download or a paid answer.

``differences`` lists the stand-ins, and is shown before anything else. The base model's stand-in has the same
architecture and chat format with 228,544 random weights. Some seconds of supervised steps on a handful of
plans make some of its samples valid, so that the workers are asked.
"""

from collections.abc import Sequence
from pathlib import Path

import torch
from accelerate import PartialState
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM, set_seed
from transformers.utils.logging import disable_progress_bar

from conductor_core.engine.pools import read_specs
from conductor_core.errors import BadInput
from conductor_core.lab.training.config import GrpoConfig, ScaleConfig, TaskSource, TrainingConfig, WorkersConfig
from conductor_core.lab.training.scale.prompts import draw_prompts, left_out, load_tasks

MODEL = "dry-run-model"
"""Name of the stand-in model's folder in the output folder."""

_SMALLER = {"iterations": 2, "prompts": 2, "group": 4, "max_completion_tokens": 96, "save_every": 1, "sample_every": 1}
_TASKS = TaskSource(suite="rehearsal", split="train", count=4)
_ROWS = 4
_SHOWN_EACH, _LEARNING_RATE = 3, 1e-2
_SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
_CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_PLANS = (
    'model_id = [0]\nsubtasks = ["Answer: {question}"]\naccess_list = [[]]',
    'model_id = [1]\nsubtasks = ["Answer: {question}"]\naccess_list = [[]]',
    'model_id = [0, 1]\nsubtasks = ["Plan: {question}", "Solve: {question}"]\naccess_list = [[], [0]]',
    'model_id = [1, 2]\nsubtasks = ["Solve: {question}", "Check: {question}"]\naccess_list = [[], "all"]',
    "model_id = []\nsubtasks = []\naccess_list = []",
)
"""Each is one token of the stand-in, so that a few steps teach it to write them; the last is for inner rounds only."""


def rehearsed(config: TrainingConfig, out: Path, *, pool: str | None = None) -> TrainingConfig:
    """Returns ``config`` with stand-ins for all that is large, paid or remote. Its model will be below ``out``.

    Args:
        pool: workers to use in place of the rehearsal pool.

    Raises: BadInput if ``config`` has no table ``scale``, or ``pool`` cannot be used.
    """
    scale = _scale(config)
    workers = scale.workers.model_copy(
        update={
            "pool": pool or "rehearsal",
            "params": {},
            "pauses": 1,
            "pause_s": 1.0,
            "inner_conductor": "tiny" if scale.workers.inner_conductor else None,
        }
    )
    smaller = scale.model_copy(
        update={"tasks": (_TASKS,), "workers": workers, "vllm": None, "weights": "float32", "rows_per_device": _ROWS}
    )
    stages: dict[str, GrpoConfig] = {}
    for stage in config.stages:
        grpo: GrpoConfig = getattr(config, stage)
        optimiser = grpo.optimiser.model_copy(update={"bf16": False})
        stages[stage] = grpo.model_copy(update=_SMALLER | {"optimiser": optimiser})
    return config.model_copy(
        update={"name": f"{config.name}-dry-run", "base": str(out / MODEL), "device": "cpu", "scale": smaller, **stages}
    )


def write_model(made: TrainingConfig) -> None:
    """Writes the model of a rehearsed config once, on the main process. Every process must call it."""
    state, folder = PartialState(cpu=True), Path(made.base or "")
    disable_progress_bar()  # type: ignore[no-untyped-call]  # untyped in transformers
    if state.is_main_process and not folder.exists():
        _write_model(made, _scale(made), folder)
    state.wait_for_everyone()


def differences(config: TrainingConfig, made: TrainingConfig) -> list[str]:
    """Returns one line for each stand-in, which names what it replaces."""
    was, now = _scale(config), _scale(made)
    lines = [
        "DRY RUN: no figure of it says anything about training; it shows that every part of the path works here",
        f"in place of {config.base or 'the model given with --from'}: a random one of its architecture, {made.base}",
        f"in place of {sum(each.count for each in was.tasks)} tasks: {_TASKS.count} of the rehearsal world",
        f"in place of the workers of the pool {was.workers.pool}: {now.workers.pool}",
        "NOT EXERCISED: vLLM; the model's own generate stands in for it"
        if was.vllm is not None
        else "the model's own generate, as configured",
        "on the CPU in float32, in place of a GPU",
    ]
    if was.workers.inner_conductor:
        lines.append(f"in place of the inner Conductor {was.workers.inner_conductor}: {now.workers.inner_conductor}")
    if why := left_out(config):
        lines.append(f"NOT EXERCISED: {why}")
    for stage in config.stages:
        old, new = getattr(config, stage), getattr(made, stage)
        lines.append(
            f"{stage}: {new.iterations} iterations of {new.prompts} x {new.group} rollouts of up to "
            f"{new.max_completion_tokens} tokens, in place of {old.iterations} of {old.prompts} x {old.group} of up to "
            f"{old.max_completion_tokens}"
        )
    return lines


def _scale(config: TrainingConfig) -> ScaleConfig:
    if config.scale is None:
        raise BadInput(f"config {config.name} has no table scale: it is small enough to be run as it is")
    return config.scale


def _plans(workers: WorkersConfig) -> tuple[str, ...]:
    """Returns ``_PLANS``, and with an inner Conductor one more plan, whose last step names the Conductor itself."""
    if workers.inner_conductor is None:
        return _PLANS
    itself = len(read_specs(workers.pool))
    lists = f'model_id = [0, {itself}]\nsubtasks = ["Answer: {{question}}", "Plan on."]\naccess_list = [[], [0]]'
    return (*_PLANS, lists)


def _write_model(config: TrainingConfig, scale: ScaleConfig, folder: Path) -> None:
    """Trains tokenizer and model on the same prompts that the training will ask."""
    grpo = config.grpo or config.recursion
    if grpo is None:
        raise ValueError("a config has a stage")
    asked = draw_prompts(
        GrpoConfig.model_validate(grpo.model_dump(include=set(GrpoConfig.model_fields))),
        load_tasks(scale.tasks, config.seed),
        read_specs(scale.workers.pool),
        config.seed,
    )
    texts = [message.text for each in asked for message in each.messages]
    plans = _plans(scale.workers)
    tokenizer = _tokenizer(texts, plans)
    set_seed(config.seed)
    model = Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=len(tokenizer),
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=32_768,
            rope_parameters={"rope_type": "default", "rope_theta": 1_000_000.0},
            rms_norm_eps=1e-6,
            tie_word_embeddings=False,
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )
    chats = [[message.model_dump() for message in each.messages] for each in asked]
    prompts = [str(tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)) for chat in chats]
    _learn_plans(model, tokenizer, prompts, plans)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _learn_plans(
    model: Qwen2ForCausalLM, tokenizer: PreTrainedTokenizerFast, prompts: Sequence[str], plans: Sequence[str]
) -> None:
    """Takes a few supervised steps on each plan after one of the prompts, with the loss on the plan."""
    optimiser = torch.optim.AdamW(model.parameters(), lr=_LEARNING_RATE)
    model.train()
    for step in range(_SHOWN_EACH * len(plans)):
        prompt, plan = prompts[step % len(prompts)], plans[step % len(plans)]
        prompt_ids = tokenizer.encode(prompt, add_special_tokens=False)
        plan_ids = [*tokenizer.encode(plan, add_special_tokens=False), int(tokenizer.eos_token_id)]
        ids = torch.tensor([prompt_ids + plan_ids])
        labels = torch.tensor([[-100] * len(prompt_ids) + plan_ids])
        loss = model(input_ids=ids, labels=labels).loss
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()


def _tokenizer(texts: Sequence[str], plans: Sequence[str]) -> PreTrainedTokenizerFast:
    """Trains a byte-level BPE with Qwen2.5's chat format."""
    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    raw.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=1200,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            special_tokens=_SPECIAL,
            show_progress=False,
        ),
    )
    made = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=raw, eos_token=_SPECIAL[2], pad_token=_SPECIAL[0]
    )
    made.add_tokens([AddedToken(plan, special=False, normalized=False) for plan in plans])
    made.chat_template = _CHAT_TEMPLATE
    return made
