"""The fine-tune on recursive calls: when to keep the last response, when to plan again, and when to recurse at all.

Inner rounds (arXiv 2512.04388, section 3: the task, the parent's plan, the last response) are made from plans that the
policy writes when the stage begins. The simulated workers carry out each plan, and their text is the last response.
The reward of an inner round is exact, given what a reader can tell from that response (its manner: a confident
solution, one in doubt, a check ...). Three empty lists are worth the chance that a response of this manner is right. A
new plan is worth the chance of a right answer after such a response. Every inner step costs; stopping costs nothing.

In an outer round that ends in the Conductor itself, the last response can have several manners. For each manner the
round is worth the better of stopping and of a good plan for an answer in doubt, less the cost of that plan's steps.
This approximation assumes a well-played inner round, which other prompts train at the same time, and one plan for it.
The plan's words differ from a first round's, because an identical call would get an identical answer, and a second
round would gain nothing. A recursion that other steps read counts as a stop.

Before reward, supervised examples (``draw_inner_round``) show real last responses, each with its better completion:
three empty lists or a new plan, whichever has the higher exact reward. The corpus has only invented last responses.
Without these examples a policy met its first real inner rounds in reinforcement learning, and half of what it wrote was
malformed.
"""

import itertools
import random
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase, Qwen2ForCausalLM, TrainerCallback, TrainingArguments

from conductor_core.chat.messages import Message, ParentPlan
from conductor_core.conductors.roles import ROLES
from conductor_core.engine.prompts import expand
from conductor_core.lab.records.training import Taught
from conductor_core.lab.training.config import PoolDraw, RecursionConfig, common
from conductor_core.lab.training.corpus.plans import (
    Plan,
    TrainingExample,
    draw_example,
    draw_plan,
    draw_repair,
    draw_stop,
)
from conductor_core.lab.training.corpus.tasks import CorpusTask, draw_task, rehearsal_task
from conductor_core.lab.training.corpus.wording import choose, table
from conductor_core.lab.training.folder import SafeCheckpoints, latest_checkpoint, step_of
from conductor_core.lab.training.recorder import StageRecord, in_words, without_console
from conductor_core.lab.training.supervised import LeftPadded
from conductor_core.lab.training.tiny.cold_start import example_rows
from conductor_core.lab.training.tiny.rollout import sample
from conductor_core.lab.training.tiny.situations import Inner, Situation, Worth, draw_situation, read_plan
from conductor_core.rehearsal import RehearsalTask, rehearsal_specs
from conductor_core.rehearsal.exact import endings, second_round, success_chance
from conductor_core.rehearsal.skills import Manner
from conductor_core.rehearsal.worker import RehearsalWorker, input_tokens, token_count
from conductor_core.workflow.model import CONDUCTOR_AGENT, Step, Workflow
from conductor_core.workflow.parser import to_lists

# Carrying out a plan with the simulated workers, without an engine.


@dataclass(frozen=True)
class Reply:
    """The output of a step. ``tokens`` counts its messages and its text by the rehearsal pool's rule."""

    text: str
    manner: Manner
    tokens: int


def simulate(task: RehearsalTask, workflow: Workflow, seed: int) -> tuple[Reply, ...]:
    """Returns the replies of the steps before the first one that asks the Conductor itself, or of all steps.

    The messages are the engine's (``engine.prompts``): a turn for each step in the access list, then the instruction.
    """
    workers = {spec.name: RehearsalWorker(spec, seed=seed, tokens_per_s=0) for spec in rehearsal_specs()}
    replies: list[Reply] = []
    for index, step in enumerate(workflow.steps):
        if step.agent == CONDUCTOR_AGENT:
            break
        messages = []
        for earlier in workflow.reads(index):
            instruction = expand(workflow.steps[earlier].instruction, task.question)
            messages.append(Message(role="user", content=instruction))
            messages.append(Message(role="assistant", content=replies[earlier].text))
        messages.append(Message(role="user", content=expand(step.instruction, task.question)))
        text = workers[step.agent].respond(messages)
        manner = workers[step.agent].drawn(messages).manner
        replies.append(Reply(text, manner, input_tokens(messages) + token_count(text)))
    return tuple(replies)


RESPONSES = 8
"""How often the workers are asked for a last response of the wanted kind."""
BATCH = 48
"""For how many prompts plans are sampled at once before the stage begins."""


