"""The training of ``small``: a published chat model learns to write workflows, by an adapter beside its weights.

It learns from two sources. Workflows written by hand (``plans``) teach what kind of work a task asks for, in general
words: so small a model garbles what is special about a task, and ``{question}`` brings that. Rehearsal questions, each
with the best of all shapes and workers by exact chance, teach how many steps pay, and recursion. The pool of every
example is drawn anew, so that a plan never relies on a role that may be empty.

The base is a GGUF file. Its weights are read as they are there, quantised once, and stay frozen: the adapter learns
beside the very numbers that it is used with. It is written as ``adapter.gguf``, which llama.cpp loads with the base.
"""

import hashlib
import itertools
import json
import random
import shutil
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf import GGUFWriter
from peft import LoraConfig, PeftModel, get_peft_model
from peft.helpers import disable_input_dtype_casting
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerBase,
    set_seed,
)
from transformers.utils import logging as transformers_logging

from conductor_core.chat.messages import Message, ParentPlan, PlanRequest
from conductor_core.conductors.catalogue import NO_BASE
from conductor_core.conductors.grammar import choices_of
from conductor_core.conductors.prompts import roles_prompt
from conductor_core.conductors.roles import ROLES, numbering
from conductor_core.errors import BadInput
from conductor_core.inference.gguf_file import GgufFault, read_header
from conductor_core.lab.records.training import Stage
from conductor_core.lab.training import supervised
from conductor_core.lab.training.config import AdapterConfig, PoolDraw, TrainingConfig
from conductor_core.lab.training.corpus.plans import (
    STEP_COST,
    Plan,
    PlannedStep,
    TrainingExample,
    draw_present,
    examples,
    specs,
)
from conductor_core.lab.training.corpus.wording import choose, table
from conductor_core.lab.training.folder import held, writing
from conductor_core.lab.training.recorder import Show, StageRecord, Trained, begin, end, machine, stages_until
from conductor_core.lab.training.supervised import Row, token_ids
from conductor_core.rehearsal import RehearsalTask
from conductor_core.rehearsal.exact import success_chance
from conductor_core.rehearsal.worker import read_role
from conductor_core.settings import Settings, small_base
from conductor_core.workflow.model import QUESTION

# What it learns from.

PLANS = Path(__file__).with_name("plans")
_ROLE_OF_SKILL = {"calculate": "compute", "verify": "check", "research": "know"}
_INSTEAD = {
    "plan": ("reason", "know", "write", "check", "compute", "code"),
    "reason": ("know", "plan", "check", "compute", "code", "write"),
    "compute": ("reason", "code", "know", "check", "plan", "write"),
    "code": ("reason", "compute", "check", "know", "plan", "write"),
    "know": ("reason", "write", "plan", "check", "compute", "code"),
    "check": ("reason", "know", "compute", "plan", "code", "write"),
    "write": ("know", "reason", "plan", "check", "code", "compute"),
}
"""Who takes a role's place where it is empty, best first."""


@dataclass(frozen=True)
class Example:
    """A prompt, and the completion to learn, without the end token."""

    prompt: tuple[Message, ...]
    completion: str


def hand_written() -> list[dict[str, Any]]:
    """Returns the workflows written by hand in which each step holds the task or reads a step that does."""
    texts = (file.read_text(encoding="utf-8") for file in sorted(PLANS.glob("*.jsonl")))
    # JSON has its own line ends: a task may hold others, such as U+2028.
    rows = [json.loads(line) for text in texts for line in text.strip().split("\n")]
    return [row for row in rows if _task_in_view(row["steps"])]


def _task_in_view(steps: Sequence[dict[str, Any]]) -> bool:
    # The first step must hold it: the grammar of this Conductor's plans wants it there.
    held: list[bool] = []
    for index, step in enumerate(steps):
        seen = range(index) if step["sees"] == "all" else step["sees"]
        held.append(QUESTION in step["do"] or any(held[earlier] for earlier in seen))
    return QUESTION in steps[0]["do"] and all(held)


