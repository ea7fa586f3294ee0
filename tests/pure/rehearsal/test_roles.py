"""Which role an instruction asks for."""

import pytest

from conductor_core.rehearsal.skills import Role
from conductor_core.rehearsal.worker import read_role


@pytest.mark.parametrize(
    ("instruction", "role"),
    [
        ("Break the journey into legs:", "plan"),
        ("Write a short plan for this task, with its risks.", "plan"),
        ("Outline the steps for", "plan"),
        ("Set the subtasks for the others.", "plan"),
        ("Following the plan, solve the task.", "solve"),
        ("Carry out the plan.", "solve"),
        ("Using the plan above, compute the total.", "compute"),
        ("Recompute both results from the plan and say which is right.", "verify"),
        ("Check the solution against the plan.", "verify"),
        ("Verify the answer and state the final result.", "verify"),
        ("Review the function and correct mistakes.", "verify"),
        ("Compare the three answers and take the majority.", "aggregate"),
        ("Combine the results.", "aggregate"),
        ("Decide which answer is right.", "aggregate"),
        ("Implement the function.", "code"),
        ("Write the Python function as asked.", "code"),
        ("State the arrival time.", "write"),
        ("Write the final answer in one sentence.", "write"),
        ("Give the final answer.", "write"),
        ("Format the result as asked.", "format"),
        ("Solve each leg in hours and minutes.", "solve"),
        ("Look up the fact:", "solve"),
        ("Work on this problem by two different routes, compare them and give the final answer:", "solve"),
        ("Work through the stages above, check each one and give the final answer:", "solve"),
        ("Go over the calculation above against the story, then state the correct number:", "verify"),
        ("Try to refute the choice above, then state the final letter.", "verify"),
        ("Read the code above for mistakes and give the final version:", "verify"),
        ("Find where the derivations above differ and which is right:", "verify"),
        ("See whether the result above is plausible and state the final value:", "verify"),
        ("Weigh both cases above by the criteria and recommend one.", "aggregate"),
        ("Choose the right option with a one-line reason:", "solve"),
        ("Put the content above into exactly the form asked for:", "format"),
        ("Split this calculation into its parts; do not compute yet:", "plan"),
        ("Work out each part of the plan above:", "solve"),
        ("Solve this word problem, name what is known and in which order; do not solve it yet:", "plan"),
        ("Say what is given and asked, without solving it:", "plan"),
        ("Compare the result above against the story and correct any mistake:", "verify"),
        ("", "solve"),
    ],
)
def test_the_first_request_decides_the_role(instruction: str, role: Role) -> None:
    assert read_role(instruction) == role
