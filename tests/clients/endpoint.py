"""A running endpoint, what its answers say of tokens in each shape, and what the product itself says of their runs."""

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.provider import Call, ScriptedProvider
from tests.support.scripted_workers import pool_toml, text_of
from tests.support.served import free_port, stop, until_served

ROOT = Path(__file__).parents[2]
ANY_KEY = "sk-any"
"""No key exists, so any is taken."""
MODELS = '[[model]]\nid = "house"\naliases = ["claude-house"]\nmax_steps = 1\n'
"""Served beside fugu and fugu-ultra. Claude Code lists only ids that begin with claude or anthropic."""


@dataclass(frozen=True)
class Endpoint:
    """Attributes: root_url: without /v1, as Anthropic's clients want it."""

    root_url: str
    database: Path
    workers: ScriptedProvider
    product: tuple[str, ...]
    environment: Mapping[str, str] = field(repr=False)

    @property
    def url(self) -> str:
        return f"{self.root_url}/v1"

    def asked(self, marker: str) -> list[Call]:
        """Returns the workers' requests of which a turn holds ``marker``, in order."""
        calls = list(self.workers.completions)
        return [call for call in calls if any(marker in text_of(message) for message in call.messages)]

    def show(self, run_id: str) -> dict[str, Any]:
        """Returns what ``conductor show`` says of a run."""
        shown: dict[str, Any] = self.conductor("show", run_id)
        return shown

    def runs(self, *options: str) -> list[dict[str, Any]]:
        """Returns the list of ``conductor runs``, the newest first."""
        listed: list[dict[str, Any]] = self.conductor("runs", "--limit", "10000", *options)["runs"]
        return listed

    def conductor(self, *arguments: str) -> Any:
        """Returns what a command of the product's prints as JSON."""
        command = [*self.product, *arguments, "--json", "--db", str(self.database)]
        done = subprocess.run(command, env=self.environment, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode(errors="replace")
        return json.loads(done.stdout)


@contextmanager
def started(workers: ScriptedProvider, folder: Path, *options: str) -> Iterator[Endpoint]:
    """Starts ``conductor serve`` with the scripted workers as its pool, and the database of ``folder``.

    ``options``: further ones.

    Raises: RuntimeError, with the log's end.
    """
    python = os.environ.get("PRODUCT_PYTHON", str(ROOT / ".venv" / "bin" / "python"))
    environment = {
        "PATH": os.environ.get("PATH", ""),
        "HOME": str(folder),
        "CONDUCTOR_CONDUCTOR": "tiny",
        "CONDUCTOR_DATA_FOLDER": str(folder / "data"),
        "CONDUCTOR_RECORDED_RUNS": "0",
        "CONDUCTOR_RETRY_INITIAL_S": "0",
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
    }
    pool, models, log, port = folder / "pool.toml", folder / "models.toml", folder / "serve.log", free_port()
    pool.write_text(pool_toml(workers.url))
    models.write_text(MODELS)
    product = (python, "-m", "conductor_core")
    running = Endpoint(f"http://127.0.0.1:{port}", folder / "runs.sqlite3", workers, product, environment)
    files = ("--db", running.database), ("--pool", pool), ("--models", models)
    command = [*product, "serve", "--port", str(port), *(str(part) for pair in files for part in pair), *options]
    with log.open("wb") as written:
        process = subprocess.Popen(command, env=environment, cwd=ROOT, stdout=written, stderr=subprocess.STDOUT)
    try:
        until_served(process, f"{running.url}/models", log)
        yield running
    finally:
        stop(process)


# What is asked.


def plan(*steps: tuple[str, str] | tuple[str, str, list[int]]) -> dict[str, Any]:
    """Returns the fields of a request that give its plan: of each step the worker, the instruction and what it reads.

    A step reads the one before it, unless it says otherwise.
    """
    given = []
    for number, (agent, instruction, *reads) in enumerate(steps):
        access = reads[0] if reads else [number - 1] if number else []
        given.append({"instruction": instruction, "agent": agent, "access_list": access})
    return {"conductor": {"workflow": {"steps": given}}}


# What an answer cost.


@dataclass(frozen=True)
class Used:
    """Tokens of one response. ``cached`` and ``reasoning`` are subsets."""

    input: int = 0
    output: int = 0
    cached: int = 0
    reasoning: int = 0
    orchestration_input: int = 0
    orchestration_cached: int = 0
    orchestration_output: int = 0

    @property
    def total(self) -> int:
        return self.input + self.output + self.orchestration_input + self.orchestration_output


def used(answer: Mapping[str, Any]) -> Used:
    """Returns the usage of a chat completion or a response, of which every key has to be there."""
    usage = answer["usage"]
    ours, theirs = ("prompt", "completion") if "prompt_tokens" in usage else ("input", "output")
    given, made = usage[f"{ours}_tokens_details"], usage[f"{theirs}_tokens_details"]
    found = Used(
        input=usage[f"{ours}_tokens"],
        output=usage[f"{theirs}_tokens"],
        cached=given["cached_tokens"],
        reasoning=made["reasoning_tokens"],
        orchestration_input=given["orchestration_input_tokens"],
        orchestration_cached=given["orchestration_input_cached_tokens"],
        orchestration_output=made["orchestration_output_tokens"],
    )
    assert usage["total_tokens"] == found.total
    return found


def used_by_message(message: Mapping[str, Any]) -> Used:
    """Returns the usage of a message of Anthropic's: of the answer alone, cached tokens apart."""
    usage = message["usage"]
    cached = usage["cache_read_input_tokens"]
    return Used(usage["input_tokens"] + cached, usage["output_tokens"], cached)


def trace_of(endpoint: Endpoint, *answers: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the record of the run that gave ``answers``, all of its answers in order.

    They name the run, and their totals add up to what the run spent, by rows and by shape.
    """
    ours = [answer["conductor"] for answer in answers]
    (run_id,) = {each["trace_id"] for each in ours}
    for answer, each in zip(answers, ours, strict=True):
        total = each["usage"]
        assert total["total_tokens"] == total["input_tokens"] + total["output_tokens"]
        for name in ("input_tokens", "output_tokens"):
            assert total[name] == sum(row[name] for row in each["steps"])
        assert each["simulated"] is False
        assert run_id in each["trace_url"]
        if answer.get("usage") and answer.get("type") != "message":
            spent = used(answer)
            assert total["input_tokens"] == spent.input + spent.orchestration_input
            assert total["output_tokens"] == spent.output + spent.orchestration_output
    trace = endpoint.show(run_id)
    assert trace["run_id"] == run_id
    for name in ("input_tokens", "output_tokens"):
        assert sum(each["usage"][name] for each in ours) == trace["usage"][name]
    return trace