def learned_examples(config: AdapterConfig, seed: int) -> list[Example]:
    """Returns all examples of a training, in no order."""
    learned = _shuffled(seed)[config.held_out :][: config.hand_written]
    found = [
        example_of(row, random.Random(f"{seed}/{epoch}/{number}"))
        for epoch in range(config.epochs)
        for number, row in enumerate(learned)
    ]
    rehearsed = (
        rehearsal_example(each.task.rehearsal, each.task.way, each.request)
        for each in examples(seed)
        if each.task.rehearsal is not None and each.request.parent is None
    )
    found += itertools.islice(rehearsed, config.rehearsal)
    return found + list(itertools.islice(_rounds(seed), config.rounds))


def held_out_examples(config: AdapterConfig, seed: int) -> list[Example]:
    """Returns the examples on which progress is measured, each with a pool of its own. No training sees them."""
    kept = _shuffled(seed)[: config.held_out]
    return [example_of(row, random.Random(f"held out/{number}")) for number, row in enumerate(kept)]


def _shuffled(seed: int) -> list[dict[str, Any]]:
    rows = hand_written()
    random.Random(seed).shuffle(rows)
    return rows


def example_of(row: dict[str, Any], rng: random.Random) -> Example:
    """Returns a workflow written by hand as an example, for a pool and a step limit drawn from ``rng``."""
    steps = row["steps"]
    wanted = [_ROLE_OF_SKILL.get(step["who"], step["who"]) for step in steps]
    present = {ROLES[ordinal] for ordinal in draw_present(rng)}
    if rng.random() < 0.6:
        present |= set(wanted)
    taken = [next(each for each in (role, *_INSTEAD[role]) if each in present) for role in wanted]
    request = PlanRequest(
        task=row["task"],
        agents=specs(sorted(ROLES.index(role) for role in present)),
        max_steps=max(len(steps), rng.choice((3, 4, 5, 5, 5, 5, 5, 6, 8))),
        allow_recursion=rng.random() < 0.5,
    )
    completion = _completion(row, [ROLES.index(role) for role in taken])
    if rng.random() < 0.04:
        return _settled(request, completion, rng)
    return Example(roles_prompt(request), completion)


def _completion(row: dict[str, Any], ordinals: list[int]) -> str:
    lists = ([" ".join(step["do"].split()) for step in row["steps"]], [step["sees"] for step in row["steps"]])
    instructions, access = (json.dumps(each, ensure_ascii=False) for each in lists)
    return f"{row['thought']}\nmodel_id = {ordinals}\nsubtasks = {instructions}\naccess_list = {access}"


def _settled(request: PlanRequest, completion: str, rng: random.Random) -> Example:
    """Returns an inner round after ``completion`` whose last response answers the task, so that it stops."""
    response = choose(rng.choice(table("hints")["settled"]), rng).replace("<n>", str(rng.randint(2, 999)))
    parent = ParentPlan(plan=completion.partition("\n")[2], last_response=response)
    return Example(roles_prompt(request.model_copy(update={"parent": parent})), Plan(SETTLED, ()).completion())


# Plans for rehearsal questions. Few fixed instructions, so that all that differs is the shape, and who does what.

