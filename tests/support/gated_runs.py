"""Runs that wait, and decisions about them."""

from collections.abc import Callable

from conductor_core.engine.host import EngineHost
from conductor_core.run.actor import Actor, Caller
from conductor_core.run.commands import Approve, Command
from conductor_core.run.request import RunRequest, read_gate
from conductor_core.run.trace import RunTrace
from conductor_core.run.values import Path
from conductor_core.settings import Settings
from conductor_core.workflow.model import Workflow
from storage import Store
from tests.support.eventually import eventually
from tests.support.fakes import workflow_of

TASK = "What is 6 times 7?"
FAN = workflow_of(
    ("planner", "Plan: {question}", ()),
    ("reasoner", "Solve it.", (0,)),
    ("coder", "Compute it.", (0,)),
    ("writer", "Say it.", (1, 2)),
)
ADA = Caller(actor=Actor(kind="person", id="7", name="Ada"), door="page")
FAST = Settings(rehearsal_tokens_per_s=0, warm_up=False)


def gated(host: EngineHost, *gates: str, workflow: Workflow | None = FAN, **fields: object) -> str:
    """Starts a run with these gates, and returns its id once it waits or has ended."""
    asked = {"task": TASK, "workflow": workflow, "gates": tuple(map(read_gate, gates))}
    run_id = host.start(RunRequest.model_validate(asked | fields))
    host.wait(run_id, 30)
    return run_id


def until(store: Store, run_id: str, holds: Callable[[RunTrace], bool]) -> RunTrace:
    def reached() -> RunTrace | None:
        trace = store.read(run_id)
        return trace if holds(trace) else None

    found = eventually(reached)
    assert found is not None
    return found


def at_rest(store: Store, run_id: str, number: int) -> RunTrace:
    """Returns the run after command ``number``, once it waits again or has ended, perhaps before it heard that."""
    return until(
        store, run_id, lambda trace: trace.ended or (trace.last_command >= number and trace.status != "running")
    )


def said(store: Store, run_id: str, by: Caller = ADA, kind: type[Command] = Approve, **fields: object) -> int:
    return store.send(kind.model_validate({"run_id": run_id, "actor": by.actor, "door": by.door} | fields))


def waits_for(trace: RunTrace) -> list[str]:
    return [approval.what for approval in trace.asked_for]


def paths(store: Store, run_id: str, kind: str) -> list[Path]:
    return [getattr(stored.event, "path", ()) for stored in store.events(run_id) if stored.event.kind == kind]
