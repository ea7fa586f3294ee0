"""Checks a database or an exported bundle against the public key and the published checkpoints of its log, and tells
what happened in the runs of a bundle as plain text. The record of the program says more; this one needs nothing of it.

It needs Python 3.11 and the package cryptography, and nothing of Conductor Inspector. It changes nothing.
"""

import argparse
import json
import os
import sqlite3
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from storage.evidence.bundle_audit import Verified, audit_bundle, is_bundle, open_bundle, payload_of
from storage.evidence.database_audit import NoEvidence, audit_database, open_database, published_size, read_own_evidence
from storage.evidence.history import CLASSES, History, Report, began_late, counted, read_anchors
from storage.merkle.formats import Invalid, PublicKey, error_text, read_key, rotated_keys

# What happened in a run, from the stored JSON of its events alone. A bar sets off what people and models wrote.

Fields = dict[str, Any]
_HOSTS = {"openai": "api.openai.com", "anthropic": "api.anthropic.com"}
_SILENT = ("plan.delta", "plan.progress", "step.delta", "step.progress", "run.taken")


def printable(line: str) -> str:
    """Returns a line without what steers a terminal: names in a report can be a forger's."""
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in line)


def event_record(run_id: str, payloads: Iterable[bytes], rest: str = "") -> Iterator[str]:
    """Yields the lines of the record of a run. ``rest``: why there are more events than these."""
    yield f"# What happened in run {printable(run_id)}"
    told = _Told()
    for count, payload in enumerate(payloads):
        try:
            event = json.loads(payload)
        except (ValueError, RecursionError):
            yield from ("", f"Event {count} cannot be read: it is encrypted or of an unknown form.")
            return
        if isinstance(event, dict):
            yield from told.event(event)
    yield from told.broken_off()
    if rest:
        yield from ("", printable(rest))


class _Told:
    """Tells one event after another, and remembers what later ones refer to."""

    def __init__(self) -> None:
        self._servers: dict[str, str] = {}
        self._conductor = "nobody"
        self._open: dict[str, str] = {}

    def event(self, event: Fields) -> Iterator[str]:
        kind, of = _line(event.get("kind")), _path(event.get("path"))
        if kind in _SILENT:
            if kind == "step.delta" and not event.get("reasoning"):
                self._open[of] = self._open.get(of, "") + str(event.get("text"))
            return
        step = f"step {of} " if event.get("path") else ""
        by = f", by {_who(event)}" if event.get("actor") else ""
        yield from ("", f"## {_line(event.get('at_utc'))[:19]} UTC, {step}{kind}{by}")
        match kind:
            case "run.created":
                yield from self._created(event)
            case "plan.started":
                yield f"{self._conductor} is asked for a plan."
                yield from _messages(event)
            case "plan.completed":
                written = self._conductor if event.get("source") == "conductor" else _line(event.get("source"))
                yield f"Written by {written}; {_cost(event)}"
                yield from _workflow("the plan", event.get("workflow"))
            case "plan.edited":
                yield from _workflow("before", event.get("before"))
                yield from _workflow("after", event.get("after"))
            case "step.started" | "step.reused":
                yield from self._started(event)
            case _ if kind.startswith("run."):
                self._open = self._open if kind != "run.completed" else {}
        if kind.startswith("step.") and kind != "step.started":
            self._open.pop(of, None)
        yield from _common(event)

    def _created(self, event: Fields) -> Iterator[str]:
        asked = _fields(event.get("request"))
        yield f"Asked by {_who(asked)}; version {_line(event.get('app_version'))} carried it out."
        for worker in map(_fields, _items(_fields(event.get("pool")).get("workers"))):
            self._servers[str(worker.get("name"))] = _server(worker)
        conductor = _fields(event.get("conductor"))
        if conductor:
            self._conductor = f"the Conductor {_line(conductor.get('name'))} ({_line(conductor.get('kind'))})"
        yield from (f"- agent {_line(name)}: {server}" for name, server in self._servers.items())
        for turn in map(_fields, _items(asked.get("turns_before"))):
            yield from _text(f"before the task, {_line(turn.get('role'))}", _content(turn.get("content")))
        yield from _text("the task", asked.get("task"))
        for image in map(_fields, _items(asked.get("images"))):
            yield f"- with an image, sha256 {_line(image.get('sha256'))}"
        if gates := _items(asked.get("gates")):
            yield f"- it waits for approvals: {', '.join(_line(json.dumps(gate)) for gate in gates)}"

    def _started(self, event: Fields) -> Iterator[str]:
        agent = str(event.get("agent"))
        if event.get("kind") == "step.reused":
            place = f"step {_path(event.get('source_path'))} of run {_line(event.get('source_run_id'))}"
            yield f"Nothing was sent: the answer of {place} is used."
        else:
            yield f"Sent to {_line(agent)}: {self._servers.get(agent, 'not in the pool')}"
        for what in ("granted", "withheld"):
            for piece in map(_fields, _items(event.get(what))):
                source = f"step {_path(piece.get('path'))} ({_line(piece.get('agent'))})"
                yield f"- {what}: the output of {source}, sha256 {_line(piece.get('sha256'))}"
        yield from _messages(event)

    def broken_off(self) -> Iterator[str]:
        for of, text in self._open.items():
            yield from _text(f"step {of} had written so far", text)


