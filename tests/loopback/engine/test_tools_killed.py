"""The command line is killed around a call with effects, and taken up as people do: nothing happens or is paid twice.

A real server writes a line for each call. The worker calls it again only if it is told that the call was not made.
"""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from conductor_core.run.trace import RunTrace
from conductor_core.run.values import ToolTurn
from storage import Store, open_store
from tests.support.eventually import eventually
from tests.support.provider import Answer, Call, Reply, ScriptedProvider, delta, hang_after, sse
from tests.support.scripted_workers import text_of

ROOT, SERVER = Path(__file__).parents[3], Path(__file__).parents[2] / "support" / "ledger_server.py"
PLAN = 'model_id = [0]\nsubtasks = ["Write it: {question}"]\naccess_list = [[]]\n'
CALLS = Reply(
    [
        sse(
            delta(
                tool_calls=[
                    {"index": 0, "id": "w", "type": "function",
                     "function": {"name": "ledger__write", "arguments": '{"text": "one"}'}}
                ]
            ),
            delta(finish="tool_calls"),
            {"id": "c1", "model": "scripted", "choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}},
            "[DONE]",
        )
    ]
)  # fmt: skip


def worker(call: Call) -> Answer | Reply:
    """Calls the tool until it is told anything but that it was not carried out. ``planner`` plans."""
    if call.model == "planner":
        return Answer(PLAN)
    results = [text_of(message) for message in call.messages if message["role"] == "tool"]
    if not results or "was not carried out" in results[-1]:
        return CALLS
    return Answer(f"so: {results[-1]}")


def turns_of(runs: list[RunTrace]) -> Iterator[ToolTurn]:
    """The turns with tools of all runs; those with which a resumed run began come as it was given them."""
    for run in runs:
        yield from (turn for step in run.walk() for turn in step.turns)
        yield from (turn for given in run.overrides.turns for turn in given.turns)


class World:
    """A folder with a pool, a plan, a database and the server's ledger, and processes of the command line in it."""

    def __init__(self, folder: Path, provider: ScriptedProvider, stack: ExitStack) -> None:
        self.folder, self.provider, self._stack = folder, provider, stack
        self.ledger, self.arrived = folder / "ledger", folder / "arrived"
        command = json.dumps([sys.executable, "-I", "-S", str(SERVER), str(self.ledger)])
        (folder / "pool.toml").write_text(
            f'[[worker]]\nname = "alpha"\nprovider = "openai"\nmodel = "alpha"\nbase_url = "{provider.url}"\n'
            f'usd_per_mtok = {{ input = 1.0, output = 10.0 }}\ntools = ["ledger"]\n'
            f'[[tools]]\nname = "ledger"\ncommand = {command}\n'
        )

    @property
    def lines(self) -> list[str]:
        return self.ledger.read_text().split() if self.ledger.exists() else []

    def plan(self, agent: str) -> list[str]:
        steps = [{"instruction": "Do it: {question}", "agent": agent, "access_list": []}]
        file = self.folder / "plan.json"
        file.write_text(json.dumps({"task": "Write.", "steps": steps}))
        where = ["--pool", str(self.folder / "pool.toml"), "--conductor", f"{self.provider.url}#planner"]
        return [*where, "--workflow", str(file)]

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        """Starts a command. What it says goes to a file, so that it never waits for a reader."""
        said = self._stack.enter_context((self.folder / "said").open("a"))
        process = subprocess.Popen(
            [sys.executable, "-m", "conductor_core", *arguments], cwd=ROOT, env=os.environ, stdout=said, stderr=said,
            stdin=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        self._stack.callback(process.kill)
        return process

    def do(self, *arguments: str) -> int:
        return self.start(*arguments).wait()

    def store(self) -> Store:
        store = open_store(f"sqlite:///{self.folder}/data/conductor-inspector.sqlite3")
        self._stack.callback(store.close)
        return store

    def runs(self) -> list[RunTrace]:
        """All runs, the first first."""
        store = self.store()
        return [store.read(run.run_id) for run in reversed(store.runs())]

    def last(self) -> RunTrace:
        return self.runs()[-1]

    def mark_interrupted(self) -> None:
        self.store().mark_interrupted()

    def faults(self, kills: int) -> list[str]:
        """What is wrong with the end, after so many kills."""
        runs, wrong = self.runs(), []
        last = runs[-1]
        if last.status != "completed":
            wrong.append(f"the run ended {last.status}: {last.error}")
        turns = {turn.calls[0].call_id: turn for turn in turns_of(runs)}
        ran = [each for turn in turns.values() for each in turn.ran]
        unknown = [each for each in ran if each.outcome == "unknown"]
        if len(self.lines) != 1 and not (unknown and not self.lines):
            wrong.append(f"the ledger has {self.lines}, and the record {[each.outcome for each in ran]}")
        if not unknown and [each.outcome for each in ran].count("returned") != 1:
            wrong.append(f"the record says {[each.outcome for each in ran]}")
        asked = Counter(json.dumps([call.model, call.messages]) for call in self.provider.completions)
        # What was under way when the process died is not on record, so it is asked for again; nothing else is.
        again = sum(asked.values()) - len(asked)
        recorded = len(turns) + sum(step.status == "completed" for run in runs for step in run.walk())
        if again > kills or len(self.provider.completions) > recorded + kills + len(runs) * ("planner" in str(asked)):
            wrong.append(
                f"{len(self.provider.completions)} requests, {again} of them again, {recorded} answers on record"
            )
        if self.do("log", "verify"):
            wrong.append("the log is not as it was written")
        return wrong


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with ExitStack() as stack:
        provider = stack.enter_context(ScriptedProvider(("alpha", "planner"))).always(worker)
        yield World(tmp_path, provider, stack)


def before_the_first_turn(world: World) -> bool:
    return bool(world.provider.completions)


def before_the_line(world: World) -> bool:
    return world.arrived.exists()


def after_the_line(world: World) -> bool:
    return bool(world.lines)


def after_the_result(world: World) -> bool:
    return any("tool" in {message["role"] for message in call.messages} for call in world.provider.completions)


HOLDS: dict[Callable[[World], bool], str] = {before_the_line: "hold-before", after_the_line: "hold-after"}
"""What keeps the process where it is killed, if it is the server that does so; else the provider says nothing more."""
IN_A_STEP = [before_the_first_turn, before_the_line, after_the_line, after_the_result]


def killed(world: World, here: Callable[[World], bool], *arguments: str) -> None:
    """Starts a command, and kills it once it is ``here``."""
    if here in HOLDS:
        (world.folder / HOLDS[here]).touch()
    else:
        world.provider.always(lambda call: hang_after("so far") if here(world) else worker(call))
    process = world.start(*arguments)
    eventually(lambda: here(world))
    process.kill()
    process.wait()
    world.provider.always(worker)
    for hold in HOLDS.values():
        (world.folder / hold).unlink(missing_ok=True)


def taken_up(world: World) -> None:
    world.mark_interrupted()
    assert world.last().status == "interrupted"
    assert world.do("rerun", world.last().run_id) == 0


@pytest.mark.parametrize(("agent", "here"), [*(("alpha", here) for here in IN_A_STEP), ("conductor", after_the_line)])
def test_a_call_happens_once_wherever_the_run_is_killed(
    world: World, here: Callable[[World], bool], agent: str
) -> None:
    """``conductor``: the call is made in an inner round."""
    killed(world, here, "run", "Write.", *world.plan(agent))
    taken_up(world)
    assert world.faults(kills=1) == []


@pytest.mark.parametrize("here", [before_the_line, after_the_line])
def test_an_approved_call_happens_once_if_who_approved_it_is_killed(
    world: World, here: Callable[[World], bool]
) -> None:
    assert world.do("run", "Write.", *world.plan("alpha"), "--gate", "tools", "--no-wait") == 3
    assert world.lines == []
    killed(world, here, "approve", world.last().run_id)
    taken_up(world)
    assert world.faults(kills=1) == []
    assert len(world.lines) == int(here is after_the_line), "nobody approved another call"


def test_a_batch_that_is_killed_and_resumed_calls_once(world: World, tmp_path: Path) -> None:
    tasks = tmp_path / "tasks.jsonl"
    steps = [{"instruction": "Do it: {question}", "agent": "alpha", "access_list": []}]
    tasks.write_text(json.dumps({"id": "a", "task": "Write.", "workflow": {"steps": steps}}) + "\n")
    pool = ["--pool", str(world.folder / "pool.toml")]
    killed(world, after_the_line, "run", "--tasks", str(tasks), *pool)
    assert world.do("run", "--tasks", str(tasks), "--resume", *pool) == 0
    assert world.faults(kills=1) == []
