from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command_line import AGENTS, CommandLine
from tests.support.provider import ScriptedProvider


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(capsys)


@pytest.fixture
def provider() -> Iterator[ScriptedProvider]:
    with ScriptedProvider(("planner", *AGENTS)) as provider:
        yield provider


@pytest.fixture
def pool_file(provider: ScriptedProvider, tmp_path: Path) -> Path:
    path = tmp_path / "pool.toml"
    path.write_text(
        "\n".join(
            f'[[worker]]\nname = "{name}"\nprovider = "openai"\nmodel = "{name}"\nbase_url = "{provider.url}"\n'
            "usd_per_mtok = { input = 1.0, output = 10.0 }\ntimeout_s = 20\n"
            for name in AGENTS
        )
    )
    return path


@pytest.fixture
def task_file(tmp_path: Path) -> Path:
    path = tmp_path / "sums.jsonl"
    path.write_text(
        "".join(
            f'{{"question": "What is {n} and {n}?", "reference": "{2 * n}", "grader": "numeric", "family": "sums", '
            f'"difficulty": "{"easy" if n < 5 else "hard"}"}}\n'
            for n in range(1, 9)
        )
    )
    return path
