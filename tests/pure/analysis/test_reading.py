"""What a decision record says of a run, and that it says nothing that no event says."""

from conductor_core.analysis.decision_record import _went_to, decision_record
from conductor_core.chat.messages import (
    ConductorInfo,
    Message,
    ToolCall,
    ToolResultPart,
    ToolSpec,
    Usage,
    WorkerSpec,
)
from conductor_core.run import events as ev
from conductor_core.run.actor import Actor, Caller
from conductor_core.run.events import Event
from conductor_core.run.request import REPLAY_PURPOSE, ClientRequest, Overrides, written_by
from conductor_core.run.trace import fold
from conductor_core.run.values import Imported, PoolInfo, SharedOutput
from conductor_core.workflow.model import Fault, Step, Workflow
from tests.support.run_events import (
    created,
    created_otherwise,
    planned,
    run_completed,
    sha256,
    step_completed,
    step_started,
    whole_run,
)

ADA = Caller(actor=Actor(kind="person", id="ada", name="Ada"), door="page")
POOL = PoolInfo(
    name="mixed",
    workers=(
        WorkerSpec(name="solver", provider="rehearsal", model="solver"),
        WorkerSpec(name="writer", provider="openai", model="gpt-9", base_url="https://models.example:8443/v1"),
    ),
)
PLAN = Workflow(
    steps=(
        Step(instruction="Solve it: {question}", agent="solver"),
        Step(instruction="A note to yourself.", agent="solver"),
        Step(instruction="Write it up.", agent="writer", access_list=(0,)),
    )
)


def _shared(index: int, output: str) -> SharedOutput:
    return SharedOutput(
        path=(index,), agent="solver", sha256=sha256(output), characters=len(output), tokens=len(output)
    )


def edited_run(run_id: str, parent: str | None = None) -> list[Event]:
    """A run whose plan Ada changed while it waited for her; its last step goes to a real host and is tried twice."""
    before = Workflow(steps=(*PLAN.steps[:2], PLAN.steps[2].model_copy(update={"access_list": "all"})))
    messages = (
        Message(role="user", content="Solve it: What is 6 times 7?"),
        Message(role="assistant", content="42"),
        Message(role="user", content="Write it up."),
    )
    conductor = ConductorInfo(name="https://planner.example/v1#seven", kind="remote", model="seven")
    events: list[Event] = [
        created_otherwise(created(run_id, pool=POOL, conductor=conductor), parent_run_id=parent),
        *planned(run_id, before),
        ev.ApprovalRequested(run_id=run_id, number=1, of="plan", path=(), rules=("plan",), identity="p"),
        ev.PlanEdited(
            run_id=run_id,
            actor=ADA.actor,
            door=ADA.door,
            before=before,
            after=PLAN,
            origins=(0, 1, 2),
            command=7,
            topology="fan",
        ),
        ev.ApprovalRequested(run_id=run_id, number=2, of="plan", path=(), rules=("plan",), identity="q"),
        ev.ApprovalGranted(run_id=run_id, actor=ADA.actor, door=ADA.door, numbers=(2,), note="Now it is right."),
    ]
    for index, output in ((0, "42"), (1, "a secret thought")):
        text = messages[0].content if index == 0 else "A note to yourself."
        events.append(
            ev.StepStarted(
                run_id=run_id,
                at_ms=40,
                path=(index,),
                agent="solver",
                identity=f"i{index}",
                messages=(Message(role="user", content=text),),
                withheld=(_shared(0, "42"),) if index else (),
            )
        )
        events.append(step_completed(run_id, index, output, 50, cost_usd=0.0))
    events += [
        ev.StepStarted(
            run_id=run_id,
            at_ms=60,
            path=(2,),
            agent="writer",
            identity="i2",
            messages=messages,
            granted=(_shared(0, "42"),),
            withheld=(_shared(1, "a secret thought"),),
        ),
        ev.StepRetried(
            run_id=run_id, at_ms=70, path=(2,), attempt=1, error_code="WorkerOverloaded", error="busy", wait_ms=5
        ),
        step_completed(run_id, 2, "It is 42.", 90, cost_usd=None),
        run_completed(run_id, "It is 42."),
    ]
    return events