def _common(event: Fields) -> Iterator[str]:
    if event.get("kind") == "approval.requested":
        yield f"- number {_line(event.get('number'))}, of the {_line(event.get('of'))} {_path(event.get('path'))}"
    if event.get("numbers"):
        yield f"- numbers {', '.join(map(_line, _items(event.get('numbers'))))}"
    for name in ("error_code", "reason", "because", "ending", "model", "answered_by", "output_sha256"):
        if event.get(name):
            yield f"- {name}: {_line(event[name])}"
    if weights := _fields(event.get("weights")):
        yield f"- weights: {_line(weights.get('parameters'))} parameters, SHA-256 {_line(weights.get('sha256'))}"
    if "output" in event or event.get("kind") in ("run.completed", "step.failed"):
        yield f"- {_cost(event)}"
    if event.get("passed_on") is False:
        yield "- not passed on to later steps"
    for name in ("note", "error", "refusal", "partial", "output", "answer"):
        if event.get(name):
            yield from _text(name, event[name])
    for given in filter(None, [_fields(event.get("given"))]):
        yield f"- {_line(given.get('how'))} by {_who(given)}"


def _workflow(title: str, workflow: object) -> Iterator[str]:
    for index, step in enumerate(map(_fields, _items(_fields(workflow).get("steps")))):
        reads = _line(json.dumps(step.get("access_list")))
        yield from _text(f"{title}, step {index}, {_line(step.get('agent'))}, reads {reads}", step.get("instruction"))


def _messages(event: Fields) -> Iterator[str]:
    for message in map(_fields, _items(event.get("messages"))):
        yield from _text(f"message, as {_line(message.get('role'))}", _content(message.get("content")))


def _content(content: object) -> str:
    parts = content if isinstance(content, list) else [content]
    texts = [(part.get("text") if isinstance(part, dict) else part, part) for part in parts]
    return "\n".join(text if isinstance(text, str) else json.dumps(part, ensure_ascii=False) for text, part in texts)


def _text(title: str, text: object) -> Iterator[str]:
    yield from ("", f"{title}:", "")
    yield from (f"    | {printable(line.expandtabs(4))}" for line in str(text).split("\n"))


def _cost(event: Fields) -> str:
    usage, usd = _fields(event.get("usage")), event.get("cost_usd")
    tokens = f"{_line(usage.get('input_tokens', 0))} tokens in, {_line(usage.get('output_tokens', 0))} out"
    return f"{tokens}, {'cost unknown' if usd is None else f'{_line(usd)} USD'}"


def _server(worker: Fields) -> str:
    provider = _line(worker.get("provider"))
    try:
        host = urlsplit(str(worker.get("base_url") or "")).netloc.rpartition("@")[2] or _HOSTS.get(provider, "")
    except ValueError:
        host = str(worker.get("base_url"))
    simulated = "simulated, " if provider == "rehearsal" else ""
    place = f"at {_line(host)}" if host else "in that process"
    return f"{simulated}{provider}, model {_line(worker.get('model'))}, {place}"


