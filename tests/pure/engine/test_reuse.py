"""Which recorded answer stands in for a question."""

from conductor_core.engine.request import EarlierAnswers, origin
from conductor_core.run.events import now_utc
from conductor_core.run.trace import ReusedFrom, RunTrace
from conductor_core.run.values import Imported
from tests.support.fakes import ScriptedWorker, run, workflow_of

TWICE = workflow_of(("a", "try", ()), ("a", "try", ()), ("a", "else", ()))


async def recorded() -> tuple[RunTrace, str]:
    samples = iter(["first", "second", "third"])
    trace, _ = await run(ScriptedWorker("a", lambda _: next(samples)), workflow=TWICE)
    assert trace.steps[0].identity is not None
    return trace, trace.steps[0].identity


def output(source: EarlierAnswers, identity: str, path: tuple[int, ...]) -> str | None:
    found = source.find(identity, path)
    return None if found is None else found.output


async def test_the_answer_at_the_same_place_comes_first() -> None:
    trace, identity = await recorded()
    source = EarlierAnswers(trace)
    assert [output(source, identity, (1,)), output(source, identity, (0,))] == ["second", "first"]


async def test_then_one_that_no_other_step_has_taken_and_then_any() -> None:
    trace, identity = await recorded()
    source = EarlierAnswers(trace)
    assert [output(source, identity, (place,)) for place in (5, 6, 7)] == ["first", "second", "first"]


async def test_what_was_not_asked_is_not_there() -> None:
    trace, _ = await recorded()
    assert EarlierAnswers(trace).find("another", (0,)) is None
    assert EarlierAnswers(None).find("another", (0,)) is None


async def test_unfinished_steps_offer_nothing() -> None:
    trace, identity = await recorded()
    for step in trace.steps:
        step.status = "cancelled"
    assert EarlierAnswers(trace).find(identity, (0,)) is None


async def test_the_origin_is_where_it_ran() -> None:
    trace, _ = await recorded()
    step = trace.steps[0]
    assert origin(trace, step) == ReusedFrom(run_id=trace.run_id, path=(0,))
    step.reused_from = ReusedFrom(run_id="r1", path=(3,), imported=True)
    assert origin(trace, step) == step.reused_from
    trace.imported = Imported(
        run_id="x", written_by="w", written_at_utc=now_utc(), imported_at_utc=now_utc(), door="cli"
    )
    assert origin(trace, step) == ReusedFrom(run_id=trace.run_id, path=(0,), imported=True), "r1 is the file's word"
