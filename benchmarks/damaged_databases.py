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
import sqlite3
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
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
from storage import Store, open_store

Document = dict[str, Any]
UNREADABLE_CODES = ("RunDamaged", "RunTooNew")


@dataclass(frozen=True)
class Pristine:
    """A database as it was written, and what the commands say of it.

    Attributes:
        listed: of each run what ``runs --json`` says; shown: what ``show --json`` says.
    """

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

    seed: int
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
    settings = Settings(data_folder=folder, rehearsal_tokens_per_s=0, warm_up=False)
    store = open_store(f"sqlite:///{path}")
    host = EngineHost(store.log, settings, store)
    one, chain, fan = (
        _workflow(("scientist", ())),
        _workflow(("planner", ()), ("reasoner", (0,)), ("verifier", (1,))),
        _workflow(("reasoner", ()), ("coder", ()), ("writer", "all")),
    )
    ids = []
    for example, workflow in zip(EXAMPLES[:4], (one, chain, fan, chain), strict=True):
        ids.append(host.start(RunRequest(task=example.task, workflow=workflow)))
    traces = [host.wait(run_id) for run_id in ids]
    requests = [
        RunRequest(task="Só \u4e00 \U0001f600 \x00 planned", workflow=fan, plan_only=True),
        RunRequest(task="Too dear", workflow=chain, limits=Limits(max_tokens=1)),
        rerun_of(traces[1], fan, door="cli"),
    ]
    for request in requests:
        host.wait(host.start(request))
    host.close()
    _break_off(store, traces[1].run_id)
    store.close()
    # Closed twice, so that the file is as its last reader leaves it: the run that was broken off is marked.
    shown = {run["run_id"]: _json("show", run["run_id"], "--db", path) for run in _json("runs", "--db", path)["runs"]}
    listed = {run["run_id"]: run for run in _json("runs", "--db", path)["runs"]}
    return Pristine(path, listed, shown)


def _workflow(*steps: tuple[str, AccessList]) -> Workflow:
    return Workflow(
        steps=tuple(Step(instruction="Do it: {question}", agent=agent, access_list=access) for agent, access in steps)
    )


