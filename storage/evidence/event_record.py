"""Writes what happened in a run as plain text, from the stored JSON of its events and nothing else.

The record of the program says more; this one needs nothing of it. What people and models wrote is set off by a bar.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

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
        yield from ("", f"## {_line(event.get('at_utc'))[:19]} UTC, {step}{kind}{_by(event)}")
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
    """Tells the fields that many kinds have."""
    if event.get("kind") == "approval.requested":
        yield f"- number {_line(event.get('number'))}, of the {_line(event.get('of'))} {_path(event.get('path'))}"
    if event.get("numbers"):
        yield f"- numbers {', '.join(map(_line, _items(event.get('numbers'))))}"
    for name in ("error_code", "reason", "because", "ending", "model", "answered_by", "output_sha256"):
        if event.get(name):
            yield f"- {name}: {_line(event[name])}"
    if isinstance(weights := event.get("weights"), Mapping):
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
    return "\n".join(_part(part) for part in parts)


def _part(part: object) -> str:
    text = part.get("text") if isinstance(part, dict) else part
    return text if isinstance(text, str) else json.dumps(part, ensure_ascii=False)


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


def _by(event: Fields) -> str:
    return f", by {_who(event)}" if event.get("actor") or event.get("by") else ""


def _who(fields: Fields) -> str:
    actor = _fields(fields.get("actor"))
    if not actor:
        return _line(fields.get("by") or fields.get("door") or "somebody")
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
