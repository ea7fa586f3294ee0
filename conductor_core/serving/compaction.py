"""A conversation cut to what matters most, sealed for the client, which sends it back as input. No model is asked.

The seal is encrypted, so that only a server with the same key reads it, and nobody can forge what an assistant said.
"""

import os
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from cryptography.fernet import Fernet, InvalidToken
from pydantic import ValidationError

from conductor_core.chat.messages import Message
from conductor_core.files import UNFINISHED, private_folder
from conductor_core.workflow.model import Frozen

MOST_WHOLE = 40_000
"""Characters of the newest turns that are kept whole. Of older ones the beginnings are kept."""
MOST_BEGINNINGS = 20_000
"""Characters of all beginnings."""
MOST_BEGINNING = 600
MOST_SYSTEM = 100_000
MOST_SEALED = 2 << 20
"""Above the most that ``sealed`` returns: 160,000 characters of up to six bytes, each three of which become four."""


class Kept(Frozen):
    """What a compaction holds: texts only, because the results of a tool cannot outlive its call."""

    system: str = ""
    turns: tuple[Message, ...] = ()


class Damaged(ValueError):
    """A text that ``sealed`` did not write with this key, or that was changed."""


def sealed(system: str, turns: Sequence[Message], key: bytes) -> str:
    """Returns the conversation as one bounded text. ``key``: of Fernet."""
    kept = Kept(system=_beginning(system, MOST_SYSTEM), turns=tuple(_kept(turns)))
    return Fernet(key).encrypt(kept.model_dump_json().encode()).decode()


def opened(text: str, key: bytes) -> Kept:
    """Returns what ``sealed`` wrote. Raises: Damaged."""
    if len(text) > MOST_SEALED or not text.isascii():
        raise Damaged("it was not made here")
    try:
        return Kept.model_validate_json(Fernet(key).decrypt(text.encode()))
    except (InvalidToken, ValidationError) as error:
        raise Damaged("it is damaged, or was made by another server") from error


def _kept(turns: Sequence[Message]) -> Iterable[Message]:
    """Returns turns as texts: the newest whole, before them beginnings, the oldest not at all."""
    kept: list[Message] = []
    whole, beginnings = MOST_WHOLE, MOST_BEGINNINGS
    for turn in reversed(turns):
        text = turn.text
        if whole and (len(text) <= whole or not kept):
            text = _beginning(text, whole)
            whole -= len(text)
        elif beginnings:
            whole = 0
            text = _beginning(text, min(MOST_BEGINNING, beginnings))
            beginnings -= len(text)
        else:
            break
        kept.append(Message(role=turn.role, content=text))
    return reversed(kept)


def _beginning(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def sealing_key(folder: Path) -> bytes:
    """Returns the key that this installation seals with. It is made when it is first needed. Raises: OSError."""
    file = folder / "sealing-key"
    if not file.exists():
        private_folder(folder)
        with tempfile.NamedTemporaryFile(dir=folder, suffix=UNFINISHED) as made:
            made.write(Fernet.generate_key())
            made.flush()
            with suppress(FileExistsError):  # another process was quicker
                os.link(made.name, file)
    return file.read_bytes()
