from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_core.lab.evaluation.orchestrators import AGGREGATE, SOLVE
from conductor_core.lab.evaluation.routers.workflows import DEBATE, MODES, REFLECTION, ROLES, Mode, ask, team
from conductor_core.rehearsal.worker import read_role
from conductor_core.workflow.model import Workflow
from conductor_core.workflow.validation import validate

AGENTS = ("ann", "bob", "cid")
MEMBERS = (("planner", "ann"), ("solver", "bob"), ("inspector", "bob"))


def reads(workflow: Workflow) -> list[tuple[int, ...]]:
    return [workflow.reads(index) for index in range(len(workflow.steps))]


@given(
    st.sampled_from(MODES),
    st.lists(st.tuples(st.sampled_from(sorted(ROLES)), st.sampled_from(AGENTS)), min_size=1, max_size=4),
)
def test_every_team_is_a_workflow_without_faults_whose_end_reads_every_agent(
    mode: Mode, members: list[tuple[str, str]]
) -> None:
    workflow = team(mode, members)
    checked = validate(workflow, AGENTS, max_steps=9)
    assert checked.faults == ()
    assert {step.agent for step in workflow.steps} == {agent for _, agent in members}
    assert all(step.instruction.count("{question}") == 1 for step in workflow.steps)
    if len(members) > 1:
        assert workflow.steps[-1].instruction == AGGREGATE
        assert len(workflow.reads(len(workflow.steps) - 1)) == len(members)


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("direct", [(), (), (), (0, 1, 2)]),
        ("thought", [(), (), (), (0, 1, 2)]),
        ("chain", [(), (0,), (1,), (0, 1, 2)]),
        ("full", [(), (0,), (0, 1), (0, 1, 2)]),
        ("debate", [(), (), (), (0, 1, 2), (0, 1, 2), (0, 1, 2), (3, 4, 5)]),
        ("reflection", [(), (), (), (0,), (1,), (2,), (3, 4, 5)]),
    ],
)
def test_who_sees_whom_in_each_mode(mode: Mode, expected: list[tuple[int, ...]]) -> None:
    workflow = team(mode, MEMBERS)
    assert reads(workflow) == expected
    assert workflow.steps[-1].agent == "bob"


def test_one_agent_alone_decides_for_itself() -> None:
    assert team("direct", [("solver", "ann")]) == ask(["ann"])
    assert [step.instruction for step in team("reflection", [("solver", "ann")]).steps] == [SOLVE, REFLECTION]
    assert set(get_args(Mode)) == set(MODES)


def test_the_rehearsal_workers_understand_the_roles() -> None:
    own = {role: read_role(text.replace("{question}", "")) for role, text in ROLES.items()}
    assert own == {
        "solver": "solve",
        "planner": "plan",
        "calculator": "compute",
        "programmer": "code",
        "expert": "solve",
        "inspector": "verify",
        "writer": "write",
    }
    assert read_role(DEBATE.replace("{question}", "")) == "aggregate"
    assert read_role(REFLECTION.replace("{question}", "")) == "verify"
