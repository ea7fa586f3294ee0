"""Trains a model of real size with real workers: TRL's GRPO trainer, our engine for workflows, graders for the reward.

    accelerate launch -m conductor_core train qwen2.5-7b-grpo --out FOLDER
    python -m conductor_core train qwen2.5-7b-grpo --dry-run

Each process loads the model and samples its part of the plans; the main one alone asks the workers, with one cache and
one cap, and writes the record and the model folder. Sampled plans stay on disk until a checkpoint holds what was
learned from them. A training that continues from its last checkpoint replays them, because a seed cannot repeat vLLM's
sampling. It thus asks the workers for the same rollouts, of which the finished ones are already paid for.

``docs/research/training-at-scale.md`` has the commands and the arithmetic of memory; ``worker_reward`` is the reward.
"""

import base64
import json
import os
import random
import shutil
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from accelerate import PartialState
from accelerate.utils import broadcast_object_list, gather_object
from datasets import Dataset
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    set_seed,
)
from transformers.utils.logging import disable_progress_bar
from trl.import_utils import is_vllm_available
from trl.trainer.grpo_config import GRPOConfig
from trl.trainer.grpo_trainer import GRPOTrainer

from conductor_core.chat.messages import ParentPlan, PlanRequest, WorkerSpec
from conductor_core.conductors.catalogue import open_conductor
from conductor_core.engine.budgets import CostCap
from conductor_core.engine.pools import Pool, open_pool, read_specs
from conductor_core.errors import BadInput, InspectorError
from conductor_core.grading.tasks import Task
from conductor_core.lab.evaluation.suites import load_suite
from conductor_core.lab.records import write_whole
from conductor_core.lab.records.training import Sample, Stage, Started
from conductor_core.lab.training import config as training_config
from conductor_core.lab.training import recorder
from conductor_core.lab.training.config import (
    GrpoConfig,
    RecursionConfig,
    ScaleConfig,
    TaskSource,
    TrainingConfig,
    WorkersConfig,
)
from conductor_core.lab.training.folder import (
    SafeCheckpoints,
    begun_with,
    latest_checkpoint,
    show_disk_needs,
    writing,
)
from conductor_core.lab.training.worker_reward import AnswerCache, PromptedTask, WorkerReward, WorkerScore
from conductor_core.run.events import EventSink
from conductor_core.settings import Settings

ANSWERS, PARENTS = "answers.sqlite3", "parents.json"
"""File names in the output folder: of the workers' answers, and of the plans that inner rounds are about."""

ROLLOUTS = "rollouts"
"""Name of the folder of kept plans, in the folder of their stage."""


class StageEnded(InspectorError):
    """A stage is finished, and the next one needs a process of its own."""


class StoppedElsewhere(InspectorError):
    """The main process has stopped the training and reports the reason."""


# Prompts: public tasks, the full prompt, pools drawn by seed.

Parents = Mapping[str, Sequence[ParentPlan]]
"""Plans that were carried out, with their last responses, by task id."""


def load_tasks(sources: Sequence[TaskSource], seed: int) -> tuple[Task, ...]:
    """Loads all tasks, shuffled by ``seed``. Raises: BadInput if a suite cannot be loaded, or two tasks share an id."""
    suites = [load_suite(source.suite, source.split, limit=source.count, seed=seed) for source in sources]
    tasks = [task for suite in suites for task in suite.tasks]
    if len({task.task_id for task in tasks}) != len(tasks):
        raise BadInput("two of the suites to train on are the same: their tasks have the same ids")
    random.Random(f"tasks/{seed}").shuffle(tasks)
    return tuple(tasks)


