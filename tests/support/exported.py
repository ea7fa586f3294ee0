"""Plans for exported scripts, and what the scripts send compared with what our engine sends."""

import json
import os
import random
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from conductor_core.chat.messages import Message, WorkerSpec
from conductor_core.engine.pools import Pool
from conductor_core.engine.runner import Engine
from conductor_core.export.plan import Plan
from conductor_core.export.script import FRAMEWORKS, NO_KEY
from conductor_core.run.request import RunRequest
from conductor_core.run.values import Limits
from conductor_core.settings import Settings
from conductor_core.workers.pool import open_worker
from conductor_core.workflow.model import AccessList, Step, Workflow
from tests.support.fakes import MemorySink, quick_settings, workflow_of
from tests.support.provider import (
    Answer,
    Call,
    Part,
    Pause,
    Reply,
    ScriptedProvider,
    deterministic_answer,
    openai_whole,
)

ROOT = Path(__file__).parents[2]
PYTHON = {
    name: ROOT / (".venv-export-crewai" if name == "crewai" else ".venv-export") / "bin" / "python"
    for name in FRAMEWORKS
}
TASK = 'What is {question}?\n"""\nA second line: 漢字, \\n, \u202e and \x07 {braces}'
KEY_VARIABLE, KEY = "EXPORTS_API_KEY", "sk-exports-Zq81bTtW0pLx7cVn"
AGENTS = ("a", "b", "c", "silent", "thinker")
HOSTILE = '"""\nimport os; os.abort()\n\'\'\' {TASK} <<run>> %s \\" \u202e \x00'


@dataclass(frozen=True)
class Case:
    """A plan, and how its run is set."""

    workflow: Workflow
    give_question: bool = False
    turns_before: tuple[Message, ...] = ()
    params: Mapping[str, Any] = field(default_factory=dict)


def answers(call: Call) -> Answer:
    """The model ``silent`` says nothing, ``thinker`` thinks first, ``c`` writes space; all answer by what they got."""
    if call.model == "silent":
        return Answer("")
    answer = deterministic_answer(call)
    if call.model == "c":
        return replace(answer, text=f"\n  {answer.text}\t\n\n")
    return replace(answer, text=f"<think>\nhm </think>\n\n{answer.text}") if call.model == "thinker" else answer


def _random_plan(rng: random.Random) -> Workflow:
    said = (
        "Plan it",
        "Solve: {question}",
        HOSTILE,
        "Prüfe {question}\n\n- once\n- twice " + "and again " * 30,
        "Best of N",
    )
    steps = []
    for index in range(rng.randint(1, 8)):
        access: AccessList = "all" if rng.random() < 0.2 else tuple(rng.sample(range(index), rng.randint(0, index)))
        steps.append(Step(instruction=rng.choice(said), agent=rng.choice(AGENTS), access_list=access))
    return Workflow(steps=tuple(steps))


def cases() -> dict[str, Case]:
    """20 random plans, and the hard ones."""
    rng = random.Random(7)
    turns = (Message(role="user", content="Hello {question}"), Message(role="assistant", content='"Hi"\n'))
    hard = {
        "diamond": workflow_of(
            ("a", "Plan", ()), ("b", "Left {question}", (0,)), ("c", "Right", (0,)), ("a", "Join", (1, 2))
        ),
        "skip edges": workflow_of(
            ("a", "0", ()),
            ("b", "1", (0,)),
            ("c", "2", (1,)),
            ("a", "3", (0, 2)),
            ("b", "4", (0, 1, 3)),
            ("c", "5", (0,)),
        ),
        "all": workflow_of(("a", "0", "all"), ("b", "1 {question}", "all"), ("c", "2", ()), ("a", "3", "all")),
        "best of n": workflow_of(*[("a", "Solve: {question}", ())] * 3, ("b", "Choose", (0, 1, 2))),
        "nobody reads it": workflow_of(("a", "0", ()), ("b", "1", ()), ("c", "2", (0,))),
        "chain": workflow_of(*[("abc"[i % 3], f"step {i}", (i - 1,) if i else ()) for i in range(12)]),
        "no output": workflow_of(("silent", "Say nothing", ()), ("thinker", "Think", (0,)), ("a", "Read", "all")),
        "hostile": workflow_of(("a", HOSTILE, ()), ("b", HOSTILE[::-1], (0,))),
    }
    return {
        **{f"random {number}": Case(_random_plan(rng)) for number in range(20)},
        **{name: Case(workflow) for name, workflow in hard.items()},
        "told the task": Case(hard["diamond"], give_question=True),
        "turns before": Case(hard["diamond"], turns_before=turns),
        "turns before, told": Case(hard["diamond"], give_question=True, turns_before=turns),
        "parameters": Case(
            hard["diamond"], params={"temperature": 0.25, "max_tokens": 77, "extra": {"a": [1, "ü", True]}}
        ),
    }


def specs(provider: ScriptedProvider, door: str, params: Mapping[str, Any]) -> tuple[WorkerSpec, ...]:
    """The workers, whose requests come in under a path of their own. Worker ``a`` has a key, the others none."""
    url = f"http://127.0.0.1:{provider.port}/{door}/v1"
    return tuple(
        provider.spec(
            name, base_url=url, params=params, timeout_s=60, api_key_env=KEY_VARIABLE if name == "a" else None
        )
        for name in AGENTS
    )


def plan_of_case(case: Case, provider: ScriptedProvider, door: str) -> Plan:
    return Plan(
        task=TASK,
        workflow=case.workflow,
        workers=specs(provider, door, case.params),
        source="run 0f3a",
        give_question=case.give_question,
        turns_before=case.turns_before,
    )


