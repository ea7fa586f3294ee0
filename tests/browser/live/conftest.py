"""Runs to look at: carried out in the test's process, on the app's database."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from conductor_core.engine.host import EngineHost
from conductor_core.run.request import RunRequest
from conductor_core.workflow.model import AccessList, Step, Workflow
from tests.browser.conftest import App

TASK = (
    "A train leaves at 09:40 and covers 210 km at 84 km/h, waits 12 minutes, then covers 95 km at 76 km/h. When does "
    "it arrive? Check the result independently."
)
PLAN: tuple[tuple[str, str, AccessList], ...] = (
    ("planner", "{question} Break the journey into legs.", ()),
    ("reasoner", "{question} Solve each leg.", (0,)),
    ("calculator", "{question} Compute the total.", (0,)),
    ("verifier", "{question} Recompute both results.", "all"),
    ("writer", "State the arrival time.", (3,)),
)


@pytest.fixture
def start_run(app: App) -> Callable[..., str]:
    """Starts a run of PLAN (or of the given steps) and returns its id at once."""

    def start(*steps: tuple[str, str, AccessList], task: str = TASK, host: EngineHost = app.engine) -> str:
        workflow = Workflow(
            steps=tuple(
                Step(agent=agent, instruction=told, access_list=access) for agent, told, access in steps or PLAN
            )
        )
        # Playwright's event loop has this thread; the engine is asked from another.
        with ThreadPoolExecutor(1) as aside:
            request = RunRequest(task=task, workflow=workflow, door="page")
            return aside.submit(host.start, request).result()

    return start
