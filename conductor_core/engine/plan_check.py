"""Checks a workflow that a person gave."""

from conductor_core.workflow.model import Workflow
from conductor_core.workflow.validation import Checked, ImagesGiven, WorkflowInvalid, validate


def check_given(
    workflow: Workflow,
    agents: tuple[str, ...],
    *,
    max_steps: int,
    allow_recursion: bool,
    task: str | None = None,
    images: ImagesGiven | None = None,
) -> Checked:
    """Checks a workflow that a person gave, before it is carried out.

    Args:
        agents: names in the pool's order.
        task: None: every step receives the task anyway.
        images: those that come with the task.

    Raises: WorkflowInvalid, with every fault.
    """
    checked = validate(
        workflow,
        agents,
        max_steps=max_steps,
        allow_recursion=allow_recursion,
        allow_stop=False,
        task=task,
        images=images,
    )
    if checked.faults:
        raise WorkflowInvalid(sentence("the workflow cannot be run", checked), checked.faults)
    return checked


def sentence(beginning: str, checked: Checked) -> str:
    """Returns ``beginning`` with the first fault, and how many more there are."""
    more = f" (and {checked.fault_count - 1:,} more)" if checked.fault_count > 1 else ""
    return f"{beginning}: {checked.faults[0].message}{more}"