ALONE = "Solve this step by step and give the answer: {question}"
OUTLINE = "Outline the steps that lead to the answer, without solving it yet: {question}"
FOLLOW = "Follow the outline above and give the full solution: {question}"
CHECK = "Check the result above by another way, correct it and give the final answer: {question}"
SECOND = "Work this out independently and give the answer: {question}"
SETTLE = "Compare the answers above, settle where they differ and give the final answer: {question}"
AGAIN = "Keep the answer above if it is certain, else organise another round of work: {question}"
# The same call would get the same answer, so a second round asks in other words.
ANEW = {
    ALONE: "Solve this anew, by another way, and give the answer: {question}",
    OUTLINE: "Outline another way to the answer, without solving it yet: {question}",
    FOLLOW: "Follow the new outline above and give the full solution: {question}",
    CHECK: "Check the new result above, correct it and give the final answer: {question}",
    SECOND: "Work this out once more, independently, and give the answer: {question}",
    SETTLE: "Compare the new answers above, settle where they differ and give the final answer: {question}",
}
SHAPES: dict[str, tuple[tuple[str, tuple[int, ...]], ...]] = {
    "one answer is enough": ((ALONE, ()),),
    "solve it, then check the result": ((ALONE, ()), (CHECK, (0,))),
    "outline it, then solve it": ((OUTLINE, ()), (FOLLOW, (0,))),
    "outline it, solve it, then check the result": ((OUTLINE, ()), (FOLLOW, (0,)), (CHECK, (0, 1))),
    "take two answers, then settle": ((ALONE, ()), (SECOND, ()), (SETTLE, (0, 1))),
}
"""Instructions and access lists, by the words that name the shape in the line of thought."""
_OF_WAY = {
    None: tuple(SHAPES),
    "brief": tuple(SHAPES)[:1],
    "verified": (tuple(SHAPES)[1], tuple(SHAPES)[3]),
    "staged": tuple(SHAPES)[3:4],
    "opinions": tuple(SHAPES)[4:],
}
_FIGURES = "Compute what is asked, step by step and with units: {question}"
_FAMILIES = {
    "algebra": ("An algebra problem", ALONE),
    "arithmetic": ("A word problem", _FIGURES),
    "code": ("A small function", "Write the function asked for, with a short explanation: {question}"),
    "comparison": ("A comparison of costs", ALONE),
    "facts": ("A simple fact", "Give the fact asked for, briefly and without guessing: {question}"),
    "format": ("An exact form", "Write exactly what is asked for, in the form asked for: {question}"),
    "journey": ("A word problem on time and distance", ALONE),
    "multi_hop": ("A chain of given facts", "Follow the given facts one after another to the answer: {question}"),
    "planning": ("A schedule of jobs", "Work out the schedule asked for, within the limits given: {question}"),
    "table": ("Figures in a table", _FIGURES),
}
"""What a question of the rehearsal world is called, and how a worker is asked for its answer."""


def rehearsal_example(question: RehearsalTask, way: str | None, request: PlanRequest) -> Example:
    """Returns ``question`` with the shape and workers of the highest exact chance, less what the steps cost."""
    kind, alone = _FAMILIES[question.family]
    shapes = [each for each in _OF_WAY[way] if len(SHAPES[each]) <= request.max_steps] or list(SHAPES)[:1]
    present = choices_of(numbering(request.agents), recursion=False)
    plans = [
        Plan(
            f"{kind}; {shape}.",
            tuple(
                PlannedStep(alone if words == ALONE else words, worker, reads)
                for (words, reads), worker in zip(SHAPES[shape], workers, strict=True)
            ),
        )
        for shape in shapes
        for workers in itertools.product(present, repeat=len(SHAPES[shape]))
    ]

    def worth(plan: Plan) -> float:
        return round(success_chance(question, plan.workflow()) - STEP_COST * (len(plan.steps) - 1), 9)

    return Example(roles_prompt(request), max(plans, key=worth).completion())


def _rounds(seed: int) -> Iterator[Example]:
    """Yields rounds of recursions, told in the words above. Those that these words cannot tell apart are left out."""
    from conductor_core.lab.training.tiny.recursion import draw_inner_round, draw_outer_rounds

    pool, step_cost = PoolDraw(whole_share=0.5, full_steps_share=0.8), 0.005
    for number in itertools.count():
        yield from _told(draw_inner_round(random.Random(f"{seed}/inner/{number}"), pool, step_cost))
        for outer in draw_outer_rounds(random.Random(f"{seed}/outer/{number}"), pool, step_cost):
            if any(step.ordinal == len(ROLES) for step in outer.plan.steps):
                yield from _told(outer)