def find_parents(cache: AnswerCache, tasks: Sequence[Task]) -> Parents:
    """Returns the plans that inner rounds can be about. A task that has both right and wrong answers gives as many of
    each, so that neither stopping nor planning again is always best. Ordinals in the plans count the whole pool."""
    parents = {}
    for task in tasks:
        outcomes = [each for each in cache.outcomes(task.task_id) if each.answer]
        right = [each for each in outcomes if each.score == 1.0]
        wrong = [each for each in outcomes if each.score != 1.0]
        most = min(len(right), len(wrong)) or len(outcomes)
        kept = [*right[:most], *wrong[:most]]
        if kept:
            parents[task.task_id] = [ParentPlan(plan=each.plan, last_response=each.answer or "") for each in kept]
    return parents


def draw_prompts(
    config: GrpoConfig,
    tasks: Sequence[Task],
    workers: Sequence[WorkerSpec],
    seed: int,
    *,
    parents: Parents | None = None,
    may_recurse: bool = False,
) -> list[PromptedTask]:
    """Draws the prompts of a whole stage in the order in which they are asked. The same seed gives the same prompts.

    Args:
        parents: the plans for the inner rounds of a recursion stage. may_recurse: whether its outer rounds may name
            the Conductor itself; if not, there are inner rounds only.

    Raises: BadInput if a recursion stage has neither.
    """
    inner_share, known = 0.0, parents or {}
    if isinstance(config, RecursionConfig):
        inner_share = config.inner_share if may_recurse else 1.0
        tasks = tasks if may_recurse else [task for task in tasks if task.task_id in known]
    if not tasks:
        raise BadInput(
            "the recursion stage has nothing to ask: no finished rollout to continue from and no "
            "inner_conductor; run a grpo stage in the same folder first"
        )
    rng, pool = random.Random(f"prompts/{seed}"), config.pool
    drawn = []
    for number in range(config.iterations * config.prompts):
        task, agents = tasks[number % len(tasks)], tuple(workers)
        choices = known.get(task.task_id, ())
        inner = bool(choices) and rng.random() < inner_share
        if not inner and rng.random() >= pool.whole_share and len(workers) > 1:
            agents = pool.part_of(agents, rng)
        request = PlanRequest(
            task=task.question,
            agents=agents,
            max_steps=pool.most_steps,
            allow_recursion=may_recurse and not inner,
            parent=rng.choice(choices) if inner else None,
        )
        drawn.append(PromptedTask(request, task))
    return drawn


def left_out(config: TrainingConfig) -> str | None:
    """Says why the recursion stage has only inner rounds although ``inner_share`` asks for both; None otherwise."""
    stage, scale = config.recursion, config.scale
    if stage is None or stage.inner_share == 1.0 or scale is None or scale.workers.inner_conductor is not None:
        return None
    return (
        f"outer rounds of the recursion stage. It has inner rounds only, despite inner_share = {stage.inner_share:g}: "
        "without inner_conductor in scale.workers, no model could plan when a plan names the Conductor itself"
    )


# The trainer.

Score = Callable[[Sequence[int], Sequence[str]], list[float]]
"""Returns rewards from the prompts' numbers and their completions. Called on the main process only."""


def arguments(
    config: GrpoConfig, scale: ScaleConfig, out: Path, *, seed: int, cpu: bool, world_size: int
) -> GRPOConfig:
    """Returns TRL's settings. Raises: BadInput if a batch cannot be divided among the processes."""
    batch = config.prompts * config.group
    if batch % (scale.rows_per_device * world_size):
        raise BadInput(
            f"{batch} rollouts cannot be divided into {world_size} processes of {scale.rows_per_device} rows each: "
            "change rows_per_device or --num_processes"
        )
    turns = batch // (scale.rows_per_device * world_size)
    vllm = scale.vllm
    served: dict[str, Any] = {} if vllm is None else {
        "use_vllm": True,
        "vllm_mode": vllm.mode,
        "vllm_server_base_url": vllm.url if vllm.mode == "server" else None,
        "vllm_gpu_memory_utilization": vllm.memory_share,
        "vllm_tensor_parallel_size": vllm.tensor_parallel,
        "vllm_enable_sleep_mode": vllm.sleep,
    }  # fmt: skip
    return GRPOConfig(
        **training_config.grpo(config, seed=seed, cpu=cpu),
        output_dir=str(out),
        data_seed=seed,
        per_device_train_batch_size=scale.rows_per_device,
        gradient_accumulation_steps=turns,
        steps_per_generation=turns,
        activation_checkpointing=scale.gradient_checkpointing,
        model_init_kwargs={"dtype": scale.weights},
        ddp_timeout=scale.wait_for_workers_s,
        dataloader_pin_memory=not cpu,
        **served,
    )


