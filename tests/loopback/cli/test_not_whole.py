"""A run without a whole answer, from the command line: its status, its exit code, and what is said of it."""

import json
from pathlib import Path

import pytest

from tests.support.command_line import CommandLine
from tests.support.completions import chat
from tests.support.provider import Answer, Reply, ScriptedProvider, delta

REFUSAL = chat(delta(refusal="I cannot help with that."), delta(finish="stop"))


@pytest.fixture
def one_step(tmp_path: Path, provider: ScriptedProvider) -> list[str]:
    pool = tmp_path / "pool.toml"
    pool.write_text(
        "\n".join(
            f'[[worker]]\nname = "{name}"\nprovider = "openai"\nmodel = "{name}"\nbase_url = "{provider.url}"\n{more}\n'
            for name, more in (("fast", 'fallback = "careful"'), ("careful", ""))
        )
    )
    workflow = tmp_path / "workflow.json"
    steps = [{"agent": "fast", "instruction": "Answer: {question}", "access_list": []}]
    workflow.write_text(json.dumps({"task": "Which?", "steps": steps}))
    return ["--workflow", str(workflow), "--pool", str(pool)]


@pytest.mark.parametrize(
    ("reply", "status", "said"),
    [
        (REFUSAL, "refused", "refused: the model refused to answer: I cannot help with that."),
        (Answer(""), "empty", "empty: the answer is empty"),
        (Answer("The legs", finish_reason="length"), "cut", "cut off: the answer was cut off before its end"),
        (Answer("The", finish_reason="content_filter"), "filtered", "filtered: a filter of the provider"),
    ],
)
def test_a_run_without_a_whole_answer_exits_with_1(
    cli: CommandLine, provider: ScriptedProvider, one_step: list[str], reply: Reply | Answer, status: str, said: str
) -> None:
    provider.always(reply)
    ended = cli("run", "--json", *one_step)
    (step,) = ended.document["steps"]
    assert (ended.code, ended.document["status"], step["status"]) == (1, status, status)
    assert said in ended.err
    assert (step["refusal"] != "") == (status == "refused")
    shown = cli("show", ended.document["run_id"])
    assert (shown.code, said.partition(": ")[2] in shown.out) == (0, True)
    assert status in cli("runs", "--status", status).out


def test_another_worker_is_asked_if_the_run_says_so(
    cli: CommandLine, provider: ScriptedProvider, one_step: list[str]
) -> None:
    provider.then(REFUSAL)
    ended = cli("run", "--json", "--on-incomplete", "fallback", *one_step)
    (step,) = ended.document["steps"]
    assert (ended.code, step["status"], step["answered_by"]) == (0, "completed", "careful")
    assert [retry["refusal"] for retry in step["retries"]] == ["I cannot help with that."]
    assert "attempt 1: the model refused to answer (I cannot help with that.); careful is asked instead" in ended.err
    assert [call.model for call in provider.completions] == ["fast", "careful"]


def test_a_policy_that_is_none_is_refused(cli: CommandLine, one_step: list[str]) -> None:
    ended = cli("run", "--on-incomplete", "retry", *one_step)
    assert ended.code == 2
    assert "--on-incomplete" in ended.err
