"""Which tool servers this machine may reach: those that a pool file of this machine named.

A pool also comes from the record of a run, which anybody may have written: a bundle, a shared database. It must not
make this machine start a program, nor send a token or a model's words to a server of its choice. So each server that is
read from a pool *file* leaves a digest of all that is said of it in a file of the data folder, and one that comes from
a record is reached only if its digest is there. The built-in sandbox needs none.
"""

import hashlib
import logging
import os
from collections.abc import Iterable
from pathlib import Path

from conductor_core.chat.tools import ToolServerSpec
from conductor_core.files import private_folder
from conductor_core.tools.servers import where

log = logging.getLogger(__name__)

FILE = "tool-servers"


def allow(specs: Iterable[ToolServerSpec], data_folder: Path) -> None:
    """Keeps the digests of servers that a pool file names. If they cannot be kept, the log says so."""
    known = _kept(data_folder)
    new = [digest for spec in specs if spec.kind != "python" and (digest := _digest(spec)) not in known]
    if not new:
        return
    try:
        private_folder(data_folder)
        handle = os.open(data_folder / FILE, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write("".join(f"{digest}\n" for digest in new))
    except OSError as error:
        log.warning("%s cannot be written, so runs with these tool servers cannot continue: %s", FILE, error)


def refusal(spec: ToolServerSpec, data_folder: Path) -> str:
    """Says why a server of a record is not reached; empty: it may be."""
    if spec.kind == "python" or _digest(spec) in _kept(data_folder):
        return ""
    does = "starts" if spec.kind == "stdio" else "names"
    return f"this machine has no pool file that {does} {where(spec)} like this; open the pool file once"


def _kept(data_folder: Path) -> frozenset[str]:
    try:
        return frozenset((data_folder / FILE).read_text("ascii").split())
    except (OSError, ValueError):
        return frozenset()


def _digest(spec: ToolServerSpec) -> str:
    """Covers all fields: one that says more tools are without effects is another server."""
    return hashlib.sha256(spec.model_dump_json().encode()).hexdigest()