class ScaleTrainer(SafeCheckpoints, GRPOTrainer):
    """TRL's trainer, which keeps sampled plans and has its rewards computed by the main process alone.

    Args:
        rows_sampled: completions that the model's own ``generate`` samples at once.
    """

    def __init__(
        self, model: str, args: GRPOConfig, asked: Sequence[PromptedTask], score: Score, rows_sampled: int
    ) -> None:
        self._score = score
        self._kept = Path(str(args.output_dir)) / ROLLOUTS
        self._rows_sampled = rows_sampled
        self._rollout_s = self._reward_s = 0.0
        prompts = [[message.model_dump() for message in each.messages] for each in asked]
        rows = [{"prompt": prompt, "number": number} for number, prompt in enumerate(prompts)]

        def plans(completions: list[Any], number: list[int], **_: Any) -> list[float | None]:
            return [*self._rewards(number, [turns[0]["content"] for turns in completions])]

        super().__init__(model=model, reward_funcs=plans, args=args, train_dataset=Dataset.from_list(rows))

    def figures(self) -> dict[str, float | None]:
        """Returns the figures of the iteration that is being logged, as fields of ``records.training.Iteration``."""
        metrics = self._metrics["train"]
        whole_s = sum(metrics.get("step_time", []))
        return recorder.trainer_figures(metrics, rollout_s=self._rollout_s, reward_s=self._reward_s, whole_s=whole_s)

    def stop(self) -> None:
        """Keeps the weights of the last finished iteration, on all processes at once."""
        if self.state.global_step and not (self._kept.parent / f"checkpoint-{self.state.global_step}").exists():
            self._save_checkpoint(self.model, trial=None)

    def _rewards(self, numbers: list[int], completions: list[str]) -> list[float]:
        """Scores this process's completions on the main process. Raises: InspectorError, on every process."""
        began = time.monotonic()
        try:
            if self.accelerator.num_processes == 1:
                return self._score(numbers, completions)
            everything = gather_object(list(zip(numbers, completions, strict=True)))
            said: list[Any] = [None]
            error: InspectorError | None = None
            if self.accelerator.is_main_process:
                try:
                    said = [self._score(*map(list, zip(*everything, strict=True)))]
                except InspectorError as raised:
                    error, said = raised, [str(raised)]
            broadcast_object_list(said)
            if error is not None:
                raise error
            if isinstance(said[0], str):
                raise StoppedElsewhere(said[0])
            first = self.accelerator.process_index * len(numbers)
            return list(said[0][first : first + len(numbers)])
        finally:
            self._reward_s = time.monotonic() - began

    def _generate_single_turn(self, prompt_ids: Any, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        """Returns the plans that were sampled for these prompts before the training stopped, or samples new ones."""
        began = time.monotonic()
        try:
            return self._sampled(prompt_ids, *args, **kwargs)
        finally:
            self._rollout_s = time.monotonic() - began

    def _sampled(self, prompt_ids: Any, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        step, process = self.state.global_step, self.accelerator
        path = self._kept / f"{step:06d}-{process.process_index}-of-{process.num_processes}.json"
        kept = _read_kept(path, prompt_ids)
        # All processes must sample together or not at all.
        has_kept = torch.tensor([int(kept is not None)], device=process.device)
        if bool(process.gather(has_kept).min().item()) and kept is not None:
            if self.use_vllm and self.vllm_mode == "server" and step != self._last_loaded_step:
                # As TRL does before it samples: the server may plan inner rounds too, with the current weights.
                self.vllm_generation.sync_weights()  # type: ignore[no-untyped-call]  # untyped in TRL
                self._last_loaded_step = step
            _set_random(kept["random"])
            return kept["completions"], kept["logprobs"]
        # Without vLLM in parts, since ``generate`` reads all the prompts it gets in one pass.
        generate: Callable[..., tuple[Any, Any]] = super()._generate_single_turn
        rows = len(prompt_ids) if self.use_vllm else self._rows_sampled
        parts = [generate(prompt_ids[at : at + rows], *args, **kwargs) for at in range(0, len(prompt_ids), rows)]
        completions, logprobs = [row for ids, _ in parts for row in ids], parts[0][1]
        content = {"prompts": prompt_ids, "completions": completions, "logprobs": logprobs, "random": _random()}
        with writing(self._kept.parent):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, json.dumps(content))
        return completions, logprobs

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        super()._save_checkpoint(model, trial)
        # A killed training continues from the checkpoint before this one if this one is damaged.
        oldest = self.state.global_step - 2 * self.args.save_steps
        if self.accelerator.is_main_process:
            for path in self._kept.glob("*.json"):
                if int(path.name.partition("-")[0]) < oldest:
                    path.unlink()


def _read_kept(path: Path, prompt_ids: Any) -> dict[str, Any] | None:
    """Reads the kept plans; None if there are none, or they are for other prompts (the configuration changed)."""
    try:
        kept: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise BadInput(f"{path} cannot be read: {error}; remove it, and its plans are sampled again") from error
    return kept if kept["prompts"] == [list(ids) for ids in prompt_ids] else None


def _random() -> list[str]:
    """Returns the state of torch's generators: of the CPU, and of the current card if there is one."""
    states = [torch.get_rng_state(), *([torch.cuda.get_rng_state()] if torch.cuda.is_available() else [])]
    return [base64.b64encode(state.numpy().tobytes()).decode() for state in states]


def _set_random(kept: Sequence[str]) -> None:
    """Restores torch's generators, so that later draws, such as the order of gradient sums, repeat."""
    states = [torch.frombuffer(bytearray(base64.b64decode(each)), dtype=torch.uint8) for each in kept]
    torch.set_rng_state(states[0])
    if len(states) > 1 and torch.cuda.is_available():
        torch.cuda.set_rng_state(states[1])


class _Scorer:
    """Computes rewards for the trainer, and the figures and samples of each iteration."""

    def __init__(
        self, reward: WorkerReward, asked: Sequence[PromptedTask], record: recorder.StageRecord, sample_every: int
    ) -> None:
        self._reward, self._asked, self._record, self._sample_every = reward, asked, record, sample_every
        self._last: list[tuple[PromptedTask, str, WorkerScore]] = []

    def __call__(self, numbers: Sequence[int], completions: Sequence[str]) -> list[float]:
        asked = [self._asked[number] for number in numbers]
        scored = self._reward.score(list(zip(asked, completions, strict=True)))
        self._last = list(zip(asked, completions, scored, strict=True))
        return [each.reward for each in scored]

    def details(self, trainer: ScaleTrainer) -> dict[str, Any]:
        judged = [
            recorder.Judged(asked.task.difficulty, scored.reward, scored.workflow, float(scored.right))
            for asked, _, scored in self._last
        ]
        return recorder.figures(judged) | trainer.figures()

    def keep_samples(self, iteration: int) -> None:
        """Keeps one plan of each prompt of some iterations; the iteration's number decides which plan."""
        if (iteration - 1) % self._sample_every:
            return
        rng = random.Random(iteration)
        by_task: dict[str, list[tuple[PromptedTask, str, WorkerScore]]] = {}
        for each in self._last:
            by_task.setdefault(each[0].task.task_id, []).append(each)
        for of_task in by_task.values():
            asked, completion, scored = rng.choice(of_task)
            self._record.add(
                Sample(
                    stage=self._record.stage,
                    iteration=iteration,
                    task=asked.task.question,
                    family=asked.task.family,
                    difficulty=asked.task.difficulty,
                    completion=completion,
                    reward=scored.reward,
                    agents=asked.agents,
                )
            )


def _on_another_process(numbers: Sequence[int], completions: Sequence[str]) -> list[float]:
    raise RuntimeError("only the main process asks the workers")


# What may be asked for, and what may change on the way.

_WITHOUT_EFFECT = (
    "constrained", "held_out", "guard", "step_cost", "taught", "taught_learning_rate", "guard_inner_share",
)  # fmt: skip

_WORKERS_MAY_CHANGE = frozenset(WorkersConfig.model_fields) - {"pool", "params", "inner_conductor"}
"""Settings of the workers that may change when a training is resumed: caps, patience, prices."""


def _checked(
    config: TrainingConfig, stop_after: Stage | None, start_from: str | None
) -> tuple[ScaleConfig, tuple[Stage, ...], str]:
    """Returns the table ``scale``, the stages to run, and the model to begin with. Raises: BadInput."""
    start = start_from or config.base
    if config.scale is None or config.cold_start is not None:
        raise BadInput(f"config {config.name} needs the table scale, and no cold start")
    if start is None:
        raise BadInput(f"config {config.name} names no base model: name one to begin with (--from)")
    stages = recorder.stages_until(config, config.stages, stop_after)
    for stage in stages:
        grpo = config.grpo_of(stage)
        fields = type(grpo).model_fields
        ignored = [name for name in _WITHOUT_EFFECT if name in fields and getattr(grpo, name) != fields[name].default]
        if grpo.pool.full_steps_share != 1.0:
            ignored.append("pool.full_steps_share")
        if ignored:
            raise BadInput(
                f"config {config.name}, {stage}: with the table scale these have no effect, leave them out: "
                f"{', '.join(ignored)}"
            )
    if config.scale.vllm is not None and not is_vllm_available():
        raise BadInput(
            f"config {config.name} samples with vLLM, which is not installed here: "
            "docs/research/training-at-scale.md says how, and --dry-run shows every other part"
        )
    return config.scale, stages, start


def same_training(started: Started, config: TrainingConfig) -> bool:
    """Says whether a record belongs to this config: what is learned is the same; memory and patience may differ."""
    return bool(_essence(dict(started.config)) == _essence(config.model_dump(mode="json")))


def _essence(config: dict[str, Any]) -> dict[str, Any]:
    scale = dict(config.get("scale") or {})
    for name in ("gradient_checkpointing", "rows_sampled", "wait_for_workers_s"):
        scale.pop(name, None)
    # vLLM's place and settings may change, but not whether it samples: the loss is corrected for vLLM's rounding.
    scale["vllm"] = scale.get("vllm") is not None
    stages = [config[stage] for stage in ("grpo", "recursion") if config.get(stage)]
    if all(each["loss"] != "bnpo" and not each["entropy_bonus"] for each in stages):
        # Those two are means over the tokens of the rows computed at once. Other losses do not depend on the split.
        scale.pop("rows_per_device", None)
    workers = scale.get("workers", {})
    scale["workers"] = {name: each for name, each in workers.items() if name not in _WORKERS_MAY_CHANGE}
    essence: dict[str, Any] = json.loads(json.dumps({**config, "scale": scale}))
    return essence


# The training.


def train(
    config: TrainingConfig,
    out: Path,
    settings: Settings,
    *,
    resume: bool = False,
    stop_after: Stage | None = None,
    start_from: str | None = None,
    sink: EventSink | None = None,
    show: recorder.Show = lambda _: None,
) -> recorder.Trained:
    """Runs the stages of ``config`` and writes the model folder to ``out``. Every process of a launch calls it. The
    caller must hold the lock of ``out``.

    Args:
        start_from: model folder or hub id in place of the config's ``base``.
        sink: where the rollouts' runs are logged; None logs nothing.

    Raises: BadInput; CostCapReached, WorkerPoolFailed and StageEnded, which keep all finished work for ``resume``.
    """
    scale, stages, start = _checked(config, stop_after, start_from)
    state = PartialState(cpu=config.device == "cpu", timeout=timedelta(seconds=scale.wait_for_workers_s))
    torch.set_num_threads(config.threads)
    disable_progress_bar()  # type: ignore[no-untyped-call]  # untyped in transformers
    tasks, pool = load_tasks(scale.tasks, config.seed), _pool(scale.workers, settings)
    with ExitStack() as stack:
        main = None
        if state.is_main_process:
            device = torch.cuda.get_device_name() if state.device.type == "cuda" else f"CPU, {config.threads} threads"
            processes = "" if state.num_processes == 1 else f"{state.num_processes} x "
            machine = f"{processes}{device}, torch {torch.__version__}, {os.cpu_count()} cores"
            recorder.begin(
                config, out, stages, begun_with(start), resume, same=same_training,
                simulated=pool.simulated, machine=machine, agents=tuple(pool.workers),
            )  # fmt: skip
            # Shown before the first stage is paid for, because the planner of inner rounds cannot change on resuming.
            if "recursion" in stages and (why := left_out(config)):
                show(f"left out: {why}")
            main = stack.enter_context(_opened(scale.workers, pool, out, settings, sink, show))
        state.wait_for_everyone()
        for index, stage in enumerate(stages):
            asked = _prompts(config, stage, tasks, pool, out, main)
            if not (out / "stages" / stage / "config.json").is_file():
                state.wait_for_everyone()
                from_folder = str(out / "stages" / stages[index - 1]) if index else start
                _run_stage(config, scale, stages[:index], stage, from_folder, asked, out, main, show)
                state.wait_for_everyone()
                _leave(scale, stages[index:], on_main=main is not None)
            state.wait_for_everyone()
        if main is None:
            return recorder.Trained(out, "", stages[-1], 0.0)
        _publish(out / "stages" / stages[-1], out)
        return recorder.end(out, stages)


def _pool(workers: WorkersConfig, settings: Settings) -> Pool:
    pool = open_pool(workers.pool, settings)
    return pool.with_params(dict.fromkeys(pool.workers, workers.params), settings) if workers.params else pool


@contextmanager
def _opened(
    workers: WorkersConfig, pool: Pool, out: Path, settings: Settings, sink: EventSink | None, show: recorder.Show
) -> Iterator[WorkerReward]:
    """Opens what only the main process has: the file of answers, and the workers behind it."""
    with closing(AnswerCache(out / ANSWERS)) as cache:
        spent = cache.spent()
        if spent.answered or spent.broken_off:
            lost = f" and {spent.broken_off} calls that broke off, at their most" if spent.broken_off else ""
            paid = f"{spent.usd:.4f} USD, {spent.tokens} tokens"
            show(f"{spent.answered} answers of workers are kept from before{lost}: {paid}")
        cap = CostCap(
            spent,
            max_usd=workers.max_usd,
            max_tokens=workers.max_tokens,
            assumed_price=workers.assumed_usd_per_mtok,
            or_else=", or assumed_usd_per_mtok in the training's configuration",
        )
        own = settings.model_copy(update={"step_attempts": workers.step_attempts})
        inner = None if workers.inner_conductor is None else open_conductor(workers.inner_conductor, own)
        reward = WorkerReward(pool, cache, cap, own, workers, sink=sink, conductor=inner, report=show)
        with closing(reward):
            yield reward


def _prompts(
    config: TrainingConfig, stage: Stage, tasks: Sequence[Task], pool: Pool, out: Path, main: WorkerReward | None
) -> list[PromptedTask]:
    """Returns the same prompts on every process: a file fixes those of inner rounds when the stage begins."""
    grpo = config.grpo_of(stage)
    if not isinstance(grpo, RecursionConfig):
        return draw_prompts(grpo, tasks, pool.specs, config.seed)
    path = out / PARENTS
    if main is not None and not path.exists():
        found = find_parents(main.cache, tasks)
        with writing(out):
            write_whole(path, json.dumps({key: [each.model_dump() for each in found[key]] for key in found}))
    PartialState().wait_for_everyone()
    read: dict[str, list[dict[str, str]]] = json.loads(path.read_text(encoding="utf-8"))
    parents = {key: [ParentPlan(**each) for each in value] for key, value in read.items()}
    may_recurse = config.scale is not None and config.scale.workers.inner_conductor is not None
    return draw_prompts(grpo, tasks, pool.specs, config.seed, parents=parents, may_recurse=may_recurse)


def _run_stage(
    config: TrainingConfig,
    scale: ScaleConfig,
    before: tuple[Stage, ...],
    stage: Stage,
    start: str,
    asked: Sequence[PromptedTask],
    out: Path,
    main: WorkerReward | None,
    show: recorder.Show,
) -> None:
    """Trains one stage and writes its folder. An error that stops the training is raised after a checkpoint is kept."""
    state, grpo = PartialState(), config.grpo_of(stage)
    new, cpu = out / "stages" / f"{stage}.new", state.device.type == "cpu"
    record = recorder.StageRecord(out, stage, grpo.iterations, show, cpu)
    work = record.work
    if main is not None:
        record.resume(before)
    state.wait_for_everyone()
    record.checkpoint = latest_checkpoint(work)
    args = arguments(grpo, scale, work, seed=config.seed, cpu=cpu, world_size=state.num_processes)
    scorer = None if main is None else _Scorer(main, asked, record, grpo.sample_every)
    with warnings.catch_warnings():
        # TRL calls a method of transformers by its old name.
        warnings.filterwarnings("ignore", message=".*gradient_checkpointing.* is deprecated", category=FutureWarning)
        try:
            trainer = ScaleTrainer(start, args, asked, scorer or _on_another_process, scale.rows_sampled)
        except (OSError, ValueError, ImportError) as error:
            raise BadInput(f"{start} cannot be trained here: {error}") from error
        recorder.without_console(trainer)
        if scorer is not None:
            show_disk_needs(
                work, sum(each.nbytes for each in cast("torch.nn.Module", trainer.model).parameters()), show
            )
            details = partial(scorer.details, trainer)
            trainer.add_callback(recorder.RecordCallback(record, details=details, after=scorer.keep_samples))
        try:
            recorder.continue_training(trainer, record)
        except InspectorError as error:
            trainer.stop()
            if isinstance(error, StoppedElsewhere):
                # The main process reports the reason and the exit code. A failure here would end it before it can.
                raise SystemExit(0) from error
            raise
    trainer.save_model(str(new))
    if main is not None:
        with writing(out):
            new.replace(out / "stages" / stage)
            shutil.rmtree(work)


def _leave(scale: ScaleConfig, stages: tuple[Stage, ...], *, on_main: bool) -> None:
    """Ends a process that holds vLLM after the first of ``stages``: it cannot start vLLM again. Raises: StageEnded."""
    if len(stages) == 1 or scale.vllm is None or scale.vllm.mode != "colocate":
        return
    if not on_main:
        raise SystemExit(0)
    raise StageEnded(
        f"{stages[0]} is finished; {stages[1]} needs processes of its own, for vLLM is in these until they end: start "
        "the same command with --resume"
    )


def _publish(folder: Path, out: Path) -> None:
    """Writes the model in bfloat16, as the local Conductor loads it."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
    with writing(out):
        model.save_pretrained(out, safe_serialization=True)
        AutoTokenizer.from_pretrained(folder).save_pretrained(out)
        (out / "conductor.json").write_text(json.dumps({"prompt": "full"}) + "\n", encoding="utf-8")


# The dry run: the whole path in a minute or two, without a GPU, a download or a paid answer.

MODEL = "dry-run-model"
"""Name of the stand-in model's folder in the output folder."""

_SMALLER = {"iterations": 2, "prompts": 2, "group": 4, "max_completion_tokens": 96, "save_every": 1, "sample_every": 1}
_TASKS = TaskSource(suite="rehearsal", split="train", count=4)
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

    ``pool``: workers to use in place of the rehearsal pool. Raises: BadInput if ``config`` has no table ``scale``.
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
    smaller = {"tasks": (_TASKS,), "workers": workers, "vllm": None, "weights": "float32", "rows_per_device": 4}
    stages: dict[str, GrpoConfig] = {}
    for stage in config.stages:
        grpo = config.grpo_of(stage)
        optimiser = grpo.optimiser.model_copy(update={"bf16": False})
        stages[stage] = grpo.model_copy(update=_SMALLER | {"optimiser": optimiser})
    dry = {"name": f"{config.name}-dry-run", "base": str(out / MODEL), "device": "cpu"}
    return config.model_copy(update={**dry, "scale": scale.model_copy(update=smaller), **stages})


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
        old, new = config.grpo_of(stage), made.grpo_of(stage)
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


def write_model(made: TrainingConfig) -> None:
    """Writes the model of a rehearsed config once, on the main process. Every process must call it."""
    state, folder = PartialState(cpu=True), Path(made.base or "")
    disable_progress_bar()  # type: ignore[no-untyped-call]  # untyped in transformers
    if state.is_main_process and not folder.exists():
        _write_model(made, _scale(made), folder)
    state.wait_for_everyone()


def _write_model(config: TrainingConfig, scale: ScaleConfig, folder: Path) -> None:
    """Makes the base model's stand-in: the same architecture and chat format with 228,544 random weights.

    Its tokenizer is trained on the prompts that the training will ask. A few supervised steps on each plan make some
    of its samples valid, so that the workers are asked.
    """
    specs, plans = read_specs(scale.workers.pool), list(_PLANS)
    if scale.workers.inner_conductor is not None:  # one more plan, whose last step names the Conductor itself
        lists = f'model_id = [0, {len(specs)}]\nsubtasks = ["Answer: {{question}}", "Plan on."]\n'
        plans.append(lists + "access_list = [[], [0]]")
    grpo = config.grpo_of(config.stages[0])
    first_rounds = GrpoConfig.model_validate(grpo.model_dump(include=set(GrpoConfig.model_fields)))
    asked = draw_prompts(first_rounds, load_tasks(scale.tasks, config.seed), specs, config.seed)
    tokenizer = chat_tokenizer([message.text for each in asked for message in each.messages], 1200, plans)
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
    optimiser = torch.optim.AdamW(model.parameters(), lr=_LEARNING_RATE)
    model.train()
    for step in range(_SHOWN_EACH * len(plans)):
        prompt_ids = tokenizer.encode(prompts[step % len(prompts)], add_special_tokens=False)
        plan_ids = [*tokenizer.encode(plans[step % len(plans)], add_special_tokens=False), int(tokenizer.eos_token_id)]
        labels = torch.tensor([[-100] * len(prompt_ids) + plan_ids])
        loss = model(input_ids=torch.tensor([prompt_ids + plan_ids]), labels=labels).loss
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def chat_tokenizer(texts: Iterable[str], vocabulary: int, plans: Sequence[str] = ()) -> PreTrainedTokenizerFast:
    """Trains a byte-level BPE with Qwen2.5's chat format. ``plans``: texts that are one token each."""
    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary, initial_alphabet=alphabet, special_tokens=_SPECIAL, show_progress=False
    )
    raw.train_from_iterator(texts, trainer)
    made = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=raw, eos_token=_SPECIAL[2], pad_token=_SPECIAL[0]
    )
    made.add_tokens([AddedToken(plan, special=False, normalized=False) for plan in plans])
    made.chat_template = _CHAT_TEMPLATE
    return made