def recursion_situations(
    config: RecursionConfig, seed: str, model: Qwen2ForCausalLM, tokenizer: PreTrainedTokenizerBase
) -> list[Situation]:
    """Returns the stage's prompts, which are the same for the same seed and weights."""
    count = config.iterations * config.prompts
    outer = [draw_situation(random.Random(f"{seed}/{at}"), config.pool, allow_recursion=True) for at in range(count)]
    parents = _written(outer, seed, model, tokenizer, config.max_completion_tokens)
    found = []
    for at, (situation, parent) in enumerate(zip(outer, parents, strict=True)):
        rng = random.Random(f"{seed}/{at}/inner")
        again = second_plan(situation, random.Random(f"{seed}/{at}/again"))
        inner = rng.random() < config.inner_share and (parent or again)
        priced = replace(situation, again=again, step_cost=config.step_cost)
        found.append(balanced_inner_situation(priced, recursive(inner, situation, rng), rng) if inner else priced)
    return found


def _written(
    situations: Sequence[Situation],
    seed: str,
    model: Qwen2ForCausalLM,
    tokenizer: PreTrainedTokenizerBase,
    max_tokens: int,
) -> list[Workflow | None]:
    """Samples one plan of ``model`` for each prompt; None stands for an invalid plan."""
    plans: list[Workflow | None] = []
    for at in range(0, len(situations), BATCH):
        part = situations[at : at + BATCH]
        ids = [tokenizer.encode(each.prompt, add_special_tokens=False) for each in part]
        drawn = random.Random(f"{seed}/{at}").getrandbits(63)
        written = sample(model, ids, 1, max_tokens=max_tokens, temperature=1.0, seed=drawn)
        texts = tokenizer.batch_decode(written.completion_ids, skip_special_tokens=True)
        plans += [read_plan(situation, text) for situation, text in zip(part, texts, strict=True)]
    return plans


def second_plan(situation: Situation, rng: random.Random) -> Workflow:
    """Draws a good plan for an inner round of ``situation``, whatever the first round's outcome."""
    task = rehearsal_task(situation.task)
    return draw_repair(task, situation.present, situation.request.max_steps, rng).workflow()


def recursive(plan: Workflow, situation: Situation, rng: random.Random) -> Workflow:
    """Returns ``plan`` with a last step of the Conductor itself that reads an earlier step, shortened if needed."""
    steps = plan.steps
    if any(step.agent == CONDUCTOR_AGENT for step in steps):
        before = next(at for at, step in enumerate(steps) if step.agent == CONDUCTOR_AGENT)
        if before and plan.reads(before):
            return Workflow(steps=steps[: before + 1])
        steps = tuple(step for step in steps[:before] if step.agent != CONDUCTOR_AGENT) or (
            Step(instruction="Answer this: {question}", agent=situation.request.agents[0].name),
        )
    kept = steps[: max(1, situation.request.max_steps - 1)]
    words = choose(table("plans")["again"], rng)
    # A shortened plan may have lost steps that read others; the remaining steps still read only earlier ones.
    return Workflow(steps=(*kept, Step(instruction=words, agent=CONDUCTOR_AGENT, access_list=(len(kept) - 1,))))


def inner_situation(outer: Situation, first: Workflow, rng: random.Random) -> Situation:
    """Simulates the workers of ``first`` and returns its inner round."""
    response, manner = last_response(outer.task, first, rng.getrandbits(32))
    parent = ParentPlan(plan=to_lists(first, outer.agents), last_response=response)
    request = outer.request.model_copy(update={"allow_recursion": False, "parent": parent})
    return Situation(request, outer.task, inner=Inner(first, manner))


def balanced_inner_situation(outer: Situation, first: Workflow, rng: random.Random) -> Situation:
    """Draws an inner round so that planning again is better about as often as stopping.

    Without this balance, stopping is best for three of four last responses. A policy that always stopped then had most
    of the reward, and did not learn to tell them apart. The balance does not change the worth of either choice.
    """
    wanted = rng.random() < 0.5
    situation = inner_situation(outer, first, rng)
    if outer.again is None:
        return situation
    for _ in range(RESPONSES):
        stop, again = worth(situation, Workflow(steps=())), worth(situation, outer.again)
        if (0.5 * (again.chance - stop.chance) > outer.step_cost * again.steps) == wanted:
            break
        situation = inner_situation(outer, first, rng)
    return situation