def test_it_says_who_planned_who_changed_the_plan_and_who_approved() -> None:
    record = decision_record(edited_run("r"), first=3, last=19)
    (plan,) = record.plans
    assert "the Conductor https://planner.example/v1#seven" in plan.written_by
    assert "at planner.example" in plan.written_by
    assert [step.access for step in plan.steps] == ["none", "none", "0"]
    (edit,) = record.edits
    assert (edit.by, edit.command) == ("Ada, page", 7)
    (difference,) = edit.differences
    assert difference.before is not None
    assert difference.after is not None
    assert (difference.before.access_list, difference.after.access_list) == ("all", (0,))
    assert any("no longer reads step 1" in sentence for sentence in edit.changes)
    assert [each.decision for each in record.approvals] == ["replaced by an edit", "approved"]
    assert record.approvals[1].by is not None
    assert (record.approvals[1].by, record.approvals[1].note) == ("Ada, page", "Now it is right.")
    assert (record.events, record.first, record.last) == (len(edited_run("r")), 3, 19)


def test_it_says_what_each_step_saw_and_what_was_kept_from_it() -> None:
    steps = decision_record(edited_run("r")).steps
    assert [[piece.source for piece in step.granted] for step in steps] == [[], [], ["0"]]
    assert [[piece.source for piece in step.withheld] for step in steps] == [[], ["0"], ["1"]]
    assert [step.question for step in steps] == ["granted", "withheld", "passed_on"]
    assert [(sent.role, sent.same_as) for sent in steps[2].sent] == [
        ("user", "the instruction of step 0, with the task filled in"),
        ("assistant", "the output of step 0"),
        ("user", "the instruction of step 2"),
    ]
    assert steps[2].output_sha256 == sha256("It is 42.")


def test_it_says_which_host_received_what_and_what_never_went_there() -> None:
    egress = {each.host: each for each in decision_record(edited_run("r")).egress}
    writer = egress["models.example:8443"]
    assert (writer.provider, writer.simulated, writer.agents) == ("openai", False, ("writer",))
    assert [(copy.source, copy.times) for copy in writer.received] == [("the task", 1), ("step 0", 1)]
    assert (writer.wrote, writer.never) == (("step 2",), ("step 1",))
    assert egress["planner.example"].never == ("step 0", "step 1", "step 2")
    assert egress[""].simulated


def test_it_says_what_failed_what_it_cost_and_what_is_simulated() -> None:
    record = decision_record(edited_run("r"))
    assert [(each.place, each.code, each.then) for each in record.failures] == [
        ("step 2, attempt 1", "WorkerOverloaded", "asked again")
    ]
    assert record.cost == "unknown"
    assert [(part.what, part.cost) for part in record.cost_parts][-1] == ("step 2", "unknown")
    kinds = [note.kind for note in record.notes]
    assert kinds == ["simulated", "edited"]
    assert record.notes[0].text.startswith("Simulated: solver.")


def test_a_replay_of_a_blame_is_no_change_by_a_person() -> None:
    first, *rest = edited_run("r", "parent")
    record = decision_record([created_otherwise(first, purpose=REPLAY_PURPOSE), *rest])
    (note,) = [note.text for note in record.notes if note.kind == "edited"]
    assert note.startswith("A replay: blame changed one thing")
    assert record.purpose == "blame"


def test_what_the_end_of_a_run_cut_off_is_a_part_of_its_cost() -> None:
    start, begun = created("r"), ev.PlanStarted(run_id="r", messages=(Message(role="user", content="Plan it."),))
    spent = Usage(input_tokens=30, output_tokens=4, estimated=True)
    calls = (ev.BrokenOff(path=(), usage=spent, cost_usd=0.0),)
    cut = ev.RunCancelled(run_id="r", usage=spent, cost_usd=0.0, broken_off=calls)
    record = decision_record([start, begun, cut])
    assert [(part.what, part.usage.total_tokens, part.cost) for part in record.cost_parts] == [("the plan", 34, "$0")]
    assert sum(part.usage.total_tokens for part in record.cost_parts) == record.usage.total_tokens


def test_it_shows_a_rerun_against_its_parent_with_an_output_written_by_hand() -> None:
    parent = fold(whole_run("parent"))
    rerun = created_otherwise(
        created("child"),
        parent_run_id="parent",
        workflow=parent.root.workflow,
        overrides=Overrides().with_output(0, "43", written_by(ADA)),
    )
    given = ev.StepGiven(
        run_id="child",
        path=(0,),
        agent="solver",
        output="43",
        output_sha256=sha256("43"),
        given=written_by(ADA),
    )
    assert parent.root.workflow is not None
    plan = ev.PlanCompleted(run_id="child", source="parent", workflow=parent.root.workflow, topology="chain")
    checked: list[Event] = [
        ev.StepStarted(run_id="child", at_ms=5, path=(1,), agent="checker", identity="i", messages=()),
        step_completed("child", 1, "43, checked", 9),
    ]
    record = decision_record([rerun, plan, given, *checked, run_completed("child", "43, checked")], parent=parent)
    (part,) = record.given
    assert (part.before, part.after, part.by) == ("42", "43", "Ada, page")
    assert record.against is not None
    assert record.against.answers == ("42, checked", "43, checked")
    assert [label for label, _ in record.against.changed] == ["0", "1"]
    assert record.plans[0].written_by == "taken over from run parent"
    assert "by hand" in next(note.text for note in record.notes if note.kind == "written")
    assert [step.instead for step in record.steps] == ["written by Ada, page", ""]
    unknown = decision_record([rerun, plan, given, *checked, run_completed("child", "43, checked")])
    assert unknown.against is not None
    assert not unknown.against.known


