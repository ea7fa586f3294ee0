"""The training of ``small``: what it learns from, a stop and its continuation, and an adapter that llama.cpp reads."""

import asyncio
import itertools
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import TrainerCallback

from conductor_core.chat.messages import Message, TextDelta, WorkerSpec
from conductor_core.conductors.grammar import PlanShape
from conductor_core.conductors.roles import ROLES, numbering
from conductor_core.errors import BadInput
from conductor_core.inference.gguf_file import read_header
from conductor_core.inference.llama import shared_llama
from conductor_core.lab.records.training import read_record
from conductor_core.lab.training import small
from conductor_core.lab.training.config import AdapterConfig, Optimiser, TrainingConfig
from conductor_core.lab.training.corpus.plans import examples
from conductor_core.lab.training.folder import SafeCheckpoints
from conductor_core.rehearsal.exact import success_chance
from conductor_core.workers.pool import GgufWorker
from conductor_core.workflow.model import Step, Workflow
from conductor_core.workflow.parser import parse_completion
from conductor_core.workflow.validation import validate
from tests.support.grammars import accepts
from tests.support.tiny_gguf import tiny_gguf

CONFIG = AdapterConfig(
    hand_written=12,
    held_out=4,
    epochs=1,
    rehearsal=4,
    rounds=2,
    rank=2,
    alpha=4,
    batch_size=4,
    rows_at_once=2,
    save_every=1,
    optimiser=Optimiser(learning_rate=1e-2, bf16=False),
)


def config(**changed: object) -> TrainingConfig:
    return TrainingConfig(name="small", adapter=CONFIG.model_copy(update=changed))


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_gguf(tmp_path_factory.mktemp("base") / "base.gguf", hidden=16, layers=1)


def test_each_workflow_written_by_hand_is_a_plan_that_its_prompt_allows() -> None:
    rows = small.hand_written()
    assert len(rows) >= 4000
    for number, row in enumerate(rows):
        example = small.example_of(row, random.Random(number))
        system = example.prompt[0].text
        present = [int(word) for word in system.partition("Agents: ")[2].replace(",", " ").split() if word.isdigit()]
        names = [role if ordinal in present else None for ordinal, role in enumerate(ROLES)]
        inner = "Last response: " in example.prompt[1].text
        most = int(system.partition("at most ")[2].split()[0])
        checked = validate(
            parse_completion(example.completion),
            names,
            max_steps=most,
            allow_recursion="conductor" in system,
            allow_stop=inner,
        )
        assert checked.workflow is not None, (row["task"], checked.faults)


def test_the_grammar_of_its_plans_lets_it_write_what_it_learned() -> None:
    for number, row in enumerate(random.Random(3).sample(small.hand_written(), 120)):
        example = small.example_of(row, random.Random(number))
        if "Last response: " not in example.prompt[1].text:
            shape = PlanShape(choices=tuple(range(7)), max_steps=8, task_first=True)
            assert accepts(shape, example.completion), row["task"]


def test_a_rehearsal_question_gets_a_plan_as_good_as_any_worker_alone() -> None:
    asked = (each for each in examples(5) if each.task.rehearsal is not None and each.request.parent is None)
    for drawn in itertools.islice(asked, 12):
        question = drawn.task.rehearsal
        assert question is not None
        example = small.rehearsal_example(question, None, drawn.request)
        checked = validate(
            parse_completion(example.completion),
            numbering(drawn.request.agents),
            max_steps=drawn.request.max_steps,
            allow_recursion=False,
        )
        assert checked.workflow is not None, checked.faults
        alone = max(
            success_chance(question, Workflow(steps=(Step(instruction=small.ALONE, agent=worker.name),)))
            for worker in drawn.request.agents
        )
        assert success_chance(question, checked.workflow) >= alone - 1e-9


def test_a_stopped_training_continues_to_the_same_adapter(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = small.train(config(), tmp_path / "whole", start_from=str(base))

    class Stops(TrainerCallback):
        def on_save(self, args: object, state: object, control: object, **_: object) -> None:
            if state.global_step == 3:  # type: ignore[attr-defined]  # TRL and transformers leave it untyped
                raise KeyboardInterrupt

    with monkeypatch.context() as stopping:
        begun = SafeCheckpoints.train
        stopping.setattr(
            SafeCheckpoints, "train", lambda self, **given: self.add_callback(Stops()) or begun(self, **given)
        )
        with pytest.raises(KeyboardInterrupt):
            small.train(config(), tmp_path / "stopped", start_from=str(base))
    resumed = small.train(config(), tmp_path / "stopped", start_from=str(base), resume=True)

    assert resumed.sha256 == whole.sha256
    steps = [row.iteration for row in read_record(tmp_path / "stopped").iterations()]
    assert steps == sorted(set(steps))
    assert steps[-1] == config().iterations_of("adapter")
    assert read_header(tmp_path / "whole" / small.ADAPTER).kind == "adapter"


@pytest.mark.parametrize("given", ["nowhere.gguf", "text.gguf"])
def test_a_base_that_cannot_be_read_is_named(given: str, tmp_path: Path) -> None:
    (tmp_path / "text.gguf").write_text("no model")
    with pytest.raises(BadInput, match=given):
        small.train(config(), tmp_path / "out", start_from=str(tmp_path / given))


def test_llama_cpp_writes_with_the_adapter_what_the_trained_model_writes(base: Path, tmp_path: Path) -> None:
    model, tokenizer = small.load_base(base, bf16=False)
    adapted = small.with_adapter(model, CONFIG)
    torch.manual_seed(0)
    for name, parameter in adapted.named_parameters():
        if "lora_" in name:
            parameter.data = torch.randn_like(parameter).half().float()  # what its file holds
    lora = tmp_path / "adapter.gguf"
    small.write_adapter(adapted, lora, name="small")
    turns = [{"role": "user", "content": "Which way is north?"}]
    prompt = str(tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True))
    ids = tokenizer(prompt, return_tensors="pt", add_special_tokens=False)
    written_by: Any = adapted.eval()
    made = written_by.generate(**ids, max_new_tokens=24, do_sample=False)
    wanted = tokenizer.decode(made[0][ids["input_ids"].shape[1] :], skip_special_tokens=True)

    def written(adapter: Path | None) -> str:
        spec = WorkerSpec(
            name="tiny",
            provider="gguf",
            model=str(base),
            lora=None if adapter is None else str(adapter),
            params={"temperature": 0.0, "max_tokens": 24},
        )

        async def answer() -> str:
            worker = GgufWorker(spec, base.parent, base.parent)
            chunks = worker.answer([Message(role="user", content="Which way is north?")])
            text = "".join([chunk.text async for chunk in chunks if isinstance(chunk, TextDelta)])
            await worker.aclose()
            return text

        try:
            return asyncio.run(answer())
        finally:
            shared_llama(base, adapter).stop()

    assert written(lora) == wanted
    assert written(None) != wanted