def _break_off(store: Store, run_id: str) -> None:
    """A copy of a run, as far as a program got that was killed then."""
    events = [stored.event for stored in store.events(run_id)]
    kept = events[: 2 * len(events) // 3]
    store.log.append_and_wait(*(event.model_copy(update={"run_id": "0000-broken-off"}) for event in kept))


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
    whole[place] = rng.choice([value for value in range(256) if value != before])
    path.write_bytes(whole)
    return f"byte {place}: {before:#04x} -> {whole[place]:#04x}"


def change_an_event(path: Path, rng: random.Random, how: str | None = None) -> str:
    """``how``: one of ``CHANGES``; None: any."""
    with closing(sqlite3.connect(path)) as connection, connection:
        triggers = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for name, _ in triggers:
            connection.execute(f"DROP TRIGGER {name}")
        rows = connection.execute("SELECT sequence, run_id, kind, payload FROM events").fetchall()
        sequence, run_id, kind, payload = rng.choice(rows)
        how = how or rng.choice(list(CHANGES))
        new_kind, new_payload = CHANGES[how](kind, payload, rng)
        if new_payload is None:
            connection.execute("DELETE FROM events WHERE sequence = ?", (sequence,))
        else:
            update = "UPDATE events SET kind = ?, payload = CAST(? AS TEXT) WHERE sequence = ?"
            connection.execute(update, (new_kind, new_payload, sequence))
        for _, sql in triggers:
            connection.execute(sql)
    return f"event {sequence} ({kind}) of {run_id}: {how}"


Change = Callable[[str, str, random.Random], tuple[str, bytes | None]]


def _cut(kind: str, payload: str, rng: random.Random) -> tuple[str, bytes | None]:
    return kind, payload.encode()[: rng.randrange(len(payload))]


def _newer(kind: str, payload: str, rng: random.Random) -> tuple[str, bytes | None]:
    return "step.paused", json.dumps(json.loads(payload) | {"kind": "step.paused"}).encode()


def _byte(kind: str, payload: str, rng: random.Random) -> tuple[str, bytes | None]:
    whole = bytearray(payload.encode())
    whole[rng.randrange(len(whole))] ^= 1 << rng.randrange(8)
    return kind, bytes(whole)


def _field(kind: str, payload: str, rng: random.Random) -> tuple[str, bytes | None]:
    told = json.loads(payload)
    values: Sequence[object] = (None, -1, 1e308, "", "x" * 300, [], [0] * 2000, {"a": {}}, True, 10**400)
    told[rng.choice(list(told))] = rng.choice(values)
    return kind, json.dumps(told).encode()


def _less(kind: str, payload: str, rng: random.Random) -> tuple[str, bytes | None]:
    told = json.loads(payload)
    del told[rng.choice(list(told))]
    return kind, json.dumps(told).encode()


def _swap(kind: str, payload: str, rng: random.Random) -> tuple[str, bytes | None]:
    kinds = {"run.created", "step.delta", "run.completed", ""} - {kind}
    return rng.choice(sorted(kinds)), payload.encode()


def _gone(kind: str, payload: str, rng: random.Random) -> tuple[str, bytes | None]:
    return kind, None


CHANGES: dict[str, Change] = {
    "cut": _cut,
    "a kind of a newer version": _newer,
    "one bit": _byte,
    "another value in a field": _field,
    "a field less": _less,
    "another kind in its column": _swap,
    "deleted": _gone,
}


def trial(seed: int, whole: Pristine, folder: Path, how: str | None = None) -> Trial:
    """One changed copy. Even seeds change a byte of the file, odd ones an event; ``how``: an event, in that way."""
    rng = random.Random(seed)
    path = folder / "changed.sqlite3"
    for old in folder.glob("changed.sqlite3*"):
        shutil.rmtree(old) if old.is_dir() else old.unlink()
    shutil.copy(whole.path, path)
    change = change_an_event(path, rng, how) if how or seed % 2 else change_a_byte(path, rng)
    result = Trial(seed, change)
    listed = _listed(result, whole, path)
    if not result.closed:
        for run_id in whole.shown:
            _check_run(result, whole, path, run_id, listed.get(run_id))
    return result


def _listed(result: Trial, whole: Pristine, path: Path) -> dict[str, Document]:
    code, out, err = call("runs", "--db", path, "--json")
    _judge(result, "runs --json", code, err)
    text_code, _, text_err = call("runs", "--db", path)
    _judge(result, "runs", text_code, text_err)
    if code == 2:
        result.closed = True
        return {}
    listed: dict[str, Document] = {run["run_id"]: run for run in json.loads(out)["runs"]} if code == 0 else {}
    if "warning: the database" not in err:  # then not all could be listed, and that is said
        result.broken += [f"runs: {run_id} is missing" for run_id in whole.listed.keys() - listed.keys()]
    return listed


def _check_run(result: Trial, whole: Pristine, path: Path, run_id: str, listed: Document | None) -> None:
    code, out, err = call("show", run_id, "--db", path, "--json")
    _judge(result, f"show {run_id} --json", code, err)
    for arguments in (["show", run_id], ["rerun", run_id, "--dry-run"]):
        other_code, _, other_err = call(*arguments, "--db", path)
        _judge(result, " ".join(arguments), other_code, other_err)
    document = json.loads(out) if out else {}
    if code == 0:
        same = document == whole.shown[run_id] and (listed is None or listed == whole.listed[run_id])
        (result.whole if same else result.silent).add(run_id)
    elif document.get("status") in ("damaged", "too_new") or document.get("error", {}).get("code", "").startswith(
        "Run"
    ):
        result.flagged.add(run_id)
        if listed is not None and listed["status"] not in ("damaged", "too_new"):
            result.silent.add(run_id)
    else:
        result.refused.add(run_id)


def _judge(result: Trial, command: str, code: int, err: str) -> None:
    """0: what else is on stderr are warnings. 2: the last line is the error, on one line."""
    lines = err.splitlines()
    wrong = code not in (0, 2) or "Traceback" in err
    if code == 2 and not wrong:
        wrong = not lines[-1].startswith("error: ") or any(line.startswith("error: ") for line in lines[:-1])
    if wrong:
        result.broken.append(f"{command}: exit {code}, {err[-2000:]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1, help="the first trial's; the others follow it")
    options = parser.parse_args()
    started = time.perf_counter()
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        whole = pristine(Path(folder))
        print(f"{len(whole.shown)} runs, {whole.path.stat().st_size} bytes", flush=True)
        for seed in range(options.seed, options.seed + options.n):
            result = trial(seed, whole, Path(folder))
            gc.collect()  # the engine that wrote the runs has Python look less often
            kind = "event" if seed % 2 else "byte"
            counts[f"{kind}: databases"] += 1
            counts[f"{kind}: that cannot be opened, and say so"] += result.closed
            counts[f"{kind}: all runs read as they were"] += len(result.whole) == len(whole.shown)
            counts[f"{kind}: with runs said to be damaged or too new"] += bool(result.flagged)
            counts[f"{kind}: with runs refused for the file's damage"] += bool(result.refused)
            counts[f"{kind}: most runs flagged at once"] = max(
                counts[f"{kind}: most runs flagged at once"], len(result.flagged)
            )
            counts[f"{kind}: with a run that reads otherwise without a word"] += bool(result.silent)
            counts[f"{kind}: with a traceback or a garbled error"] += bool(result.broken)
            for what in (*result.broken, *(f"silent: {run_id}" for run_id in result.silent)):
                print(f"seed {seed}, {result.change}: {what}", file=sys.stderr, flush=True)
    for name, count in sorted(counts.items()):
        print(f"{name}: {count}")
    print(f"{time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
