"""Databases with one thing changed past the program: what the commands still say of them.

    python -m benchmarks.damaged_databases [--n 500] [--seed 1]

Each trial copies one database of runs of all kinds and changes either one byte of the file, anywhere, or one event.
Then ``runs``, and for every run ``show`` and ``rerun --dry-run``, are called as a user would. A trial passes if no
command ends in a traceback, and if every run either reads as it was or is said not to: a run that reads otherwise
without a word is counted as *silent*.
"""

import argparse
import gc
import io
import json
import random
import shutil
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import closing, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from conductor_core.cli.main import main as command_line
from conductor_core.engine.host import EngineHost
from conductor_core.engine.request import rerun_of
from conductor_core.rehearsal import EXAMPLES
from conductor_core.run.request import RunRequest
from conductor_core.run.values import Limits
from conductor_core.settings import Settings
from conductor_core.workflow.model import AccessList, Step, Workflow
from storage import open_store
from tests.support.damaging import past_triggers

Document = dict[str, Any]


@dataclass(frozen=True)
class Pristine:
    """A database as it was written, and of each run what ``runs --json`` and ``show --json`` say."""

    path: Path
    listed: dict[str, Document]
    shown: dict[str, Document]


@dataclass
class Trial:
    """What came of one changed database.

    Attributes:
        whole: runs that read as they were; flagged: runs said to be damaged or too new; refused: runs for which a
            command only named a fault of the file; silent: runs that read otherwise without a word.
        broken: commands that ended in a traceback, or said more or less than one line of error.
        closed: whether the file could not be opened at all, which one line said.
    """

    change: str
    whole: set[str] = field(default_factory=set)
    flagged: set[str] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)
    silent: set[str] = field(default_factory=set)
    broken: list[str] = field(default_factory=list)
    closed: bool = False


