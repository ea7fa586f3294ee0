"""A run with a text in every field that people, models, providers or files write."""

from collections.abc import Callable, Iterable
from itertools import cycle

from conductor_core import events as ev
from conductor_core.actor import Actor
from conductor_core.chat import Message, ToolCall, Usage, WorkerSpec
from conductor_core.events import Event
from conductor_core.overrides import Given
from conductor_core.workflow.model import Fault, Step, Workflow
from tests.support.run_events import created, planned, sha256, step_completed

LONG = 3
"""Steps with a long output, beside the one whose output a person wrote and the one that fails."""


def filled_run(
    run_id: str,
    short: Iterable[str],
    long: Callable[[], str] | None = None,
    piece: int = 40,
    end: bool = True,
    named: Iterable[str] | None = None,
    ours: str = "0",
) -> list[Event]:
    """Returns the events of a run that waited for an approval and ends as failed.

    Args:
        short: texts for notes, instructions and errors, taken in turn.
        long: gives the task, a completion, an answer; None: those of ``short``.
        piece: characters of a streamed event.
        end: False: the run still waits for an approval of its last step.
        named: texts for names of workers, models, pool, callers and purpose, at most 76 characters of each; None: those
            of ``short``.
        ours: the text of fields that only programs write, and files from elsewhere.
    """
    texts = cycle(short)
    told: Callable[[], str] = (lambda: next(texts)) if long is None else long
    given = texts if named is None else cycle(named)
    names = [f"{next(given)[:76]} {number}" for number in range(LONG + 2)]
    somebody = Actor(kind="local", id=next(given), name=next(given))
    pool = ev.PoolInfo(
        name=next(given),
        workers=tuple(WorkerSpec(name=name, provider="rehearsal", model=next(given)) for name in names),
        excluded=(next(given),),
    )
    steps = tuple(Step(instruction=next(texts), agent=name, access_list="all") for name in names)
    edited = Workflow(steps=(Step(instruction=next(texts), agent=names[0], access_list=()), *steps[1:]))
    output = told()
    events: list[Event] = [
        created(run_id, told(), pool=pool, actor=somebody, purpose=next(given)[:80], app_version=ours),
        ev.PlanStarted(run_id=run_id, messages=(Message(role="user", content=told()),)),
        *(ev.PlanDelta(run_id=run_id, text=part) for part in _parts(told(), piece)),
        ev.PlanRejected(
            run_id=run_id,
            raw=told(),
            faults=(Fault(code="unknown_agent", message=next(texts)),),
            repairs=(next(texts),),
            will_retry=True,
        ),
        planned(run_id, Workflow(steps=steps))[-1].model_copy(update={"raw": told(), "repairs": (next(texts),)}),
        ev.PlanEdited(
            run_id=run_id, actor=somebody, door="page", before=Workflow(steps=steps), after=edited, topology="chain"
        ),
        _asked(run_id, 1, 1, names[1], ours),
        ev.ApprovalGranted(run_id=run_id, actor=somebody, door="page", numbers=(1,), note=next(texts)),
        ev.CommandRefused(run_id=run_id, actor=somebody, command=9, asked="edit", reason=next(texts)),
        ev.StepGiven(
            run_id=run_id,
            path=(0,),
            agent=names[0],
            output=output,
            output_sha256=sha256(output),
            given=Given(how="written", actor=somebody, door="page"),
        ),
    ]
    for at in range(1, LONG + 1):
        answer, shared = (
            told(),
            ev.SharedOutput(path=(0,), agent=names[0], sha256=sha256(output), characters=len(output), tokens=1),
        )
        events += [
            ev.StepStarted(
                run_id=run_id,
                path=(at,),
                agent=names[at],
                identity="i",
                messages=(Message(role="system", content=next(texts)), Message(role="user", content=told())),
                granted=(shared,),
            ),
            *(ev.StepDelta(run_id=run_id, path=(at,), text=part, reasoning=True) for part in _parts(told(), piece)),
            ev.StepRetried(
                run_id=run_id,
                path=(at,),
                attempt=1,
                error_code="WorkerFailed",
                error=next(texts),
                partial=next(texts),
                wait_ms=0,
            ),
            *(ev.StepDelta(run_id=run_id, path=(at,), text=part) for part in _parts(answer, piece)),
            step_completed(run_id, at, answer, 90).model_copy(
                update={
                    "model": next(given),
                    "refusal": next(texts),
                    "tool_calls": (ToolCall(name=next(texts)[:80], arguments=next(texts)),),
                }
            ),
        ]
    last = LONG + 1
    if not end:
        return [*events, _asked(run_id, 2, last, names[last], ours), ev.RunWaiting(run_id=run_id)]
    failed = ev.StepFailed(
        run_id=run_id, path=(last,), error_code="WorkerFailed", error=next(texts), partial=told(), usage=Usage()
    )
    started = ev.StepStarted(run_id=run_id, path=(last,), agent=names[last], identity="i", messages=())
    return [*events, started, failed, ev.RunFailed(run_id=run_id, error_code="StepFailed", error=next(texts))]


def _asked(run_id: str, number: int, step: int, agent: str, rule: str) -> ev.ApprovalRequested:
    return ev.ApprovalRequested(
        run_id=run_id, number=number, of="step", path=(step,), rules=(rule,), identity="i", agent=agent
    )


def _parts(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]