def _who(fields: Fields) -> str:
    actor = _fields(fields.get("actor"))
    if not actor:
        return _line(fields.get("door") or "somebody")
    local = ""
    if actor.get("kind") == "local":
        claims = [
            f"; claimed: {_line(each.get('source'))}={_line(each.get('says'))}"
            for each in _items(actor.get("claims"))
            if isinstance(each, dict)
        ]
        local = f" (uid {_line(actor.get('uid'))}, not signed in{''.join(claims)})"
    door = f", {_line(fields['door'])}" if fields.get("door") else ""
    return f"{_line(actor.get('name'))}{local}{door}"


def _path(path: object) -> str:
    return ".".join(map(_line, _items(path)))


def _line(value: object) -> str:
    return printable(str(value))


def _fields(value: object) -> Fields:
    return value if isinstance(value, dict) else {}


def _items(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


# The check.

BAD_INPUT = 2
FINGERPRINT = "fingerprint: "
_KEY_FORM = "a key is the line NAME+ID+KEY that `conductor log key` prints"
_PROGRESS_S = 2.0


def verify(
    target: Path,
    keys: Sequence[PublicKey],
    anchors: Sequence[Path],
    progress: Callable[[str, int], None],
    verified: Verified = lambda run_id, event: None,
) -> Report:
    """Checks the database or bundle ``target``.

    Args:
        keys: trusted from elsewhere; those that they vouch for count, too.
        verified: is given each event of a bundle that is as it was written.

    Raises: NoEvidence or Invalid if there is nothing to check; OSError, sqlite3.Error.
    """
    if not is_bundle(target):
        return verify_database(target, keys, anchors, progress)
    report = Report()
    try:
        with open_bundle(target) as bundle:
            records = {at: str(line["record"]).encode(errors="replace") for at, line in enumerate(bundle.records)}
            keys = rotated_keys(records, keys)
            audit_bundle(bundle, keys, _read(_as_they_are(anchors), keys, report), report, progress, verified)
            covered_from = bundle.head["covered_from"]
            if isinstance(covered_from, int) and covered_from > 1:
                report.findings.append(began_late(covered_from))
    except Invalid as error:
        report.add("evidence", f"the bundle cannot be read: {error}")
    return report


def verify_database(
    target: Path,
    keys: Sequence[PublicKey],
    anchors: Sequence[Path],
    progress: Callable[[str, int], None],
    none: str = "no anchor was given",
) -> Report:
    """Checks the database ``target``, as ``verify`` does. Raises: NoEvidence; OSError, sqlite3.Error.

    ``none``: why there are no ``anchors``.
    """
    report = Report()
    with closing(open_database(target)) as connection:
        kept = published_size(connection)
        published = _as_they_are(anchors)  # what is published while the database is read is not in what is read of it
        connection.execute("BEGIN")
        own = read_own_evidence(connection)
        keys = rotated_keys(own.records, keys)
        history = _read(published, keys, report)
        audit_database(connection, own, keys, history, report, progress)
    report.anchored_size = history.anchored
    if not anchors:
        report.notes.append(f"{none}: whoever can write the database could have rewritten it all")
    if kept and not history.anchored:
        why = none if not anchors else f"{', '.join(map(str, anchors))}: no checkpoint of this log is in it"
        entries = counted(kept, "entry was", "entries were")
        report.add("anchor", f"{why}; the database says that {entries} published")
    report.findings.sort(key=lambda each: each.kind != "begun_again")  # the rest follows from it
    return report


def _as_they_are(anchors: Sequence[Path]) -> list[tuple[Path, int]]:
    """Returns the anchors, each with its length in bytes. Raises: Invalid for a pipe or a device; OSError."""
    for each in anchors:
        if each.exists() and not each.is_file():
            raise Invalid(f"{each} is not a regular file")
    return [(each, each.stat().st_size) for each in anchors]


def _read(anchors: Sequence[tuple[Path, int]], keys: Sequence[PublicKey], report: Report) -> History:
    return read_anchors([(str(path), _published_lines(path, size)) for path, size in anchors], keys, report)


def _published_lines(path: Path, size: int) -> Iterator[str]:
    """Yields the lines of the first ``size`` bytes. One that was being written then is left out."""
    with path.open("rb") as file:
        for line in file:
            size -= len(line)
            if size < 0:
                return
            yield line.decode(errors="replace").replace("\r\n", "\n")


_FIGURES = ("verified_events", "unanchored_events", "verified_size", "deleted_runs", "erased_runs")


def document(report: Report, run_id: str | None = None, keys: Sequence[PublicKey] = ()) -> dict[str, Any]:
    """Returns the report as ``--json`` prints it. ``keys``: with which it was checked."""
    findings = [each for each in report.findings if run_id is None or each.run_id in (None, run_id)]
    return {
        "ok": not findings,
        **{name: getattr(report, name) for name in _FIGURES},
        "findings": [
            {"class": each.kind, "run_id": each.run_id, "sequence": each.sequence, "what": each.what}
            for each in findings
        ],
        "more_findings": report.more,
        "notes": report.notes,
        "fingerprints": [each.fingerprint for each in keys],
    }


def show(shown: dict[str, Any], *, as_json: bool) -> None:
    print_text(json.dumps(shown) if as_json else "\n".join(lines(shown)))


def print_text(text: str) -> None:
    """Prints a text, whatever signs are in it and whatever signs the terminal knows."""
    encoding = sys.stdout.encoding or "utf-8"
    print(text.encode(encoding, errors="backslashreplace").decode(encoding))


def lines(shown: dict[str, Any]) -> Iterator[str]:
    yield from map(printable, _said(shown))


def _said(shown: dict[str, Any]) -> Iterator[str]:
    for each in shown["findings"]:
        place = "" if each["run_id"] is None else f" run {each['run_id']}"
        place += "" if each["sequence"] is None else f" event {each['sequence']}"
        yield f"{each['class'].upper()}{place}: {each['what']}"
    if shown["more_findings"]:
        yield f"... and {counted(shown['more_findings'], 'finding')} more"
    yield from (f"note: {each}" for each in shown["notes"])
    tail = shown["unanchored_events"]
    entries = counted(shown["verified_size"], "entry", "entries")
    yield f"{counted(shown['verified_events'], 'event is', 'events are')} as a signed checkpoint says ({entries})"
    if tail:
        uncovered = counted(tail, "event is", "events are")
        yield f"{uncovered} covered by no checkpoint from outside: nothing protects {'it' if tail == 1 else 'them'} yet"
    erased = shown["erased_runs"]
    for number, how in ((shown["deleted_runs"] - erased, "deleted"), (erased, "erased")):
        if number:
            yield f"{counted(number, 'run was', 'runs were')} {how} by the program, on record"
    yield from (f"the key's {FINGERPRINT}{each}" for each in shown["fingerprints"])
    yield "OK: nothing was found" if shown["ok"] else counted(len(shown["findings"]), "finding").upper()


def exit_code(shown: dict[str, Any], *, plain: bool) -> int:
    """Returns 0, or the code of the first finding's class; with ``plain`` 1 for any."""
    if shown["ok"]:
        return 0
    return 1 if plain else CLASSES[shown["findings"][0]["class"]]


class Proven:
    """The verified events of the runs of a bundle whose ids begin with ``prefix``, in order, as exact payloads."""

    def __init__(self, prefix: str = "") -> None:
        self._prefix = prefix
        self.runs: dict[str, list[bytes]] = {}

    def __call__(self, run_id: str, event: dict[str, Any]) -> None:
        if run_id.startswith(self._prefix):
            self.runs.setdefault(run_id, []).append(payload_of(event))


def record_head(shown: dict[str, Any], runs: int) -> str:
    """Says before a record what it rests on."""
    if shown["ok"]:
        return f"\nWhat follows is read from the proven events of {counted(runs, 'run')}, and from nothing else.\n"
    return (
        f"\nNOT PROVEN: the check above found that something was changed. What follows is read from the "
        f"events of {counted(runs, 'run')} that are proven all the same; the rest is left out.\n"
    )


def unproven(shown: dict[str, Any], run_id: str) -> str:
    """Says that a record is not of the whole run; empty: it is of all that the bundle holds."""
    found = any(each["run_id"] == run_id for each in shown["findings"])
    return "The check found something in this run: what comes after these events is not proven." if found else ""


class Ticker:
    """Says on stderr every two seconds how far the check is."""

    def __init__(self) -> None:
        self._next_s = time.monotonic() + _PROGRESS_S

    def __call__(self, what: str, count: int) -> None:
        if time.monotonic() > self._next_s:
            self._next_s = time.monotonic() + _PROGRESS_S
            print(f"{count:,} {what} checked", file=sys.stderr, flush=True)


def given_keys(given: Sequence[str]) -> list[PublicKey]:
    """Reads public keys: each the key itself, or a file that holds it. Raises: Invalid, OSError."""
    return list(map(_given_key, given))


def _given_key(given: str) -> PublicKey:
    """Reads a key with or without the line of its fingerprint, as ``conductor log key`` prints both."""
    text, where = given, "what was given"
    if os.path.exists(given):
        if not os.path.isfile(given):
            raise Invalid(f"{given} is not a regular file")
        text, where = Path(given).read_text(encoding="utf-8", errors="replace"), given
    elif given.count("+") < 2:
        raise Invalid(f"{given[:80]!r} is neither a file nor a public key: {_KEY_FORM}")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    said = [line.removeprefix(FINGERPRINT) for line in lines if line.startswith(FINGERPRINT)]
    lines = [line for line in lines if not line.startswith(FINGERPRINT)]
    if len(lines) != 1:
        raise Invalid(f"{where} holds {len(lines)} lines that could be a public key, and one is expected: {_KEY_FORM}")
    try:
        key = read_key(lines[0])
    except Invalid as error:
        raise Invalid(f"{where} is not a public key ({error}): {_KEY_FORM}") from error
    if any(each != key.fingerprint for each in said):
        raise Invalid(f"the fingerprint in {where} is not that of the key beside it: ask for both again")
    return key


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 0 if nothing was found, 2 for bad input, else the code of the first finding's class (with --json: 1)."""
    codes = ", ".join(f"{code} {kind}" for kind, code in CLASSES.items())
    parser = argparse.ArgumentParser(description=__doc__, epilog=f"Exit codes: 0 nothing found, 2 bad input, {codes}.")
    parser.add_argument("target", type=Path, help="A database, or a bundle: a folder or a zip file.")
    parser.add_argument(
        "--public-key", action="append", required=True, metavar="KEY|FILE", help="From the log's owner."
    )
    parser.add_argument("--anchor", action="append", default=[], type=Path, metavar="FILE", help="What was published.")
    parser.add_argument("--run", metavar="RUN_ID", help="Show only what concerns this run, and the log as a whole.")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="One JSON document; the exit code is then 0, 1 or 2.")
    form.add_argument(
        "--record", action="store_true", help="Then say what happened in each run of a bundle, or in that of --run."
    )
    given = parser.parse_args(arguments)
    proven = Proven(given.run or "")
    try:
        if given.record and not is_bundle(given.target):
            raise Invalid("--record reads a bundle: export the run first")
        keys = given_keys(given.public_key)
        report = verify(given.target, keys, given.anchor, Ticker(), *([proven] if given.record else ()))
    except (Invalid, NoEvidence, OSError, sqlite3.Error) as error:
        print(f"error: {error_text(error)}", file=sys.stderr)
        return BAD_INPUT
    shown = document(report, given.run, keys)
    show(shown, as_json=given.json)
    if given.record:
        print_text(record_head(shown, len(proven.runs)))
        for run_id, payloads in proven.runs.items():
            print_text("\n".join(event_record(run_id, payloads, unproven(shown, run_id))))
    return exit_code(shown, plain=given.json)


def _from_the_shell() -> int:
    """Runs ``main``. Says nothing when whoever read the output has left."""
    try:
        try:
            return main()
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


if __name__ == "__main__":
    sys.exit(_from_the_shell())