def test_it_says_what_a_rejected_plan_held() -> None:
    fault = Fault(code="unknown_agent", message="there is no agent 9")
    events: list[Event] = [
        created("r"),
        ev.PlanStarted(run_id="r", messages=(Message(role="user", content="plan"),)),
        ev.PlanRejected(run_id="r", raw="model_id = [9]", faults=(fault,), usage=Usage(), will_retry=False),
        ev.RunFailed(run_id="r", error_code="PlanRejected", error="no plan"),
    ]
    record = decision_record(events)
    assert record.plans[0].rejected[0].raw == "model_id = [9]"
    assert [each.error for each in record.failures] == ["there is no agent 9", "no plan"]


def test_a_run_that_goes_on_says_so() -> None:
    record = decision_record(edited_run("r")[:-3])
    assert record.notes[0].kind == "unfinished"
    assert record.ended_at_utc is None


def test_it_says_what_was_sent_beside_prompts_and_as_traces_and_whose_word_that_is() -> None:
    writer = POOL.workers[1].model_copy(update={"params": {"user": "Ada"}})
    pool = POOL.model_copy(update={"workers": (POOL.workers[0], writer)})
    to = ev.TracesTo(host="traces.example:4318", contents=True)
    first, *rest = edited_run("r")
    record = decision_record([first.model_copy(update={"pool": pool, "traces": (to,)}), *rest])
    by_host = {each.host: each for each in record.egress}
    assert "user: Ada" in by_host["models.example:8443"].beside
    traces = by_host["traces.example:4318"]
    assert (traces.traces, traces.never) == (True, ())
    assert {copy.source for copy in traces.received} >= {"the task", "step 0", "step 2"}
    assert "traces.example:4318" in _went_to(record)
    assert not any(each.of_file for each in record.egress)
    imported = Imported(run_id="x", written_by="0", written_at_utc=first.at_utc, imported_at_utc=first.at_utc)
    of_file = decision_record([first.model_copy(update={"imported": imported}), *rest])
    assert all(each.of_file for each in of_file.egress)
    assert _went_to(of_file).startswith("the imported file says: ")
    assert {of_file.basis, *(part.basis for part in of_file.cost_parts)} == {"as the file says"}
    assert all(plan.written_by.endswith("(says the file)") for plan in of_file.plans)
    assert all(step.where.endswith("(says the file)") for step in of_file.steps if step.where)
    assert "says the file" not in f"{record.basis} {[plan.written_by for plan in record.plans]}"


def test_it_says_for_which_tools_a_run_waits_and_what_they_brought() -> None:
    call = ToolCall(call_id="call_0", name="weather", arguments="{}")
    client = ClientRequest(api="chat", model="fugu")
    called = ev.ToolCalled(run_id="r", path=(0,), calls=(call,), text="I look.")
    begun = [created("r", client=client, tools=(ToolSpec(name="weather"),), door="api"), *planned("r")]
    begun += [step_started("r", 0, 30), called, ev.RunWaiting(run_id="r", waits_for="tool_results")]
    record = decision_record(begun)
    assert "waits for its client's tools: weather" in record.notes[0].text
    settings = dict(record.settings)
    assert settings["Asked through the endpoint"] == "Chat Completions, model fugu"
    assert settings["The client's tools"] == "weather"
    assert [(sent.role, "call_0" in sent.text) for sent in record.steps[0].sent] == [
        ("user", False),
        ("assistant", True),
    ]
    result = ToolResultPart(call_id="call_0", text="7 degrees", is_error=True)
    returned = ev.ToolReturned(run_id="r", results=(result,), said="Only today.")
    sent = decision_record([*begun, ev.RunTaken(run_id="r"), returned]).steps[0].sent
    assert sent[-1].text == "[error of tool call call_0: 7 degrees]\n\nOnly today."