async def engine_answer(case: Case, provider: ScriptedProvider, door: str) -> str:
    """Runs the plan with our engine. Returns its answer."""
    workers = {spec.name: open_worker(spec, Settings()) for spec in specs(provider, door, case.params)}
    pool = Pool(name="exports", workers=workers)
    request = RunRequest(
        task=TASK,
        workflow=case.workflow,
        limits=Limits(max_steps=32),
        give_question=case.give_question,
        turns_before=case.turns_before,
    )
    try:
        trace = await Engine(MemorySink(), quick_settings()).run(request, None, pool)
    finally:
        await pool.aclose()
    return trace.steps[-1].output


def sent(provider: ScriptedProvider, door: str) -> Counter[str]:
    """Returns the bodies that came in under ``door``, without how they are to be streamed, and the key of each."""
    return Counter(
        json.dumps(
            [
                {name: value for name, value in call.body.items() if name not in ("stream", "stream_options")},
                _key_of(call),
            ],
            sort_keys=True,
        )
        for call in provider.completions
        if call.path == f"/{door}/v1/chat/completions"
    )


def _key_of(call: Call) -> str | None:
    """Returns the key of a call. What scripts say where a worker has none is none."""
    key = call.headers.get("authorization")
    return None if key == f"Bearer {NO_KEY}" else key


@dataclass(frozen=True)
class Ran:
    """Attributes: printed: by case, what the script printed. elsewhere: requests to anywhere but the provider."""

    printed: dict[str, str]
    elsewhere: list[str]


def run_all(framework: str, provider: ScriptedProvider, folder: Path) -> Ran:
    """Runs the scripts of all cases in one process."""
    scripts = [folder / f"script_{number}.py" for number in range(len(cases()))]
    for script, (name, case) in zip(scripts, cases().items(), strict=True):
        plan = plan_of_case(case, provider, door_of(framework, name))
        script.write_text(FRAMEWORKS[framework].write(plan), encoding="utf-8")
    with ScriptedProvider() as others:
        result = run(framework, ROOT / "tests/support/run_scripts.py", *scripts, proxy=others.url)
        elsewhere = [f"{call.method} {call.path}" for call in others.calls]
        elsewhere += ["a connection"] * (others.connections - len(elsewhere))
    assert result.returncode == 0, result.stderr[-6000:]
    printed = json.loads(result.stdout.splitlines()[-1])
    return Ran(dict(zip(cases(), printed, strict=True)), elsewhere)


def door_of(framework: str, case: str) -> str:
    return f"{framework}-{case.replace(' ', '-').replace(',', '')}"


async def check_same(ran: Ran, provider: ScriptedProvider, framework: str, name: str) -> None:
    """The script's requests are those of our engine, with model, parameters, messages and key; so is its answer."""
    case, by_script = cases()[name], door_of(framework, name)
    by_engine = f"engine-for-{by_script}"
    answer = await engine_answer(case, provider, by_engine)
    assert sent(provider, by_script) == sent(provider, by_engine)
    assert sent(provider, by_script).total() == len(case.workflow.steps)
    if answer:
        assert ran.printed[name] == f"{answer}\n"
    else:
        assert "brought no output" in ran.printed[name]


def check_at_once(folder: Path, framework: str) -> None:
    """The three attempts of a best-of-N plan are with the provider at the same time."""

    def held(call: Call) -> Reply | Answer:
        # An attempt is answered when all three have come, or after a time in which they would have.
        if len(call.messages) > 1:
            return answers(call)
        return Reply(_held(provider, answers(call), call), content_type="application/json")

    with ScriptedProvider() as provider:
        provider.always(held)
        script = folder / "script.py"
        script.write_text(FRAMEWORKS[framework].write(plan_of_case(cases()["best of n"], provider, "door")))
        result = run(framework, script, proxy="http://127.0.0.1:9")
        assert result.returncode == 0, result.stderr
        assert provider.most_at_once == 3
        assert [line for line in result.stderr.splitlines() if line.startswith("step ")][-1] == "step 3 (b) is done"


def _held(provider: ScriptedProvider, answer: Answer, call: Call) -> Iterator[Part]:
    for _ in range(600):
        if provider.most_at_once == 3:
            break
        yield Pause(0.05)
    yield from openai_whole(answer, call.model).parts


def check_missing_key(folder: Path, framework: str) -> None:
    with ScriptedProvider() as provider:
        script = folder / "script.py"
        script.write_text(FRAMEWORKS[framework].write(plan_of_case(cases()["diamond"], provider, "door")))
        result = run(framework, script, proxy="http://127.0.0.1:9", **{KEY_VARIABLE: ""})
        assert (result.returncode, result.stdout, provider.calls) == (1, "", [])
        assert (
            result.stderr.splitlines()[-1] == f"Set the environment variable {KEY_VARIABLE} to the key of its provider."
        )


def run(framework: str, *arguments: Path, proxy: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    """Runs a script in the environment of its framework. ``proxy``: where requests to other machines would go."""
    home = arguments[-1].parent / "home"
    home.mkdir(exist_ok=True)
    environment = {
        "PATH": os.environ.get("PATH", ""),
        "HOME": str(home),
        KEY_VARIABLE: KEY,
        "OPENAI_API_KEY": "sk-of-somebody-else",
        "OPENAI_BASE_URL": proxy,
        **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), proxy),
        **dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1"),
    }
    assert PYTHON[framework].exists(), f"make test-exports installs {framework}"
    return subprocess.run(
        [str(PYTHON[framework]), *map(str, arguments)],
        env=environment | variables,
        cwd=home,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=500,
    )
