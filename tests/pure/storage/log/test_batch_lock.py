"""One process at a time carries out a batch, and whoever is refused is told which one does."""

import os
import socket
from pathlib import Path

import pytest

from conductor_core.errors import BadInput
from storage import Store
from storage.log import owner


@pytest.mark.parametrize(
    ("written", "holder"),
    [
        (None, f"process {os.getpid()} on {socket.gethostname()}"),
        ("417 the big machine\n", "process 417 on the big machine"),
        ("", "another process"),
        ("417", "another process"),
    ],
    ids=["as it is written", "of another machine", "not written yet", "half written"],
)
def test_a_batch_that_is_carried_out_is_refused_with_the_process_that_does(
    store: Store, path: Path, monkeypatch: pytest.MonkeyPatch, written: str | None, holder: str
) -> None:
    monkeypatch.setattr(owner, "_ASKED_S", 0.0)
    with store.carrying_out("key", "batch 1 of tasks.jsonl"):
        (lock,) = path.parent.rglob("batch-*")
        if written is not None:
            lock.write_text(written)
        with pytest.raises(BadInput) as refused, store.carrying_out("key", "batch 1 of tasks.jsonl"):
            pass
        with store.carrying_out("another", "batch 2 of tasks.jsonl"):
            pass
    assert str(refused.value) == f"batch 1 of tasks.jsonl is carried out by {holder}: wait for its end, or stop it"
    with store.carrying_out("key", "batch 1 of tasks.jsonl"):
        pass
