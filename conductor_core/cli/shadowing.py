"""The process of the shadow, which ``conductor serve --shadow`` starts (see ``conductor_core.serving.shadow``).

It reads a line of JSON that says what to do, then the id of a forwarded run a line, and writes ``RUN HOW`` for each. It
ends with its input: when the server is gone, so is it.
"""

import json
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conductor_core.cli.inputs import opened_store, read_settings
from conductor_core.cli.live import opened_engine
from conductor_core.engine.pools import read_specs
from conductor_core.serving.served_models import ServedModels
from conductor_core.serving.shadow_runs import ShadowRuns

COMMAND = (sys.executable, "-m", "conductor_core.cli.shadowing")
_NICE = 10


@dataclass(frozen=True)
class Asked:
    """What the process is to do.

    Attributes:
        db, conductor, pool, models: as ``serve`` was given them. model: the served model that answers.
        grader: a suite file. judge: a worker of the pool. None: nobody compares so.
    """

    db: str | None
    conductor: str | None
    pool: str | None
    models: str | None
    model: str
    at_once: int = 1
    usd_a_day: float | None = None
    grader: str | None = None
    judge: str | None = None


def grader_of(file: str | None) -> Callable[[str, str], bool | None]:
    """Returns what says whether an answer to a task is right; None where the suite lacks the task. Raises: BadInput."""
    if file is None:
        return lambda _task, _answer: None
    from conductor_core.grading.grade import grade
    from conductor_core.lab.evaluation.suites import load_suite

    tasks = {task.question.strip(): task for task in load_suite(file).tasks}

    def right(task: str, answer: str) -> bool | None:
        known = tasks.get(task.strip())
        return None if known is None else grade(known, answer).right

    return right


def main() -> None:
    """Raises: InspectorError if it cannot begin."""
    os.nice(_NICE)
    asked = Asked(**json.loads(sys.stdin.readline()))
    given: dict[str, Any] = {"conductor": asked.conductor, "pool": asked.pool}
    settings = read_settings().model_copy(update={name: value for name, value in given.items() if value is not None})
    served = ServedModels.read(settings, None if asked.models is None else Path(asked.models))
    model = served.by_id[asked.model]
    judges = [] if asked.judge is None else read_specs(settings.pool, settings)
    judge = next((spec for spec in judges if spec.name == asked.judge), None)
    grade, saying = grader_of(asked.grader), threading.Lock()
    with opened_store(asked.db, settings) as store, opened_engine(store, settings) as engine:
        runs = ShadowRuns(
            engine,
            store,
            store.judgements,
            store.service_keys,
            settings,
            served,
            model,
            grade=grade,
            judge=judge,
            usd_a_day=asked.usd_a_day,
        )

        def carry_out(run_id: str) -> None:
            how = runs.run(run_id)
            with saying:
                print(run_id, how, flush=True)

        with ThreadPoolExecutor(asked.at_once) as several:
            for line in sys.stdin:
                several.submit(carry_out, line.strip())
            # The server is gone: what is under way is not waited for.
            os._exit(0)


if __name__ == "__main__":
    main()
