from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command_line import AGENTS, CommandLine, conductor_and_workers
from tests.support.provider import ScriptedProvider


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(capsys)


@pytest.fixture
def provider() -> Iterator[ScriptedProvider]:
    with ScriptedProvider(("planner", *AGENTS)) as provider:
        yield provider.always(conductor_and_workers)


@pytest.fixture
def where(provider: ScriptedProvider, tmp_path: Path) -> list[str]:
    """The options that name this provider's Conductor and pool."""
    pool = tmp_path / "pool.toml"
    pool.write_text(
        "\n".join(
            f'[[worker]]\nname = "{name}"\nprovider = "openai"\nmodel = "{name}"\nbase_url = "{provider.url}"\n'
            "usd_per_mtok = { input = 1.0, output = 10.0 }\ntimeout_s = 30\n"
            for name in AGENTS
        )
    )
    return ["--pool", str(pool), "--conductor", f"{provider.url}#planner"]