def _told(drawn: TrainingExample) -> Iterator[Example]:
    if drawn.request.parent is None:
        thought = "A hard question; work it out, and again if in doubt."
    else:
        thought = "An answer in doubt; work it out anew." if drawn.plan.steps else SETTLED
    words: list[str] = []
    for step in drawn.plan.steps:
        wanted = FOLLOW if step.access_list else SECOND if ALONE in words else ALONE
        wanted = {"plan": OUTLINE, "verify": CHECK, "aggregate": SETTLE}.get(read_role(step.instruction), wanted)
        words.append(AGAIN if step.ordinal == len(ROLES) else wanted)
    if len(set(words)) == len(words):
        if drawn.request.parent is not None:
            words = [ANEW.get(each, each) for each in words]
        steps = (replace(step, instruction=told) for step, told in zip(drawn.plan.steps, words, strict=True))
        yield Example(roles_prompt(drawn.request), Plan(thought, tuple(steps)).completion())


SETTLED = "The answer above is complete; nothing more is needed."


# The model.


def load_base(path: Path, *, bf16: bool) -> tuple[LlamaForCausalLM, PreTrainedTokenizerBase]:
    """Reads weights and tokenizer of a GGUF file of the Llama architecture. Raises: BadInput naming it."""
    try:
        read = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32)
        tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    except (OSError, ValueError, KeyError) as error:
        raise BadInput(f"{path} cannot be loaded as a model: {error}") from error
    if not isinstance(read, LlamaForCausalLM):
        raise BadInput(f"{path} is no model of the Llama architecture")
    tokenizer.eos_token = tokenizer.pad_token = END
    # The model that transformers makes of a GGUF file cannot be saved, so its weights go into a plain one.
    kept = {key: value for key, value in read.config.to_dict().items() if key != "quantization_config"}
    model = LlamaForCausalLM(LlamaConfig(**kept))
    model.load_state_dict(read.state_dict(), strict=False)
    model.tie_weights()
    return model.bfloat16() if bf16 else model, tokenizer


END = "<|im_end|>"
_TENSORS = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
"""The matrices that the adapter changes, and their names in a GGUF file."""


def with_adapter(model: LlamaForCausalLM, config: AdapterConfig) -> PeftModel:
    """Adds matrices of zero effect beside those of ``_TENSORS``."""
    lora = LoraConfig(
        r=config.rank,
        lora_alpha=config.alpha,
        target_modules=[name.partition(".")[2] for name in _TENSORS],
        task_type="CAUSAL_LM",
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="`is_gradient_checkpointing` is deprecated", category=FutureWarning)
        adapted = get_peft_model(model, lora)
    adapted.peft_config["default"].base_model_name_or_path = ""  # else each checkpoint asks the hub for it
    return adapted


