"""What keeps the app from starting is one line of the server's log."""

import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.types import Message

from conductor_core.errors import InspectorError
from pages.components.app import session
from pages.components.app.routes import MIDDLEWARE
from storage import open_store


async def start(lifespan: Callable[..., Any]) -> str:
    """What a server is told of a start that fails."""
    app = Starlette(middleware=MIDDLEWARE, lifespan=lifespan)
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "lifespan.startup"}

    async def send(message: Message) -> None:
        sent.append(message)

    with pytest.raises((InspectorError, ZeroDivisionError)):
        await app({"type": "lifespan", "state": {}}, receive, send)
    [failed] = sent
    assert failed["type"] == "lifespan.startup.failed"
    return str(failed["message"])


async def test_a_setting_that_cannot_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONDUCTOR_MAX_STEPS", "many")
    line = await start(session.lifespan)
    assert line.startswith("error: the environment variable CONDUCTOR_MAX_STEPS cannot be used: ")
    assert line.endswith("correct it or unset it")
    assert "\n" not in line


def newer(file: Path) -> None:
    open_store(f"sqlite:///{file}").close()
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.close()


def damaged(file: Path) -> None:
    file.write_text("no database " * 100)


def in_the_way(file: Path) -> None:
    file.mkdir()


@pytest.mark.parametrize(
    ("spoil", "words"),
    [(newer, "upgrade this program"), (damaged, "restore a copy"), (in_the_way, "name another place")],
)
async def test_a_database_that_cannot_be_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, spoil: Callable[[Path], None], words: str
) -> None:
    file = tmp_path / "runs.sqlite3"
    spoil(file)
    monkeypatch.setenv("DATABASE_URL", f"sqlite:///{file}")
    line = await start(session.lifespan)
    assert line.startswith("error: the database ")
    assert words in line
    assert "\n" not in line


async def test_a_fault_of_the_program_keeps_its_traceback() -> None:
    @asynccontextmanager
    async def lifespan(_app: Any) -> AsyncIterator[None]:
        yield print(1 // 0)

    assert (await start(lifespan)).startswith("Traceback (most recent call last):")