def last_response(task: RehearsalTask, first: Workflow, seed: int) -> tuple[str, Manner]:
    """Returns the text and manner of the latest step that the recursion of ``first`` reads."""
    replies = simulate(task, first, seed)
    read = replies[first.reads(len(replies))[-1]]
    return read.text, read.manner


def worth(situation: Situation, workflow: Workflow) -> Worth:
    """Computes the worth of a workflow as the module's docstring says."""
    task = situation.task
    if situation.inner is not None:
        rounds = second_round(task, situation.inner.first, workflow)
        alike = [each for ending, each in rounds.items() if ending.manner == situation.inner.manner]
        chance = sum(weight for weight, _ in alike)
        return Worth(sum(weight * after for weight, after in alike) / chance, len(workflow.steps))
    paid, again = len(workflow.steps) - 1, situation.again
    if workflow.steps[-1].agent != CONDUCTOR_AGENT or again is None or not endings(task, workflow):
        return Worth(success_chance(task, workflow), paid)
    stop: defaultdict[Manner, float] = defaultdict(float)
    replan: defaultdict[Manner, float] = defaultdict(float)
    weight_of: defaultdict[Manner, float] = defaultdict(float)
    for ending, (weight, after) in second_round(task, workflow, again).items():
        weight_of[ending.manner] += weight
        stop[ending.manner] += weight * bool(ending.right)
        replan[ending.manner] += weight * after
    chance, steps = 0.0, float(paid)
    for manner, weight in weight_of.items():
        cost = 2 * situation.step_cost * len(again.steps) * weight
        if replan[manner] - cost > stop[manner]:
            chance += replan[manner]
            steps += weight * len(again.steps)
        else:
            chance += stop[manner]
    return Worth(chance, steps)


# Supervised examples.

TAUGHT_BEST_OF = 240
"""How many plans are compared for an example: more than for the cold start, which leaves some to exploration."""
HARD_SHARE = 0.6
"""Share of hard questions. For other questions a further round is hardly ever worth its steps."""


def draw_inner_round(rng: random.Random, pool: PoolDraw, step_cost: float) -> TrainingExample:
    """Draws an inner round on a rehearsal question, with the completion that is worth more."""
    task, outer = _draw_outer(rng, pool)
    present, most = outer.present, outer.request.max_steps
    # Both plans are as good as the policy's own, so that the examples look like what the policy meets later: agents
    # that are worth naming again, and last responses that are mostly checks.
    first = draw_plan(task, present, most, rng, best_of=TAUGHT_BEST_OF)
    again = draw_repair(task, present, most, rng, best_of=TAUGHT_BEST_OF)
    priced = replace(outer, again=again.workflow(), step_cost=step_cost)
    situation = balanced_inner_situation(priced, recursive(first.workflow(), outer, rng), rng)
    best = max((draw_stop(rng), again), key=lambda plan: _value(situation, plan, step_cost))
    return TrainingExample(task, situation.request, best)


def _value(situation: Situation, plan: Plan, step_cost: float) -> float:
    chance, paid = worth(situation, plan.workflow())
    return 0.5 * chance - step_cost * paid


def draw_outer_rounds(rng: random.Random, pool: PoolDraw, step_cost: float) -> tuple[TrainingExample, TrainingExample]:
    """Draws two examples of one question and pool: a first round that may recurse, and its twin that may not.

    The first recurses if that, with a well-played inner round, is worth more than the twin's plan.
    """
    task, outer = _draw_outer(rng, pool)
    present, most = outer.present, outer.request.max_steps
    once = draw_plan(task, present, most, rng, best_of=TAUGHT_BEST_OF)
    further = draw_plan(task, present, most, rng, recursion=True, best_of=TAUGHT_BEST_OF)
    again = draw_repair(task, present, most, rng, best_of=TAUGHT_BEST_OF)
    priced = replace(outer, again=again.workflow(), step_cost=step_cost)
    recurses = bool(further.steps) and further.steps[-1].ordinal == len(ROLES)
    best = max((once, further) if recurses else (once,), key=lambda plan: _value(priced, plan, step_cost))
    alone = outer.request.model_copy(update={"allow_recursion": False})
    return TrainingExample(task, outer.request, best), TrainingExample(task, alone, once)


def _draw_outer(rng: random.Random, pool: PoolDraw) -> tuple[CorpusTask, Situation]:
    """Draws a rehearsal question in its original wording, and a first round about it that may recurse."""
    hard = rng.random() < HARD_SHARE
    while True:
        task = draw_task(rng)
        known = task.rehearsal
        if known is not None and task.text == known.question and hard == (known.difficulty == "hard"):
            return task, draw_situation(rng, pool, task=known, allow_recursion=True)


