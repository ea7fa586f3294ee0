"""A run with a text in every field that people, models, providers or files write."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import cycle

from conductor_core.chat.messages import Message, ToolCall, ToolResultPart, ToolSpec, Usage, WorkerSpec
from conductor_core.chat.tools import OfferedTool, ToolListing
from conductor_core.run import events as ev
from conductor_core.run.actor import Actor
from conductor_core.run.events import Event
from conductor_core.run.request import Given
from conductor_core.run.values import PoolInfo, SharedOutput
from conductor_core.workflow.model import Fault, Step, Workflow
from tests.support.run_events import created, planned, sha256, step_completed

LONG = 3
"""Steps that a worker answers, beside the one whose output a person wrote and the one that fails."""


@dataclass
class _Writer:
    """``texts``, ``told``, ``given``: give the next short text, long text and name."""

    run_id: str
    texts: Iterator[str]
    told: Callable[[], str]
    given: Iterator[str]
    piece: int
    ours: str
    names: list[str]
    somebody: Actor

    def planning(self) -> list[Event]:
        run_id, texts, told, given = self.run_id, self.texts, self.told, self.given
        pool = PoolInfo(
            name=next(given),
            workers=tuple(WorkerSpec(name=name, provider="rehearsal", model=next(given)) for name in self.names),
            excluded=(next(given),),
        )
        steps = tuple(Step(instruction=next(texts), agent=name, access_list="all") for name in self.names)
        before = Workflow(steps=steps)
        after = Workflow(steps=(Step(instruction=next(texts), agent=self.names[0], access_list=()), *steps[1:]))
        fault = Fault(code="unknown_agent", message=next(texts))
        purpose = next(given)[:80]
        return [
            created(run_id, told(), pool=pool, actor=self.somebody, purpose=purpose, app_version=self.ours),
            ev.PlanStarted(run_id=run_id, messages=(Message(role="user", content=told()),)),
            *(ev.PlanDelta(run_id=run_id, text=part) for part in self.parts(told())),
            ev.PlanRejected(run_id=run_id, raw=told(), faults=(fault,), repairs=(next(texts),), will_retry=True),
            planned(run_id, before)[-1].model_copy(update={"raw": told(), "repairs": (next(texts),)}),
            ev.PlanEdited(
                run_id=run_id, actor=self.somebody, door="page", before=before, after=after, topology="chain"
            ),
        ]

    def deciding(self) -> list[Event]:
        run_id, somebody = self.run_id, self.somebody
        return [
            self.asked(1, 1),
            ev.ApprovalGranted(run_id=run_id, actor=somebody, door="page", numbers=(1,), note=next(self.texts)),
            ev.CommandRefused(run_id=run_id, actor=somebody, command=9, asked="edit", reason=next(self.texts)),
        ]

    def written(self, output: str) -> ev.StepGiven:
        """The first step, whose output a person wrote."""
        given = Given(how="written", actor=self.somebody, door="page")
        return ev.StepGiven(
            run_id=self.run_id,
            path=(0,),
            agent=self.names[0],
            output=output,
            output_sha256=sha256(output),
            given=given,
        )

    def answered(self, at: int, first: str) -> list[Event]:
        """A step that thinks, fails once and answers. ``first``: the output of the first step, which it reads."""
        run_id, texts, told, path = self.run_id, self.texts, self.told, (at,)
        read = SharedOutput(path=(0,), agent=self.names[0], sha256=sha256(first), characters=len(first), tokens=1)
        messages = (Message(role="system", content=next(texts)), Message(role="user", content=told()))
        answer, error, partial = told(), next(texts), next(texts)
        call = ToolCall(name=next(texts)[:80], arguments=next(texts))
        said = {"model": next(self.given), "refusal": next(texts), "tool_calls": (call,)}
        agent = self.names[at]
        return [
            ev.StepStarted(run_id=run_id, path=path, agent=agent, identity="i", messages=messages, granted=(read,)),
            *(ev.StepDelta(run_id=run_id, path=path, text=part, reasoning=True) for part in self.parts(told())),
            ev.StepRetried(
                run_id=run_id, path=path, attempt=1, error_code="WorkerFailed", error=error, partial=partial, wait_ms=0
            ),
            *self.calling(at),
            *(ev.StepDelta(run_id=run_id, path=path, text=part) for part in self.parts(answer)),
            step_completed(run_id, at, answer, 90).model_copy(update=said),
        ]

    def calling(self, at: int) -> list[Event]:
        """A turn of a step that calls a tool server of the pool."""
        run_id, texts, path = self.run_id, self.texts, (at,)
        server, tool, name = next(self.given)[:76], next(self.given)[:76], next(texts)[:76]
        spec = ToolSpec(name=f"{name}{at}", description=next(texts))
        offers = {"tools": (OfferedTool(server=server, tool=tool, spec=spec),), "left_out": (next(texts),)}
        listing = ToolListing(
            server=server, kind="http", where=next(texts), title=next(texts), fault=next(texts), **offers
        )
        call = ToolCall(name=spec.name, arguments=next(texts), call_id=f"call_{run_id}_{at}")
        result = ToolResultPart(call_id=call.call_id, text=self.told())
        names = {"run_id": run_id, "path": path, "server": server, "tool": tool, "effects": True}
        return [
            ev.ToolsListed(run_id=run_id, listing=listing),
            ev.ToolCalled(run_id=run_id, path=path, text=next(texts), calls=(call,), ours=(call.call_id,)),
            ev.ToolSent(**names, call_id=call.call_id),
            ev.ToolRan(**names, outcome="returned", result=result),
        ]

    def failing(self, at: int) -> list[Event]:
        run_id, error = self.run_id, next(self.texts)
        return [
            ev.StepStarted(run_id=run_id, path=(at,), agent=self.names[at], identity="i", messages=()),
            ev.StepFailed(
                run_id=run_id, path=(at,), error_code="WorkerFailed", error=error, partial=self.told(), usage=Usage()
            ),
            ev.RunFailed(run_id=run_id, error_code="StepFailed", error=next(self.texts)),
        ]

    def asked(self, number: int, at: int) -> ev.ApprovalRequested:
        agent = self.names[at]
        return ev.ApprovalRequested(
            run_id=self.run_id, number=number, of="step", path=(at,), rules=(self.ours,), identity="i", agent=agent
        )

    def parts(self, text: str) -> list[str]:
        return [text[at : at + self.piece] for at in range(0, len(text), self.piece)]


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
    given = texts if named is None else cycle(named)
    names = [f"{next(given)[:76]} {number}" for number in range(LONG + 2)]
    somebody = Actor(kind="local", id=next(given), name=next(given))
    told: Callable[[], str] = (lambda: next(texts)) if long is None else long
    writer = _Writer(run_id, texts, told, given, piece, ours, names, somebody)
    first = told()
    events: list[Event] = [*writer.planning(), *writer.deciding(), writer.written(first)]
    for at in range(1, LONG + 1):
        events += writer.answered(at, first)
    last = LONG + 1
    if end:
        return [*events, *writer.failing(last)]
    return [*events, writer.asked(2, last), ev.RunWaiting(run_id=run_id)]
