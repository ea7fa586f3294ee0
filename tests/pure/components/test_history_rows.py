import pytest

from pages.components.history import runs
from storage import RunSummary


@pytest.mark.parametrize(("status", "shown"), [("key_away", "encrypted"), ("erased", "erased"), ("damaged", "no task")])
def test_a_row_without_a_task_says_why(status: str, shown: str) -> None:
    run = RunSummary.model_validate({"run_id": "r", "sequence": 1, "status": status})
    assert runs._task(run, held=False) == shown
