"""What a worker is told of a tool's result: its text within bounds, and words on all that is no text."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from conductor_core.chat.tools import MOST_RESULT_CHARACTERS, ToolAnswer, ToolOutcome
from conductor_core.tools.listing import inert

NOTHING = "The tool returned nothing."
_FOR_THE_SENTENCE = 200
_MOST_WORDS = 300


def answer_of(result: Mapping[str, Any]) -> ToolAnswer:
    """Reads a result of ``tools/call`` as it came, in JSON."""
    content = result.get("content")
    parts = list(_parts(content)) if isinstance(content, list) else []
    size = sum(size for _, size, _ in parts)
    texts = [text for text, _, _ in parts]
    structured = result.get("structuredContent")
    if structured is not None and not any(is_text for _, _, is_text in parts):
        texts.append(json.dumps(structured, ensure_ascii=False))
        size += len(texts[-1].encode("utf-8", "replace"))
    outcome: ToolOutcome = "error" if result.get("isError") is True else "returned"
    text = "\n".join(texts)
    empty = "The tool failed and did not say why." if outcome == "error" else NOTHING
    return answer(outcome, text or empty, size)


def answer(outcome: ToolOutcome, text: str, size_bytes: int = 0) -> ToolAnswer:
    """Returns an answer with ``text`` made inert and cut, with one sentence that says how much was cut."""
    most = MOST_RESULT_CHARACTERS - _FOR_THE_SENTENCE
    # A key must not be cut in two before it is found, nor 10 MB be searched for one.
    cleaned = inert(text[: 2 * MOST_RESULT_CHARACTERS])
    if len(text) <= 2 * MOST_RESULT_CHARACTERS and len(cleaned) <= MOST_RESULT_CHARACTERS:
        return ToolAnswer(outcome=outcome, text=cleaned, size_bytes=size_bytes)
    said = f"\n[The result was cut here: it has {len(text):,} characters, and these are the first {most:,}.]"
    return ToolAnswer(outcome=outcome, text=cleaned[:most] + said, size_bytes=size_bytes)


def _parts(content: Sequence[Any]) -> Iterator[tuple[str, int, bool]]:
    """Yields for each part what is told of it, its bytes, and whether it is a text."""
    for part in content:
        if not isinstance(part, Mapping):
            continue
        kind = part.get("type")
        if kind == "text":
            text = str(part.get("text", ""))
            yield text, len(text.encode("utf-8", "replace")), bool(text)
        elif kind in ("image", "audio"):
            yield _described(str(kind), part, size := _decoded(part.get("data"))), size, False
        elif kind == "resource_link":
            told = part.get("size")
            words = _words(part, "name", "uri", "mimeType")
            yield f"[a link to a resource: {words}{f', {told:,} bytes' if isinstance(told, int) else ''}]", 0, False
        elif kind == "resource" and isinstance(inner := part.get("resource"), Mapping):
            if isinstance(within := inner.get("text"), str):
                size = len(within.encode("utf-8", "replace"))
                yield f"{_described('resource', inner, size)}\n{within}", size, True
            else:
                yield _described("resource", inner, size := _decoded(inner.get("blob"))), size, False
        else:
            yield f"[content of a kind that is not known: {str(kind)[:40]}]", 0, False


def _described(kind: str, part: Mapping[str, Any], size_bytes: int) -> str:
    words = _words(part, "uri", "mimeType")
    article = "an" if kind[0] in "aeiou" else "a"
    return f"[{article} {kind}{f': {words}' if words else ''}, {size_bytes:,} bytes]"


def _words(part: Mapping[str, Any], *names: str) -> str:
    return ", ".join(str(part[name])[:_MOST_WORDS] for name in names if part.get(name))


def _decoded(data: object) -> int:
    """Returns how many bytes a text in base64 stands for."""
    return len(data.rstrip("=")) * 3 // 4 if isinstance(data, str) else 0