def pristine(folder: Path) -> Pristine:
    """Writes the database: runs of several shapes, one planned, one failed, re-runs, one broken off."""
    path = folder / "pristine.sqlite3"
    one, chain, fan = (
        _workflow(("scientist", ())),
        _workflow(("planner", ()), ("reasoner", (0,)), ("verifier", (1,))),
        _workflow(("reasoner", ()), ("coder", ()), ("writer", "all")),
    )
    settings = Settings(data_folder=folder, rehearsal_tokens_per_s=0, warm_up=False)
    with closing(open_store(f"sqlite:///{path}")) as store, closing(EngineHost(store.log, settings, store)) as host:
        pairs = zip(EXAMPLES[:4], (one, chain, fan, chain), strict=True)
        ids = [host.start(RunRequest(task=example.task, workflow=workflow)) for example, workflow in pairs]
        traces = [host.wait(run_id) for run_id in ids]
        for request in (
            RunRequest(task="Só \u4e00 \U0001f600 \x00 planned", workflow=fan, plan_only=True),
            RunRequest(task="Too dear", workflow=chain, limits=Limits(max_tokens=1)),
            rerun_of(traces[1], fan, door="cli"),
        ):
            host.wait(host.start(request))
        # A copy of a run, as far as a program got that was killed then.
        events = [stored.event for stored in store.events(traces[1].run_id)]
        kept = events[: 2 * len(events) // 3]
        store.log.append_and_wait(*(event.model_copy(update={"run_id": "0000-broken-off"}) for event in kept))
    # Closed twice, so that the file is as its last reader leaves it: the run that was broken off is marked.
    shown = {run["run_id"]: _json("show", run["run_id"], "--db", path) for run in _json("runs", "--db", path)["runs"]}
    return Pristine(path, {run["run_id"]: run for run in _json("runs", "--db", path)["runs"]}, shown)


def _workflow(*steps: tuple[str, AccessList]) -> Workflow:
    return Workflow(
        steps=tuple(Step(instruction="Do it: {question}", agent=agent, access_list=access) for agent, access in steps)
    )


def call(*arguments: object) -> tuple[int, str, str]:
    """A command as from a shell: exit code, stdout, stderr. A traceback is exit code 70."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            code = command_line([str(argument) for argument in arguments])
        except BaseException:  # noqa: BLE001  whatever it is, it is what is looked for
            traceback.print_exc()
            code = 70
    return code, out.getvalue(), err.getvalue()


def _json(*arguments: object) -> Document:
    code, out, err = call(*arguments, "--json")
    if code:
        raise RuntimeError(err)
    document: Document = json.loads(out)
    return document


def change_a_byte(path: Path, rng: random.Random) -> str:
    whole = bytearray(path.read_bytes())
    place = rng.randrange(len(whole))
    before = whole[place]
    whole[place] ^= rng.randrange(1, 256)
    path.write_bytes(whole)
    return f"byte {place}: {before:#04x} -> {whole[place]:#04x}"


def change_an_event(path: Path, rng: random.Random, how: str | None = None) -> str:
    """``how``: one of ``CHANGES``; None: any."""
    with past_triggers(path) as connection:
        rows = connection.execute("SELECT sequence, run_id, kind, payload FROM events").fetchall()
        sequence, run_id, kind, payload = rng.choice(rows)
        how = how or rng.choice(list(CHANGES))
        changed = CHANGES[how](kind, payload, rng)
        if changed is None:
            connection.execute("DELETE FROM events WHERE sequence = ?", (sequence,))
        else:
            update = "UPDATE events SET kind = ?, payload = CAST(? AS TEXT) WHERE sequence = ?"
            connection.execute(update, (*changed, sequence))
    return f"event {sequence} ({kind}) of {run_id}: {how}"


def _one_bit(payload: str, rng: random.Random) -> bytes:
    whole = bytearray(payload.encode())
    whole[rng.randrange(len(whole))] ^= 1 << rng.randrange(8)
    return bytes(whole)


def _another_value(payload: str, rng: random.Random) -> bytes:
    told = json.loads(payload)
    values: tuple[object, ...] = (None, -1, 1e308, "", "x" * 300, [], [0] * 2000, {"a": {}}, True, 10**400)
    return json.dumps(told | {rng.choice(list(told)): rng.choice(values)}).encode()


def _a_field_less(payload: str, rng: random.Random) -> bytes:
    told = json.loads(payload)
    del told[rng.choice(list(told))]
    return json.dumps(told).encode()


def _another_kind(kind: str, rng: random.Random) -> str:
    return rng.choice(sorted({"run.created", "step.delta", "run.completed", ""} - {kind}))


CHANGES: dict[str, Callable[[str, str, random.Random], tuple[str, bytes] | None]] = {
    "cut": lambda kind, payload, rng: (kind, payload.encode()[: rng.randrange(len(payload))]),
    "a kind of a newer version": lambda kind, payload, rng: (
        "step.paused",
        json.dumps(json.loads(payload) | {"kind": "step.paused"}).encode(),
    ),
    "one bit": lambda kind, payload, rng: (kind, _one_bit(payload, rng)),
    "another value in a field": lambda kind, payload, rng: (kind, _another_value(payload, rng)),
    "a field less": lambda kind, payload, rng: (kind, _a_field_less(payload, rng)),
    "another kind in its column": lambda kind, payload, rng: (_another_kind(kind, rng), payload.encode()),
    "deleted": lambda kind, payload, rng: None,
}
"""Each returns the new kind and payload of an event; None: the event is deleted."""


def trial(seed: int, whole: Pristine, folder: Path, how: str | None = None) -> Trial:
    """One changed copy. Even seeds change a byte of the file, odd ones an event; ``how``: an event, in that way."""
    rng = random.Random(seed)
    path = folder / "changed.sqlite3"
    for old in folder.glob("changed.sqlite3*"):
        shutil.rmtree(old) if old.is_dir() else old.unlink()
    shutil.copy(whole.path, path)
    result = Trial(change_an_event(path, rng, how) if how or seed % 2 else change_a_byte(path, rng))
    code, out, err = _called(result, "runs", "--db", path, "--json")
    _called(result, "runs", "--db", path)
    if code == 2:
        result.closed = True
        return result
    listed: dict[str, Document] = {run["run_id"]: run for run in json.loads(out)["runs"]} if code == 0 else {}
    if "warning: the database" not in err:  # then not all could be listed, and that is said
        result.broken += [f"runs: {run_id} is missing" for run_id in whole.listed.keys() - listed.keys()]
    for run_id in whole.shown:
        _check_run(result, whole, path, run_id, listed.get(run_id))
    return result


def _check_run(result: Trial, whole: Pristine, path: Path, run_id: str, listed: Document | None) -> None:
    code, out, _ = _called(result, "show", run_id, "--db", path, "--json")
    _called(result, "show", run_id, "--db", path)
    _called(result, "rerun", run_id, "--dry-run", "--db", path)
    document, unreadable = json.loads(out) if out else {}, ("damaged", "too_new")
    if code == 0:
        same = document == whole.shown[run_id] and (listed is None or listed == whole.listed[run_id])
        (result.whole if same else result.silent).add(run_id)
    elif document.get("status") in unreadable or document.get("error", {}).get("code", "").startswith("Run"):
        result.flagged.add(run_id)
        if listed is not None and listed["status"] not in unreadable:
            result.silent.add(run_id)
    else:
        result.refused.add(run_id)


def _called(result: Trial, *arguments: object) -> tuple[int, str, str]:
    """Calls and judges a command. 0: else stderr has warnings. 2: its last line is the error, on one line."""
    code, out, err = call(*arguments)
    lines = err.splitlines()
    wrong = code not in (0, 2) or "Traceback" in err
    if code == 2 and not wrong:
        wrong = not lines[-1].startswith("error: ") or any(line.startswith("error: ") for line in lines[:-1])
    if wrong:
        result.broken.append(f"{' '.join(map(str, arguments))}: exit {code}, {err[-2000:]}")
    return code, out, err


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1, help="the first trial's; the others follow it")
    options = parser.parse_args()
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        whole = pristine(Path(folder))
        for seed in range(options.seed, options.seed + options.n):
            result = trial(seed, whole, Path(folder))
            gc.collect()  # the engine that wrote the runs has Python look less often
            for what, count in {
                "databases": True,
                "that cannot be opened, and say so": result.closed,
                "all runs read as they were": len(result.whole) == len(whole.shown),
                "with runs said to be damaged or too new": bool(result.flagged),
                "with runs refused for the file's damage": bool(result.refused),
                "with a run that reads otherwise without a word": bool(result.silent),
                "with a traceback or a garbled error": bool(result.broken),
            }.items():
                counts[f"{'event' if seed % 2 else 'byte'}: {what}"] += count
            for what in (*result.broken, *(f"silent: {run_id}" for run_id in result.silent)):
                print(f"seed {seed}, {result.change}: {what}", file=sys.stderr, flush=True)
    for name, number in sorted(counts.items()):
        print(f"{name}: {number}")


if __name__ == "__main__":
    main()