def write_adapter(model: PeftModel, path: Path, *, name: str) -> None:
    """Writes the adapter in float16 as llama.cpp reads it. Raises: OSError."""
    lora: Any = model.peft_config["default"]
    heads = {"attn_q": model.config.num_attention_heads, "attn_k": model.config.num_key_value_heads}
    writer = GGUFWriter(path, "llama")
    writer.add_type("adapter")
    writer.add_name(name)
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", float(lora.lora_alpha))
    for key, value in sorted(model.state_dict().items()):
        if ".lora_" not in key:
            continue
        layer, _, rest = key.partition(".layers.")[2].partition(".")
        module, _, part = rest.partition(".lora_")
        tensor, matrix = _TENSORS[module], value.detach().float().cpu().numpy()
        if part.startswith("B") and tensor in heads:
            matrix = _rotary_in_pairs(matrix, heads[tensor])
        writer.add_tensor(f"blk.{layer}.{tensor}.weight.lora_{part[0].lower()}", matrix.astype(np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _rotary_in_pairs(matrix: np.ndarray[Any, Any], heads: int) -> np.ndarray[Any, Any]:
    """Reorders rows (heads * size, rank): GGUF rotates neighbours, transformers the two halves of a head."""
    rows, rank = matrix.shape
    return np.ascontiguousarray(matrix.reshape(heads, 2, rows // heads // 2, rank).swapaxes(1, 2).reshape(rows, rank))


# The training.


def rows_of(drawn: Sequence[Example], tokenizer: PreTrainedTokenizerBase) -> list[Row]:
    """Turns examples into token ids, each completion with the end token of the chat template."""
    rows = []
    for each in drawn:
        turns = [{"role": message.role, "content": message.text} for message in each.prompt]
        prompt = str(tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True))
        completion = [*token_ids(each.completion, tokenizer), int(tokenizer.eos_token_id)]
        rows.append((token_ids(prompt, tokenizer), completion))
    return rows


def run(config: AdapterConfig, seed: int, base: Path, drawn: Sequence[Example], record: StageRecord) -> PeftModel:
    """Trains an adapter for ``base`` on ``drawn``. The seed repeats examples and order.

    Raises: BadInput if ``base`` cannot be used, or a file cannot be written.
    """
    model, tokenizer = load_base(base, bf16=config.optimiser.bf16)
    set_seed(seed)
    adapted = with_adapter(model, config)
    unseen = rows_of(held_out_examples(config, seed), tokenizer)
    # Activations stay in bfloat16: the matrices of the adapter, which are in float32, are converted instead.
    with disable_input_dtype_casting(adapted):
        supervised.train(
            adapted,
            config,
            rows_of(drawn, tokenizer),
            unseen,
            tokenizer,
            record,
            seed=seed,
            rows_at_once=config.rows_at_once,
        )
    return adapted


ADAPTER = "adapter.gguf"


def train(
    config: TrainingConfig,
    out: Path,
    *,
    resume: bool = False,
    stop_after: Stage | None = None,
    start_from: str | None = None,
    show: Show = lambda _: None,
) -> Trained:
    """Trains the adapter of ``config`` and writes it to ``out``, with the ``conductor.json`` that says how it is asked.

    Args:
        resume: whether to continue the training in ``out``.
        stop_after: the adapter, the only stage, or None.
        start_from: GGUF file of the base, instead of the one that ``models pull small`` fetched.

    Raises: BadInput if the base cannot be used, or the folder cannot be used or is in use already.
    """
    stages = stages_until(config, config.stages, stop_after)
    if config.adapter is None or config.stages != ("adapter",):
        raise BadInput(f"config {config.name}: [adapter] is a whole training: leave out the other stages")
    base = Path(start_from) if start_from else small_base(Settings().models_folder)
    if base is None:
        raise BadInput(f"{NO_BASE}, or --from names another")
    try:
        read_header(base)
    except GgufFault as error:
        raise BadInput(str(error)) from error
    torch.set_num_threads(config.threads)
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    cpu = config.device == "cpu" or not torch.cuda.is_available()
    with held(out, resume=resume):
        # Base and digest name the beginning: another quantisation of the same model would be another one.
        with base.open("rb") as file:
            began = f"{base.name} sha256 {hashlib.file_digest(file, 'sha256').hexdigest()}"
        begin(config, out, stages, began, resume, simulated=True, machine=machine(config), agents=ROLES)
        if (out / ADAPTER).is_file():
            show(f"adapter is finished: {out / ADAPTER}")
            return end(out, stages)
        record = StageRecord(out, "adapter", config.adapter.steps, show, cpu)
        record.resume(())
        show("drawing the examples")
        drawn = learned_examples(config.adapter, config.seed)
        model = run(config.adapter, config.seed, base, drawn, record)
        with writing(out):
            (out / "conductor.json").write_text(json.dumps({"prompt": "roles"}) + "\n", encoding="utf-8")
            new = out / f"{ADAPTER}.new"
            write_adapter(model, new, name=config.name)
            new.replace(out / ADAPTER)
        shutil.rmtree(record.work.parent)
        return end(out, stages)