# The lessons: real inner and outer rounds, each shown once before reinforcement learning. A kill loses at most a
# twentieth of them.

INNER_AT_ONCE, OUTER_AT_ONCE, CORPUS_AT_ONCE = 6, 2, 4
"""Numbers of examples in one supervised step. Inner rounds are more, because a model learns sooner whether to open a
further round than which worker to ask in it. The corpus' examples are other tasks than rehearsal questions. They keep
the plans for those tasks unchanged, also for tasks with a wish for a way of working."""
AT_ONCE = INNER_AT_ONCE + OUTER_AT_ONCE
REPORTS = 20
"""How often the progress of the lessons is recorded and saved."""


class _Report(TrainerCallback):
    """Turns each log of the lessons into a ``Taught`` row and a line of progress."""

    def __init__(self, record: StageRecord) -> None:
        self._record = record

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._first, self._began = state.global_step, time.monotonic()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        control.should_log |= state.global_step == state.max_steps

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **_: Any) -> None:
        if not logs or "loss" not in logs:
            return  # the trainer's summary at its end
        record, done = self._record, state.global_step
        left_s = (time.monotonic() - self._began) / (done - self._first) * (state.max_steps - done)
        loss, shown, planned = logs["loss"], done * AT_ONCE, state.max_steps * AT_ONCE
        record.add(Taught(stage=record.stage, rounds=shown, planned=planned, seconds=record.seconds, loss=loss))
        record.show(f"{record.stage}: shown {shown} of {planned} rounds · loss {loss:.3f} · {in_words(left_s)}")


def teach(
    model: Qwen2ForCausalLM,
    tokenizer: PreTrainedTokenizerBase,
    config: RecursionConfig,
    seed: str,
    record: StageRecord,
) -> None:
    """Shows ``config.taught`` inner and outer rounds once each, among examples of the corpus. Continues from what was
    shown before. Every outer round comes with its twin without recursion; otherwise plans learned to add the further
    step even if the prompt did not offer the Conductor.

    Raises: BadInput if record or folder cannot be written.
    """
    steps = config.taught // AT_ONCE
    if not steps:
        return
    work, pad = record.work / _LESSONS, LeftPadded(int(tokenizer.pad_token_id))
    optimiser = torch.optim.AdamW(model.parameters(), lr=config.taught_learning_rate, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda step: min(1.0, (step + 1) / 5) * max(0.0, 1 - step / steps)
    )
    arguments = TrainingArguments(
        **common(config.optimiser, seed=0, steps=steps, cpu=record.cpu),
        output_dir=str(work),
        per_device_train_batch_size=1,
        train_sampling_strategy="sequential",
        logging_steps=max(1, steps // REPORTS),
        save_steps=max(1, steps // REPORTS),
        dataloader_pin_memory=False,
        label_names=["labels"],
    )
    trainer = SafeCheckpoints(
        model=model,
        args=arguments,
        data_collator=lambda step: pad(example_rows(_lesson(f"{seed}/taught/{step[0]}", config), tokenizer)),
        train_dataset=range(steps),
        optimizers=(optimiser, schedule),
    )
    without_console(trainer)
    trainer.add_callback(_Report(record))
    checkpoint = latest_checkpoint(work)
    trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)


_LESSONS = "lessons"
"""Name of the folder of the lessons' checkpoints, in that of the stage's."""


def taught_rounds(work: Path) -> int:
    """Returns how many rounds the model saved in ``work`` has been shown."""
    kept = latest_checkpoint(work / _LESSONS)
    return step_of(kept) * AT_ONCE if kept else 0


def _lesson(seed: str, config: RecursionConfig) -> list[TrainingExample]:
    step_cost = config.step_cost
    drawn = [
        draw_inner_round(random.Random(f"{seed}/inner/{at}"), config.pool, step_cost) for at in range(INNER_AT_ONCE)
    ]
    for at in range(OUTER_AT_ONCE):
        drawn += draw_outer_rounds(random.Random(f"{seed}/outer/{at}"), config.pool, step_cost)
    for at in range(CORPUS_AT_ONCE):
        others = (draw_example(random.Random(f"{seed}/corpus/{at}/{number}")) for number in itertools.count())
        drawn.append(next(each for each in others if each.task.rehearsal is None))
    return drawn
